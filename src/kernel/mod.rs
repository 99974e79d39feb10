//! The part of a policy that the kernel holds, the processes that it answers for, and the files of
//! a sandbox, which a host handles without trust in them.
#![forbid(unsafe_code)]

#[cfg(unix)]
pub mod beneath;
#[cfg(unix)]
pub mod changes;
#[cfg(target_os = "linux")]
pub mod descriptors;
#[cfg(unix)]
pub mod disk;
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
#[cfg(unix)]
mod tree;
#[cfg(unix)]
mod walk;
