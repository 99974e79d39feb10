//! Methods of our own that are called with nothing of PyO3's on the stack.

use std::cell::UnsafeCell;
use std::ffi::CStr;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::python::cpython::conventions::WithKeywords;
use crate::python::cpython::functions::Builtin;
use crate::python::cpython::replace::{WrappedByTuple, by_tuple};

/// A method of our own that threads call. PyO3 does not make it, as PyO3 would catch the unwinding
/// that ends a daemon thread: see `Vectorcall`.
pub struct OwnMethod(UnsafeCell<ffi::PyMethodDef>);

// SAFETY: CPython reads it, and nobody writes to it.
unsafe impl Sync for OwnMethod {}

impl OwnMethod {
    /// The method of this name.
    pub const fn new<W: WrappedByTuple>(name: &'static CStr) -> Self {
        Self(UnsafeCell::new(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer {
                // SAFETY: the two differ in whether they may be unwound alone.
                PyCFunctionWithKeywords: unsafe {
                    std::mem::transmute::<WithKeywords, ffi::PyCFunctionWithKeywords>(by_tuple::<W>)
                },
            },
            ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
            ml_doc: std::ptr::null(),
        }))
    }

    /// The function object that calls the method of an object, which it keeps alive.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn bind<'py>(&'static self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the method lives for ever; a new reference or null.
        unsafe {
            let bound = ffi::PyCFunction_NewEx(self.0.get(), object.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(object.py(), bound)
        }
    }

    /// Returns whether the function object calls it.
    pub fn is_method_of(&self, function: &Builtin<'_, '_>) -> bool {
        std::ptr::eq(function.method(), self.0.get())
    }
}
