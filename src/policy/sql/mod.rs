//! The databases that names and SQL statements open.

pub mod names;
pub mod statements;
