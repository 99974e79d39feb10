//! The part of a policy that the kernel holds, the processes that it answers for, and the files of
//! a sandbox, which a host handles without trust in them.
#![forbid(unsafe_code)]

pub mod beneath;
pub mod changes;
#[cfg(target_os = "linux")]
pub mod descriptors;
pub mod disk;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod filter;
#[cfg(target_os = "linux")]
pub mod landlock;
#[cfg(target_os = "linux")]
pub mod privileges;
pub mod reaper;
pub mod started;
mod tree;
mod walk;
