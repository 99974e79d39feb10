//! From the Python objects in an event's arguments to the plain values that the policy judges.
//!
//! Values are read from the objects' own buffers: a method that a subclass overrides decides
//! nothing.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::policy::files::fs::PathBuf;
use crate::policy::files::path::Name;
use crate::policy::judge::{Named, PathLikes};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi::{self as raw, FsBytes};
use crate::python::cpython::once::intern;
use crate::python::cpython::{frames, functions};
use crate::python::importing::stdlib;
use crate::python::values::errors;

/// A name as an event gave it, with whatever keeps its bytes alive.
pub enum NameArg<'a, 'py> {
    Path(FsBytes<'a, 'py>),
    /// The bytes of a path that had to be made anew.
    Made(Vec<u8>),
    Descriptor(i32),
    Unreadable,
}

/// Reads the name at a position of the event's arguments.
pub fn name_at<'a, 'py>(
    args: &'a Bound<'py, PyTuple>,
    index: usize,
    descriptor: bool,
    path_likes: PathLikes,
) -> PyResult<NameArg<'a, 'py>> {
    let Ok(object) = args.get_borrowed_item(index) else {
        return Ok(NameArg::Unreadable);
    };
    if let Some(name) = plain_name(object)? {
        return Ok(name);
    }
    if let Some(fd) = raw::int_value(&object) {
        let fd = i32::try_from(fd).ok().filter(|_| descriptor);
        return Ok(fd.map_or(NameArg::Unreadable, NameArg::Descriptor));
    }
    if raw::is_index(&object) {
        // It was or will be asked for its number, and can return another each time; without a
        // number, `io.FileIO` asks it for a path.
        return Ok(NameArg::Unreadable);
    }
    if path_likes == PathLikes::AskedLater && !answers_the_same(&object)? {
        return Ok(NameArg::Unreadable);
    }
    let path = match calling::fs_path(&object) {
        Ok(path) => path,
        Err(error) if error.is_instance_of::<PyException>(object.py()) => {
            return Ok(NameArg::Unreadable);
        }
        Err(error) => return Err(error),
    };
    let name = plain_name(path.as_borrowed())?;
    Ok(match name.as_ref().map(NameArg::name) {
        Some(Name::Path(bytes)) => NameArg::Made(bytes.to_vec()),
        _ => NameArg::Unreadable,
    })
}

fn plain_name<'a, 'py>(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Option<NameArg<'a, 'py>>> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Some(match raw::fs_encode(text) {
            Ok(bytes) => NameArg::Path(bytes),
            Err(_) => by_directory(text)?,
        }));
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(NameArg::Path(FsBytes::Owned(bytes.to_owned()))));
    }
    Ok(None)
}

/// A name that the file system cannot hold: no operation on it can succeed, but it is judged by
/// its directory first, as any other name there. The NUL stands for the part without bytes.
fn by_directory<'a, 'py>(text: Borrowed<'a, 'py, PyString>) -> PyResult<NameArg<'a, 'py>> {
    let directory = raw::up_to_last_slash(&text)?;
    Ok(match raw::fs_encode(directory.as_borrowed()) {
        Ok(bytes) => {
            let mut path = bytes.as_bytes().to_vec();
            path.push(0);
            NameArg::Made(path)
        }
        Err(_) => NameArg::Unreadable,
    })
}

pub fn is_path_like(object: &Bound<'_, PyAny>) -> bool {
    let name = intern!(object.py(), "__fspath__");
    raw::type_lookup(&object.get_type(), name).is_some()
}

/// Returns whether a path-like object is one that gives the same path each time it is asked: one
/// whose `__fspath__` is native (`os.DirEntry`), or one of `pathlib`, which keeps its text.
///
/// The code of the standard library decides, never the object that a module has under a name.
pub fn answers_the_same(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    let ty = object.get_type();
    let fspath = intern!(py, "__fspath__");
    let Some(own) = raw::type_lookup(&ty, fspath) else {
        return Ok(true);
    };
    if functions::is_native_method(&own, c"__fspath__") {
        return Ok(true);
    }
    let plain = py.get_type::<PyAny>();
    for name in [intern!(py, "__getattribute__"), intern!(py, "__setattr__")] {
        match (raw::type_lookup(&ty, name), raw::type_lookup(&plain, name)) {
            (Some(own), Some(plain)) if own.is(&plain) => {}
            _ => return Ok(false),
        }
    }
    let text = raw::type_lookup(&ty, intern!(py, "__str__"));
    let kept = raw::type_lookup(&ty, intern!(py, "_str"));
    let (Some(text), Some(kept)) = (text, kept) else {
        return Ok(false);
    };
    Ok(functions::is_slot_of_instances(&kept)
        // They are one function from 3.15 on.
        && (own.is(&text) || stdlib::is_function_of_library(&own, "pathlib", "__fspath__")?)
        && stdlib::is_function_of_library(&text, "pathlib", "__str__")?
        && has_builtin_str(&own)?)
}

fn has_builtin_str(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = function.py();
    let name = intern!(py, "str");
    let Some(globals) = frames::function_globals(function) else {
        return Ok(false);
    };
    // The builtins that it was made with, whatever its module has since.
    let builtins = function.attr(intern!(py, "__builtins__"))?;
    let Ok(builtins) = builtins.cast_into::<PyDict>() else {
        return Ok(false);
    };
    let found = match globals.get_item(name)? {
        Some(found) => Some(found),
        None => builtins.get_item(name)?,
    };
    Ok(found.is_some_and(|found| found.is(py.get_type::<PyString>())))
}

/// The path, a `str` or `bytes`, of an item of an argument.
pub fn path_at<'py>(
    argument: &str,
    index: usize,
    item: &Bound<'py, PyAny>,
    accepted: &str,
) -> PyResult<Bound<'py, PyAny>> {
    calling::fs_path(item).map_err(|error| {
        let wrong = || {
            let argument = format!("{argument}[{index}]");
            errors::wrong_type(&argument, accepted, item)
        };
        errors::unless_wrong_type(item.py(), error, wrong)
    })
}

/// The bytes of a root: a `str` or `bytes` as `os.fspath` gives it.
pub fn root_name(path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let bytes = match path.cast::<PyString>() {
        Ok(text) => raw::fs_encode(text.as_borrowed())?,
        Err(_) => FsBytes::Owned(path.cast::<PyBytes>()?.clone()),
    };
    Ok(PathBuf::from_slice(bytes.as_bytes()))
}

/// A path as the standard library of Rust takes it.
pub fn native_path(name: PathBuf) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(name.into_vec()).into()
}
