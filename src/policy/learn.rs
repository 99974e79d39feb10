//! The permissions that operations need of a policy.

use std::net::IpAddr;

use super::check::Operation;
use super::hosts::HostRule;
use super::network::{Destination, Reach};
use crate::policy::commands::name_of;
use crate::policy::files::descriptors;
use crate::policy::files::descriptors::is_standing_device;
use crate::policy::files::fs::{DescriptorPlace, FileSystem, PathBuf};
use crate::policy::files::path::{self, Base, Name, Resolved, Target};
use crate::policy::sql::{self, Database, UriTarget};
use crate::policy::written::values::Switch;

/// Ports from here on are handed out by the system, another one each time.
const FIRST_PASSING_PORT: u16 = 32768;

/// A permission that an operation needs of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Writing this entry.
    Write(Vec<u8>),
    Read(Vec<u8>),
    /// Writing or reading this in the guard's own temporary directory, which each policy lets a
    /// guard have that may write at all: here, if nowhere else.
    Temporary {
        path: Vec<u8>,
        writes: bool,
        /// The host's temporary directory.
        host: Vec<u8>,
    },
    Variable(String),
    Program(Vec<u8>),
    /// Reaching this host, and its port; 0 for looking it up alone.
    Connect(String, u16),
    /// Listening at this address.
    Listen(String, u16),
    /// The Unix socket at this path, `@name` if it is not a file.
    Unix(String),
    /// Some use of the network that rules let pass.
    Network,
    NameOfAddress,
    /// A use of the network that no rules let pass.
    OtherNetwork,
    Switch(Switch),
    /// Writing this many bytes to files, in all.
    Bytes(u64),
    Native(String),
    /// Whatever this installed package needs.
    Package(String),
    Module(String),
    /// Whatever importing this package does.
    ImportOf(String),
    /// This event, which no policy allows.
    Never(String),
}

impl Need {
    /// Calling the native code of the package that a module or a function is in.
    pub fn of_native(name: &str) -> Self {
        Self::Native(name.split('.').next().unwrap_or(name).to_owned())
    }

    /// Returns the text that names a place of the network in a policy, a host without a port at any;
    /// `None` if none does, as for a URL in place of a host, or a socket that is named when it is bound.
    pub fn entry(&self) -> Option<String> {
        match self {
            Self::Connect(host, port) => {
                let entry = match *port {
                    u16::MAX => host.trim_matches(['[', ']']).to_owned(),
                    port => format!("{host}:{port}"),
                };
                HostRule::parse(&entry).is_ok().then_some(entry)
            }
            Self::Listen(host, port) => Some(format!("{host}:{port}")),
            Self::Unix(path) => (!matches!(&path[..], "" | "@")).then(|| path.clone()),
            _ => None,
        }
    }
}

/// Returns the permissions that an operation needs; empty if it needs none or they cannot be
/// determined.
pub fn needs(fs: &impl FileSystem, operation: Operation<'_>) -> Vec<Need> {
    let write = |path: PathBuf| Need::Write(path.to_vec());
    let found = match operation {
        Operation::ChangeEntry(target)
        | Operation::MoveEntry(target)
        | Operation::ChangePlace(target) => entry(fs, target).map(write),
        Operation::ChangeFile(target) => changed(fs, target).map(write),
        Operation::OpenForWriting(target) if stands(fs, target, false) => None,
        Operation::OpenForAppending(target) if stands(fs, target, true) => None,
        Operation::OpenForWriting(target) | Operation::OpenForAppending(target) => {
            file(fs, target).map(write)
        }
        Operation::Read(target) => read(fs, target),
        Operation::ChangeDirectory { to, left } => {
            let landing = to.directory(fs).filter(|dir| left != Some(dir.as_bytes()));
            landing.map(Resolved::into_path).map(write)
        }
        Operation::LinkTo { text, at } => linked(fs, text, at).map(write),
        Operation::OpenDatabase(Name::Path(name)) => match sql::database_of(name) {
            Database::Private | Database::Uri(UriTarget::Memory) => None,
            Database::File => file(fs, Target::path(name)).map(write),
            Database::Uri(UriTarget::Write(path)) => file(fs, Target::path(&path)).map(write),
            Database::Uri(UriTarget::Read(path)) => read(fs, Target::path(&path)),
            Database::Uri(UriTarget::ReadShared(path)) => {
                let target = Target::path(&path);
                let logged = file(fs, target).filter(|path| sql::is_kept(fs, path));
                let read = read(fs, target).into_iter();
                return read.chain(logged.map(write)).collect();
            }
        },
        Operation::SetVariable(Name::Path(name)) => {
            String::from_utf8(name.to_vec()).ok().map(Need::Variable)
        }
        Operation::UseNetwork(reach) => Some(of_network(fs, reach)),
        Operation::Import { module, .. } => Some(Need::Module(module.to_owned())),
        Operation::CallNative(module) => Some(Need::of_native(module)),
        Operation::Start(Some(program)) => {
            let found = path::entry(fs, program, Base::CurrentDir);
            found.map(|program| Need::Program(name_of(fs, program.to_vec())))
        }
        // Anything that is not blocked may be looked at.
        Operation::Look(_)
        | Operation::OpenDatabase(_)
        | Operation::SetVariable(_)
        | Operation::Start(None)
        | Operation::SetAttribute(_) => None,
    };
    found.into_iter().collect()
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
    let place = match operation {
        Operation::Look(target) => entry(fs, target),
        Operation::LinkTo { text: Name::Path(text), .. } if text.starts_with(b"/") => {
            file(fs, Target::path(text))
        }
        _ => needs(fs, operation).into_iter().find_map(|need| match need {
            Need::Write(path) | Need::Read(path) => Some(PathBuf::from_vec(path)),
            _ => None,
        }),
    };
    let link = match operation {
        Operation::LinkTo { at, .. } => entry(fs, at),
        _ => None,
    };
    Landing { place, link }
}

fn entry(fs: &impl FileSystem, target: Target<'_>) -> Option<PathBuf> {
    match target.name {
        Name::Path(path) => path::entry(fs, path, target.base),
        _ => None,
    }
}

fn file(fs: &impl FileSystem, target: Target<'_>) -> Option<PathBuf> {
    match target.name {
        Name::Path(path) => path::resolve(fs, path, target.base).map(Resolved::into_path),
        _ => None,
    }
}

fn changed(fs: &impl FileSystem, target: Target<'_>) -> Option<PathBuf> {
    let Name::Descriptor(fd) = target.name else {
        return file(fs, target);
    };
    match descriptors::to_approve(fs, fd) {
        DescriptorPlace::At(path) => Some(PathBuf::from_vec(path)),
        DescriptorPlace::Nowhere | DescriptorPlace::Unknown => None,
    }
}

fn stands(fs: &impl FileSystem, target: Target<'_>, appends: bool) -> bool {
    entry(fs, target).is_some_and(|entry| is_standing_device(fs, &entry, appends))
}

fn linked(fs: &impl FileSystem, text: Name<'_>, at: Target<'_>) -> Option<PathBuf> {
    let (Name::Path(text), Name::Path(link)) = (text, at.name) else {
        return None;
    };
    if text.starts_with(b"/") {
        return path::entry(fs, text, Base::CurrentDir);
    }
    let dir = path::parent(fs, link, at.base)?;
    path::resolve_beside(fs, text, &dir).map(Resolved::into_path)
}

fn read(fs: &impl FileSystem, target: Target<'_>) -> Option<Need> {
    file(fs, target).map(|landing| Need::Read(landing.to_vec()))
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
        Reach::LookUp { name, port } => Need::Connect(name.to_owned(), port),
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

/// Returns a path as a policy names it: one that is not UTF-8 by the nearest directory above it
/// that is. `None` if that is the top.
pub fn named(path: &[u8]) -> Option<String> {
    match String::from_utf8(path.to_vec()) {
        Ok(text) => Some(text),
        Err(_) => named(&parent_of(path)?),
    }
}

/// Returns a path so that it holds for the next process too: `/proc/self` for this one's number.
pub fn lasting(path: String) -> String {
    match descriptors::in_own_proc(path.as_bytes()) {
        Some(rest) => format!("/proc/self{}", String::from_utf8_lossy(rest)),
        None => path,
    }
}

/// Returns the directory of a path; `None` for a path at the top.
pub fn parent_of(path: &[u8]) -> Option<Vec<u8>> {
    let slash = memchr::memrchr(b'/', path)?;
    (slash > 0).then(|| path[..slash].to_vec())
}
