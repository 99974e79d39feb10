//! The `dir_fd` of `os.open`, which its audit event leaves out.
//!
//! Without it a relative name cannot be judged: with the current directory inside a root, any
//! `os.open(name, flags, dir_fd=fd)` would pass. So the one function object that
//! `posix.open` is, however it was imported, is made to note the argument for the duration of the
//! call, and then to do what it always did.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi::{self, Py_ssize_t, PyObject};
use pyo3::prelude::*;

use super::context;
use super::ffi::Builtin;
use crate::policy::path::Base;

/// The table entry that `posix.open` was made from.
static ORIGINAL: AtomicPtr<ffi::PyMethodDef> = AtomicPtr::new(std::ptr::null_mut());

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
    let original = function.method();
    // SAFETY: a function object's entry is valid as long as the object.
    let entry = unsafe { *original };
    if entry.ml_flags != ffi::METH_FASTCALL | ffi::METH_KEYWORDS {
        return Ok(());
    }
    ORIGINAL.store(original, Ordering::Release);
    let noting = Box::leak(Box::new(ffi::PyMethodDef {
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFastWithKeywords: open_noting_dir_fd,
        },
        ..entry
    }));
    // SAFETY: the entry lives for ever and has the flags of the one it replaces.
    unsafe { function.set_method(noting) };
    Ok(())
}

/// Puts the `dir_fd` in place for one call, and what was there back after it.
struct Noted(Base);

impl Drop for Noted {
    fn drop(&mut self) {
        DIR_FD.set(self.0);
    }
}

/// # Safety
/// Called by CPython by the `METH_FASTCALL | METH_KEYWORDS` convention.
unsafe extern "C" fn open_noting_dir_fd(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    nargs: Py_ssize_t,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: `install` set the entry before it made this function reachable, and checked by the
    // flags that it has this calling convention.
    let original = unsafe {
        (*ORIGINAL.load(Ordering::Acquire))
            .ml_meth
            .PyCFunctionFastWithKeywords
    };
    let _noted = context::may_be_guarded()
        // SAFETY: the arguments are those CPython passed.
        .then(|| Noted(DIR_FD.replace(unsafe { dir_fd(args, nargs, kwnames) })));
    // SAFETY: the arguments are passed on as they came.
    unsafe { original(slf, args, nargs, kwnames) }
}

/// The `dir_fd` among a call's keyword arguments.
///
/// # Safety
/// The arguments are those of a `METH_FASTCALL | METH_KEYWORDS` call.
unsafe fn dir_fd(args: *const *mut PyObject, nargs: Py_ssize_t, kwnames: *mut PyObject) -> Base {
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
            let value = *args.offset(nargs + index);
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
