//! Native functions of the standard library that are made to do something more with each call.
//!
//! The one function object that such a function is, however it was imported, is made to call ours,
//! which then does what it always did. It stays the same object: sets and tables that hold it still
//! find it.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use super::methods::Builtin;

/// A function as it was.
pub struct Original(OnceLock<Py<PyAny>>);

impl Original {
    /// That of a function that was not replaced yet.
    pub const fn unknown() -> Self {
        Self(OnceLock::new())
    }

    /// Has every call of `module.name` go to `vectorcall`, once for the process. Does nothing where
    /// there is no such native function.
    ///
    /// # Safety
    /// `vectorcall` is a function by that convention that calls this original.
    ///
    /// # Errors
    /// What importing the module raises.
    pub unsafe fn replace(
        &self,
        py: Python<'_>,
        module: &str,
        name: &str,
        vectorcall: ffi::vectorcallfunc,
    ) -> PyResult<()> {
        if self.0.get().is_some() {
            return Ok(());
        }
        let Some(found) = py.import(module)?.getattr_opt(name)? else {
            return Ok(());
        };
        let Some(function) = Builtin::cast(&found) else {
            return Ok(());
        };
        let copy = function.copy()?;
        if self.0.set(copy.unbind()).is_ok() {
            // SAFETY: the caller vouches for it.
            unsafe { function.set_vectorcall(vectorcall) };
        }
        Ok(())
    }

    /// Calls the function as it was.
    ///
    /// # Safety
    /// The thread is attached, and the arguments are those of a vectorcall.
    pub unsafe fn call(
        &self,
        args: *const *mut PyObject,
        nargsf: usize,
        kwnames: *mut PyObject,
    ) -> *mut PyObject {
        let Some(original) = self.0.get() else {
            // Set before `vectorcall` was made reachable.
            return std::ptr::null_mut();
        };
        // SAFETY: as this function's.
        unsafe { ffi::PyObject_Vectorcall(original.as_ptr(), args, nargsf, kwnames) }
    }
}
