//! Pools of threads and processes under a guard.

pub mod pool_threads;
#[cfg(unix)]
pub mod workers;
