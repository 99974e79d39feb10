//! The `dir_fd` of `os.open`, which its audit event leaves out.
//!
//! Without it a relative name cannot be judged: with the current directory inside a root, any
//! `os.open(name, flags, dir_fd=fd)` would pass. So the one function object that `posix.open` is,
//! however it was imported, is made to note the argument for the duration of the call, and then to
//! do what it always did. It stays the same object: sets and tables that hold it still find it.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use super::context;
use super::methods::{Builtin, Vectorcall};
use crate::policy::path::Base;

/// The vectorcall that `posix.open` was made with.
static ORIGINAL: OnceLock<Vectorcall> = OnceLock::new();

thread_local! {
    static DIR_FD: Cell<Base> = const { Cell::new(Base::CurrentDir) };
}

/// What a relative name in an `open` event raised by `os.open` starts from.
pub fn base() -> Base {
    DIR_FD.get()
}

/// Has `posix.open` note its `dir_fd`. Does nothing where there is no such function, as on
/// Windows, whose `os.open` takes no `dir_fd`.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let Ok(open) = py.import("posix").and_then(|posix| posix.getattr("open")) else {
        return Ok(());
    };
    let Some(function) = Builtin::cast(&open) else {
        return Ok(());
    };
    let Some(original) = function.vectorcall() else {
        return Ok(());
    };
    if ORIGINAL.set(original).is_ok() {
        // SAFETY: `open_noting_dir_fd` passes each call on to the original vectorcall.
        unsafe { function.set_vectorcall(open_noting_dir_fd) };
    }
    Ok(())
}

/// # Safety
/// Called by CPython by the vectorcall convention.
unsafe extern "C-unwind" fn open_noting_dir_fd(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    let Some(original) = ORIGINAL.get() else {
        // Set before this function was made reachable.
        return std::ptr::null_mut();
    };
    // SAFETY: the arguments are those CPython passed, and are passed on as they came.
    unsafe {
        if !context::may_be_guarded() {
            return original(callable, args, nargsf, kwnames);
        }
        // In place for this call alone. A call may raise an event whose hook opens files itself.
        let before = DIR_FD.replace(dir_fd(args, nargsf, kwnames));
        let result = original(callable, args, nargsf, kwnames);
        DIR_FD.set(before);
        result
    }
}

/// The `dir_fd` among a call's keyword arguments.
///
/// # Safety
/// The arguments are those of a vectorcall.
unsafe fn dir_fd(args: *const *mut PyObject, nargsf: usize, kwnames: *mut PyObject) -> Base {
    if kwnames.is_null() {
        return Base::CurrentDir;
    }
    // SAFETY: `kwnames` is a tuple of str, and the values follow the positional arguments.
    unsafe {
        for index in 0..ffi::PyTuple_GET_SIZE(kwnames) {
            let name = ffi::PyTuple_GET_ITEM(kwnames, index);
            if ffi::PyUnicode_CompareWithASCIIString(name, c"dir_fd".as_ptr()) != 0 {
                continue;
            }
            let value = *args.offset(ffi::PyVectorcall_NARGS(nargsf) + index);
            if value == ffi::Py_None() {
                return Base::CurrentDir;
            }
            let py = Python::assume_attached();
            // Of an object with `__index__` the number is not known before it is used.
            let fd = super::ffi::int_value(&Borrowed::from_ptr(py, value));
            return Base::Descriptor(fd.and_then(|fd| i32::try_from(fd).ok()).unwrap_or(-1));
        }
    }
    Base::CurrentDir
}
