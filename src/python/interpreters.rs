//! Other interpreters, on Python 3.12: it crashes where an audit hook refuses to have one made, so
//! that it is refused before.
#![allow(unsafe_code)]

use pyo3::ffi::PyObject;
use pyo3::prelude::*;

use super::intercept::{self, Original};
use super::{context, ffi as raw};

static CREATE: Original = Original::unknown();

/// Has an interpreter refused before it is made.
///
/// # Errors
/// What importing the module raises.
pub fn install(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the function calls the original that it stands for.
    unsafe { CREATE.replace(py, "_xxsubinterpreters", "create", create) }
}

/// # Safety
/// Called by CPython by the vectorcall convention.
unsafe extern "C-unwind" fn create(
    _callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe {
        if context::may_be_guarded() {
            let asked =
                intercept::ours(|py| raw::audit(py, c"cpython.PyInterpreterState_New", &[]));
            if asked.is_none() {
                return std::ptr::null_mut();
            }
        }
        CREATE.call(args, nargsf, kwnames)
    }
}
