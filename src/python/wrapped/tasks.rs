//! Tasks that guarded code makes in a context of its choice: in one that was made before the guard
//! they would not have it. Such a task is made in a copy of the context that has the guard.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::python::cpython::ffi as raw;
use crate::python::cpython::replace;
use crate::python::cpython::slots::Slot;
use crate::python::guard::carry;
use crate::python::guard::scope::{self, Current};
use crate::python::values::errors;

/// The module of the class of tasks.
pub const MODULE: &str = "_asyncio";

type Init = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> c_int;

static INIT: Slot = Slot::unknown();

/// `_asyncio._get_running_loop`.
static RUNNING_LOOP: OnceLock<Py<PyAny>> = OnceLock::new();

/// Routes the making of tasks here.
pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
    let (Some(class), Some(running)) = (
        module.getattr_opt("Task")?,
        module.getattr_opt("_get_running_loop")?,
    ) else {
        return Ok(());
    };
    let class = class.cast_into::<PyType>()?;
    let _ = RUNNING_LOOP.set(running.unbind());
    // SAFETY: the function is one of that slot, and calls the original.
    unsafe {
        INIT.replace(&class, place, init as *mut c_void)?;
        INIT.replace_wrapper(&class, "__init__", init as *mut c_void)
    }
}

/// # Safety
/// The class is alive.
unsafe fn place(class: *mut PyTypeObject) -> *mut *mut c_void {
    // SAFETY: as this function's; a function, or null.
    unsafe { (&raw mut (*class).tp_init).cast() }
}

/// # Safety
/// Called by CPython as the `tp_init` of a task.
unsafe extern "C-unwind" fn init(
    task: *mut PyObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> c_int {
    let original = INIT.original();
    if original.is_null() {
        return -1;
    }
    // SAFETY: as this function's; the original is of this type. While it runs there is nothing to
    // drop that unwinding would miss but the reference to the arguments, which is then lost.
    unsafe {
        let original = std::mem::transmute::<*mut c_void, Init>(original);
        if kwargs.is_null() || !scope::may_be_guarded() {
            return original(task, args, kwargs);
        }
        let given = replace::ours(|py| {
            let kwargs = Borrowed::from_ptr(py, kwargs);
            let given = kwargs.cast::<PyDict>().map(|kwargs| guarded(&kwargs));
            Ok(given.unwrap_or(Ok(None))?.map(Bound::into_ptr))
        });
        match given {
            None => -1,
            Some(None) => original(task, args, kwargs),
            Some(Some(given)) => {
                let result = original(task, args, given);
                raw::with_attachment_counted(|| ffi::Py_DECREF(given));
                result
            }
        }
    }
}

/// The arguments with a context that has the guard in force; `None` if they stay as they are. If no
/// loop runs yet, the task runs in one that runs under the guard.
fn guarded<'py>(kwargs: &Bound<'py, PyDict>) -> PyResult<Option<Bound<'py, PyDict>>> {
    let py = kwargs.py();
    let name = pyo3::intern!(py, "context");
    let Some(context) = kwargs.get_item(name)? else {
        return Ok(None);
    };
    if !raw::is_context(&context) {
        return Ok(None);
    }
    let active = match scope::own(py)? {
        Current::Guarded(active) => active,
        Current::Unguarded => return Ok(None),
        Current::Tampered => return Err(errors::variable_changed()),
    };
    let running = RUNNING_LOOP.get().map(|running| running.call0(py));
    if running
        .transpose()?
        .is_none_or(|running| running.is_none(py))
    {
        return Ok(None);
    }
    let Some(context) = carry::with_guard(Some(&context), &active)? else {
        return Ok(None);
    };
    let given = kwargs.copy()?;
    given.set_item(name, context)?;
    Ok(Some(given))
}
