//! The databases that names and SQL statements open.

pub mod names;
pub mod statements;
pub mod write_ahead_log;
