//! Python objects read as plain values; no state of guards.

pub mod addresses;
pub mod by_value;
pub mod decode;
pub mod errors;
pub mod json_line;
pub mod process_start;
pub mod simple;
