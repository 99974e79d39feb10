//! The methods by which Python files are written, made to count (`quota`).
#![allow(unsafe_code)]

use std::sync::OnceLock;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::arguments::Arguments;
use crate::python::cpython::functions::Method;
use crate::python::wrapped::quota::{Writes, count};

/// The methods of `_io.FileIO` as they were.
static FILE_WRITE: OnceLock<Method> = OnceLock::new();
static FILE_TRUNCATE: OnceLock<Method> = OnceLock::new();

/// Makes the methods of `_io.FileIO` count.
///
/// # Errors
/// Errors raised while importing `_io`; `RuntimeError` if its methods have a calling convention
/// that is not known here.
pub fn install(py: Python<'_>) -> PyResult<()> {
    if FILE_WRITE.get().is_some() {
        return Ok(());
    }
    let class = py.import("_io")?.getattr("FileIO")?.cast_into::<PyType>()?;
    let replaced = |name, done: bool| {
        done.then_some(()).ok_or_else(|| {
            PyRuntimeError::new_err(format!(
                "max_bytes cannot be held here: {name} of _io.FileIO is called in an unknown way"
            ))
        })
    };
    // SAFETY: the functions have the conventions that they are given for.
    unsafe {
        let done = Method::replace(&class, "truncate", &FILE_TRUNCATE, |convention| {
            Some(match convention {
                ffi::METH_FASTCALL => file_truncate_fast as *mut (),
                METHOD => file_truncate_method as *mut (),
                _ => return None,
            })
        })?;
        replaced("truncate", done)?;
        let done = Method::replace(&class, "write", &FILE_WRITE, |convention| {
            Some(match convention {
                ffi::METH_O => file_write_one as *mut (),
                METHOD => file_write_method as *mut (),
                _ => return None,
            })
        })?;
        replaced("write", done)
    }
}

/// The convention of methods that are told their class, since 3.12.
const METHOD: std::ffi::c_int = ffi::METH_METHOD | ffi::METH_FASTCALL | ffi::METH_KEYWORDS;

type One = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
type Fast =
    unsafe extern "C-unwind" fn(*mut PyObject, *const *mut PyObject, isize) -> *mut PyObject;
type OfClass = unsafe extern "C-unwind" fn(
    *mut PyObject,
    *mut ffi::PyTypeObject,
    *const *mut PyObject,
    isize,
    *mut PyObject,
) -> *mut PyObject;

/// # Safety
/// Called by CPython by the convention `METH_O`.
unsafe extern "C-unwind" fn file_write_one(
    file: *mut PyObject,
    data: *mut PyObject,
) -> *mut PyObject {
    let Some(original) = FILE_WRITE.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: as this function's; the original has the same convention.
    unsafe {
        let original = std::mem::transmute::<*mut (), One>(original.function());
        let call = Arguments {
            args: &raw const data,
            nargsf: 1,
            kwnames: std::ptr::null_mut(),
        };
        count(Some(file), call, Writes::Data, || original(file, data))
    }
}

/// # Safety
/// Called by CPython by the convention `METH_METHOD`.
unsafe extern "C-unwind" fn file_write_method(
    file: *mut PyObject,
    class: *mut ffi::PyTypeObject,
    args: *const *mut PyObject,
    positional: isize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe {
        of_class(
            &FILE_WRITE,
            Writes::Data,
            (file, class, args, positional, kwnames),
        )
    }
}

/// # Safety
/// Called by CPython by the convention `METH_FASTCALL`.
unsafe extern "C-unwind" fn file_truncate_fast(
    file: *mut PyObject,
    args: *const *mut PyObject,
    positional: isize,
) -> *mut PyObject {
    let Some(original) = FILE_TRUNCATE.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: as this function's; the original has the same convention.
    unsafe {
        let original = std::mem::transmute::<*mut (), Fast>(original.function());
        let call = Arguments {
            args,
            nargsf: positional as usize,
            kwnames: std::ptr::null_mut(),
        };
        count(Some(file), call, Writes::Length, || {
            original(file, args, positional)
        })
    }
}

/// # Safety
/// Called by CPython by the convention `METH_METHOD`.
unsafe extern "C-unwind" fn file_truncate_method(
    file: *mut PyObject,
    class: *mut ffi::PyTypeObject,
    args: *const *mut PyObject,
    positional: isize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe {
        of_class(
            &FILE_TRUNCATE,
            Writes::Length,
            (file, class, args, positional, kwnames),
        )
    }
}

type OfClassArgs = (
    *mut PyObject,
    *mut ffi::PyTypeObject,
    *const *mut PyObject,
    isize,
    *mut PyObject,
);

/// # Safety
/// The arguments are those of the convention `METH_METHOD`, which the original has.
unsafe fn of_class(
    original: &OnceLock<Method>,
    writes: Writes,
    (file, class, args, positional, kwnames): OfClassArgs,
) -> *mut PyObject {
    let Some(original) = original.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: as this function's.
    unsafe {
        let original = std::mem::transmute::<*mut (), OfClass>(original.function());
        let call = Arguments {
            args,
            nargsf: positional as usize,
            kwnames,
        };
        count(Some(file), call, writes, || {
            original(file, class, args, positional, kwnames)
        })
    }
}
