//! The rules for audit events: the arguments that each kind looks at, and the index that finds an
//! event by its name. [`super::events`] has the rule of each event.
//!
//! The argument shapes are those of the CPython documentation's audit event table:
//! <https://docs.python.org/3/library/audit_events.html>.

/// The kind of access to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Makes, changes or removes the directory entry.
    Change,
    /// Changes the file that it leads to, or the entry if the call says that links are not
    /// followed.
    File,
    /// Changes the contents of the file that it leads to, which an open descriptor has to be opened
    /// for.
    Contents,
    /// Announces changes that have events of their own, or makes an entry.
    Place,
    /// Gives the entry another name, or makes it another's.
    Move,
    /// Reads what it leads to.
    Read,
    /// Reads the entry alone, as a link, or reads for the system: denied for blocked paths alone.
    Look,
}

/// A path among an event's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathArg {
    pub path: usize,
    /// Position of the `dir_fd` that a relative path is resolved against, if the event has one.
    pub dir_fd: Option<usize>,
    /// True if the operation also takes an open file descriptor in place of the path.
    pub descriptor: bool,
    pub access: Access,
}

/// The rule of a guard for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Denied whatever its arguments are.
    Deny,
    Start,
    /// Starts a program, perhaps one whose start was approved just before.
    LowLevelStart,
    /// Changes the directory entries that these arguments name, or reads some of them.
    Entries(&'static [PathArg]),
    /// `os.mknod(path, mode, device, dir_fd)`: changes the entries, and may not make a device.
    Node(&'static [PathArg]),
    /// Reads the files that these arguments name, and does no more.
    Read(&'static [PathArg]),
    /// Copies the process: denied if other threads run, whose locks the copy would wait for.
    Fork,
    /// Ends the process at once: denied except in a copy of it.
    End,
    /// `fcntl.fcntl(fd, request, argument)`: denied if the kernel is to send signals.
    Signalling,
    /// `resource.prlimit(pid, resource, limits)`: denied if limits are set.
    Limits,
    /// Takes an address of the machine, which is a file for a Unix socket.
    Bind,
    /// Sets the environment variable of the first argument.
    SetVariable,
    /// Removes the environment variable of the first argument.
    RemoveVariable,
    RemoveVariables,
    Network(NetworkEvent),
    /// `socket.__new__(socket, family, type, protocol)`: judged if such sockets act without events.
    Socket,
    /// Imports a module, or loads the extension module that was found.
    Import,
    /// Runs code, perhaps that of a module whose import no other event tells of.
    Exec,
    Thread,
    /// Calls native code that is not in the standard library.
    Native,
    /// Writes to a file more than a limit allows.
    WriteBytes,
    /// `fcntl.ioctl(fd, request, argument)`: checked if the request may change a file.
    Control,
    /// `open(path, mode, flags)`: checked when it may write.
    Open,
    /// `os.chdir(path)`: the destination itself is checked.
    ChangeDirectory,
    /// `os.symlink(text, path, dir_fd)`: the entry is checked, and the place the link text leads
    /// to.
    Symlink,
    /// `sqlite3.connect(database)`.
    Database,
    /// `object.__setattr__(object, name, value)`.
    SetAttribute,
}

/// The use that an event makes of the network, with the layout of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkEvent {
    /// `(socket, address)`: connects.
    Connect,
    /// `(socket, address)`: takes an address of the machine.
    Bind,
    /// `(socket, address)`: sends; to where it is connected when the address is `None`.
    Send,
    /// `(host, …)`: looks up a name.
    LookUp,
    /// `(address)`: looks up the name of an address.
    LookUpAddress,
}

impl Rule {
    /// Returns whether only some policies restrict such events: fastaudit 0.1 lets them pass.
    pub const fn is_of_policies(self) -> bool {
        matches!(self, Self::Read(_) | Self::Network(_) | Self::Socket | Self::Exec)
    }
}

impl PathArg {
    /// The same, if relative, from the directory whose descriptor is at this position.
    pub(super) const fn at(mut self, dir_fd: usize) -> Self {
        self.dir_fd = Some(dir_fd);
        self
    }
}

/// Makes a function for each kind of path: its access, and whether a descriptor may stand for it.
macro_rules! paths {
    ($($name:ident: $access:ident, $descriptor:literal;)*) => {
        $(pub(super) const fn $name(path: usize) -> PathArg {
            PathArg { path, dir_fd: None, descriptor: $descriptor, access: Access::$access }
        })*
    };
}

paths! {
    entry: Change, false;
    file_by_name: File, false;
    file: File, true;
    contents: Contents, true;
    place: Place, false;
    moved: Move, false;
    read: Read, true;
    look: Look, false;
}

/// Attributes whose assignment raises `object.__setattr__` and that ordinary class and function
/// building sets: `namedtuple`, `dataclass(slots=True)`, `functools.wraps`, `unittest.mock`.
///
/// A function's `__code__` and `__kwdefaults__` are left out: they change the acts of code that is
/// already trusted.
const ORDINARY_ATTRIBUTES: &[&[u8]] = &[
    b"__doc__",
    b"__module__",
    b"__name__",
    b"__qualname__",
    b"__bases__",
    b"__class__",
    b"__defaults__",
    b"__type_params__",
];

/// Returns whether assigning the attribute is part of ordinary class and function building.
pub fn is_ordinary_attribute(name: &[u8]) -> bool {
    ORDINARY_ATTRIBUTES.contains(&name)
}

/// More than twice as many as any list has names, so that most are found or missed at once.
const PLACES: usize = 1024;

/// The positions of a list's names, by a hash of the name: one more than the position, 0 for none.
pub(super) struct Index {
    places: [u16; PLACES],
    names: usize,
}

/// The place to begin at: names differ in how they begin and end, or in length.
#[inline]
const fn first_place(name: &[u8]) -> usize {
    const fn part(bytes: Option<&[u8; 4]>) -> u32 {
        match bytes {
            Some(bytes) => u32::from_le_bytes(*bytes),
            None => 0,
        }
    }
    let (first, last) = (part(name.first_chunk()), part(name.last_chunk()));
    let mixed =
        (first ^ last.rotate_left(13)).wrapping_add(name.len() as u32).wrapping_mul(0x9E37_79B1);
    mixed as usize >> 22
}

impl Index {
    pub(super) const fn new() -> Self {
        Self { places: [0; PLACES], names: 0 }
    }

    /// Returns the index with a name, which is at this position of the list.
    pub(super) const fn with(mut self, name: &str, position: usize) -> Self {
        self.names += 1;
        assert!(self.names * 2 < PLACES && position < u16::MAX as usize);
        let mut at = first_place(name.as_bytes());
        while self.places[at] != 0 {
            at = (at + 1) % PLACES;
        }
        self.places[at] = position as u16 + 1;
        self
    }

    /// The position of a name. `name_at` gives the name at a position.
    #[inline]
    pub(super) fn find(
        &self,
        name: &[u8],
        name_at: impl Fn(usize) -> Option<&'static str>,
    ) -> Option<usize> {
        let mut at = first_place(name);
        loop {
            let position = usize::from(self.places[at % PLACES]).checked_sub(1)?;
            if name_at(position)?.as_bytes() == name {
                return Some(position);
            }
            at += 1;
        }
    }
}
