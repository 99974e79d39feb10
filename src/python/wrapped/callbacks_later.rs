//! What guarded code puts off. Functions that it registers to be called later, as the process ends or
//! forks or at a signal, are called under its guard then; its lazy imports become eager ones.
//!
//! Functions that the standard library registers for itself are left as they are: they clean up for
//! all.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::OnceLock;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PyTuple};

use crate::python::configuration::approvals::Marked;
use crate::python::cpython::called::{Called, Returned, ours};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::functions::Builtin;
use crate::python::cpython::{frames, process};
use crate::python::guard::scope::{self, Active, Current};
use crate::python::guard::{carry, copies};
use crate::python::importing::{imports, stdlib};

/// The C function of `signal.default_int_handler`: code compares the current handler with it.
static DEFAULT_HANDLER: OnceLock<usize> = OnceLock::new();

#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Later")]
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
        let before = process::branch();
        let lent = carry::lend_here(self.active.bind(py))?;
        let result = calling::call(self.function.bind(py), args, kwargs);
        if let Some(lent) = lent {
            carry::take_back_here(py, lent)?;
        }
        copies::result_of(py, before, result)
    }

    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let function = self.function.bind(py).shown()?;
        Ok(format!("<{function} under a guard of fastaudit_rs>"))
    }

    /// Equal to its function, so that the function can be unregistered.
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
        calling::compare(self.function.bind(py), other, op)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        calling::hash(self.function.bind(py))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.active)
    }
}

pub fn prepare(py: Python<'_>) -> PyResult<()> {
    let default = calling::import(py, "_signal")?.attr("default_int_handler")?;
    if let Some(default) = Builtin::cast(&default) {
        DEFAULT_HANDLER.get_or_init(|| default.function() as usize);
    }
    py.get_type::<Later>();
    Ok(())
}

/// Returns whether the innermost Python code is the standard library's.
fn is_in_standard_library(py: Python<'_>) -> PyResult<bool> {
    match frames::current_frame(py) {
        Some(frame) => stdlib::is_standard_library(&frames::code(&frame)),
        None => Ok(false),
    }
}

fn is_default_handler(function: &Bound<'_, PyAny>) -> bool {
    Builtin::cast(function)
        .is_some_and(|own| DEFAULT_HANDLER.get() == Some(&(own.function() as usize)))
}

/// The callbacks that a function takes for later.
#[derive(Debug)]
pub struct Registered {
    /// The place of the callback: by position, or by name.
    pub given: &'static [(usize, Option<&'static CStr>)],
    /// True if Python code of the standard library calls the function for its own callers.
    pub by_way_of_library: bool,
}

pub const AT_EXIT: Registered = Registered { given: &[(0, None)], by_way_of_library: false };

pub const AT_FORK: Registered = Registered {
    given: &[
        (usize::MAX, Some(c"before")),
        (usize::MAX, Some(c"after_in_child")),
        (usize::MAX, Some(c"after_in_parent")),
    ],
    by_way_of_library: false,
};

pub const AT_SIGNAL: Registered = Registered { given: &[(1, None)], by_way_of_library: true };

pub fn call(called: Called<'_>, registered: &Registered) -> Returned {
    told(called.py, register(called, registered, registered.given))
}

/// Makes the call with the callbacks in these places put under the guard.
fn register(
    called: Called<'_>,
    registered: &Registered,
    given: &[(usize, Option<&'static CStr>)],
) -> Returned {
    let Some(((index, name), rest)) = given.split_first() else {
        return called.make();
    };
    let Some(at) = called.arguments.position(*index, *name) else {
        return register(called, registered, rest);
    };
    let by_way_of_library = registered.by_way_of_library;
    let later = |py| wrap(&called.arguments.at(py, at), by_way_of_library);
    called.replacing_with(at, later, |called| register(called, registered, rest))
}

pub fn tell(called: Called<'_>) -> Returned {
    told(called.py, called.make())
}

thread_local! {
    /// This module asks for a handler: it is told as it is.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether Python calls a function for a signal that guarded code may send to its process:
/// one that such code registered, or on the first thread, the one that raises `KeyboardInterrupt`.
pub fn is_handled(py: Python<'_>, signal: i32) -> PyResult<bool> {
    let asking = Marked::begin(&ASKING);
    let handler = calling::import(py, "_signal")?.invoke_method1("getsignal", (signal,));
    drop(asking);
    // There is no such signal.
    let Ok(handler) = handler else { return Ok(false) };
    let is_first = rustix::thread::gettid() == rustix::process::getpid();
    Ok(handler.is_exact_instance_of::<Later>() || (is_first && is_default_handler(&handler)))
}

/// Returns the function itself to the guard that registered it; elsewhere it keeps its guard.
fn told(py: Python<'_>, result: Returned) -> Returned {
    let Some(told) = result.object(py).filter(|_| !ASKING.get()) else {
        return result;
    };
    let function = ours(py, |py| {
        let Ok(later) = told.cast_exact::<Later>() else {
            return Ok(None);
        };
        let later = later.get();
        Ok(match scope::own(py)? {
            Current::Guarded(active) if active.is(&later.active) => {
                Some(later.function.bind(py).clone())
            }
            _ => None,
        })
    });
    match function {
        Some(None) => result,
        Some(Some(function)) => result.instead(py, function.into()),
        None => result.instead(py, Returned::failed()),
    }
}

/// The function with the guard in force; `None` if it stays as it is.
fn wrap<'py>(
    function: &Bound<'py, PyAny>,
    by_way_of_library: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = function.py();
    if !function.is_callable()
        || is_default_handler(function)
        || (!by_way_of_library && is_in_standard_library(py)?)
    {
        return Ok(None);
    }
    let Some(active) = scope::guard(py)? else {
        return Ok(None);
    };
    let later = Later { function: function.clone().unbind(), active: active.unbind() };
    Ok(Some(Bound::new(py, later)?.into_any()))
}

// Lazy imports of code under a guard, which become eager ones: a lazy one runs where its name is
// used first, be it after the guard (PEP 810, Python 3.15).
//
// Modules of the standard library and of installed packages keep theirs.

pub fn prepare_lazy(py: Python<'_>) -> PyResult<()> {
    imports::prepare_filter(py, || Ok(wrap_pyfunction!(may_be_lazy, py)?.into_any()))
}

/// Returns whether an import that is written as a lazy one is: CPython's filter.
#[pyfunction]
fn may_be_lazy<'py>(
    importer: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
    names: &Bound<'py, PyAny>,
) -> PyResult<bool> {
    let py = importer.py();
    if !scope::in_force(py)?.is_empty() {
        let Some(frame) = frames::current_frame(py) else {
            return Ok(false);
        };
        if !imports::is_installed(&frames::code(&frame))? {
            return Ok(false);
        }
    }
    let Some(filter) = imports::filter_of_host(py) else {
        return Ok(true);
    };
    let given = PyTuple::new(py, [importer, name, names])?;
    calling::is_true(&calling::call(filter.bind(py), &given, None)?)
}
