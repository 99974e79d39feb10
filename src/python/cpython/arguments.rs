//! The arguments of a call of a native function, by the vectorcall convention (PEP 590).

use std::ffi::CStr;
use std::mem::ManuallyDrop;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::python::cpython::ffi as raw;

/// Arguments, which live for the call.
#[derive(Clone, Copy)]
pub struct Arguments {
    pub args: *const *mut PyObject,
    pub nargsf: usize,
    pub kwnames: *mut PyObject,
}

impl Arguments {
    /// Returns the number of positional arguments.
    pub fn positional(&self) -> usize {
        // SAFETY: only takes a bit away.
        unsafe { ffi::PyVectorcall_NARGS(self.nargsf) as usize }
    }

    /// Returns the number of arguments given by name.
    fn named(&self) -> usize {
        if self.kwnames.is_null() {
            return 0;
        }
        // SAFETY: the names are a tuple, which lives for the call.
        unsafe { ffi::PyTuple_GET_SIZE(self.kwnames) as usize }
    }

    /// Returns the place of the argument at this position, or of this name.
    pub fn position(&self, index: usize, name: Option<&CStr>) -> Option<usize> {
        if index < self.positional() {
            return Some(index);
        }
        let name = name?;
        // SAFETY: the names are a tuple of str, which lives for the call.
        let is_named = |at: &usize| unsafe {
            let own = ffi::PyTuple_GET_ITEM(self.kwnames, *at as isize);
            ffi::PyUnicode_CompareWithASCIIString(own, name.as_ptr()) == 0
        };
        let at = (0..self.named()).find(is_named)?;
        Some(self.positional() + at)
    }

    /// The argument that is there.
    ///
    /// # Safety
    /// `position` gave the place; the arguments are those of a call that is being made.
    pub unsafe fn at<'py>(&self, py: Python<'py>, position: usize) -> Bound<'py, PyAny> {
        // SAFETY: as this function's.
        unsafe { Bound::from_borrowed_ptr(py, *self.args.add(position)) }
    }

    /// The argument at this position, or of this name.
    ///
    /// # Safety
    /// The arguments are those of a call that is being made.
    pub unsafe fn find<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        name: Option<&CStr>,
    ) -> Option<Bound<'py, PyAny>> {
        let position = self.position(index, name)?;
        // SAFETY: as this function's.
        Some(unsafe { self.at(py, position) })
    }

    /// Makes a call with another object in the place of one argument, and drops the object.
    ///
    /// # Safety
    /// The thread is attached; the arguments are those of a call that is being made, and there is
    /// one at `position`; the reference to `object` is given away.
    pub unsafe fn replacing(
        self,
        position: usize,
        object: *mut PyObject,
        call: impl FnOnce(Self) -> *mut PyObject,
    ) -> *mut PyObject {
        let count = self.positional() + self.named();
        // SAFETY: as this function's. While the call is made there is nothing to drop: see
        // `methods::Vectorcall`.
        unsafe {
            let given = std::slice::from_raw_parts(self.args, count);
            let mut all = ManuallyDrop::new(given.to_vec());
            all[position] = object;
            let result = call(Self {
                args: all.as_ptr(),
                nargsf: self.positional(),
                kwnames: self.kwnames,
            });
            ManuallyDrop::drop(&mut all);
            raw::with_attachment_counted(|| ffi::Py_DECREF(object));
            result
        }
    }
}
