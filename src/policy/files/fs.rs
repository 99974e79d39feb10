//! The view of the file system that a check needs, and the real one.
//!
//! Paths are bytes with `/` as the separator, as POSIX has them.

use smallvec::SmallVec;

/// A path as bytes; most fit without an allocation.
pub type PathBuf = SmallVec<[u8; 256]>;

/// Result of reading a directory entry as a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    To(Vec<u8>),
    /// It is not a link, or there is no way to it: an operation on it is then one on this very
    /// name, or fails.
    None,
    /// There is no such entry, and so nothing below it.
    Missing,
    /// The system would not say, so nothing may be concluded.
    Unknown,
}

/// The part of an absolute path that goes through no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// It leads to something.
    Whole,
    /// It leads to a place that does not exist.
    UpToMissing,
    /// There is a link on the way, or it cannot be told.
    Unknown,
}

/// The questions of the policy core to the file system.
pub trait FileSystem {
    /// The absolute path of the current directory; `None` if it was deleted.
    fn current_dir(&self) -> Option<PathBuf>;
    /// Reads the entry as a symbolic link. The path is absolute and its parent is resolved.
    fn read_link(&self, path: &[u8]) -> Link;
    /// Returns whether the absolute path goes through no link. A shortcut to an answer that
    /// `read_link` gives too.
    fn passes_no_link(&self, _path: &[u8]) -> Passes {
        Passes::Unknown
    }
    /// Returns the absolute path of an open descriptor's file; `None` if that has no path.
    fn descriptor_path(&self, fd: i32) -> Option<PathBuf>;
    /// Returns the access mode of an open descriptor, and where it leads.
    fn descriptor(&self, _fd: i32) -> Descriptor {
        Descriptor::Unknown
    }
    /// Returns the start of an SQLite database, if it can be read without harm.
    fn database_header(&self, _path: &[u8]) -> Option<[u8; 20]> {
        None
    }
    /// Returns the device and the number of the file at the path.
    fn identity(&self, _path: &[u8]) -> Option<(u64, u64)> {
        None
    }
    fn is_dir(&self, path: &[u8]) -> bool;
    fn exists(&self, path: &[u8]) -> bool;
    /// Returns whether there is a program at the path that this process may execute.
    fn is_executable(&self, path: &[u8]) -> bool;
}

// The facts about an open descriptor.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenDescriptor {
    pub writes: bool,
    /// True if it is a pipe or a character device: writing there changes no file.
    pub streams: bool,
    pub place: DescriptorPlace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptorPlace {
    /// To nothing that the file system has a name for: a pipe, a socket, a file that was removed.
    Nowhere,
    /// To this absolute path without links.
    At(Vec<u8>),
    /// The system would not say.
    Unknown,
}

/// The meaning of a number that stands for a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// The descriptor is not open: the operation fails by itself.
    Closed,
    /// This one is.
    Open(OpenDescriptor),
    /// The system would not say, so nothing may be concluded.
    Unknown,
}
