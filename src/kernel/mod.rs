//! The part of a policy that the kernel holds, the processes that it answers for, and the files of
//! a sandbox, which a host handles without trust in them.
#![forbid(unsafe_code)]

pub mod beneath;
pub mod changes;
pub mod descriptors;
pub mod disk;
pub mod filter;
pub mod landlock;
pub mod privileges;
pub mod reaper;
pub mod started;
mod tree;
mod walk;
