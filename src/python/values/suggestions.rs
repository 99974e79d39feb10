//! The correction of a wrong argument: a list of it, and the nearest of some names.
//!
//! The words for wrong names are in `fastaudit_rs._near`, which is imported only for such an error.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::python::cpython::calling::{self, Calling};
use crate::python::values::errors;

/// Calls a function of the module with the words.
///
/// # Errors
/// The error raised by importing it, under a guard that lets nothing be imported.
pub fn near<'py>(
    py: Python<'py>,
    function: &str,
    args: impl IntoPyObject<'py, Target = PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    calling::import(py, "fastaudit_rs._near")?.invoke_method1(function, args)
}

/// Returns the text of the value as a list, or of the value itself if it is a list.
pub fn as_list(given: &Bound<'_, PyAny>) -> String {
    if given.is_instance_of::<PyDict>() {
        let names = given.iterate().and_then(Iterator::collect);
        let names: Vec<Bound<'_, PyAny>> = names.unwrap_or_default();
        let names: Vec<_> = names.iter().map(errors::shown).collect();
        return format!("[{}]", names.join(", "));
    }
    let is_one = given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.iterate().is_err();
    match is_one || given.has_attr("__fspath__").unwrap_or(true) {
        true => format!("[{}]", errors::shown(given)),
        false => errors::shown(given),
    }
}

/// The sentence that names the nearest of some names; empty if none is near.
pub fn suggestion(py: Python<'_>, name: &str, names: &[&str]) -> String {
    let told = near(py, "suggestion", (name, names.to_vec()));
    told.map_or_else(|_| String::new(), |told| told.to_string())
}
