//! Calls of native code of others: the callee's name, its cache, and the question to the host.

pub mod ask;
pub mod callee_side;
pub mod deferred;
pub mod judging;
#[cfg(Py_3_12)]
pub mod monitor;
pub mod named;
