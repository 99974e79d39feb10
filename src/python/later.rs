//! What guarded code has called by itself later, as the process ends or forks or at a signal: it is
//! called under its guard then.
//!
//! What the standard library registers for itself is left as it is: it cleans up for all.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::OnceLock;

use pyo3::PyTraverseError;
use pyo3::ffi::{self, PyObject};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFrame, PyString, PyTuple};

use super::context::{self, Active, Current};
use super::methods::{Builtin, OwnMethod};
use super::natives::{Called, What};
use super::{ffi as raw, host_code, intercept, lending, raw_frames};

/// The directory of the standard library's code.
static STANDARD_LIBRARY: PyOnceLock<String> = PyOnceLock::new();

/// The C function of `signal.default_int_handler`, which needs no guard: whoever sets a handler looks
/// whether it is the one that is set.
static DEFAULT_HANDLER: OnceLock<usize> = OnceLock::new();

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
        let lent = lending::lend_here(self.active.bind(py))?;
        let result = host_code::call(self.function.bind(py), args, kwargs);
        if let Some(lent) = lent {
            lending::take_back_here(py, lent)?;
        }
        result
    }

    /// The function, as `functools.wraps` has it.
    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let function = host_code::repr(self.function.bind(py))?;
        Ok(format!("<{function} under a guard of fastaudit_rs>"))
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

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.function.bind(py).hash()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.active)
    }
}

/// The method that a thread calls, of a `Later`.
static CALL: OwnMethod = OwnMethod::new(c"call", call_in_thread);

/// The function, to be called in a thread under this guard.
///
/// # Errors
/// `MemoryError`.
pub fn with_guard<'py>(
    function: &Bound<'py, PyAny>,
    active: &Bound<'py, Active>,
) -> PyResult<Bound<'py, PyAny>> {
    let later = Later {
        function: function.clone().unbind(),
        active: active.clone().unbind(),
    };
    CALL.bind(Bound::new(function.py(), later)?.as_any())
}

/// # Safety
/// Called by CPython by the convention `METH_VARARGS | METH_KEYWORDS`, with a `Later`.
unsafe extern "C-unwind" fn call_in_thread(
    later: *mut PyObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the thread is attached; the method is made for a `Later` alone, which the function
    // object keeps alive, and it its function. While that runs nothing is held that unwinding would
    // have to drop: what was lent is a plain pointer then.
    unsafe {
        let begun = intercept::ours(|py| {
            let later = Borrowed::from_ptr(py, later);
            let later = later.cast_unchecked::<Later>().get();
            let lent = lending::lend_here(later.active.bind(py))?;
            let lent = lent.map(|lent| Box::into_raw(Box::new(lent)));
            Ok((lent, later.function.as_ptr()))
        });
        let Some((lent, function)) = begun else {
            return std::ptr::null_mut();
        };
        let result = host_code::object_call()(function, args, kwargs);
        match lent {
            Some(lent) => lending::after(result, |py| {
                lending::take_back_here(py, *Box::from_raw(lent))
            }),
            None => result,
        }
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
    let default = py.import("_signal")?.getattr("default_int_handler")?;
    if let Some(default) = Builtin::cast(&default) {
        DEFAULT_HANDLER.get_or_init(|| default.function() as usize);
    }
    py.get_type::<Later>();
    Ok(())
}

/// Whether the innermost Python code is the standard library's.
fn is_in_standard_library(py: Python<'_>) -> PyResult<bool> {
    let frame = raw_frames::current_frame(py);
    match frame.map(|frame| frame.cast_into::<PyFrame>()) {
        Some(Ok(frame)) => is_standard_library(&raw_frames::code(&frame)),
        _ => Ok(false),
    }
}

/// Whether code is the standard library's, and of no installed package, by its file's name.
///
/// # Errors
/// What reading the name raised.
pub fn is_standard_library(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = code.py();
    let Some(directory) = STANDARD_LIBRARY.get(py) else {
        return Ok(false);
    };
    let file = code.getattr(pyo3::intern!(py, "co_filename"))?;
    let file = file.cast_into::<PyString>()?;
    let file = file.to_string_lossy();
    let rest = file.strip_prefix(directory.as_str());
    Ok(rest.is_some_and(|rest| !rest.contains("-packages")) || file.starts_with("<frozen "))
}

fn is_default_handler(function: &Bound<'_, PyAny>) -> bool {
    Builtin::cast(function)
        .is_some_and(|own| DEFAULT_HANDLER.get() == Some(&(own.function() as usize)))
}

/// The functions of a module that have something called later, and those that tell what that is.
pub fn of(module: &str) -> &'static [(&'static str, What)] {
    match module {
        "atexit" => &[("register", What::Registers(&AT_EXIT))],
        "posix" => &[("register_at_fork", What::Registers(&AT_FORK))],
        "_signal" => &[
            ("signal", What::Registers(&AT_SIGNAL)),
            ("getsignal", What::TellsRegistered),
        ],
        _ => &[],
    }
}

/// What a function has called later.
#[derive(Debug)]
pub struct Registered {
    /// Where it is given: by position, or by name.
    given: &'static [(usize, Option<&'static CStr>)],
    /// Whether Python code of the standard library calls the function for whoever does.
    by_way_of_library: bool,
}

const AT_EXIT: Registered = Registered {
    given: &[(0, None)],
    by_way_of_library: false,
};

const AT_FORK: Registered = Registered {
    given: &[
        (usize::MAX, Some(c"before")),
        (usize::MAX, Some(c"after_in_child")),
        (usize::MAX, Some(c"after_in_parent")),
    ],
    by_way_of_library: false,
};

const AT_SIGNAL: Registered = Registered {
    given: &[(1, None)],
    by_way_of_library: true,
};

/// A call that has something called later.
///
/// # Safety
/// The thread is attached, and the arguments are those of a vectorcall.
pub unsafe fn call(called: Called, registered: &Registered) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe { told(register(called, registered, registered.given)) }
}

/// Makes the call with the guard beside what is given in these places.
///
/// # Safety
/// As `call`.
unsafe fn register(
    called: Called,
    registered: &Registered,
    given: &[(usize, Option<&'static CStr>)],
) -> *mut PyObject {
    let arguments = called.arguments;
    let Some(((index, name), rest)) = given.split_first() else {
        // SAFETY: as this function's.
        return unsafe { called.make(arguments) };
    };
    // SAFETY: as this function's; there is an argument where `position` says so.
    unsafe {
        let Some(at) = arguments.position(*index, *name) else {
            return register(called, registered, rest);
        };
        let function = *arguments.args.add(at);
        let wrapped = intercept::ours(|py| {
            let function = Borrowed::from_ptr(py, function);
            wrap(&function, registered.by_way_of_library)
        });
        match wrapped {
            None => std::ptr::null_mut(),
            Some(None) => register(called, registered, rest),
            Some(Some(later)) => arguments.replacing(at, later, |arguments| {
                register(called.with(arguments), registered, rest)
            }),
        }
    }
}

/// A call that tells what was registered.
///
/// # Safety
/// As `call`.
pub unsafe fn tell(called: Called) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe { told(called.make(called.arguments)) }
}

/// What is told under the guard that it was registered under: the function itself. Elsewhere it stays
/// with its guard, also when it is registered again.
///
/// # Safety
/// The thread is attached; `result` is a new reference or null.
unsafe fn told(result: *mut PyObject) -> *mut PyObject {
    if result.is_null() {
        return result;
    }
    // SAFETY: as this function's.
    let function = unsafe {
        intercept::ours(|py| {
            let result = Borrowed::from_ptr(py, result);
            let Ok(later) = result.cast_exact::<Later>() else {
                return Ok(None);
            };
            let later = later.get();
            Ok(match context::own(py)? {
                Current::Guarded(active) if active.is(&later.active) => {
                    Some(later.function.clone_ref(py).into_ptr())
                }
                _ => None,
            })
        })
    };
    if let Some(None) = function {
        return result;
    }
    // SAFETY: as this function's; the reference is given away.
    unsafe { raw::with_attachment_counted(|| ffi::Py_DECREF(result)) };
    function.flatten().unwrap_or(std::ptr::null_mut())
}

/// A new reference to the function with the guard in force; `None` where it is left as it is.
fn wrap(function: &Bound<'_, PyAny>, by_way_of_library: bool) -> PyResult<Option<*mut PyObject>> {
    let py = function.py();
    let Current::Guarded(active) = context::own(py)? else {
        return Ok(None);
    };
    if !function.is_callable()
        || is_default_handler(function)
        || (!by_way_of_library && is_in_standard_library(py)?)
    {
        return Ok(None);
    }
    let later = Later {
        function: function.clone().unbind(),
        active: active.unbind(),
    };
    Ok(Some(Bound::new(py, later)?.into_ptr()))
}
