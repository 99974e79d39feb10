//! A guard that is carried into the threads that start under it.
//!
//! CPython starts a thread with an empty context. Under a policy whose `threads` are `"inherit"`
//! what the new thread is to call is put behind an object of ours, which enters the guard first.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::PyTraverseError;
use pyo3::ffi::{self, PyObject};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::context::{self, Active, Current};
use super::ffi as raw;
use super::intercept::Original;

static START_NEW_THREAD: Original = Original::unknown();
static START_NEW: Original = Original::unknown();
static START_JOINABLE_THREAD: Original = Original::unknown();

/// What a new thread calls, and the guard that it does so under.
#[pyclass(frozen, module = "fastaudit_rs._native", name = "_Carried")]
pub struct Carried {
    function: Py<PyAny>,
    active: Py<Active>,
    is_started: AtomicBool,
}

#[pymethods]
impl Carried {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        // Whoever gets hold of it and calls it later only calls the function.
        if !self.is_started.swap(true, Ordering::Relaxed) {
            context::carry(py, &self.active)?;
        }
        self.function.bind(py).call(args, kwargs)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.function.bind(py).repr()?.to_string())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.active)
    }
}

/// Whether the argument of a thread's event is a function with its guard.
pub fn is_carried(function: &Bound<'_, PyAny>) -> bool {
    function.is_exact_instance_of::<Carried>()
}

/// Has the functions that start threads carry guards into them.
///
/// # Errors
/// What importing `_thread` raises.
pub fn install(py: Python<'_>) -> PyResult<()> {
    // SAFETY: each function calls the original that it stands for.
    unsafe {
        START_NEW_THREAD.replace(py, "_thread", "start_new_thread", start_new_thread)?;
        START_NEW.replace(py, "_thread", "start_new", start_new)?;
        START_JOINABLE_THREAD.replace(
            py,
            "_thread",
            "start_joinable_thread",
            start_joinable_thread,
        )
    }
}

/// # Safety
/// Called by CPython by the vectorcall convention.
unsafe extern "C" fn start_new_thread(
    _callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe { start(&START_NEW_THREAD, args, nargsf, kwnames) }
}

/// # Safety
/// Called by CPython by the vectorcall convention.
unsafe extern "C" fn start_new(
    _callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe { start(&START_NEW, args, nargsf, kwnames) }
}

/// # Safety
/// Called by CPython by the vectorcall convention.
unsafe extern "C" fn start_joinable_thread(
    _callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe { start(&START_JOINABLE_THREAD, args, nargsf, kwnames) }
}

/// Starts a thread, with the guard that is in force if its policy says so.
///
/// # Safety
/// The thread is attached, and the arguments are those of a vectorcall.
unsafe fn start(
    original: &Original,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's; at most `count` arguments are read, which live for the call.
    unsafe {
        if !context::may_be_guarded() {
            return original.call(args, nargsf, kwnames);
        }
        let py = Python::assume_attached();
        let positional = ffi::PyVectorcall_NARGS(nargsf) as usize;
        let named = if kwnames.is_null() {
            0
        } else {
            ffi::PyTuple_GET_SIZE(kwnames) as usize
        };
        let count = positional + named;
        let at = if positional > 0 {
            Some(0)
        } else {
            (0..named).find(|&index| {
                let name = ffi::PyTuple_GET_ITEM(kwnames, index as isize);
                ffi::PyUnicode_CompareWithASCIIString(name, c"function".as_ptr()) == 0
            })
        };
        let Some(at) = at else {
            return original.call(args, nargsf, kwnames);
        };
        let function = Borrowed::from_ptr(py, *args.add(at));
        // A panic must not get to CPython; without the guard the event is denied.
        let carried = catch_unwind(AssertUnwindSafe(|| {
            raw::with_attachment_counted(|| carried(&function))
        }));
        let carried = match carried {
            Ok(Ok(Some(carried))) => carried,
            Ok(Err(error)) => {
                raw::with_attachment_counted(|| error.restore(py));
                return std::ptr::null_mut();
            }
            Ok(Ok(None)) | Err(_) => return original.call(args, nargsf, kwnames),
        };
        let mut all: Vec<_> = (0..count).map(|index| *args.add(index)).collect();
        all[at] = carried.as_ptr();
        original.call(all.as_ptr(), positional, kwnames)
    }
}

/// The function with the guard in force, where its policy lets threads start.
///
/// # Errors
/// Before 3.12, which raises no event for a thread: the denial of ours.
fn carried<'py>(function: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, Carried>>> {
    let py = function.py();
    let Current::Guarded(active) = context::current(py)? else {
        return Ok(None);
    };
    let carries = active.get().config().is_some_and(|config| {
        let rest = config.get().policy().rest();
        rest.threads || !rest.import_allow.is_empty() || config.get().records().is_some()
    });
    let is_of_policy = active
        .get()
        .config()
        .is_some_and(|config| config.get().is_of_policy());
    if !function.is_callable() || !is_of_policy {
        return Ok(None);
    }
    let carried = Carried {
        function: function.clone().unbind(),
        active: active.unbind(),
        is_started: AtomicBool::new(false),
    };
    let carried = Bound::new(py, carried)?;
    #[cfg(not(Py_3_12))]
    {
        let none = py.None().into_bound(py);
        let function = if carries { carried.as_any() } else { function };
        let empty = PyTuple::empty(py);
        let args: &[&Bound<'_, PyAny>] = &[function, empty.as_any(), &none];
        raw::audit(py, c"_thread.start_new_thread", args)?;
    }
    Ok(carries.then_some(carried))
}
