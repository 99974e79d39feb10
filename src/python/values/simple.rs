//! Values that keep nothing of the guarded code alive and that JSON and pickle can hold.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyTupleMethods,
};

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::objects::plain_str;
use crate::python::values::{decode, errors};

const MAX_DEPTH: usize = 8;

#[inline]
pub fn is_atom(object: &Bound<'_, PyAny>) -> bool {
    object.is_none()
        || object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyBytes>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyFloat>()
}

/// Plain values show themselves the same at any time.
pub fn is_plain(args: &Bound<'_, PyTuple>) -> bool {
    args.is_exact_instance_of::<PyTuple>() && args.iter_borrowed().all(|arg| is_atom(&arg))
}

/// The arguments of an event, with plain values in place of other objects.
pub fn tuple<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    if is_plain(args) {
        return Ok(args.clone());
    }
    let items = args.iter().map(|arg| value(&arg, MAX_DEPTH));
    PyTuple::new(args.py(), items.collect::<PyResult<Vec<_>>>()?)
}

fn value<'py>(object: &Bound<'py, PyAny>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    if is_atom(object) {
        return Ok(object.clone());
    }
    let is_tuple = object.is_exact_instance_of::<PyTuple>();
    if depth > 0 && (is_tuple || object.is_exact_instance_of::<PyList>()) {
        let items = items(object).unwrap_or_default();
        let items = items.iter().map(|item| value(item, depth - 1));
        let items = items.collect::<PyResult<Vec<_>>>()?;
        return Ok(match is_tuple {
            true => PyTuple::new(py, items)?.into_any(),
            false => PyList::new(py, items)?.into_any(),
        });
    }
    // A path-like is its path, if reading it runs no Python code of the object's own.
    if let Some(text) = text(object)? {
        return Ok(text.into_any());
    }
    shown(object).map(Bound::into_any)
}

/// The text of a `str`, `bytes` or path-like of the standard library, of no subclass.
pub fn text<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyString>>> {
    let py = object.py();
    if let Ok(text) = object.cast::<PyString>() {
        return plain_str(text.clone()).map(Some);
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return raw::fs_decode(py, bytes.as_bytes()).map(Some);
    }
    if decode::is_path_like(object)
        && decode::answers_the_same(object)?
        && let Ok(path) = calling::fs_path(object)
    {
        return text(&path);
    }
    Ok(None)
}

pub fn texts<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyString>>>> {
    match items(object) {
        Some(items) => items.iter().map(text).collect(),
        None => Ok(None),
    }
}

pub fn items<'py>(object: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    match object.cast::<PyTuple>() {
        Ok(items) => Some(items.iter().collect()),
        Err(_) => Some(object.cast::<PyList>().ok()?.iter().collect()),
    }
}

/// A plain value as JSON has it: lists for tuples, text for bytes.
pub fn json<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        return raw::fs_decode(py, bytes.as_bytes()).map(Bound::into_any);
    }
    let Some(items) = items(object) else {
        return Ok(object.clone());
    };
    let items = items.iter().map(json).collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, items)?.into_any())
}

pub fn unjson<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyDict>() {
        return Err(errors::wrong_type("fields[\"args\"]", "a list", object));
    }
    PyTuple::new(object.py(), object.iterate()?.collect::<PyResult<Vec<_>>>()?)
}

/// `repr(object)`, or a stand-in if that raises an `Exception`: the denial stands either way.
pub fn shown<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let repr = match object.cast::<PyString>() {
        Ok(text) => raw::str_repr(text),
        Err(_) => object.shown(),
    };
    match repr {
        Err(error) if error.is_instance_of::<PyException>(object.py()) => {
            let ty = raw::class_name(object);
            PyString::from_fmt(object.py(), format_args!("<{ty} object whose repr failed>"))
        }
        repr => repr,
    }
}
