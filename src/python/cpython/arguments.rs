//! The arguments of a call of a native function, by the vectorcall convention (PEP 590).

use std::ffi::CStr;
use std::marker::PhantomData;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

/// `PY_VECTORCALL_ARGUMENTS_OFFSET`: the bit that says that the place before the first may be used.
const OFFSET: usize = 1 << (usize::BITS - 1);

/// Returns the number of positional arguments that a vectorcall has.
#[inline(always)]
pub(super) fn positional(nargsf: usize) -> usize {
    nargsf & !OFFSET
}

/// Arguments, which live for the call.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    pub(super) args: *const *mut PyObject,
    pub(super) nargsf: usize,
    pub(super) kwnames: *mut PyObject,
    call: PhantomData<&'a PyObject>,
}

impl<'a> Arguments<'a> {
    /// The arguments as CPython passes them.
    ///
    /// # Safety
    /// There are as many as `nargsf` says and one more for each name; `kwnames` is a tuple of `str`, or
    /// null. All of that lives for `'a`, in which the thread stays attached.
    #[inline]
    pub(super) unsafe fn new(
        args: *const *mut PyObject,
        nargsf: usize,
        kwnames: *mut PyObject,
    ) -> Self {
        Self {
            args,
            nargsf,
            kwnames,
            call: PhantomData,
        }
    }

    /// Returns the number of positional arguments.
    #[inline]
    pub fn positional(&self) -> usize {
        positional(self.nargsf)
    }

    /// Returns the number of arguments given by name.
    pub fn named(&self) -> usize {
        if self.kwnames.is_null() {
            return 0;
        }
        // SAFETY: the names are a tuple, which lives for the call.
        unsafe { ffi::PyTuple_GET_SIZE(self.kwnames) as usize }
    }

    /// The arguments, by position and then by name, as addresses.
    pub(super) fn all(&self) -> &'a [*mut PyObject] {
        match self.positional() + self.named() {
            0 => &[],
            // SAFETY: there are so many, which live for the call.
            count => unsafe { std::slice::from_raw_parts(self.args, count) },
        }
    }

    /// Returns the place of the argument at this position, or of this name.
    pub fn position(&self, index: usize, name: Option<&CStr>) -> Option<usize> {
        if index < self.positional() {
            return Some(index);
        }
        let name = name?;
        let at = (0..self.named()).find(|at| self.is_named(*at, name))?;
        Some(self.positional() + at)
    }

    fn is_named(&self, at: usize, name: &CStr) -> bool {
        // SAFETY: the names are a tuple of str with so many, which lives for the call.
        unsafe {
            let own = ffi::PyTuple_GET_ITEM(self.kwnames, at as isize);
            ffi::PyUnicode_CompareWithASCIIString(own, name.as_ptr()) == 0
        }
    }

    /// The argument at an index that `position` gave.
    ///
    /// # Panics
    /// When there is none.
    pub fn at<'py>(&self, py: Python<'py>, position: usize) -> Bound<'py, PyAny> {
        let given = self.all()[position];
        // SAFETY: it is an object, which the caller of the function holds.
        unsafe { Bound::from_borrowed_ptr(py, given) }
    }

    /// The argument at this position, or of this name.
    pub fn find<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        name: Option<&CStr>,
    ) -> Option<Bound<'py, PyAny>> {
        Some(self.at(py, self.position(index, name)?))
    }
}
