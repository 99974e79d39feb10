//! The guards in force: their configuration, their scope, and how they are carried.

pub mod active;
pub mod allowed;
pub mod approvals;
pub mod asking;
pub mod audit_log;
pub mod callbacks;
pub mod carry;
pub mod config;
#[cfg(unix)]
pub mod copies;
pub mod decision;
pub mod declared;
pub mod environment;
pub mod event;
pub mod governing;
pub mod in_force;
pub mod live;
pub mod log;
pub mod pool_memory;
pub mod recorder;
pub mod refused;
pub mod resolve;
#[cfg(unix)]
pub mod reused_executors;
pub mod roots;
pub mod safe_sets;
pub mod scope;
pub mod sealed;
pub mod tempfile;
pub mod temporary;
pub mod tool_call;
pub mod tool_rights;
pub mod tool_scope;
pub mod tracked_calls;
pub mod turns;
#[cfg(unix)]
pub mod workers;
