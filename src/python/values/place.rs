//! The place in the user's own files where a denied operation was asked for.
//!
//! A library often swallows a denial, and its traceback with it, so the place is noted when the
//! denial is made. It keeps nothing of the code.

use std::ffi::c_int;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::cpython::calling::Calling;
use crate::python::cpython::code_notes;
use crate::python::cpython::frames;
use crate::python::cpython::once::intern;
use crate::python::cpython::text::plain_str;
use crate::python::values::imports;
use crate::python::values::stack;
use crate::python::values::stdlib;

/// A place in a file.
pub enum Place {
    /// A line of a file.
    At(Py<PyString>, c_int),
    /// As another process reported it.
    Told(String),
}

/// The endings of the directories that packages are installed in.
const INSTALLED: [&str; 2] = ["site-packages", "dist-packages"];

/// Returns the innermost running code that is the user's: not of the standard library, an installed
/// package or this one. `None` if all of it is.
pub fn here(py: Python<'_>) -> PyResult<Option<Place>> {
    let mut frame = frames::current_frame(py);
    while let Some(current) = frame {
        let code = frames::code(current.cast()?);
        if is_of_user(&code, &current)? {
            let line = frames::line(&code, frames::last_instruction(&current));
            return Ok(Some(Place::At(file_of(&code)?.unbind(), line)));
        }
        frame = stack::outer(&current)?;
    }
    Ok(None)
}

/// The notes on code that was looked at.
const OF_USER: usize = 1;
const OF_OTHERS: usize = 2;

/// Returns whether the code of a frame is the user's. It is looked at once: neither its file nor
/// the module that it is of changes.
fn is_of_user(code: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    match code_notes::get(code, code_notes::ORIGIN) {
        OF_USER => Ok(true),
        OF_OTHERS => Ok(false),
        _ => {
            let is_of_user = !is_of_library(code)? && !stack::is_of_this_package(frame)?;
            let note = if is_of_user { OF_USER } else { OF_OTHERS };
            code_notes::set(code, code_notes::ORIGIN, note);
            Ok(is_of_user)
        }
    }
}

/// Returns whether code is of the standard library or an installed package, by the name of its
/// file.
pub fn is_of_library(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    if stdlib::is_standard_library(code)? || imports::is_installed(code)? {
        return Ok(true);
    }
    let file = file_of(code)?;
    let file = file.to_string_lossy();
    let mut parts = file.split(['/', '\\']);
    Ok(parts.any(|part| INSTALLED.contains(&part)))
}

/// The file that code is from.
pub fn file_of<'py>(code: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let file = code.attr(intern!(code.py(), "co_filename"))?;
    plain_str(file.cast_into()?)
}

impl Place {
    /// `file:line`.
    pub fn text(&self, py: Python<'_>) -> String {
        match self {
            Self::At(file, line) => format!("{}:{line}", file.bind(py).to_string_lossy()),
            Self::Told(text) => text.clone(),
        }
    }
}
