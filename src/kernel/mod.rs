//! The part of a policy that the kernel holds, and the processes that it answers for.
#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod filter;
#[cfg(target_os = "linux")]
pub mod landlock;
#[cfg(target_os = "linux")]
pub mod privileges;
#[cfg(unix)]
pub mod reaper;
#[cfg(unix)]
pub mod started;
