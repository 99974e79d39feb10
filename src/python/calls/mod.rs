//! Calls that the monitor sees: the callee's name, its cache, and the question to the host.

#[cfg(Py_3_12)]
pub mod ask;
#[cfg(Py_3_12)]
pub mod deferred;
#[cfg(Py_3_12)]
pub mod monitor;
#[cfg(not(Py_3_12))]
#[path = "no_monitor.rs"]
pub mod monitor;
#[cfg(Py_3_12)]
pub mod named;
#[cfg(Py_3_12)]
pub mod tool_functions;
