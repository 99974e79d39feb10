//! Denials because of an error inside the guard itself.

use std::borrow::Cow;
use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::python::cpython::ffi as raw;
use crate::python::denials::denial::{self, Decision, Denial, Message};

/// Denies an event because of an error inside the guard itself.
pub fn deny_by_failure(
    py: Python<'_>,
    event: &CStr,
    args: Option<&Bound<'_, PyTuple>>,
    what: &str,
) -> PyErr {
    let event = event.to_string_lossy();
    let message = format!("Audit: {event} denied: fastaudit_rs could not check it ({what})");
    let args = args.cloned().unwrap_or_else(|| PyTuple::empty(py));
    let message = Message::Written(PyString::new(py, &message));
    let event = Cow::Owned(event.into_owned());
    let exception = Denial::new(event, &args, message, Decision::default())
        .and_then(|denial| denial::exception(&Bound::new(py, denial)?));
    match exception {
        Ok(exception) => {
            raw::raise(&exception);
            PyErr::fetch(py)
        }
        Err(error) => error,
    }
}
