//! The program that an event is going to start.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::policy::commands::own_path;
use crate::policy::files::fs::PathBuf;
use crate::policy::files::os::Os;
use crate::policy::judge;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::intern;
use crate::python::values::decode;
use crate::python::values::simple;

/// Returns the program that an event is going to start; `None` if that cannot be told.
pub fn program(event: &CStr, args: &Bound<'_, PyTuple>) -> Option<PathBuf> {
    judge::program(&Os, event.to_bytes(), args, &own_path)
}

/// Returns the `PATH` in the environment for a child: `os.environ` itself, which has `own`, or a
/// plain `dict`.
pub fn path_of(environment: &Bound<'_, PyAny>, own: &dyn Fn() -> Vec<u8>) -> Option<Vec<u8>> {
    let py = environment.py();
    let os = raw::imported_module(py, intern!(py, "os")).ok()??;
    if os
        .attr(intern!(py, "environ"))
        .is_ok_and(|environ| environ.is(environment))
    {
        return Some(own());
    }
    let environment = environment.cast_exact::<PyDict>().ok()?;
    let found = match environment.get_item("PATH").ok()? {
        Some(path) => Some(path),
        None => environment.get_item(PyBytes::new(py, b"PATH")).ok()?,
    };
    match found {
        Some(path) => bytes(&path).map(|path| path.to_vec()),
        // Without a `PATH`, `os.defpath` would be taken, which nobody means.
        None => None,
    }
}

/// The bytes of a `str`, `bytes` or path-like of the standard library.
pub fn bytes(object: &Bound<'_, PyAny>) -> Option<PathBuf> {
    let text = simple::text(object).ok()??;
    decode::root_name(text.as_any()).ok()
}

/// The paths at the beginning of a list or tuple, up to the first item that is not a path.
pub fn each(items: &Bound<'_, PyAny>) -> Option<Vec<PathBuf>> {
    let items: Vec<_> = match items.cast::<PyList>() {
        Ok(items) => items.iter().collect(),
        Err(_) => items.cast::<PyTuple>().ok()?.iter().collect(),
    };
    Some(items.iter().map_while(bytes).collect())
}
