//! How a wrong argument would be written: a list of it, and the near one of some names.
//!
//! The words for wrong names are `fastaudit_rs._near`'s, which is imported on these ways alone.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::python::values::errors;

/// Calls a function of the module that has the words.
///
/// # Errors
/// The error that importing it raises, under a guard that lets nothing be imported.
pub fn near<'py>(
    py: Python<'py>,
    function: &str,
    args: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("fastaudit_rs._near")?
        .call_method1(function, args)
}

/// How a list of it is written, or it where it is one.
pub fn as_list(given: &Bound<'_, PyAny>) -> String {
    if given.is_instance_of::<PyDict>() {
        let names = given.try_iter().and_then(Iterator::collect);
        let names: Vec<Bound<'_, PyAny>> = names.unwrap_or_default();
        let names: Vec<_> = names.iter().map(errors::shown).collect();
        return format!("[{}]", names.join(", "));
    }
    let is_one = given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.try_iter().is_err();
    match is_one || given.hasattr("__fspath__").unwrap_or(true) {
        true => format!("[{}]", errors::shown(given)),
        false => errors::shown(given),
    }
}

/// The sentence that names the near one of some names; empty where none is.
pub fn suggestion(py: Python<'_>, name: &str, names: &[&str]) -> String {
    let told = near(py, "suggestion", (name, names.to_vec()));
    told.map_or_else(|_| String::new(), |told| told.to_string())
}
