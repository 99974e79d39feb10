//! Calls of coroutine functions in progress: an asynchronous tool's own frames may be gone from the
//! stack while it works.
//!
//! They are kept in a context variable, so that a task knows the calls that it was created under,
//! and each is marked when it ends: a copy of the context from before remembers no call that is
//! over.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::PyTraverseError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::Once;

/// The tracker whose calls callbacks get.
static DEFAULT: Once<Py<CallTracker>> = Once::new();

/// A call in progress, or one that has ended.
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_ActiveCall")]
pub struct ActiveCall {
    call: Py<PyAny>,
    is_active: AtomicBool,
    token: Once<Py<PyAny>>,
}

#[pymethods]
impl ActiveCall {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.call)
    }
}

/// The native base of `CallTracker`.
#[pyclass(frozen, immutable_type, subclass, module = "fastaudit_rs._native", name = "_CallTracker")]
pub struct CallTracker {
    var: Py<PyAny>,
}

#[pymethods]
impl CallTracker {
    #[new]
    #[pyo3(signature = (name="fastaudit_active_calls"))]
    fn new(py: Python<'_>, name: &str) -> PyResult<Self> {
        Ok(Self { var: raw::new_context_var(py, name)?.unbind() })
    }

    #[doc = doc!("_CallTracker.active")]
    fn active<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let mut calls = self.all(py)?;
        calls.retain(|call| call.get().is_active.load(Ordering::Relaxed));
        PyTuple::new(py, calls.iter().map(|call| call.get().call.bind(py)))
    }

    fn _begin(&self, py: Python<'_>, call: Py<PyAny>) -> PyResult<Py<ActiveCall>> {
        let call = ActiveCall { call, is_active: AtomicBool::new(true), token: Once::new() };
        let call = Bound::new(py, call)?;
        let mut calls = self.all(py)?;
        calls.push(call.clone());
        let calls = PyTuple::new(py, calls)?;
        let token = raw::context_var_set(self.var.bind(py), calls.as_any())?;
        let _ = call.get().token.set(py, token.unbind());
        Ok(call.unbind())
    }

    /// Ends it, wherever its context was copied to.
    fn _end(&self, py: Python<'_>, call: &Bound<'_, ActiveCall>) -> PyResult<()> {
        call.get().is_active.store(false, Ordering::Relaxed);
        match call.get().token.get(py) {
            Some(token) => raw::context_var_reset(self.var.bind(py), token.bind(py)),
            None => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.var)
    }
}

impl CallTracker {
    /// The calls of the current context; other values that somebody put into the variable are left
    /// out.
    fn all<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, ActiveCall>>> {
        let calls = raw::context_var_get(py, self.var.bind(py))?;
        let calls = calls.and_then(|calls| calls.cast_into::<PyTuple>().ok());
        let calls = calls.iter().flatten();
        Ok(calls.filter_map(|call| call.cast_into_exact().ok()).collect())
    }
}

/// Gives callbacks the calls of this tracker.
///
/// # Errors
/// `RuntimeError` if callbacks get the calls of another one.
#[pyfunction]
pub fn _use_tracker(py: Python<'_>, tracker: Py<CallTracker>) -> PyResult<()> {
    DEFAULT
        .set(py, tracker)
        .map_err(|_| PyRuntimeError::new_err("callbacks get the calls of another tracker"))
}

/// The tracked calls in progress in the current context.
pub fn active(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    match DEFAULT.get(py) {
        Some(tracker) => tracker.get().active(py),
        None => Ok(PyTuple::empty(py)),
    }
}
