//! The log of one guard: its denials, and the operations that are recorded of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ahash::AHashMap;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::policy::events::EventEffect;
use crate::policy::files::fs::FileSystem;
use crate::policy::files::os::Os;
use crate::policy::files::path::{Base, Name, Target};
use crate::policy::learn::Need;
use crate::policy::network::{Destination, Reach};
use crate::policy::sql::{self, Database};
use crate::policy::{Operation, Why};
use crate::python::cpython::once::lock;
use crate::python::logs::audit_log::{self, LogFile};
use crate::python::values::addresses::SeenNetwork;
use crate::python::values::json_line;

// The store of operations under a guard that observes: each effect once, with its count.

/// The version of the JSON, of the log and of `to_json()`.
pub const VERSION: u32 = 1;
/// The number of different effects that are kept; further ones are only counted.
pub const MAX_KEPT: usize = 10_000;

#[derive(Clone)]
pub struct Records {
    /// True if an operation that the policy denies is stopped; else it proceeds.
    pub enforces: bool,
    pub log: Option<Arc<Mutex<LogFile>>>,
}

pub struct Entry {
    pub event: String,
    pub effect: Option<EventEffect>,
    pub args: Py<PyTuple>,
    pub needs: Vec<Need>,
    /// The functions that led to it when it was seen first.
    pub call_chain: Vec<String>,
    /// `None` if it is allowed; `Some(None)` if the event is denied as such.
    pub denied: Option<Option<Why>>,
    pub count: AtomicU64,
    pub tool: Option<String>,
    /// The line of the log for each such decision.
    pub line: String,
}

impl Entry {
    /// How often it was seen so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// `"allowed"`, the field of the policy that denies it, or `"denied"`.
    pub fn verdict(&self) -> &'static str {
        match self.denied {
            None => "allowed",
            Some(Some(why)) => why.field(),
            Some(None) => "denied",
        }
    }
}

#[derive(Default)]
pub struct Recorder {
    seen: Mutex<SeenOperation>,
    /// Grows when the current directory changes: relative paths differ then.
    pub directories: AtomicU64,
}

#[derive(Default)]
pub struct SeenOperation {
    /// The position of each among the entries, by its key.
    places: AHashMap<u64, usize>,
    pub entries: Vec<Arc<Entry>>,
    pub dropped: u64,
}

impl Recorder {
    pub fn seen(&self) -> MutexGuard<'_, SeenOperation> {
        lock(&self.seen)
    }

    pub fn count(&self, key: u64, records: &Records) -> bool {
        let seen = self.seen();
        let Some(&place) = seen.places.get(&key) else {
            return false;
        };
        let entry = &seen.entries[place];
        entry.count.fetch_add(1, Ordering::Relaxed);
        if let Some(log) = &records.log {
            write_line(log, &entry.line);
        }
        true
    }

    pub fn add(&self, key: u64, entry: Entry, records: &Records) {
        if let Some(log) = &records.log {
            write_line(log, &entry.line);
        }
        let mut seen = self.seen();
        if let Some(&place) = seen.places.get(&key) {
            seen.entries[place].count.fetch_add(1, Ordering::Relaxed);
        } else if seen.entries.len() < MAX_KEPT {
            let place = seen.entries.len();
            seen.places.insert(key, place);
            seen.entries.push(Arc::new(entry));
        } else {
            seen.dropped += 1;
        }
    }
}

/// Writes a line of the decision log. A full disk stops nobody.
fn write_line(log: &Mutex<LogFile>, rest: &str) {
    let (seconds, micros) = audit_log::now();
    let line = format!("{{\"version\":{VERSION},\"time\":{seconds}.{micros:06},{rest}}}\n");
    let log = lock(log);
    let _ = log.append(line.as_bytes(), audit_log::PATIENCE);
}

// The target of an event that is judged, for the line of a log.

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
                Name::Path(path) if matches!(sql::database_of(path), Database::File) => {
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
            Reach::LookUp { name, .. } => return self.add("host", name.as_bytes()),
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

// What a guard keeps, above all denials: libraries swallow and rewrite exceptions.

/// The number of denials that are kept; further ones are only counted.
const MOST_DENIALS: usize = 1000;

#[derive(Default)]
pub struct Log {
    denials: Mutex<Denials>,
    pub network: SeenNetwork,
    written: AtomicU64,
    recorder: OnceLock<Box<Recorder>>,
}

#[derive(Default)]
struct Denials {
    kept: Vec<Py<PyAny>>,
    total: usize,
}

impl Log {
    pub fn recorder(&self) -> &Recorder {
        self.recorder.get_or_init(Box::default)
    }

    /// Counts bytes that are going to be written; returns the count before.
    pub fn add_written(&self, bytes: u64) -> u64 {
        self.written.fetch_add(bytes, Ordering::Relaxed)
    }

    /// Subtracts bytes that were not written after all.
    pub fn take_back(&self, bytes: u64) {
        self.written.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn add(&self, denial: &Bound<'_, PyAny>) {
        let mut denials = lock(&self.denials);
        denials.total += 1;
        if denials.kept.len() < MOST_DENIALS {
            denials.kept.push(denial.clone().unbind());
        }
    }

    pub fn total(&self) -> usize {
        lock(&self.denials).total
    }

    pub fn kept<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyAny>> {
        let denials = lock(&self.denials);
        let kept = denials.kept.iter();
        kept.map(|denial| denial.bind(py).clone()).collect()
    }
}
