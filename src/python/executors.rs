//! Jobs for the threads of a `ThreadPoolExecutor`: each has the guard of the code that submits it.
//!
//! The threads often run already, or are used by others too, so that the guard of a thread says
//! nothing of its jobs. An executor passes them on in a `SimpleQueue`, whose `put` is seen here.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::arguments::Arguments;
use super::context::{self, Current};
use super::methods::{KEYWORDS, Keywords, Method};
use super::{intercept, later};

/// Where the queue's class is.
pub const MODULE: &str = "_queue";

static PUT: OnceLock<Method> = OnceLock::new();

/// Has the queues of executors come here.
///
/// # Errors
/// What looking the class up raises.
pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
    let Some(class) = module.getattr_opt("SimpleQueue")? else {
        return Ok(());
    };
    let Ok(class) = class.cast_into::<PyType>() else {
        return Ok(());
    };
    // SAFETY: the function has the convention, and calls the original.
    unsafe {
        Method::replace(&class, "put", &PUT, |convention| {
            (convention == KEYWORDS).then_some(put as *mut ())
        })?;
    }
    Ok(())
}

/// # Safety
/// Called by CPython by the convention `METH_FASTCALL | METH_KEYWORDS`.
unsafe extern "C-unwind" fn put(
    queue: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    let Some(original) = PUT.get() else {
        return std::ptr::null_mut();
    };
    let arguments = Arguments {
        args,
        nargsf: count as usize,
        kwnames,
    };
    // SAFETY: as this function's; the original has the same convention.
    unsafe {
        let original = std::mem::transmute::<*mut (), Keywords>(original.function());
        if context::may_be_guarded() {
            let guarded = intercept::ours(|py| match arguments.find(py, 0, Some(c"item")) {
                Some(item) if is_job(&item) => guard(&item),
                _ => Ok(()),
            });
            if guarded.is_none() {
                return std::ptr::null_mut();
            }
        }
        original(queue, args, count, kwnames)
    }
}

/// Whether it is what an executor makes of a job.
fn is_job(item: &Bound<'_, PyAny>) -> bool {
    // SAFETY: each type has a name, which is NUL-terminated.
    let name = unsafe { CStr::from_ptr((*ffi::Py_TYPE(item.as_ptr())).tp_name) };
    name == c"_WorkItem"
}

/// Puts the guard that is in force beside the function of a job.
fn guard(job: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = job.py();
    let Current::Guarded(active) = context::own(py)? else {
        return Ok(());
    };
    let function = pyo3::intern!(py, "fn");
    if let Some(given) = job.getattr_opt(function)? {
        if given.is_callable() {
            job.setattr(function, later::with_guard(&given, &active)?)?;
        }
        return Ok(());
    }
    // Since 3.14 the function with its arguments; for an interpreter's thread, something else.
    let task = pyo3::intern!(py, "task");
    if let Some(given) = job.getattr_opt(task)?
        && let Ok(given) = given.cast_exact::<PyTuple>()
        && given.len() == 3
        && given.get_item(0)?.is_callable()
    {
        let function = later::with_guard(&given.get_item(0)?, &active)?;
        let (args, kwargs) = (given.get_item(1)?, given.get_item(2)?);
        job.setattr(task, PyTuple::new(py, [function, args, kwargs])?)?;
    }
    Ok(())
}
