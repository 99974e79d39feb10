//! The arguments of an audit event, as plain values, hosts and addresses among them.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use crate::policy::commands;
use crate::policy::files::descriptors::{open_appends, open_may_write};
use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::path::{Base, Name, Target};
use crate::policy::network::plain_name;
use crate::policy::rules::Rule;

/// A name among the arguments, with whatever keeps its bytes alive.
pub trait Named {
    fn name(&self) -> Name<'_>;

    /// Returns whether the name is a text that its object gave: another time it may give another
    /// one.
    fn is_text(&self) -> bool {
        matches!(self.name(), Name::Path(_))
    }

    fn target(&self, base: Base) -> Target<'_> {
        Target { name: self.name(), base }
    }
}

/// The treatment of an object that is not `str`, `bytes` or `int` by the operation behind an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathLikes {
    /// Everything that the operation does with the object raises events of its own.
    CheckedAgain,
    /// The operation asks the object for its path after the event, and no event follows.
    AskedLater,
}

/// The arguments of an audit event. Anybody may raise one with fewer arguments, or with others.
///
/// Values are read from the objects' own buffers: a method that a subclass overrides decides
/// nothing.
pub trait Arguments {
    type Error;
    type Name<'a>: Named
    where
        Self: 'a;

    fn count(&self) -> usize;
    /// Returns whether the argument is there and `None`.
    fn is_none(&self, index: usize) -> bool;
    /// Returns whether the argument is a `str`, `bytes` or `bytearray`.
    fn is_texts(&self, index: usize) -> bool;
    /// Returns the value of an `int`.
    fn integer(&self, index: usize) -> Option<i64>;
    /// Returns the text of a `str`; characters that cannot be encoded are replaced.
    fn text(&self, index: usize) -> Option<Cow<'_, str>>;
    /// Reads the bytes of a `str`, `None` if the file system has none for it; does not call `read`
    /// if the argument is not a `str`.
    fn with_encoded<R>(&self, index: usize, read: impl FnOnce(Option<&[u8]>) -> R) -> Option<R>;
    /// Reads a name.
    fn name(
        &self,
        index: usize,
        descriptor: bool,
        path_likes: PathLikes,
    ) -> Result<Self::Name<'_>, Self::Error>;

    /// Returns the path in a `str`, a `bytes` or a path of the standard library.
    fn path(&self, index: usize) -> Option<PathBuf>;
    /// Returns the paths at the beginning of a list or tuple, up to the first item that is not a
    /// path.
    fn paths(&self, index: usize) -> Option<Vec<PathBuf>>;
    /// Returns the `PATH` of the environment for a child; `own` is that of this process, which is
    /// taken if the argument is absent or `None`.
    fn search_path(&self, index: usize, own: &dyn Fn() -> Vec<u8>) -> Option<Vec<u8>>;

    /// Returns the family and the descriptor of a socket, whatever a subclass says they are.
    fn socket(&self, index: usize) -> Option<(i64, i32)>;
    fn host(&self, index: usize) -> Option<Host>;
    /// Reads the first item of a tuple as a host.
    fn first_host(&self, index: usize) -> Option<Host>;
    /// Reads a tuple as an address with a port.
    fn endpoint(&self, index: usize) -> Option<Endpoint>;
    fn socket_name(&self, index: usize) -> Option<Vec<u8>>;

    /// Reads a `dir_fd`; it may be absent, `None` or -1, all of which mean the current directory.
    fn base(&self, index: Option<usize>) -> Base {
        let Some(index) = index.filter(|index| *index < self.count()) else {
            return Base::CurrentDir;
        };
        if self.is_none(index) {
            return Base::CurrentDir;
        }
        match self.integer(index) {
            Some(-1) => Base::CurrentDir,
            // A number that is not a descriptor has no path, and so nothing can be approved under
            // it.
            value => Base::Descriptor(value.and_then(|fd| i32::try_from(fd).ok()).unwrap_or(-1)),
        }
    }
}

/// Returns whether the event is an `open` that only reads, by far the most frequent one with a
/// rule.
#[inline]
pub fn is_open_for_reading(args: &impl Arguments, rule: Rule) -> bool {
    if !matches!(rule, Rule::Open) || args.count() < 3 {
        return false;
    }
    if args.is_none(1) {
        let flags = args.integer(2);
        return flags.is_some_and(|flags| !open_may_write(None, flags));
    }
    let by_mode = args.with_encoded(1, |mode| {
        // A mode that cannot be encoded opens nothing, but is not known to only read.
        mode.is_some_and(|mode| !open_may_write(Some(mode), 0))
    });
    by_mode.unwrap_or(false)
}

/// Returns whether an `open` that may write only adds to the end.
pub(super) fn is_open_for_appending(args: &impl Arguments) -> bool {
    let by_mode = args.with_encoded(1, |mode| mode.is_some_and(|mode| open_appends(Some(mode), 0)));
    by_mode.unwrap_or_else(|| args.integer(2).is_some_and(|flags| open_appends(None, flags)))
}

// The program that an event is going to start.

/// The program that runs the command of `os.system`.
pub const SHELL: &str = "/bin/sh";

/// Returns the program that an event is going to start; `None` if that cannot be told. `own_path`
/// is the `PATH` of this process.
pub fn program(
    fs: &impl FileSystem,
    event: &[u8],
    args: &impl Arguments,
    own_path: &dyn Fn() -> Vec<u8>,
) -> Option<PathBuf> {
    let search = |name: PathBuf, path: &dyn Fn() -> Option<Vec<u8>>| match name.contains(&b'/') {
        true => Some(name),
        false => commands::find(fs, &name, &path()?),
    };
    match event {
        b"subprocess.Popen" => {
            let found = search(args.path(0)?, &|| args.search_path(3, own_path))?;
            // The child changes its directory first.
            if found.starts_with(b"/") || args.count() <= 2 || args.is_none(2) {
                return Some(found);
            }
            let mut whole = args.path(2)?;
            whole.push(b'/');
            whole.extend_from_slice(&found);
            Some(whole)
        }
        // execve(2) and posix_spawn(3) take a name without a slash in the current directory,
        // execvp(3) and posix_spawnp(3) on the `PATH` of this process; the event does not say which.
        b"os.exec" | b"os.posix_spawn" => {
            let name = args.path(0)?;
            match fs.is_executable(&name) {
                true => Some(name),
                false => search(name, &|| Some(own_path())),
            }
        }
        b"os.system" => Some(PathBuf::from_slice(SHELL.as_bytes())),
        b"pty.spawn" => search(args.paths(0)?.into_iter().next()?, &|| Some(own_path())),
        b"_posixsubprocess.fork_exec" => {
            // The paths to try, from PATH: the first that can be executed is started.
            let places = args.paths(0)?;
            places.into_iter().find(|place| fs.is_executable(place))
        }
        _ => None,
    }
}

/// The family of Unix sockets, by its number here.
pub const UNIX_FAMILY: i64 = 1;

/// `AF_INET` and `AF_INET6`.
pub const FAMILIES: [i64; 2] = [
    rustix::net::AddressFamily::INET.as_raw() as i64,
    rustix::net::AddressFamily::INET6.as_raw() as i64,
];

pub fn is_internet(family: i64) -> bool {
    FAMILIES.contains(&family)
}

pub fn family_of(address: IpAddr) -> i64 {
    FAMILIES[usize::from(address.is_ipv6())]
}

/// A host as an event gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// This machine, or all of its addresses.
    Own,
    /// One by its address; that of an IPv4 host is an IPv4 address.
    Address(IpAddr),
    Name(String),
}

/// An address with a port, as far as it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The number of items in the tuple.
    pub items: usize,
    pub host: Host,
    pub port: i64,
}

impl Host {
    pub fn of(text: &str) -> Self {
        match text {
            "" => Self::Own,
            "<broadcast>" => Self::Address(Ipv4Addr::BROADCAST.into()),
            text => match parse_address(text) {
                Some(address) => Self::Address(address),
                None => Self::Name(plain_name(text)),
            },
        }
    }
}

/// Reads an address; that of an IPv4 host is an IPv4 address.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    // A link-local address may have a scope: fe80::1%eth0.
    let text = text.split_once('%').map_or(text, |(address, _)| address);
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// Returns whether a name is this machine's own.
pub(super) fn is_own_name(name: &str) -> bool {
    let own = rustix::system::uname();
    own.nodename().to_str().is_ok_and(|own| plain_name(own) == name)
}

/// Returns whether a name is an address in an older form: 127.1, 0x7f000001.
pub(super) fn is_number(name: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b'x');
    name.as_bytes().first().is_some_and(u8::is_ascii_digit) && name.bytes().all(hex)
}
