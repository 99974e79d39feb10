//! Native code that is called: its name, its package, and its caller.

#[cfg(Py_3_12)]
pub mod callee;
#[cfg(Py_3_12)]
pub mod callee_cache;
pub mod caller;
pub mod distributions;
