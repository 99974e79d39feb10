//! Frames and tracebacks, read without the audit events that reading their attributes raises.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
#[cfg(Py_3_12)]
use pyo3::types::PyDict;
use pyo3::types::{PyFrame, PyTraceback};

/// The frame of the innermost Python code, `None` when there is none.
pub fn current_frame(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: the result is borrowed from the running interpreter frame, or null.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) }
}

/// The globals of the innermost Python code.
#[cfg(Py_3_12)]
pub fn current_globals(py: Python<'_>) -> Option<Bound<'_, PyDict>> {
    // SAFETY: the result is borrowed from the running frame, or null.
    let globals = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetGlobals()) };
    globals.and_then(|globals| globals.cast_into().ok())
}

/// The code of a frame.
pub fn code<'py>(frame: &Bound<'py, PyFrame>) -> Bound<'py, PyAny> {
    // SAFETY: the object is a frame; the result is a new reference and never null.
    unsafe {
        let code = ffi::PyFrame_GetCode(frame.as_ptr().cast());
        Bound::from_owned_ptr(frame.py(), code.cast())
    }
}

/// The frame of a traceback's entry.
pub fn traceback_frame<'py>(entry: &Bound<'py, PyTraceback>) -> Bound<'py, PyAny> {
    // SAFETY: the object is a traceback, whose frame is set when it is made and never changed.
    unsafe {
        let entry_ptr = entry.as_ptr().cast::<ffi::PyTracebackObject>();
        Bound::from_borrowed_ptr(entry.py(), (*entry_ptr).tb_frame.cast())
    }
}
