//! Imports whose moment or event CPython does not tell: those of modules that are part of the
//! interpreter, and lazy ones.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::cpython::{ffi as raw, frames, replace};
use crate::python::guard::scope;
use crate::python::importing::imports;

// Modules that are part of the interpreter: importing one by `importlib.import_module` raises no
// audit event, so `import` is raised as it is made.

/// Makes the function that makes them raise the event, and reads the data to identify the importer.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    imports::know_import_system(py)?;
    replace::wrap_function!(py, "_imp", "create_builtin", create_builtin)
}

fn create_builtin(called: Called<'_>) -> Returned {
    if !scope::may_be_guarded() || called.arguments.positional() != 1 {
        return called.make();
    }
    called.make_if(|py| {
        let spec = called.arguments.at(py, 0);
        let name = spec.attr(intern!(py, "name"))?;
        let none = || py.None();
        raw::audit(py, c"import", (name, none(), none(), none(), none()))
    })
}

// Lazy imports of code under a guard, which become eager ones: a lazy one runs where its name is
// used first, be it after the guard (PEP 810, Python 3.15).
//
// Modules of the standard library and of installed packages keep theirs.

pub fn prepare_lazy(py: Python<'_>) -> PyResult<()> {
    imports::prepare_filter(py, || Ok(wrap_pyfunction!(may_be_lazy, py)?.into_any()))
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
        if !imports::is_installed(&frames::code(&frame))? {
            return Ok(false);
        }
    }
    let Some(filter) = imports::filter_of_host(py) else {
        return Ok(true);
    };
    let given = PyTuple::new(py, [importer, name, names])?;
    calling::is_true(&calling::call(filter.bind(py), &given, None)?)
}
