//! The classes and functions that Python sees.

pub mod audit_log;
#[cfg(unix)]
pub mod children;
pub mod classes;
pub mod confined;
#[cfg(unix)]
pub mod directory;
pub mod fields;
pub mod guard;
pub mod installed;
pub mod interrupts;
pub mod mk_audit;
pub mod native_tables;
pub mod options;
pub mod policy;
mod policy_methods;
pub mod question;
pub mod readers;
pub mod recording;
pub mod reports;
pub mod setup;
pub mod supervisor;
pub mod tool;
pub mod tool_awaitable;
pub mod tool_function;
pub mod tool_results;
pub mod tool_signature;
pub mod v02;
#[cfg(unix)]
pub mod worker_entry;
pub mod wrong_calls;
