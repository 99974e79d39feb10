//! Modules that are part of the interpreter: importing one by `importlib.import_module` raises no
//! audit event, so `import` is raised as it is made.
#![allow(unsafe_code)]

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::python::cpython::ffi as raw;
use crate::python::cpython::replace::{self, Original};
use crate::python::guard::scope;
use crate::python::values::imports;

/// Makes the function that makes them raise the event, and reads the data to identify the importer.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    imports::know_import_system(py)?;
    // SAFETY: the function calls the original that it stands for.
    unsafe { CREATE_BUILTIN.replace(py, "_imp", "create_builtin", create_builtin) }
}

/// The function that makes such a module.
static CREATE_BUILTIN: Original = Original::unknown();

/// # Safety
/// Called by CPython by the vectorcall convention.
unsafe extern "C-unwind" fn create_builtin(
    _callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe {
        if scope::may_be_guarded() && ffi::PyVectorcall_NARGS(nargsf) == 1 {
            let asked = replace::ours(|py| {
                let spec = Borrowed::from_ptr(py, *args);
                let name = spec.getattr(pyo3::intern!(py, "name"))?;
                let none = py.None().into_bound(py);
                raw::audit(py, c"import", &[&name, &none, &none, &none, &none])
            });
            if asked.is_none() {
                return std::ptr::null_mut();
            }
        }
        CREATE_BUILTIN.call(args, nargsf, kwnames)
    }
}
