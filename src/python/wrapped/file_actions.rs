//! The files that the system opens for a program as it starts it: `file_actions` of
//! `os.posix_spawn`. Under a guard each raises `open` first, as a file that Python opens for a
//! program does.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;
use crate::python::wrapped::starts;

/// The argument, which is given by name alone.
const NAME: &std::ffi::CStr = c"file_actions";

/// Only the action that opens a file has so many items: its kind, a descriptor, the path, the flags
/// and the mode.
const OPENING: usize = 5;
const PATH: usize = 2;
const FLAGS: usize = 3;

pub fn call(called: Called<'_>) -> Returned {
    let given = called.arguments;
    let Some(position) = given.position(usize::MAX, Some(NAME)) else {
        return starts::call(called);
    };
    let judged = called.ours(|py| {
        let actions = given.at(py, position);
        match actions.is_none() {
            true => Ok(None),
            false => judge(&actions).map(Some),
        }
    });
    match judged {
        None => Returned::failed(),
        Some(None) => starts::call(called),
        Some(Some(actions)) => called.replacing(position, actions.into_any(), starts::call),
    }
}

/// Raises an event for each file that is opened. The judged actions are used: objects are asked
/// once.
fn judge<'py>(actions: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = actions.py();
    let all = PyTuple::new(py, [actions])?;
    let all = calling::call(py.get_type::<PyTuple>().as_any(), &all, None)?;
    let all = all.cast_into::<PyTuple>()?;
    let judged = all.iter().map(|action| match action.cast::<PyTuple>() {
        Ok(action) if action.len() == OPENING => Ok(opening(action)?.into_any()),
        _ => Ok(action),
    });
    PyTuple::new(py, judged.collect::<PyResult<Vec<_>>>()?)
}

/// The action with a path that is a plain text, judged.
fn opening<'py>(action: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    let py = action.py();
    let mut items: Vec<_> = action.iter().collect();
    let path = &items[PATH];
    if !path.is_instance_of::<PyString>() && !path.is_instance_of::<PyBytes>() {
        items[PATH] = calling::fs_path(path)?;
    }
    let none = py.None().into_bound(py);
    raw::audit(py, c"open", &[&items[PATH], &none, &items[FLAGS]])?;
    PyTuple::new(py, items)
}
