//! The configuration of guards: permissions, callbacks, answers, and temporary directories.

pub mod allowed;
pub mod approvals;
pub mod callbacks;
pub mod config;
pub mod declared;
pub mod live;
pub mod resolve;
pub mod temporary;
