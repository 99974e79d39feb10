//! The log of a guard, of decisions, and of operations that are recorded.

pub mod audit_log;
mod chain;
mod linked_file;
pub mod log;
