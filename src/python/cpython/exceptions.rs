//! Exceptions, read and chained without their own methods.

use pyo3::exceptions::PyBaseException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The arguments that an exception was made with.
pub fn args<'py>(error: &Bound<'py, PyBaseException>) -> Option<Bound<'py, PyTuple>> {
    let object = error.as_ptr().cast::<ffi::PyBaseExceptionObject>();
    // SAFETY: the object is an exception, and its arguments are null or a tuple.
    unsafe {
        let args = Bound::from_borrowed_ptr_or_opt(error.py(), (*object).args)?;
        args.cast_into().ok()
    }
}

/// The exception that led to one: its cause, or the one that was handled as it was raised.
pub fn before<'py>(error: &Bound<'py, PyBaseException>) -> Option<Bound<'py, PyBaseException>> {
    // SAFETY: the object is an exception; both functions return a new reference, or null.
    let before = unsafe {
        let cause = ffi::PyException_GetCause(error.as_ptr());
        let before = match cause.is_null() {
            true => ffi::PyException_GetContext(error.as_ptr()),
            false => cause,
        };
        Bound::from_owned_ptr_or_opt(error.py(), before)?
    };
    before.cast_into().ok()
}

/// Says that another exception is the direct cause of this one.
pub fn set_cause(error: &Bound<'_, PyBaseException>, cause: Bound<'_, PyAny>) {
    // SAFETY: both are exceptions, and the function takes the reference.
    unsafe { ffi::PyException_SetCause(error.as_ptr(), cause.into_ptr()) };
}
