//! Acts of native code under a guard: which guard judges them, and how they are told.
//!
//! Native code acts on three kinds of threads. One that holds the interpreter's lock is judged by
//! the guard in its context, as Python code is. One that let the lock go is judged by the guard that
//! was in its context then: [`released`] notes it. A thread that Python does not know, as those of
//! a library's own pool, is judged by all guards in force in the process: the act passes if one of
//! them allows it. The lock is never waited for: a library may hold locks of its own.

pub mod judge;
mod told;

pub use judge::install;
pub use told::{explain, tell};
