//! The facts about an open descriptor.

/// An open descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// True if it may be written to.
    pub writes: bool,
    /// True if it is a pipe or a character device: writing there changes no file.
    pub streams: bool,
    /// Where it leads.
    pub place: Place,
}

/// The place that an open descriptor leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
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
    Open(Opened),
    /// The system would not say, so nothing may be concluded.
    Unknown,
}
