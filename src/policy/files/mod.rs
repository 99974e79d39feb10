//! Paths and the file system: where a name leads, and which places are approved.

pub mod current;
pub mod descriptors;
pub mod fs;
pub mod os;
pub mod path;
pub mod places;
