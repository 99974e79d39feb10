//! Pools of threads and processes under a guard.

pub mod pool_threads;
#[cfg(unix)]
pub mod reused_executors;
#[cfg(unix)]
pub mod workers;
