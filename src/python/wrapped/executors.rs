//! Jobs for the threads of a `ThreadPoolExecutor`: each has the guard of the code that submits it,
//! and no other.
//!
//! The threads often run already, or are used by others too, so that the guard of a thread says
//! nothing of its jobs. An executor passes them on in a `SimpleQueue`, where an object of ours
//! replaces each job. It runs the job under the guard that was in force as it was put there, or
//! under none, also if the thread was started under another guard.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use pyo3::PyTraverseError;
use pyo3::ffi::{self, PyObject};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use crate::python::cpython::arguments::Arguments;
use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::forks;
use crate::python::cpython::frames;
use crate::python::cpython::functions::{KEYWORDS, Keywords, Method, OwnMethod};
use crate::python::cpython::replace;
use crate::python::guard::carry::{self, Lent};
use crate::python::guard::scope::{self, Active, Current};
use crate::python::values::imports;
use crate::python::wrapped::threads;

/// The module of the queue's class.
pub const MODULE: &str = "_queue";

/// The module of executors, its class of jobs, and the function of its threads.
const EXECUTORS: (&str, &str, &str) = ("concurrent.futures.thread", "_WorkItem", "_worker");

static PUT: OnceLock<Method> = OnceLock::new();
static PUT_NOWAIT: OnceLock<Method> = OnceLock::new();

/// The class of jobs, as it was when it was first needed: its name may stand for another one later.
static JOBS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Routes the calls of executors' queues here.
pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
    let Some(class) = module.getattr_opt("SimpleQueue")? else {
        return Ok(());
    };
    let Ok(class) = class.cast_into::<PyType>() else {
        return Ok(());
    };
    let with = |function: *mut ()| move |convention| (convention == KEYWORDS).then_some(function);
    // SAFETY: the functions have the convention, and call the original.
    unsafe {
        Method::replace(&class, "put", &PUT, with(put as *mut ()))?;
        Method::replace(
            &class,
            "put_nowait",
            &PUT_NOWAIT,
            with(put_nowait as *mut ()),
        )?;
    }
    jobs(module.py()).map(|_| ())
}

/// The class of jobs, once there is one.
fn jobs(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyType>>> {
    if JOBS.get(py).is_none() {
        let module = raw::imported_module(py, pyo3::intern!(py, EXECUTORS.0))?;
        let Some(module) = module else {
            return Ok(None);
        };
        let class = calling::getattr_opt(&module, pyo3::intern!(py, EXECUTORS.1))?;
        if let Some(Ok(class)) = class.map(Bound::cast_into::<PyType>) {
            let _ = JOBS.set(py, class.unbind());
        }
    }
    Ok(JOBS.get(py).map(|class| class.bind(py)))
}

/// # Safety
/// Called by CPython by the convention `METH_FASTCALL | METH_KEYWORDS`.
unsafe extern "C-unwind" fn put(
    queue: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe { put_by(&PUT, queue, args, count, kwnames) }
}

/// # Safety
/// Called by CPython by the convention `METH_FASTCALL | METH_KEYWORDS`.
unsafe extern "C-unwind" fn put_nowait(
    queue: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe { put_by(&PUT_NOWAIT, queue, args, count, kwnames) }
}

/// Calls one of these methods, with an object of ours in the place of a job.
///
/// # Safety
/// The arguments are those of the convention.
unsafe fn put_by(
    method: &OnceLock<Method>,
    queue: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    let Some(original) = method.get() else {
        return std::ptr::null_mut();
    };
    let arguments = Arguments {
        args,
        nargsf: count as usize,
        kwnames,
    };
    // SAFETY: as this function's; the original has the same convention. There is an argument where
    // `position` says so.
    unsafe {
        let original = std::mem::transmute::<*mut (), Keywords>(original.function());
        let at = match scope::may_be_guarded() {
            true => arguments.position(0, Some(c"item")),
            false => None,
        };
        let Some(at) = at else {
            return original(queue, args, count, kwnames);
        };
        let job = replace::ours(|py| Job::of(&arguments.at(py, at)));
        match job {
            None => std::ptr::null_mut(),
            Some(None) => original(queue, args, count, kwnames),
            Some(Some(job)) => arguments.replacing(at, job, |given| {
                original(queue, given.args, count, given.kwnames)
            }),
        }
    }
}

/// A job, and the guard that it runs under; no guard if none was in force.
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Job")]
pub struct Job {
    job: Py<PyAny>,
    active: Option<Py<Active>>,
}

#[pymethods]
impl Job {
    /// The function that a thread calls.
    #[getter]
    fn run<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        RUN.bind(slf.as_any())
    }

    fn __getattr__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        calling::getattr(self.job.bind(py), name)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.job)?;
        match &self.active {
            Some(active) => visit.call(active),
            None => Ok(()),
        }
    }
}

impl Job {
    /// A new reference to an object of ours, if the item is a job that needs it.
    fn of(item: &Bound<'_, PyAny>) -> PyResult<Option<*mut PyObject>> {
        let py = item.py();
        let active = match scope::own(py)? {
            Current::Guarded(active) => Some(active.unbind()),
            Current::Unguarded if threads::any_began_under_a_guard() => None,
            _ => return Ok(None),
        };
        let is_job = match jobs(py)? {
            // SAFETY: both are types.
            Some(class) => unsafe {
                ffi::PyType_IsSubtype(ffi::Py_TYPE(item.as_ptr()), class.as_type_ptr()) != 0
            },
            None => false,
        };
        if !is_job {
            return Ok(None);
        }
        let job = item.clone().unbind();
        Ok(Some(Bound::new(py, Self { job, active })?.into_ptr()))
    }

    /// Puts the guard of the job in force in this thread, in the place of the one that the thread
    /// was started under: if the thread asks for it itself, and is in no other job.
    fn begin(&self, py: Python<'_>) -> PyResult<Option<Lent>> {
        let own = match scope::own(py)? {
            Current::Guarded(own) => Some(own),
            Current::Unguarded => None,
            Current::Tampered => return Ok(None),
        };
        let began = own.is_some_and(|own| threads::began_under(&own)) && is_called_by_pool(py)?;
        match (&self.active, began) {
            (Some(active), true) => carry::replace_here(active.bind(py)).map(Some),
            (None, true) => carry::replace_here(&Bound::new(py, Active::detached())?).map(Some),
            (Some(active), false) => carry::lend_here(active.bind(py)),
            (None, false) => Ok(None),
        }
    }
}

/// Returns whether the calling function is that of an executor's thread.
fn is_called_by_pool(py: Python<'_>) -> PyResult<bool> {
    let Some(frame) = frames::current_frame(py) else {
        return Ok(false);
    };
    let code = frames::code(frame.cast()?);
    let name = code.getattr(pyo3::intern!(py, "co_name"))?;
    Ok(name.eq(pyo3::intern!(py, EXECUTORS.2))? && imports::is_installed(&code)?)
}

/// The method that runs a `Job`.
static RUN: OwnMethod = OwnMethod::new(c"run", run);

/// # Safety
/// Called by CPython by the convention `METH_VARARGS | METH_KEYWORDS`, with a `Job`.
unsafe extern "C-unwind" fn run(
    job: *mut PyObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the thread is attached; the method is made for a `Job` alone, which the function
    // object keeps alive. While the job runs nothing is held that unwinding would have to drop:
    // what was lent and the method are plain pointers then.
    unsafe {
        let begun = replace::ours(|py| {
            let job = Borrowed::from_ptr(py, job);
            let job = job.cast_unchecked::<Job>().get();
            let run = calling::getattr(job.job.bind(py), pyo3::intern!(py, "run"))?;
            let lent = job.begin(py)?;
            let lent = lent.map(|lent| Box::into_raw(Box::new(lent)));
            Ok((lent, run.into_ptr()))
        });
        let Some((lent, function)) = begun else {
            return std::ptr::null_mut();
        };
        let copies = forks::generation();
        let result = calling::object_call()(function, args, kwargs);
        raw::with_attachment_counted(|| ffi::Py_DECREF(function));
        let result = match lent {
            Some(lent) => {
                carry::after(result, |py| carry::take_back_here(py, *Box::from_raw(lent)))
            }
            None => result,
        };
        #[cfg(unix)]
        crate::python::guard::copies::call_is_over(copies);
        result
    }
}
