//! Audit events: the hook, their decoding, and the denial.

pub mod approval;
pub mod deny;
pub mod explain;
pub mod guest_code;
pub mod hook;
pub mod host;
pub mod judge;
pub mod logged;
pub mod observe;
pub mod outcome;
pub mod violation;
