//! Values of a policy as objects and expressions of Python.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyList, PyString};
use toml::{Table, Value};

use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::values::errors;

/// Returns a value of TOML as an expression of Python.
pub fn literal(py: Python<'_>, value: &Value) -> Option<String> {
    let object = object(py, value).ok()?;
    Some(object.shown().ok()?.to_string_lossy().into_owned())
}

/// A value of TOML as one of Python, which JSON can hold.
pub fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        // In Python these are not texts.
        Value::String(text) if text == "anywhere" || text == "any" || text == "unlimited" => {
            py.None().into_bound(py)
        }
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Integer(number) => number.into_pyobject(py)?.into_any(),
        Value::Boolean(is) => is.into_pyobject(py)?.to_owned().into_any(),
        Value::Array(items) => {
            let items = items.iter().map(|item| object(py, item));
            PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Value::Table(table) => dict(py, table)?.into_any(),
        // A policy holds no other types.
        Value::Float(_) | Value::Datetime(_) => py.None().into_bound(py),
    })
}

fn dict<'py>(py: Python<'py>, table: &Table) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in table {
        dict.set_item(key, object(py, value)?)?;
    }
    Ok(dict)
}

/// A copy of a suggestion: the reader may change it.
///
/// # Errors
/// `TypeError` for values that no suggestion holds.
pub fn copied<'py>(suggestion: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    copied_to(suggestion, DEEPEST)
}

/// The depth of suggestions: a list in a field of the network.
const DEEPEST: usize = 3;

fn copied_to<'py>(value: &Bound<'py, PyAny>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    if value.is_none()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyBool>()
    {
        return Ok(value.clone());
    }
    if let (Ok(items), 1..) = (value.cast_exact::<PyList>(), depth) {
        let items = items.iter().map(|item| copied_to(&item, depth - 1));
        return Ok(PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any());
    }
    if let (Ok(items), 1..) = (value.cast_exact::<PyDict>(), depth) {
        let copy = PyDict::new(py);
        for (key, item) in items {
            copy.set_item(copied_to(&key, 0)?, copied_to(&item, depth - 1)?)?;
        }
        return Ok(copy.into_any());
    }
    Err(PyTypeError::new_err(format!(
        "fields[\"suggestion\"] must hold plain values, not {}",
        errors::type_name(value)
    )))
}

/// A list of texts as Python writes it.
pub fn list(texts: &[Bound<'_, PyString>]) -> Option<String> {
    let shown = texts
        .iter()
        .map(|text| Some(raw::str_repr(text).ok()?.to_string_lossy().into_owned()));
    Some(format!(
        "[{}]",
        shown.collect::<Option<Vec<_>>>()?.join(", ")
    ))
}
