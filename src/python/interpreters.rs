//! Other interpreters, on Python 3.12: it crashes where an audit hook refuses to have one made, so
//! that it is refused before.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyPermissionError;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;

use super::intercept::Original;
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
            let py = Python::assume_attached();
            let asked = catch_unwind(AssertUnwindSafe(|| {
                raw::with_attachment_counted(|| {
                    let allowed = raw::audit(py, c"cpython.PyInterpreterState_New", &[]);
                    allowed.map_err(|error| error.restore(py))
                })
            }));
            match asked {
                Ok(Ok(())) => {}
                Ok(Err(())) => return std::ptr::null_mut(),
                Err(_panic) => {
                    let error = PyPermissionError::new_err(
                        "fastaudit_rs: internal error when an interpreter was to be made",
                    );
                    raw::with_attachment_counted(|| error.restore(py));
                    return std::ptr::null_mut();
                }
            }
        }
        CREATE.call(args, nargsf, kwnames)
    }
}
