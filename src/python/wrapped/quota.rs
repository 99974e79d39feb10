//! The number of bytes written to files under one guard: CPython raises no event for writing, so
//! that the functions that all Python code writes by are made to count.
//!
//! Bytes that native code writes by itself, as SQLite or a memory map does, are not counted.

use std::mem::ManuallyDrop;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::calling::{self, Calling};
#[cfg(unix)]
use crate::python::cpython::descriptors;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::objects;
use crate::python::cpython::replace::{self, wrapped};
use crate::python::guard::log::Log;
use crate::python::guard::scope::{self, Active};

/// The kind of writing of a function, with the layout of its arguments.
#[derive(Clone, Copy)]
pub enum Writes {
    /// `(fd, data, …)`.
    Data,
    /// `(fd, [data, …], …)`.
    Vector,
    /// Copies: the places and names of the target, the source, the most that is copied and where
    /// in the source it begins.
    Copy([(usize, &'static std::ffi::CStr); 4]),
    /// `(fd, length)`: makes it that long.
    Length,
    /// `(fd, offset, length)`: makes it as long as both.
    Allocate,
}

/// The write that is about to happen, if it counts.
struct Planned {
    fd: i32,
    bytes: u64,
}

macro_rules! counted {
    ($($function:ident, $name:literal, $writes:expr;)*) => {
        wrapped! {
            $($function: Wrapped(Called) => |called| count(called, $writes);)*
        }

        /// Makes the functions of `os` count.
        fn install_functions(py: Python<'_>) -> PyResult<()> {
            let module = if cfg!(windows) { "nt" } else { "posix" };
            $(replace::function::<$function>(py, module, $name)?;)*
            Ok(())
        }
    };
}

counted! {
    Write, "write", Writes::Data;
    Pwrite, "pwrite", Writes::Data;
    Writev, "writev", Writes::Vector;
    Pwritev, "pwritev", Writes::Vector;
    Sendfile, "sendfile", Writes::Copy([(0, c"out_fd"), (1, c"in_fd"), (3, c"count"), (2, c"offset")]);
    CopyFileRange, "copy_file_range",
        Writes::Copy([(1, c"dst"), (0, c"src"), (2, c"count"), (3, c"offset_src")]);
    Splice, "splice", Writes::Copy([(1, c"dst"), (0, c"src"), (2, c"count"), (3, c"offset_src")]);
    Ftruncate, "ftruncate", Writes::Length;
    Truncate, "truncate", Writes::Length;
    PosixFallocate, "posix_fallocate", Writes::Allocate;
}

/// Makes the functions by which Python code writes to files count.
///
/// # Errors
/// Errors raised while importing `_io`; `RuntimeError` if its methods have a calling convention
/// that is not known here.
pub fn install(py: Python<'_>) -> PyResult<()> {
    install_functions(py)
}

/// Counts the bytes that a call writes under a guard that limits them, and asks whether it may.
pub fn count(called: Called<'_>, writes: Writes) -> Returned {
    if !scope::may_be_guarded() {
        return called.make();
    }
    let counted = called.ours(|py| {
        let limited = limits(py)?;
        if limited.is_empty() {
            return Ok(None);
        }
        // The streams that the process was started with are the host's.
        let planned = plan(called, writes);
        let Some(planned) = planned.filter(|planned| !(0..=2).contains(&planned.fd)) else {
            return Ok(None);
        };
        for (index, (active, max)) in limited.iter().enumerate() {
            if let Err(error) = ask(py, active.get().log(), *max, &planned) {
                for (active, _) in &limited[..index] {
                    active.get().log().take_back(planned.bytes);
                }
                return Err(error);
            }
        }
        Ok(Some((limited, planned.bytes)))
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
            (_, Writes::Length | Writes::Allocate) => planned,
            (Some(told), _) => {
                raw::int_value(&told).map_or(planned, |written| written.max(0) as u64)
            }
        };
        for (active, _) in &limited {
            let log = active.get().log();
            log.take_back(planned.saturating_sub(written));
        }
        raw::with_attachment_counted(|| drop(limited));
    }
    result
}

/// The guards in force that limit the bytes written, and their limits.
fn limits(py: Python<'_>) -> PyResult<Vec<(Bound<'_, Active>, u64)>> {
    let limit = |active: &Bound<'_, Active>| {
        let config = active.get().config()?;
        config.get().policy().rest().max_bytes
    };
    let all = scope::in_force(py)?.into_iter();
    Ok(all
        .filter_map(|active| limit(&active).map(|max| (active, max)))
        .collect())
}

/// Counts the planned bytes, or has the write denied.
fn ask(py: Python<'_>, log: &Log, max: u64, planned: &Planned) -> PyResult<()> {
    let before = log.add_written(planned.bytes);
    if before.saturating_add(planned.bytes) <= max {
        return Ok(());
    }
    let args = (planned.fd, planned.bytes, before).into_pyobject(py)?;
    let items: Vec<_> = args.iter().collect();
    let items: Vec<_> = items.iter().collect();
    raw::audit(py, c"fastaudit.write", &items).inspect_err(|_| log.take_back(planned.bytes))
}

/// Returns the write that a call is about to make; `None` if it cannot be told, or is not to a
/// file.
fn plan(called: Called<'_>, writes: Writes) -> Option<Planned> {
    let py = called.py;
    let at = |index: usize| called.arguments.find(py, index, None);
    let number = |index: usize| raw::int_value(&at(index)?);
    if !called.is_of_function() {
        let file = called.receiver();
        let fd = file_descriptor(&file)?;
        let size = size_of_file(fd)?;
        return Some(Planned {
            fd,
            bytes: match writes {
                Writes::Length => {
                    let length = number(0).and_then(|length| u64::try_from(length).ok());
                    length.unwrap_or(0).saturating_sub(size)
                }
                _ => objects::buffer_length(&at(0)?)?,
            },
        });
    }
    if let Writes::Copy([target, source, count, offset]) = writes {
        let named =
            |(index, name)| raw::int_value(&called.arguments.find(py, index, Some(name))?);
        let fd = i32::try_from(named(target)?).ok()?;
        size_of_file(fd)?;
        let most = u64::try_from(named(count)?).ok()?;
        let source = i32::try_from(named(source)?).ok()?;
        let begins = match named(offset) {
            Some(offset) => u64::try_from(offset).ok()?,
            None => position(source),
        };
        let bytes = size_of_file(source).map_or(most, |size| size.saturating_sub(begins).min(most));
        return Some(Planned { fd, bytes });
    }
    if let Writes::Length = writes {
        // A path, or a descriptor.
        let length = u64::try_from(number(1)?).ok()?;
        let given = at(0)?;
        let (fd, size) = match raw::int_value(&given) {
            Some(fd) => {
                let fd = i32::try_from(fd).ok()?;
                (fd, size_of_file(fd)?)
            }
            None => (-1, size_of_path(&given)?),
        };
        let bytes = length.saturating_sub(size);
        return Some(Planned { fd, bytes });
    }
    let fd = i32::try_from(number(0)?).ok()?;
    let size = size_of_file(fd)?;
    let bytes = match writes {
        Writes::Vector => {
            let buffers = at(1)?;
            let items: Vec<_> = if let Ok(items) = buffers.cast::<PyList>() {
                items.iter().collect()
            } else {
                buffers.cast::<PyTuple>().ok()?.iter().collect()
            };
            items.iter().filter_map(objects::buffer_length).sum()
        }
        Writes::Allocate => {
            let end = number(1)?.checked_add(number(2)?)?;
            u64::try_from(end).ok()?.saturating_sub(size)
        }
        _ => objects::buffer_length(&at(1)?)?,
    };
    Some(Planned { fd, bytes })
}

/// The descriptor of a `FileIO`, whatever a subclass says it is.
fn file_descriptor(file: &Bound<'_, PyAny>) -> Option<i32> {
    let py = file.py();
    let io = raw::imported_module(py, pyo3::intern!(py, "_io")).ok()??;
    let class = io.attr(pyo3::intern!(py, "FileIO")).ok()?;
    let fileno = class.attr(pyo3::intern!(py, "fileno")).ok()?;
    let fd = fileno.invoke1((file,)).ok()?;
    i32::try_from(raw::int_value(&fd)?).ok()
}

/// The position at which a descriptor's file is read next.
#[cfg(unix)]
fn position(fd: i32) -> u64 {
    descriptors::borrow(fd).map_or(0, |fd| rustix::fs::tell(fd).unwrap_or(0))
}

#[cfg(not(unix))]
fn position(_fd: i32) -> u64 {
    0
}

/// The size of a descriptor's file; `None` if it is not a file.
#[cfg(unix)]
fn size_of_file(fd: i32) -> Option<u64> {
    let stat = rustix::fs::fstat(descriptors::borrow(fd)?).ok()?;
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    kind.is_file()
        .then(|| u64::try_from(stat.st_size).unwrap_or(0))
}

#[cfg(not(unix))]
fn size_of_file(fd: i32) -> Option<u64> {
    // Its file is not known here.
    (fd >= 0).then_some(0)
}

fn size_of_path(path: &Bound<'_, PyAny>) -> Option<u64> {
    let path = calling::fs_path(path).ok()?;
    let name = crate::python::values::decode::root_name(&path).ok()?;
    #[cfg(unix)]
    let name = {
        use std::os::unix::ffi::OsStrExt;
        std::ffi::OsStr::from_bytes(&name).to_owned()
    };
    #[cfg(not(unix))]
    let name = String::from_utf8(name.to_vec()).ok()?;
    std::fs::metadata(name).ok().map(|found| found.len())
}
