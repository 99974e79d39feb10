//! The part of a policy that the kernel holds, and the processes that it answers for.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod landlock;
#[cfg(unix)]
pub mod reaper;
#[cfg(unix)]
pub mod started;
