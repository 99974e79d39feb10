//! The audit hook (PEP 578) as CPython calls it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;

use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// `Py_AuditHookFunction` of the C API.
type AuditHook = unsafe extern "C" fn(*const c_char, *mut PyObject, *mut c_void) -> c_int;

unsafe extern "C" {
    fn PySys_AddAuditHook(hook: AuditHook, data: *mut c_void) -> c_int;
}

#[derive(Clone, Copy)]
pub struct Raised<'a> {
    name: *const c_char,
    args: *mut PyObject,
    event: PhantomData<&'a CStr>,
}

impl<'a> Raised<'a> {
    #[inline(always)]
    pub fn first_byte(self) -> u8 {
        // SAFETY: the name has a byte at least, as it is NUL-terminated.
        unsafe { *self.name.cast::<u8>() }
    }

    #[inline]
    pub fn name(self) -> &'a CStr {
        // SAFETY: the name is NUL-terminated, and lives while the event is raised.
        unsafe { CStr::from_ptr(self.name) }
    }

    #[inline(always)]
    pub fn with_args<R>(self, look: impl FnOnce(&Bound<'_, PyTuple>) -> R) -> R {
        // SAFETY: CPython raises no event on a thread that is not attached: it makes the tuple of
        // arguments there, and holds it for the duration of the call.
        unsafe {
            let py = Python::assume_attached();
            look(Bound::ref_from_ptr(py, &self.args).cast_unchecked())
        }
    }
}

/// The verdict on an event, as CPython takes it.
pub struct HookVerdict(c_int);

impl HookVerdict {
    /// The event passes.
    pub const ALLOWED: Self = Self(0);
    /// It does not, and the exception is set.
    pub const DENIED: Self = Self(-1);
}

impl From<Result<(), ()>> for HookVerdict {
    #[inline]
    fn from(result: Result<(), ()>) -> Self {
        match result {
            Ok(()) => Self::ALLOWED,
            Err(()) => Self::DENIED,
        }
    }
}

/// A hook: a type without values, so that the compiler makes one function of it and CPython's call.
pub trait Hook: 'static {
    /// Judges an event. Must not panic.
    fn judge(event: Raised<'_>) -> HookVerdict;
}

/// # Safety
/// Called by CPython, with the event's name and its tuple of arguments.
unsafe extern "C" fn hook<H: Hook>(
    name: *const c_char,
    args: *mut PyObject,
    _data: *mut c_void,
) -> c_int {
    let event = Raised { name, args, event: PhantomData };
    H::judge(event).0
}

/// Adds a native audit hook for the rest of the process's life.
///
/// # Errors
/// The error by which an earlier hook vetoed it. CPython reports a veto by a `RuntimeError` as
/// success: probe for the hook.
pub fn add<H: Hook>(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the thread is attached, and the hook is a function, which lives for ever.
    match unsafe { PySys_AddAuditHook(hook::<H>, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(py)),
    }
}
