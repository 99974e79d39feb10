//! Files and sockets that pools make for themselves outside of all roots: shared memory, and the
//! sockets by which their processes talk.
//!
//! Their names are made by the libraries, and are found in the library that makes them, or were
//! made under the guard before; an existing file of the name is another's.

use std::sync::atomic::{AtomicI32, Ordering};

use pyo3::prelude::*;

use crate::policy::files::os::Os;
use crate::policy::files::path::is_within;
use crate::policy::files::path::{self, Base, Name, Resolved};
use crate::policy::judge::{Arguments, Named, PathLikes, Reason};
use crate::policy::rules::Rule;
use crate::policy::{Why, events};
use crate::python::configuration::temporary;
use crate::python::cpython::ffi as raw;
use crate::python::guard::event::Event;
use crate::python::importing::imports;
use crate::python::values::decode;
use crate::python::wrapped::workers;

/// The directory of the system's shared memory: shm_overview(7).
const MEMORY: &[u8] = b"/dev/shm";

/// The beginning of the names that `multiprocessing.shared_memory` makes.
const SEGMENT: &[u8] = b"psm_";

/// The module that makes them.
const SEGMENT_MAKER: &str = "multiprocessing.shared_memory";

/// The module that removes those that are left when their makers have ended.
const SEGMENT_TRACKER: &str = "multiprocessing.resource_tracker";

/// How names of joblib's directories for arrays begin; the number of the process follows.
const ARRAYS: &str = "joblib_memmapping_folder_";

/// The module that makes such a directory, and the function there.
const ARRAYS_MAKER: (&str, &str) = ("joblib._memmapping_reducer", "_get_temp_dir");

/// How the names of the directory of `multiprocessing`, and of the sockets in it, begin.
const DIRECTORY: &[u8] = b"pymp-";
const SOCKETS: &[&[u8]] = &[b"listener-", b"sock-"];

/// The process that started this one, if this is a worker; else 0.
static STARTED_BY: AtomicI32 = AtomicI32::new(0);

pub fn note_worker() {
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    STARTED_BY.store(parent, Ordering::Relaxed);
}

pub fn passes(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    match (event.name.to_bytes(), reason) {
        (
            b"socket.bind" | b"socket.listen" | b"socket.connect",
            Reason::Switch(Why::Network(_)),
        ) => channel(event, 1),
        (b"socket.bind", Reason::Path(1, Why::Unapproved)) => channel(event, 1),
        (name, Reason::Path(index, Why::Unapproved | Why::Unreadable)) => {
            if !workers::may_start(event.config) {
                return Ok(false);
            }
            let Some(landing) = landing(event, name, index)? else {
                return Ok(false);
            };
            if event.config.memory.holds(landing.as_bytes()) {
                return Ok(true);
            }
            match (name, is_within(landing.as_bytes(), MEMORY)) {
                (_, true) => memory(event, name, &landing),
                (b"tempfile.mkdtemp" | b"os.mkdir", false) => directory(event, name, &landing),
                (b"os.chmod" | b"os.remove", false) => channel(event, index),
                _ => Ok(false),
            }
        }
        _ => Ok(false),
    }
}

/// The directory of `multiprocessing` for its sockets, in the usual one for temporary files.
fn directory(event: &Event<'_, '_>, name: &[u8], landing: &Resolved) -> PyResult<bool> {
    let path = landing.as_bytes();
    let py = event.args.py();
    let is_new = path::split(path).1.starts_with(DIRECTORY)
        && rustix::fs::lstat(path).is_err()
        && imports::is_in_function(py, "multiprocessing.util", &["get_temp_dir"])?;
    if is_new && name == b"os.mkdir" {
        event.config.memory.note(path);
    }
    Ok(is_new)
}

/// The place that a path leads to with and without following links, if that is one.
fn landing(event: &Event<'_, '_>, own: &[u8], index: usize) -> PyResult<Option<Resolved>> {
    let dir_fd = match events::lookup(own) {
        Some(Rule::Entries(paths) | Rule::Read(paths)) => {
            paths.iter().find(|path| path.path == index).and_then(|path| path.dir_fd)
        }
        Some(Rule::Open) => None,
        _ => return Ok(None),
    };
    let name = decode::name_at(event.args, index, false, PathLikes::CheckedAgain)?;
    let Name::Path(name) = name.name() else {
        return Ok(None);
    };
    let base = event.args.base(dir_fd);
    if dir_fd.is_none() && !name.starts_with(b"/") {
        return Ok(None);
    }
    let (directory, last) = path::split(name);
    let entry = path::resolve(&Os, directory, base).map(|directory| directory.join(last));
    let landing = path::resolve(&Os, name, base);
    Ok(landing.filter(|landing| {
        entry.is_some_and(|entry| &entry[..] == landing.as_bytes())
            && !landing.as_bytes().is_empty()
    }))
}

/// Allows shared memory of the guard's own; a new file becomes the guard's own.
fn memory(event: &Event<'_, '_>, name: &[u8], landing: &Resolved) -> PyResult<bool> {
    let py = event.args.py();
    let path = landing.as_bytes();
    let own = &event.config.memory;
    let Some(below) = path.strip_prefix(MEMORY).and_then(|rest| rest.strip_prefix(b"/")) else {
        return Ok(false);
    };
    let is_there = rustix::fs::lstat(path).is_ok();
    let is_makers = imports::is_innermost(py, SEGMENT_MAKER)?;
    let makes = match name {
        b"open" => is_makers && makes_anew(event),
        b"os.mkdir" => imports::is_called_by(py, ARRAYS_MAKER.0, &[ARRAYS_MAKER.1])?,
        _ => false,
    };
    if makes && !is_there && !below.contains(&b'/') {
        own.note(path);
        return Ok(true);
    }
    // Another process of a pool made it.
    if is_makers && temporary::is_of_guards(path) {
        return Ok(true);
    }
    if !workers::is_worker() {
        return Ok(false);
    }
    // The files that a worker gets from the process that started it.
    let first = below.split(|byte| *byte == b'/').next().unwrap_or_default();
    let arrays = format!("{ARRAYS}{}_", STARTED_BY.load(Ordering::Relaxed));
    if first.starts_with(arrays.as_bytes()) {
        return Ok(true);
    }
    let is_segment = below.starts_with(SEGMENT);
    let tracks = imports::is_innermost(py, SEGMENT_TRACKER)?;
    let is_of_library = tracks || (is_segment && is_makers);
    Ok(is_of_library
        && match name {
            // The code can ask the tracker to remove any.
            b"os.remove" => temporary::is_marked(path).unwrap_or(is_segment),
            _ => is_segment,
        })
}

fn makes_anew(event: &Event<'_, '_>) -> bool {
    let anew = i64::from(libc::O_CREAT | libc::O_EXCL);
    let flags = event.argument(2);
    flags.is_some_and(|flags| raw::int_value(&flags).is_some_and(|flags| flags & anew == anew))
}

/// A socket of a pool or a manager: a file of the library's own name in a directory of its own.
fn channel(event: &Event<'_, '_>, index: usize) -> PyResult<bool> {
    let py = event.args.py();
    let name = event.argument(index).and_then(|address| decode::root_name(&address).ok());
    let landing = name.and_then(|name| path::resolve(&Os, &name, Base::CurrentDir));
    let Some(landing) = landing else {
        return Ok(false);
    };
    let own = |path: &[u8], start: &[u8]| path::split(path).1.starts_with(start);
    if !workers::may_start(event.config)
        || !SOCKETS.iter().any(|start| own(landing.as_bytes(), start))
        || !own(landing.parent(), DIRECTORY)
    {
        return Ok(false);
    }
    // The server itself is looked at before (`servers`).
    let passes = imports::is_innermost(py, "multiprocessing.connection")?
        || imports::is_innermost(py, "multiprocessing.forkserver")?;
    if passes
        && event.name.to_bytes() == b"socket.bind"
        && rustix::fs::lstat(landing.as_bytes()).is_err()
    {
        // The library removes it, by way of `multiprocessing.util`.
        event.config.memory.note(landing.as_bytes());
    }
    Ok(passes)
}
