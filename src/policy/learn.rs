//! The permissions that operations need of a policy.

use std::net::IpAddr;

use super::check::Operation;
use super::network::{Destination, Reach};
use crate::policy::files::descriptors;
use crate::policy::files::fs::{DescriptorPlace, FileSystem, PathBuf};
use crate::policy::files::opening::is_standing_device;
use crate::policy::files::path::{self, Base, Name, Target};
use crate::policy::sql::names::{self, Database, UriTarget};
use crate::policy::switches::Switch;

/// Ports from here on are handed out by the system, another one each time.
const FIRST_PASSING_PORT: u16 = 32768;

/// A permission that an operation needs of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Writing this entry.
    Write(Vec<u8>),
    /// Reading this.
    Read(Vec<u8>),
    /// Writing or reading this in the guard's own temporary directory, which each policy lets a
    /// guard have that may write at all: here, if nowhere else.
    Temporary {
        /// The entry.
        path: Vec<u8>,
        /// True if it is written.
        writes: bool,
        /// The host's temporary directory.
        host: Vec<u8>,
    },
    /// Setting this variable.
    Variable(String),
    /// Starting this program.
    Program(Vec<u8>),
    /// Reaching this host, and its port; 0 for looking it up alone.
    Connect(String, u16),
    /// Listening at this address.
    Listen(String, u16),
    /// The Unix socket at this path, `@name` if it is not a file.
    Unix(String),
    /// Some use of the network that rules let pass.
    Network,
    /// Looking up the name of an address.
    NameOfAddress,
    /// A use of the network that no rules let pass.
    OtherNetwork,
    /// What a switch allows.
    Switch(Switch),
    /// Writing this many bytes to files, in all.
    Bytes(u64),
    /// Calling this native module.
    Native(String),
    /// Whatever this installed package needs.
    Package(String),
    /// Importing this module.
    Module(String),
    /// Whatever importing this package does.
    ImportOf(String),
    /// This event, which no policy allows.
    Never(String),
}

/// Returns the permissions that an operation needs; empty if it needs none or they cannot be
/// determined.
pub fn needs(fs: &impl FileSystem, operation: Operation<'_>) -> Vec<Need> {
    let entry = |target: Target<'_>| {
        let Name::Path(path) = target.name else {
            return None;
        };
        entry(fs, path, target.base)
    };
    let file = |target: Target<'_>| -> Option<PathBuf> {
        let Name::Path(path) = target.name else {
            return None;
        };
        Some(path::resolve(fs, path, target.base)?.into_path())
    };
    let changed = |target: Target<'_>| match target.name {
        Name::Descriptor(fd) => match descriptors::to_approve(fs, fd) {
            DescriptorPlace::At(path) => Some(PathBuf::from_vec(path)),
            DescriptorPlace::Nowhere | DescriptorPlace::Unknown => None,
        },
        _ => file(target),
    };
    let stands = |target: Target<'_>, appends| {
        let entry = entry(target);
        entry.is_some_and(|entry| is_standing_device(fs, &entry, appends))
    };
    let write = |path: PathBuf| Need::Write(path.to_vec());
    match operation {
        Operation::ChangeEntry(target) | Operation::MoveEntry(target) => {
            entry(target).map(write).into_iter().collect()
        }
        Operation::ChangePlace(target) => entry(target).map(write).into_iter().collect(),
        Operation::ChangeFile(target) => changed(target).map(write).into_iter().collect(),
        Operation::OpenForWriting(target) if stands(target, false) => Vec::new(),
        Operation::OpenForAppending(target) if stands(target, true) => Vec::new(),
        Operation::OpenForWriting(target) | Operation::OpenForAppending(target) => {
            file(target).map(write).into_iter().collect()
        }
        Operation::Read(target) => read(fs, target).into_iter().collect(),
        // Anything that is not blocked may be looked at.
        Operation::Look(_) => Vec::new(),
        Operation::ChangeDirectory { to, left } => {
            let (path, base) = match to.name {
                Name::Path(path) => (path, to.base),
                Name::Descriptor(fd) => (&b"."[..], Base::Descriptor(fd)),
                Name::Unreadable => return Vec::new(),
            };
            let landing = path::resolve(fs, path, base);
            let landing = landing.filter(|dir| left != Some(dir.as_bytes()));
            let need = landing.map(|dir| Need::Write(dir.as_bytes().to_vec()));
            need.into_iter().collect()
        }
        Operation::LinkTo { text, at } => {
            let (Name::Path(text), Name::Path(link)) = (text, at.name) else {
                return Vec::new();
            };
            let landing = if text.starts_with(b"/") {
                self::entry(fs, text, Base::CurrentDir)
            } else {
                path::resolve(fs, path::split(link).0, at.base)
                    .and_then(|dir| path::resolve_beside(fs, text, &dir))
                    .map(|landing| landing.into_path())
            };
            landing.map(write).into_iter().collect()
        }
        Operation::OpenDatabase(Name::Path(name)) => match names::parse(name) {
            Database::Private | Database::Uri(UriTarget::Memory) => Vec::new(),
            Database::File => file(Target::path(name)).map(write).into_iter().collect(),
            Database::Uri(UriTarget::Read(path)) => {
                read(fs, Target::path(&path)).into_iter().collect()
            }
            Database::Uri(UriTarget::ReadShared(path)) => {
                let landing = file(Target::path(&path));
                let logged = landing.filter(|path| names::is_kept(fs, path));
                let read = read(fs, Target::path(&path)).into_iter();
                read.chain(logged.map(write)).collect()
            }
            Database::Uri(UriTarget::Write(path)) => {
                file(Target::path(&path)).map(write).into_iter().collect()
            }
        },
        Operation::SetVariable(Name::Path(name)) => match String::from_utf8(name.to_vec()) {
            Ok(name) => vec![Need::Variable(name)],
            Err(_) => Vec::new(),
        },
        Operation::UseNetwork(reach) => vec![of_network(fs, reach)],
        Operation::Import { module, .. } => vec![Need::Module(module.to_owned())],
        Operation::CallNative(module) => {
            let package = module.split('.').next().unwrap_or(module);
            vec![Need::Native(package.to_owned())]
        }
        Operation::Start(Some(program)) => {
            let found = self::entry(fs, program, Base::CurrentDir);
            let program = found.map(|program| Need::Program(program.to_vec()));
            program.into_iter().collect()
        }
        Operation::OpenDatabase(_)
        | Operation::SetVariable(_)
        | Operation::Start(None)
        | Operation::SetAttribute(_) => Vec::new(),
    }
}

/// The places that an operation on a path leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Landing {
    /// The file, or the entry of a directory, that it is done to.
    pub place: Option<PathBuf>,
    /// The link that is made, where `place` is that which it leads to.
    pub link: Option<PathBuf>,
}

/// Returns where an operation leads now.
pub fn landing(fs: &impl FileSystem, operation: Operation<'_>) -> Landing {
    let entry_of = |target: Target<'_>| match target.name {
        Name::Path(path) => entry(fs, path, target.base),
        _ => None,
    };
    let place = match operation {
        Operation::Look(target) => entry_of(target),
        Operation::LinkTo {
            text: Name::Path(text),
            ..
        } if text.starts_with(b"/") => {
            path::resolve(fs, text, Base::CurrentDir).map(|landing| landing.into_path())
        }
        _ => needs(fs, operation)
            .into_iter()
            .find_map(|need| match need {
                Need::Write(path) | Need::Read(path) => Some(PathBuf::from_vec(path)),
                _ => None,
            }),
    };
    let link = match operation {
        Operation::LinkTo { at, .. } => entry_of(at),
        _ => None,
    };
    Landing { place, link }
}

/// The directory entry of a path: its directory resolved, and the name there.
fn entry(fs: &impl FileSystem, path: &[u8], base: Base) -> Option<PathBuf> {
    let (dir, name) = path::split(path);
    if matches!(name, b"" | b"." | b"..") {
        return Some(path::resolve(fs, path, base)?.into_path());
    }
    Some(path::resolve(fs, dir, base)?.join(name))
}

fn read(fs: &impl FileSystem, target: Target<'_>) -> Option<Need> {
    let Name::Path(path) = target.name else {
        return None;
    };
    let landing = path::resolve(fs, path, target.base)?;
    Some(Need::Read(landing.as_bytes().to_vec()))
}

fn of_network(fs: &impl FileSystem, reach: Reach<'_>) -> Need {
    match reach {
        Reach::Connect { to, names, port } => {
            let host = match (names.first(), to) {
                (Some(name), _) => name.clone(),
                (None, Destination::Name(name)) => name.to_owned(),
                (None, Destination::Address(address)) => shown(address),
            };
            Need::Connect(host, if passes(to, port) { u16::MAX } else { port })
        }
        Reach::Listen { at, port } => {
            let host = match at {
                Destination::Name(name) => name.to_owned(),
                Destination::Address(address) => shown(address),
            };
            Need::Listen(host, port)
        }
        Reach::LookUp(name) => Need::Connect(name.to_owned(), 0),
        Reach::Unix(path) => {
            let landing = path::resolve(fs, path, Base::CurrentDir);
            let text = landing.and_then(|path| String::from_utf8(path.as_bytes().to_vec()).ok());
            text.map_or(Need::OtherNetwork, Need::Unix)
        }
        Reach::Abstract(name) => match std::str::from_utf8(name) {
            Ok(name) => Need::Unix(format!("@{name}")),
            Err(_) => Need::OtherNetwork,
        },
        Reach::Other => Need::OtherNetwork,
    }
}

/// Returns whether a port of this machine is an ephemeral one, handed out by the system and
/// different the next time.
pub fn passes(to: Destination<'_>, port: u16) -> bool {
    let is_own = match to {
        Destination::Name(name) => name == "localhost",
        Destination::Address(address) => address.is_loopback(),
    };
    is_own && port >= FIRST_PASSING_PORT
}

/// An address as a policy names it before a port.
pub fn shown(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Returns the directory of a path; `None` for a path at the top.
pub fn parent_of(path: &[u8]) -> Option<Vec<u8>> {
    let slash = memchr::memrchr(b'/', path)?;
    (slash > 0).then(|| path[..slash].to_vec())
}
