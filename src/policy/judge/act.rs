//! An act of native code, in the form of the audit event that Python raises for the same.

use std::borrow::Cow;
use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};

use smallvec::{SmallVec, smallvec};

use super::arguments::{Arguments, Named, PathLikes};
use super::arguments::{Endpoint, Host, UNIX_FAMILY, family_of};
use super::event::judge_any;
use super::surroundings::{Follows, Reason, Surroundings};
use crate::policy::check::Policy;
use crate::policy::events;
use crate::policy::files::descriptors::open_may_write;
use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::os::Os;
use crate::policy::files::path::{Base, Name};
use crate::policy::operation::Operation;
use crate::policy::rules::{NetworkEvent, Rule};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// None, or the default.
    None,
    /// A number, or an open descriptor.
    Integer(i64),
    /// A path, the name of a Unix socket, or another text.
    Text(&'a [u8]),
    /// The address of a socket of the internet.
    Address(SocketAddr),
    /// The address of a socket of another family.
    OtherAddress,
}

/// An act: an audit event with its arguments.
#[derive(Clone, Debug)]
pub struct Act<'a> {
    pub event: &'static CStr,
    pub arguments: Values<'a>,
    /// The directory that a relative name starts from, if no argument says it.
    pub base: Base,
    /// The treatment of a link that is named.
    pub follows: Follows,
}

impl<'a> Act<'a> {
    /// An act whose names start from the current directory, and which follows links.
    pub fn new(event: &'static CStr, arguments: &[Value<'a>]) -> Self {
        Self {
            event,
            arguments: Values(SmallVec::from_slice(arguments)),
            base: Base::CurrentDir,
            follows: Follows::Always,
        }
    }

    pub fn from(self, base: Base) -> Self {
        Self { base, ..self }
    }

    /// The same, which changes the link itself if this is true.
    pub fn of_link_itself(self, is_of_link: bool) -> Self {
        let follows = match is_of_link {
            true => Follows::Never,
            false => self.follows,
        };
        Self { follows, ..self }
    }
}

/// An act that a policy does not allow, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub Reason);

/// The rules that an act is judged by.
pub trait ActRules {
    fn policy(&self) -> &Policy;
    /// Returns whether the process is a copy of the one that entered the guard.
    fn is_in_copy(&self) -> bool;
    /// Returns the names that were looked up to an address.
    fn names_of(&self, address: IpAddr) -> Vec<String>;
    /// Returns whether a socket may be connected beside those that still are.
    fn may_connect(&self, socket: i32, most: u32) -> bool;
}

impl Act<'_> {
    /// Returns whether it opens a file that it can only read.
    pub fn only_reads(&self) -> bool {
        self.event == c"open"
            && matches!(self.arguments.0.get(2), Some(Value::Integer(flags)) if !open_may_write(None, *flags))
    }

    /// Returns whether the system's library for UUIDs asks when it made the last one: its file, or its
    /// daemon. Both are of the system, and change nothing else (uuidd(8)).
    pub fn is_of_uuids(&self) -> bool {
        const FILE: &[u8] = b"/var/lib/libuuid/clock.txt";
        const DAEMON: [&[u8]; 2] = [b"/run/uuidd/request", b"/var/run/uuidd/request"];
        match self.event.to_bytes() {
            b"open" => self.arguments.bytes(0) == Some(FILE),
            b"socket.connect" => self.arguments.bytes(1).is_some_and(|at| DAEMON.contains(&at)),
            _ => false,
        }
    }

    /// The names among its arguments that start from a directory, from the top of the file system.
    pub fn whole_names(&self) -> SmallVec<[(usize, PathBuf); 2]> {
        let starts: SmallVec<[(usize, Base); 4]> = match events::lookup(self.event.to_bytes()) {
            Some(Rule::Entries(paths) | Rule::Node(paths)) => {
                let starts = paths.iter().map(|path| (path.path, self.arguments.base(path.dir_fd)));
                starts.collect()
            }
            Some(Rule::Symlink) => smallvec![(1, self.arguments.base(Some(2)))],
            Some(Rule::Network(NetworkEvent::LookUp | NetworkEvent::LookUpAddress)) => smallvec![],
            Some(Rule::Network(_) | Rule::Bind) => smallvec![(1, self.base)],
            Some(Rule::Start | Rule::LowLevelStart) if !self.names_a_file() => smallvec![],
            _ => smallvec![(0, self.base)],
        };
        let whole = starts.into_iter().filter_map(|(index, base)| {
            let name = self.arguments.bytes(index)?;
            let start = match base {
                // The name of an abstract socket begins with a NUL, or is empty: unix(7).
                _ if matches!(name.first(), None | Some(0 | b'/')) => return None,
                Base::CurrentDir => Os.current_dir()?,
                Base::Descriptor(fd) => Os.descriptor_path(fd)?,
            };
            Some((index, join(start, name)))
        });
        whole.collect()
    }

    /// Returns whether the program that it starts is named by its file: that of a shell command, and
    /// one without a slash, are looked for.
    fn names_a_file(&self) -> bool {
        let name = self.arguments.bytes(0);
        self.event != c"os.system" && name.is_some_and(|name| name.contains(&b'/'))
    }

    /// Judges it.
    pub fn judge(&self, rules: &impl ActRules) -> Result<(), Refused> {
        // The directory of a copy, which starts a program next, is nobody else's.
        if self.event == c"os.chdir" && rules.is_in_copy() {
            return Ok(());
        }
        let rule = rules.policy().rules().rule(self.event.to_bytes());
        judge_any(&Judged { act: self, rules }, rule)
    }
}

struct Judged<'a, 'b, R> {
    act: &'a Act<'b>,
    rules: &'a R,
}

impl<'b, R: ActRules> Surroundings for Judged<'_, 'b, R> {
    type Error = Refused;
    type Arguments = Values<'b>;
    type Fs = Os;

    fn event(&self) -> &[u8] {
        self.act.event.to_bytes()
    }

    fn arguments(&self) -> &Values<'b> {
        &self.act.arguments
    }

    fn fs(&self) -> &Os {
        &Os
    }

    fn policy(&self) -> &Policy {
        self.rules.policy()
    }

    fn deny(&self, reason: Reason, _operation: Option<Operation<'_>>) -> Result<(), Refused> {
        Err(Refused(reason))
    }

    fn base(&self) -> Base {
        self.act.base
    }

    fn follows(&self) -> Follows {
        self.act.follows
    }

    fn names_of(&self, address: IpAddr) -> Vec<String> {
        self.rules.names_of(address)
    }

    fn may_connect(&self, socket: i32, most: u32) -> bool {
        self.rules.may_connect(socket, most)
    }
}

fn join(mut start: PathBuf, name: &[u8]) -> PathBuf {
    start.push(b'/');
    start.extend_from_slice(name);
    start
}

#[derive(Clone, Debug)]
pub struct Values<'a>(pub SmallVec<[Value<'a>; 4]>);

impl Values<'_> {
    fn bytes(&self, index: usize) -> Option<&[u8]> {
        match self.0.get(index)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Named for Name<'_> {
    fn name(&self) -> Name<'_> {
        *self
    }
}

impl Arguments for Values<'_> {
    type Error = Refused;
    type Name<'a>
        = Name<'a>
    where
        Self: 'a;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn is_none(&self, index: usize) -> bool {
        self.0.get(index) == Some(&Value::None)
    }

    fn is_texts(&self, index: usize) -> bool {
        self.bytes(index).is_some()
    }

    fn integer(&self, index: usize) -> Option<i64> {
        match self.0.get(index)? {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }

    fn text(&self, index: usize) -> Option<Cow<'_, str>> {
        self.bytes(index).map(String::from_utf8_lossy)
    }

    fn with_encoded<R>(&self, index: usize, read: impl FnOnce(Option<&[u8]>) -> R) -> Option<R> {
        self.bytes(index).map(|bytes| read(Some(bytes)))
    }

    fn name(
        &self,
        index: usize,
        descriptor: bool,
        _path_likes: PathLikes,
    ) -> Result<Name<'_>, Refused> {
        Ok(match self.0.get(index) {
            Some(Value::Text(path)) => Name::Path(path),
            Some(Value::Integer(number)) if descriptor => {
                i32::try_from(*number).map_or(Name::Unreadable, Name::Descriptor)
            }
            _ => Name::Unreadable,
        })
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        self.bytes(index).map(PathBuf::from_slice)
    }

    fn paths(&self, _index: usize) -> Option<Vec<PathBuf>> {
        None
    }

    fn search_path(&self, _index: usize, own: &dyn Fn() -> Vec<u8>) -> Option<Vec<u8>> {
        Some(own())
    }

    /// The family is that of the address behind it: sockets of others refuse it.
    fn socket(&self, index: usize) -> Option<(i64, i32)> {
        let family = match self.0.get(index + 1)? {
            Value::Address(address) => family_of(address.ip()),
            Value::Text(_) => UNIX_FAMILY,
            _ => return None,
        };
        Some((family, i32::try_from(self.integer(index)?).ok()?))
    }

    fn host(&self, index: usize) -> Option<Host> {
        match self.0.get(index)? {
            Value::None => Some(Host::Own),
            Value::Text(text) => Some(Host::of(&String::from_utf8_lossy(text))),
            _ => None,
        }
    }

    fn first_host(&self, index: usize) -> Option<Host> {
        self.endpoint(index).map(|end| end.host)
    }

    fn endpoint(&self, index: usize) -> Option<Endpoint> {
        let Value::Address(address) = self.0.get(index)? else {
            return None;
        };
        Some(Endpoint {
            items: if address.is_ipv6() { 4 } else { 2 },
            host: Host::Address(address.ip().to_canonical()),
            port: address.port().into(),
        })
    }

    fn socket_name(&self, index: usize) -> Option<Vec<u8>> {
        self.bytes(index).map(<[u8]>::to_vec)
    }
}
