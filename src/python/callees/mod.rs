//! Native code that is called: its name, its package, and its caller.

pub mod callee;
pub mod callee_cache;
pub mod caller;
pub mod distributions;
