//! The guards in force: their configuration, their scope, and how they are carried.

pub mod active;
pub mod carry;
#[cfg(unix)]
pub mod copies;
pub mod entered_at;
pub mod environment;
pub mod event;
pub mod governing;
pub mod lazy_imports;
pub mod log_handlers;
#[cfg_attr(not(Py_3_12), path = "no_monitoring.rs")]
pub mod monitoring;
pub mod scope;
pub mod sealed;
pub mod tempfile;
pub mod tool_rights;
pub mod tool_scope;
