//! The least policy under which recorded operations would have passed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::check::Operation;
use super::network::{Destination, NetworkRules, Reach, Rules};
use crate::policy::files::descriptors;
use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::opened::Place;
use crate::policy::files::opening::is_standing_device;
use crate::policy::files::path::{self, Base, Name, Target};
use crate::policy::files::places::Protected;
use crate::policy::sql::names::{self, Database, UriTarget};
use crate::policy::sql::write_ahead_log;
use crate::policy::written::spec::{NetworkUse, OnViolation, Spec};
use crate::policy::written::values::{Choice, Where};

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
    /// Starting threads.
    Thread,
    /// Writing this many bytes to files, in all.
    Bytes(u64),
    /// Calling this native module.
    Native(String),
    /// Whatever this installed package needs.
    Package(String),
    /// Importing this module.
    Module(String),
    /// An event that the tables do not name.
    UnknownEvent,
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
        Some(path::resolve(fs, path, target.base)?.as_bytes().into())
    };
    let changed = |target: Target<'_>| match target.name {
        Name::Descriptor(fd) => match descriptors::to_approve(fs, fd) {
            Place::At(path) => Some(PathBuf::from_vec(path)),
            Place::Nowhere | Place::Unknown => None,
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
                    .map(|landing| landing.as_bytes().into())
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
                let logged = landing.filter(|path| write_ahead_log::is_kept(fs, path));
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

/// The directory entry of a path: its directory resolved, and the name there.
fn entry(fs: &impl FileSystem, path: &[u8], base: Base) -> Option<PathBuf> {
    let (dir, name) = path::split(path);
    if matches!(name, b"" | b"." | b"..") {
        return Some(path::resolve(fs, path, base)?.as_bytes().into());
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

/// Returns the least policy that meets the needs; fields that needs do not concern are as in
/// `base`.
///
/// Paths are exact. A directory stands for its entries if at least `threshold` of them are needed
/// and it has no others: `list` returns the names in a directory.
pub fn suggest(
    base: &Spec,
    needs: &BTreeSet<Need>,
    threshold: usize,
    list: impl Fn(&[u8]) -> Option<Vec<Vec<u8>>>,
) -> Spec {
    let paths = |of: fn(&Need) -> Option<&Vec<u8>>| -> BTreeSet<Vec<u8>> {
        needs.iter().filter_map(of).cloned().collect()
    };
    let written = paths(|need| match need {
        Need::Write(path) => Some(path),
        _ => None,
    });
    let read = paths(|need| match need {
        Need::Read(path) => Some(path),
        _ => None,
    });
    let texts = |of: &dyn Fn(&Need) -> Option<String>| -> Vec<String> {
        let found: BTreeSet<String> = needs.iter().filter_map(of).collect();
        found.into_iter().collect()
    };
    let programs = texts(&|need| match need {
        Need::Program(path) => String::from_utf8(path.clone()).ok(),
        _ => None,
    });
    let variables = texts(&|need| match need {
        Need::Variable(name) => Some(name.clone()),
        _ => None,
    });
    let native = texts(&|need| match need {
        Need::Native(module) => Some(module.clone()),
        _ => None,
    });
    let packages = texts(&|need| match need {
        Need::ImportOf(package) => Some(package.clone()),
        _ => None,
    });
    let touched = |path: &String| {
        let of = |needed: &BTreeSet<Vec<u8>>| {
            needed
                .iter()
                .any(|needed| crate::policy::files::roots::is_within(needed, path.as_bytes()))
        };
        of(&written) || of(&read)
    };
    let mut spec = base.clone();
    spec.write = Where::Below(match written.is_empty() {
        true => texts(&|need| match need {
            Need::Temporary { host, .. } => String::from_utf8(host.clone()).ok(),
            _ => None,
        }),
        false => generalised(&written, threshold, &list),
    });
    spec.read = Where::Below(generalised(&read, threshold, &list));
    spec.block.retain(|path| !touched(path));
    spec.protect = protect(base, &written);
    spec.commands = some(programs);
    spec.env = some(variables);
    spec.native = some(native);
    spec.import_allow = packages;
    spec.threads = needs.contains(&Need::Thread);
    spec.unknown_events = base.unknown_events || needs.contains(&Need::UnknownEvent);
    spec.network = network(needs);
    spec.max_bytes = None;
    spec.on_violation = OnViolation::Raise;
    if let Choice::Named(names) = &mut spec.imports.allow {
        for need in needs {
            if let Need::Module(module) = need
                && !names.contains(module)
            {
                names.push(module.clone());
            }
        }
    }
    spec
}

fn some(names: Vec<String>) -> Choice {
    if names.is_empty() {
        Choice::All(false)
    } else {
        Choice::Named(names)
    }
}

/// Returns the names that stay protected: those by which nothing was written.
pub(crate) fn protect(base: &Spec, written: &BTreeSet<Vec<u8>>) -> Choice {
    let is_written = |name: &str| {
        let mut protected = Protected::default();
        protected.add(name);
        written
            .iter()
            .any(|path| protected.holds(path) || protected.may_be_below(path))
    };
    if !base.protected_names().any(is_written) {
        return base.protect.clone();
    }
    let kept = base.protected_names().filter(|name| !is_written(name));
    Choice::Named(kept.map(str::to_owned).collect())
}

/// Replaces entries by their directory if they are many, and all that it has.
fn generalised(
    paths: &BTreeSet<Vec<u8>>,
    threshold: usize,
    list: &impl Fn(&[u8]) -> Option<Vec<Vec<u8>>>,
) -> Vec<String> {
    let mut inside: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>> = BTreeMap::new();
    for path in paths {
        if let Some(dir) = parent_of(path) {
            inside.entry(dir).or_default().insert(path.clone());
        }
    }
    let mut kept = paths.clone();
    let depth = |dir: &[u8]| dir.iter().filter(|&&byte| byte == b'/').count();
    let mut depths: Vec<BTreeSet<Vec<u8>>> = Vec::new();
    for dir in inside.keys() {
        let depth = depth(dir);
        depths.resize(depths.len().max(depth + 1), BTreeSet::new());
        depths[depth].insert(dir.clone());
    }
    // From the deepest up, so that a directory may stand for directories that stand for theirs.
    while let Some(directories) = depths.pop() {
        for dir in directories {
            let entries = &inside[&dir];
            let holds_no_other = || {
                list(&dir).is_some_and(|names| {
                    names
                        .iter()
                        .all(|name| entries.contains(&[&dir[..], b"/", name].concat()))
                })
            };
            if entries.len() < threshold.max(1) || !holds_no_other() {
                continue;
            }
            for path in entries {
                kept.remove(path);
            }
            if let Some(parent) = parent_of(&dir) {
                depths[depth(&parent)].insert(parent.clone());
                inside.entry(parent).or_default().insert(dir.clone());
            }
            kept.insert(dir);
        }
    }
    // A path inside another one of them needs no naming.
    let all = kept.clone();
    kept.retain(|path| {
        let ends = memchr::memchr_iter(b'/', path).filter(|&end| end > 0);
        !ends.into_iter().any(|end| all.contains(&path[..end]))
            && (path == b"/" || !all.contains(&b"/"[..]))
    });
    let texts = kept.into_iter().map(String::from_utf8);
    texts.filter_map(Result::ok).collect()
}

/// Returns the directory of a path; `None` for a path at the top.
pub fn parent_of(path: &[u8]) -> Option<Vec<u8>> {
    let slash = memchr::memrchr(b'/', path)?;
    (slash > 0).then(|| path[..slash].to_vec())
}

fn network(needs: &BTreeSet<Need>) -> NetworkUse {
    let mut rules = NetworkRules {
        hosts: Where::Below(Vec::new()),
        lookup: false,
        ..NetworkRules::default()
    };
    let (mut hosts, mut listen, mut unix) = (Vec::new(), Vec::new(), Vec::new());
    for need in needs {
        match need {
            Need::OtherNetwork => return NetworkUse::All(true),
            Need::Connect(host, port) => {
                rules.lookup |= !Rules::is_address(host);
                hosts.push(match *port {
                    u16::MAX => host.trim_matches(['[', ']']).to_owned(),
                    port => format!("{host}:{port}"),
                });
            }
            Need::Listen(host, port) => listen.push(format!("{host}:{port}")),
            Need::Unix(path) => unix.push(path.clone()),
            Need::NameOfAddress => rules.lookup = true,
            _ => {}
        }
    }
    let is_used = needs.contains(&Need::Network) || rules.lookup;
    if !is_used && hosts.is_empty() && listen.is_empty() && unix.is_empty() {
        return NetworkUse::All(false);
    }
    rules.hosts = Where::Below(hosts);
    rules.listen = some(listen);
    rules.unix = Where::Below(unix);
    NetworkUse::Rules(Box::new(rules))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(needs: &[Need], listed: &[&str]) -> Spec {
        let needs = needs.iter().cloned().collect();
        suggest(&Spec::default(), &needs, 3, |_| {
            Some(listed.iter().map(|name| name.as_bytes().to_vec()).collect())
        })
    }

    fn write(path: &str) -> Need {
        Need::Write(path.as_bytes().to_vec())
    }

    fn below(paths: &[&str]) -> Where {
        Where::Below(paths.iter().map(|&path| path.to_owned()).collect())
    }

    #[test]
    fn nothing_needs_nothing() {
        let spec = of(&[], &[]);
        assert_eq!(spec.write, below(&[]));
        assert_eq!(spec.read, below(&[]));
        assert_eq!(spec.network, NetworkUse::All(false));
        assert_eq!(spec.commands, Choice::All(false));
    }

    #[test]
    fn a_directory_stands_for_all_that_is_in_it_and_no_less() {
        let three = [write("/d/a"), write("/d/b"), write("/d/c")];
        assert_eq!(of(&three, &["a", "b", "c"]).write, below(&["/d"]));
        assert_eq!(of(&three, &["a"]).write, below(&["/d"]));
        let exact = below(&["/d/a", "/d/b", "/d/c"]);
        assert_eq!(of(&three, &["a", "other"]).write, exact);
        assert_eq!(of(&three[..2], &["a"]).write, below(&["/d/a", "/d/b"]));
        // Never the top directory.
        let top = [write("/a"), write("/b"), write("/c")];
        assert_eq!(of(&top, &[]).write, below(&["/a", "/b", "/c"]));
    }

    #[test]
    fn what_lies_inside_is_left_out() {
        let spec = of(&[write("/d"), write("/d/a"), write("/dx")], &["other"]);
        assert_eq!(spec.write, below(&["/d", "/dx"]));
    }

    #[test]
    fn temporary_files_need_a_root_and_any_will_do() {
        let temporary = Need::Temporary {
            path: b"/tmp/fastaudit-a/b".to_vec(),
            writes: true,
            host: b"/tmp".to_vec(),
        };
        assert_eq!(
            of(std::slice::from_ref(&temporary), &[]).write,
            below(&["/tmp"])
        );
        let spec = of(&[temporary, write("/d")], &[]);
        assert_eq!(spec.write, below(&["/d"]));
        assert_eq!(spec.read, below(&[]));
    }

    #[test]
    fn hosts_have_their_ports() {
        let spec = of(
            &[
                Need::Connect("a.org".to_owned(), 443),
                Need::Connect("b.org".to_owned(), 0),
                Need::Connect("127.0.0.1".to_owned(), u16::MAX),
                Need::Listen("[::1]".to_owned(), 80),
            ],
            &[],
        );
        let NetworkUse::Rules(rules) = spec.network else {
            panic!("no rules");
        };
        assert_eq!(rules.hosts, below(&["127.0.0.1", "a.org:443", "b.org:0"]));
        assert_eq!(rules.listen, Choice::Named(vec!["[::1]:80".to_owned()]));
        assert!(rules.lookup);
    }

    #[test]
    fn names_that_were_written_are_no_longer_protected() {
        let spec = of(&[write("/a/.git/hooks/x")], &["other"]);
        let Choice::Named(names) = &spec.protect else {
            panic!("all are protected");
        };
        assert!(!names.contains(&".git/hooks".to_owned()));
        assert!(names.contains(&".ssh".to_owned()));
        assert_eq!(of(&[write("/a/x")], &["other"]).protect, Choice::All(true));
    }

    proptest::proptest! {
        /// Whatever the paths are, and whatever else there is.
        #[test]
        fn paths_are_covered_and_nothing_else(
            needed in proptest::collection::btree_set("(/[ab]){1,3}/[abc]", 0..12),
            others in proptest::collection::btree_set("(/[ab]){1,3}/[abcd]", 0..6),
            threshold in 1_usize..4,
        ) {
            let is_in = |path: &str, dir: &str| {
                crate::policy::files::roots::is_within(path.as_bytes(), dir.as_bytes())
            };
            // A directory that holds a needed path may be needed itself.
            let others: Vec<_> = others
                .iter()
                .filter(|other| !needed.iter().any(|path| is_in(other, path) || is_in(path, other)))
                .collect();
            let list = |dir: &[u8]| {
                let dir = format!("{}/", std::str::from_utf8(dir).ok()?);
                let all = needed.iter().chain(others.iter().copied());
                let names = all.filter_map(|path| path.strip_prefix(&dir)?.split('/').next());
                Some(names.map(|name| name.as_bytes().to_vec()).collect())
            };
            let needs = needed.iter().map(|path| write(path)).collect();
            let spec = suggest(&Spec::default(), &needs, threshold, list);
            let Where::Below(roots) = spec.write else {
                panic!("anywhere");
            };
            for path in &needed {
                assert!(roots.iter().any(|root| is_in(path, root)), "{path} {roots:?}");
            }
            for other in others {
                assert!(!roots.iter().any(|root| is_in(other, root)), "{other} {roots:?}");
            }
        }
    }
}
