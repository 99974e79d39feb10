//! Lazy imports of code under a guard, which become eager ones: a lazy one runs where its name is
//! used first, be it after the guard (PEP 810, Python 3.15).
//!
//! Modules of the standard library and of installed packages keep theirs.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::python::cpython::calling;
use crate::python::cpython::frames;
use crate::python::guard::{lazy_imports, scope};
use crate::python::importing::imports;

pub fn prepare(py: Python<'_>) -> PyResult<()> {
    lazy_imports::prepare(py, || Ok(wrap_pyfunction!(may_be_lazy, py)?.into_any()))
}

/// Returns whether an import that is written as a lazy one is: CPython's filter.
#[pyfunction]
fn may_be_lazy<'py>(
    importer: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
    names: &Bound<'py, PyAny>,
) -> PyResult<bool> {
    let py = importer.py();
    if !scope::in_force(py)?.is_empty() {
        let Some(frame) = frames::current_frame(py) else {
            return Ok(false);
        };
        if !imports::is_installed(&frames::code(frame.cast()?))? {
            return Ok(false);
        }
    }
    let Some(filter) = lazy_imports::of_host(py) else {
        return Ok(true);
    };
    let given = PyTuple::new(py, [importer, name, names])?;
    calling::is_true(&calling::call(filter.bind(py), &given, None)?)
}
