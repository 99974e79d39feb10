//! The denial behind a library's own error: native code that is denied gets `EACCES`, and its library
//! raises what it raises then.

use pyo3::exceptions::{PyBaseException, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::cpython::exceptions;
use crate::python::cpython::ffi as raw;
use crate::python::denials::denial::{self, Denial};
use crate::python::guard::log::Log;

/// The error number for permission that was denied: errno(3).
const EACCES: i64 = 13;

/// The exceptions of a chain that are looked at, and the denials.
const MOST: usize = 20;

/// Makes the last denial of native code that an error tells of its cause, so that a traceback shows
/// it.
pub fn explain(error: &Bound<'_, PyAny>, log: &Log) {
    let Ok(error) = error.cast::<PyBaseException>() else {
        return;
    };
    let Some(first) = first_of(error) else {
        return;
    };
    let kept = log.kept(error.py());
    let denials = kept.iter().rev().take(MOST);
    let mut denials = denials.filter_map(|denial| denial.cast_exact::<Denial>().ok());
    let told = denials.find(|denial| tells_of(&first, denial.get()));
    if let Some(denial) = told
        && let Ok(cause) = denial::exception(denial)
    {
        exceptions::set_cause(&first, cause);
    }
}

/// The exception that a chain began with; `None` of a chain that goes on for ever.
fn first_of<'py>(error: &Bound<'py, PyBaseException>) -> Option<Bound<'py, PyBaseException>> {
    let mut first = error.clone();
    for _ in 0..MOST {
        match exceptions::before(&first) {
            Some(before) => first = before,
            None => return Some(first),
        }
    }
    None
}

/// Returns whether an error is of a denial of native code: it says that permission was denied, or
/// names the path.
fn tells_of(error: &Bound<'_, PyBaseException>, denial: &Denial) -> bool {
    let Some(args) = exceptions::args(error).filter(|_| denial.is_of_native_code()) else {
        return false;
    };
    let path = denial.path_text(error.py());
    let is_of_system = error.is_instance_of::<PyOSError>();
    args.iter().any(|arg| {
        if is_of_system && raw::int_value(&arg) == Some(EACCES) {
            return true;
        }
        let Ok(text) = arg.cast::<PyString>() else {
            return false;
        };
        let text = text.to_string_lossy();
        text.contains("ermission denied") || path.as_ref().is_some_and(|path| text.contains(path))
    })
}
