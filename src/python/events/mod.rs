//! Audit events: the hook, their decoding, and the denial.

pub mod approval;
pub mod arguments;
pub mod deny;
pub mod explain;
pub mod guest_code;
pub mod hook;
pub mod judge;
pub mod logged;
pub mod observe;
