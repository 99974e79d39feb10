//! The number of bytes written to files under one guard: CPython raises no event for writing, so
//! that the functions that all Python code writes by are made to count.
//!
//! Bytes that native code writes by itself, as SQLite or a memory map does, are not counted. A gap
//! that a write beyond the end of a file leaves counts: the file is longer by it.

use std::ffi::{CStr, OsStr};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyString, PyTuple, PyType};

use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::Once;
use crate::python::cpython::{ffi as raw, objects, process, replace};
use crate::python::guard::scope::{self, Active};
use crate::python::logs::log::Log;
use crate::python::values::{decode, simple};
use crate::python::wrapped::methods::known;

/// The position and the name of an argument.
type Place = (usize, &'static CStr);

/// The kind of writing of a function, with the layout of its arguments.
#[derive(Clone, Copy)]
enum Writes {
    /// `(fd, data)`, `(fd, data, position)`.
    Data,
    /// `(fd, [data, …])`, `(fd, [data, …], position, …)`.
    Vector,
    /// Copies: the places and names of the target, the source, the most that is copied, where in
    /// the source it begins, and where in the target, if that can be given.
    Copy([Place; 4], Option<Place>),
    /// `(fd or path, length)`: makes it that long.
    Length,
    /// `(fd, offset, length)`: makes it as long as both.
    Allocate,
}

struct Planned {
    fd: i32,
    /// How much is written, or how much longer the file gets where nothing is.
    bytes: u64,
    /// How far beyond the end of the file that begins.
    gap: u64,
}

impl Planned {
    /// What a write counts that writes so many bytes.
    fn counted(&self, written: u64) -> u64 {
        match written {
            0 => 0,
            _ => written.saturating_add(self.gap),
        }
    }
}

/// The arguments of `os.copy_file_range` and `os.splice`.
const BETWEEN: [Place; 4] = [(1, c"dst"), (0, c"src"), (2, c"count"), (3, c"offset_src")];

pub fn install(py: Python<'_>) -> PyResult<()> {
    macro_rules! count {
        ($($name:literal, $writes:expr;)*) => {
            $(replace::wrap_function!(py, "posix", $name, |called| count(called, $writes))?;)*
        };
    }
    const IN_TARGET: Option<Place> = Some((4, c"offset_dst"));
    count! {
        "write", Writes::Data;
        "pwrite", Writes::Data;
        "writev", Writes::Vector;
        "pwritev", Writes::Vector;
        "sendfile", Writes::Copy([(0, c"out_fd"), (1, c"in_fd"), (3, c"count"), (2, c"offset")], None);
        "copy_file_range", Writes::Copy(BETWEEN, IN_TARGET);
        "splice", Writes::Copy(BETWEEN, IN_TARGET);
        "ftruncate", Writes::Length;
        "truncate", Writes::Length;
        "posix_fallocate", Writes::Allocate;
    }
    let class = calling::import(py, "_io")?.attr("FileIO")?;
    let class = class.cast_into::<PyType>()?;
    FILENO.get_or_try_init(py, || class.attr("fileno").map(Bound::unbind))?;
    let truncate =
        replace::wrap_method!(&class, "truncate", |called| count(called, Writes::Length))?;
    known("FileIO", "truncate", truncate)?;
    let write = replace::wrap_method!(&class, "write", |called| count(called, Writes::Data))?;
    known("FileIO", "write", write)
}

/// Counts the bytes that a call writes under a guard that limits them, and asks whether it may.
fn count(called: Called<'_>, writes: Writes) -> Returned {
    if !scope::may_be_guarded() {
        return called.make();
    }
    let Some(position) = asked_argument(called, writes) else {
        return count_plain(called, writes);
    };
    // It is asked once: what it says is counted, and is what the function gets.
    let plain = |py| {
        let given = called.arguments.at(py, position);
        let plain = match matches!(writes, Writes::Vector) && position == 1 {
            true => calling::list(&given),
            false => calling::index(&given),
        };
        plain.map(Some)
    };
    called.replacing_with(position, plain, |called| count(called, writes))
}

fn count_plain(called: Called<'_>, writes: Writes) -> Returned {
    let counted = called.ours(|py| {
        let limited = limits(py)?;
        // The streams that the process was started with are the host's.
        let planned = plan(called, writes);
        let Some(planned) = planned.filter(|planned| !(0..=2).contains(&planned.fd)) else {
            return Ok(None);
        };
        let bytes = planned.counted(planned.bytes);
        for (index, (active, max)) in limited.iter().enumerate() {
            if let Err(error) = ask(py, active.get().log(), *max, planned.fd, bytes) {
                for (active, _) in &limited[..index] {
                    active.get().log().take_back(bytes);
                }
                return Err(error);
            }
        }
        Ok(Some((limited, planned)))
    });
    let Some(counted) = counted else {
        return Returned::failed();
    };
    let counted = ManuallyDrop::new(counted);
    let result = called.make();
    if let Some((limited, planned)) = ManuallyDrop::into_inner(counted) {
        // Fewer bytes may have been written than planned.
        let written = match (result.object(called.py), writes) {
            (None, _) => 0,
            (_, Writes::Length | Writes::Allocate) => planned.bytes,
            (Some(told), _) => {
                raw::int_value(&told).map_or(planned.bytes, |written| written.max(0) as u64)
            }
        };
        let (before, after) = (planned.counted(planned.bytes), planned.counted(written));
        for (active, _) in &limited {
            let log = active.get().log();
            log.add_written(after.saturating_sub(before));
            log.take_back(before.saturating_sub(after));
        }
        raw::with_attachment_counted(called.py, || drop(limited));
    }
    result
}

/// The place of the first argument that says its number, or its items, by code of its class.
fn asked_argument(called: Called<'_>, writes: Writes) -> Option<usize> {
    let data = match writes {
        Writes::Data | Writes::Vector => Some(usize::from(called.is_of_function())),
        _ => None,
    };
    let count = called.arguments.positional() + called.arguments.named();
    (0..count).find(|&position| {
        let given = called.arguments.at(called.py, position);
        match (data == Some(position), writes) {
            (true, Writes::Vector) => {
                let is_read = given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>();
                !is_read && objects::is_sequence(&given)
            }
            (true, _) => false,
            _ => {
                let is_read = given.is_instance_of::<PyInt>() || given.is_instance_of::<PyString>();
                !is_read && raw::is_index(&given)
            }
        }
    })
}

fn limits<'py>(py: Python<'py>) -> PyResult<Vec<(Bound<'py, Active>, u64)>> {
    let with_limit = |active: Bound<'py, Active>| {
        let max = active.get().config()?.get().policy().rest().max_bytes?;
        Some((active, max))
    };
    let all = scope::in_force(py)?.into_iter();
    Ok(all.filter_map(with_limit).collect())
}

fn ask(py: Python<'_>, log: &Log, max: u64, fd: i32, bytes: u64) -> PyResult<()> {
    let before = log.add_written(bytes);
    if before.saturating_add(bytes) <= max {
        return Ok(());
    }
    raw::audit(py, c"fastaudit.write", (fd, bytes, before)).inspect_err(|_| log.take_back(bytes))
}

/// The write that a call is about to make; `None` if it cannot be told, or is not to a file.
fn plan(called: Called<'_>, writes: Writes) -> Option<Planned> {
    let at = |(index, name)| called.arguments.find(called.py, index, Some(name));
    let number = |place: Place| raw::int_value(&at(place)?);
    let is_method = !called.is_of_function();
    // The arguments that follow the file.
    let after = |index: usize| (index + usize::from(!is_method), c"");
    let file = match writes {
        Writes::Copy([target, ..], _) => at(target),
        _ => at((0, c"path")),
    };
    let fd = match is_method {
        true => Some(file_descriptor(&called.receiver())?),
        false => raw::i32_value(file.as_ref()?),
    };
    let size = match (fd, writes) {
        (Some(fd), _) => size_of_file(fd)?,
        (None, Writes::Length) => size_of_path(file.as_ref()?)?,
        _ => return None,
    };
    let fd = fd.unwrap_or(-1);
    let grows = |length: u64| Planned { fd, bytes: length.saturating_sub(size), gap: 0 };
    let (bytes, begins) = match writes {
        Writes::Data => (objects::buffer_length(&at(after(0))?)?, number(after(1))),
        Writes::Vector => {
            let buffers = simple::items(&at(after(0))?)?;
            let bytes = buffers.iter().filter_map(objects::buffer_length).sum();
            (bytes, number(after(1)))
        }
        Writes::Copy([_, source, count, offset], begins) => {
            let most = u64::try_from(number(count)?).ok()?;
            let source = i32::try_from(number(source)?).ok()?;
            let offset = match number(offset) {
                Some(offset) => u64::try_from(offset).ok()?,
                None => position(source),
            };
            let rest = size_of_file(source).map(|size| size.saturating_sub(offset));
            (rest.map_or(most, |rest| rest.min(most)), begins.and_then(number))
        }
        Writes::Length => {
            let length = number((after(0).0, c"length")).unwrap_or(0);
            return Some(grows(u64::try_from(length).unwrap_or(0)));
        }
        Writes::Allocate => {
            let end = number(after(0))?.checked_add(number(after(1))?)?;
            return Some(grows(u64::try_from(end).ok()?));
        }
    };
    let begins = match begins {
        // So pwritev2(2) takes -1.
        None | Some(-1) => position(fd),
        Some(begins) => begins.max(0) as u64,
    };
    let gap = match begins.saturating_sub(size) {
        gap if gap > 0 && !is_for_appending(fd) => gap,
        _ => 0,
    };
    Some(Planned { fd, bytes, gap })
}

/// `FileIO.fileno`, kept: files are closed when modules are gone already.
static FILENO: Once<Py<PyAny>> = Once::new();

/// The descriptor of a `FileIO`, whatever a subclass says it is.
fn file_descriptor(file: &Bound<'_, PyAny>) -> Option<i32> {
    let fileno = FILENO.get(file.py())?.bind(file.py());
    raw::i32_value(&fileno.invoke1((file,)).ok()?)
}

fn is_for_appending(fd: i32) -> bool {
    let flags = process::with_descriptor(fd, |fd| rustix::fs::fcntl_getfl(fd));
    flags.is_some_and(|flags| flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::APPEND)))
}

fn position(fd: i32) -> u64 {
    process::with_descriptor(fd, |fd| rustix::fs::tell(fd)).map_or(0, |at| at.unwrap_or(0))
}

/// The size of a descriptor's file; `None` if it is not a file.
fn size_of_file(fd: i32) -> Option<u64> {
    let stat = process::with_descriptor(fd, |fd| rustix::fs::fstat(fd))?.ok()?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    kind.is_file().then(|| u64::try_from(stat.st_size).unwrap_or(0))
}

fn size_of_path(path: &Bound<'_, PyAny>) -> Option<u64> {
    let path = calling::fs_path(path).ok()?;
    let name = decode::root_name(&path).ok()?;
    std::fs::metadata(OsStr::from_bytes(&name)).ok().map(|found| found.len())
}
