//! Modules that are part of the interpreter: importing one by `importlib.import_module` raises no
//! audit event, so `import` is raised as it is made.

use pyo3::prelude::*;

use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::intern;
use crate::python::cpython::replace;
use crate::python::guard::scope;
use crate::python::importing::imports;

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
        let none = py.None().into_bound(py);
        raw::audit(py, c"import", &[&name, &none, &none, &none, &none])
    })
}
