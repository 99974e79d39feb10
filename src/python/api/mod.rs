//! The classes and functions that Python sees.

pub mod audit_log;
pub mod children;
pub mod directory;
pub mod fields;
pub mod guard;
pub mod installed;
pub mod mk_audit;
pub mod options;
pub mod policy;
mod policy_methods;
pub mod question;
pub mod readers;
pub mod recording;
pub mod setup;
pub mod supervisor;
pub mod tool;
pub mod tool_awaitable;
pub mod tool_function;
pub mod wrong_calls;
