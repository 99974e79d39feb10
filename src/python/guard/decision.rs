//! The target of an event that is judged, for the line of a log.

use crate::policy::Operation;
use crate::policy::files::fs::FileSystem;
use crate::policy::files::os::Os;
use crate::policy::files::path::{Base, Name, Target};
use crate::policy::network::{Destination, Reach};
use crate::policy::sql::names::{self, Database};
use crate::python::values::json_line;

/// The target, as the policy was asked about it.
#[derive(Default)]
pub struct Decided {
    /// The paths that were named: at most two. They are relative to the current directory, or absolute.
    pub paths: [Option<Vec<u8>>; 2],
    /// True if it writes, or makes, changes or removes a file.
    pub writes: bool,
    /// Keys and values of the line.
    pub more: Vec<u8>,
    /// The number of questions to the policy.
    pub asked: usize,
}

impl Decided {
    /// Notes an operation.
    pub fn note(&mut self, operation: Operation<'_>) {
        self.asked += 1;
        let (target, writes) = match operation {
            Operation::ChangeEntry(target)
            | Operation::MoveEntry(target)
            | Operation::ChangeFile(target)
            | Operation::ChangePlace(target)
            | Operation::OpenForWriting(target)
            | Operation::OpenForAppending(target) => (target, true),
            Operation::Read(target) | Operation::Look(target) => (target, false),
            Operation::ChangeDirectory { to, .. } => (to, false),
            Operation::LinkTo { at, .. } => (at, true),
            Operation::OpenDatabase(name) => match name {
                Name::Path(path) if matches!(names::parse(path), Database::File) => {
                    (Target::path(path), true)
                }
                _ => return,
            },
            Operation::SetVariable(Name::Path(name)) => return self.add("variable", name),
            Operation::Import { module, .. } => return self.add("module", module.as_bytes()),
            Operation::CallNative(module) => return self.add("module", module.as_bytes()),
            Operation::UseNetwork(reach) => return self.reach(reach),
            Operation::SetVariable(_) | Operation::Start(_) | Operation::SetAttribute(_) => return,
        };
        self.writes |= writes;
        let Name::Path(path) = target.name else {
            return;
        };
        let path = match target.base {
            Base::CurrentDir => path.to_vec(),
            base => absolute(path, base),
        };
        match &mut self.paths {
            [first @ None, _] => *first = Some(path),
            [Some(first), second @ None] if *first != path => *second = Some(path),
            _ => {}
        }
    }

    fn reach(&mut self, reach: Reach<'_>) {
        let (to, port) = match reach {
            Reach::Connect { to, names, port } => {
                if let Some(name) = names.first() {
                    return self.host(name, port);
                }
                (to, port)
            }
            Reach::Listen { at, port } => (at, port),
            Reach::LookUp(name) => return self.add("host", name.as_bytes()),
            Reach::Unix(path) => {
                self.paths[0].get_or_insert_with(|| path.to_vec());
                return;
            }
            Reach::Abstract(_) | Reach::Other => return,
        };
        match to {
            Destination::Name(name) => self.host(name, port),
            Destination::Address(address) => self.host(&address.to_string(), port),
        }
    }

    fn host(&mut self, host: &str, port: u16) {
        if self.more.is_empty() {
            self.add("host", host.as_bytes());
            self.more.extend_from_slice(b",\"port\":");
            json_line::number(&mut self.more, port.into());
        }
    }

    /// Adds a key with a text; the first one stands.
    pub fn add(&mut self, key: &str, text: &[u8]) {
        if self.more.is_empty() {
            self.more.extend_from_slice(b",\"");
            self.more.extend_from_slice(key.as_bytes());
            self.more.extend_from_slice(b"\":");
            json_line::text(&mut self.more, text);
        }
    }
}

/// The path as it was named, behind the directory that it starts from. The current one is that in which
/// the event was judged, if its judge looked.
pub fn absolute(path: &[u8], base: Base) -> Vec<u8> {
    if path.starts_with(b"/") {
        return path.to_vec();
    }
    let start = match base {
        Base::CurrentDir => Os::last_current_dir(),
        Base::Descriptor(descriptor) => Os.descriptor_path(descriptor),
    };
    let Some(start) = start else {
        return path.to_vec();
    };
    let mut whole = start.to_vec();
    if !whole.ends_with(b"/") {
        whole.push(b'/');
    }
    whole.extend_from_slice(path);
    whole
}
