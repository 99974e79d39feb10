//! What guarded code has called as the process ends (`atexit`): it is called under its guard then.
//!
//! What the standard library registers for itself is left as it is: it cleans up for all.
#![allow(unsafe_code)]

use pyo3::PyTraverseError;
use pyo3::ffi::{self, PyObject};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFrame, PyString, PyTuple};

use super::context::{self, Active, Current};
use super::natives::Called;
use super::{ffi as raw, host_code, intercept, raw_frames};

/// The directory of the standard library's code.
static STANDARD_LIBRARY: PyOnceLock<String> = PyOnceLock::new();

/// A function, and the guard that it is called under.
#[pyclass(frozen, module = "fastaudit_rs._native", name = "_Later")]
pub struct Later {
    function: Py<PyAny>,
    active: Py<Active>,
}

#[pymethods]
impl Later {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let lent = match context::own(py)? {
            Current::Unguarded => Some(context::put(py, &self.active)?),
            Current::Guarded(_) | Current::Tampered => None,
        };
        let result = host_code::call(self.function.bind(py), args, kwargs);
        if let Some(lent) = lent {
            context::put_back(py, &lent)?;
        }
        result
    }

    /// Equal to its function, so that this can be unregistered.
    fn __richcmp__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
        op: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let other = match other.cast_exact::<Self>() {
            Ok(other) => other.get().function.bind(py),
            Err(_) => other,
        };
        self.function.bind(py).rich_compare(other, op)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.active)
    }
}

/// Learns where the standard library is.
///
/// # Errors
/// What importing `os` raises.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    STANDARD_LIBRARY.get_or_try_init(py, || {
        let file = py.import("os")?.getattr("__file__")?.extract::<String>()?;
        let directory = file
            .rsplit_once(['/', '\\'])
            .map_or("", |(directory, _)| directory);
        Ok::<_, PyErr>(directory.to_owned())
    })?;
    py.get_type::<Later>();
    Ok(())
}

/// Whether the innermost Python code is the standard library's, and of no installed package.
fn is_standard_library(py: Python<'_>) -> PyResult<bool> {
    let (Some(directory), Some(frame)) = (STANDARD_LIBRARY.get(py), raw_frames::current_frame(py))
    else {
        return Ok(false);
    };
    let Ok(frame) = frame.cast_into::<PyFrame>() else {
        return Ok(false);
    };
    let file = raw_frames::code(&frame).getattr(pyo3::intern!(py, "co_filename"))?;
    let file = file.cast_into::<PyString>()?;
    let file = file.to_string_lossy();
    let rest = file.strip_prefix(directory.as_str());
    Ok(rest.is_some_and(|rest| !rest.contains("-packages")) || file.starts_with("<frozen "))
}

/// `atexit.register(function, *args, **kwargs)`.
///
/// # Safety
/// The thread is attached, and the arguments are those of a vectorcall.
pub unsafe fn call(called: Called) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe {
        if called.arguments.positional() == 0 {
            return called.make(called.arguments);
        }
        let function = *called.arguments.args;
        let later = match intercept::ours(|py| wrap(&Borrowed::from_ptr(py, function))) {
            None => return std::ptr::null_mut(),
            Some(None) => return called.make(called.arguments),
            Some(Some(later)) => later,
        };
        let make = |arguments| called.make(arguments);
        let result = called.arguments.replacing(0, later, make);
        if result.is_null() {
            return result;
        }
        // It returns what it was given.
        raw::with_attachment_counted(|| ffi::Py_DECREF(result));
        ffi::Py_NewRef(function)
    }
}

/// A new reference to the function with the guard in force; `None` where it is left as it is.
fn wrap(function: &Bound<'_, PyAny>) -> PyResult<Option<*mut PyObject>> {
    let py = function.py();
    let Current::Guarded(active) = context::own(py)? else {
        return Ok(None);
    };
    if !function.is_callable() || is_standard_library(py)? {
        return Ok(None);
    }
    let later = Later {
        function: function.clone().unbind(),
        active: active.unbind(),
    };
    Ok(Some(Bound::new(py, later)?.into_ptr()))
}
