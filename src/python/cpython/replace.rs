//! Native functions of the standard library that are wrapped: each call does something more.
//!
//! Such a function is one object, however it was imported. Its calls are routed to ours, which then
//! does what the function always did. It stays the same object: sets and tables that hold it still
//! find it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::exceptions::PyPermissionError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::python::cpython::arguments::Arguments;
use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::functions::{Builtin, Vectorcall};

/// Runs our part of a call. If that fails, or panics, the exception is set and there is no result:
/// the call must not go on.
///
/// # Safety
/// The thread is attached, for as long as the result is used.
pub unsafe fn ours<'py, T>(work: impl FnOnce(Python<'py>) -> PyResult<T>) -> Option<T> {
    // SAFETY: the caller vouches for it.
    let py = unsafe { Python::assume_attached() };
    // A function that CPython calls must not panic.
    let result = catch_unwind(AssertUnwindSafe(|| {
        raw::with_attachment_counted(|| work(py).map_err(|error| error.restore(py)))
    }));
    match result {
        Ok(result) => result.ok(),
        Err(_panic) => {
            raw::with_attachment_counted(|| {
                PyPermissionError::new_err("fastaudit_rs: internal error, so the call is denied")
                    .restore(py);
            });
            None
        }
    }
}

/// A function whose calls are routed elsewhere.
struct Replaced {
    name: String,
    /// The address of its C function.
    function: usize,
    vectorcall: Vectorcall,
}

static REPLACED: Mutex<Vec<Replaced>> = Mutex::new(Vec::new());

/// Routes the calls of such functions elsewhere also in another copy of their module.
pub fn replace_again(module: &Bound<'_, PyAny>) -> PyResult<()> {
    let replaced: Vec<_> = {
        let all = REPLACED.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.iter();
        all.map(|one| (one.name.clone(), one.function, one.vectorcall))
            .collect()
    };
    for (name, own, vectorcall) in replaced {
        let Some(found) = module.getattr_opt(name.as_str())? else {
            continue;
        };
        if let Some(function) = Builtin::cast(&found)
            && function.function() as usize == own
        {
            // SAFETY: it is the same C function, for which `replace` was told this vectorcall.
            unsafe { function.set_vectorcall(vectorcall) };
        }
    }
    Ok(())
}

/// A function as it was.
pub struct Original(OnceLock<Known>);

struct Known {
    function: Py<PyAny>,
    vectorcall: Option<Vectorcall>,
}

impl Original {
    /// An original that is not known, as the function was not replaced yet.
    pub const fn unknown() -> Self {
        Self(OnceLock::new())
    }

    /// Routes every call of `module.name` to `vectorcall`, once for the process. Does nothing if
    /// there is no such native function.
    ///
    /// # Safety
    /// `vectorcall` is a function by that convention that calls this original.
    pub unsafe fn replace(
        &self,
        py: Python<'_>,
        module: &str,
        name: &str,
        vectorcall: Vectorcall,
    ) -> PyResult<()> {
        if self.0.get().is_some() {
            return Ok(());
        }
        let Some(found) = py.import(module)?.getattr_opt(name)? else {
            return Ok(());
        };
        let Some(function) = Builtin::cast(&found) else {
            return Ok(());
        };
        let known = Known {
            function: function.copy()?.unbind(),
            vectorcall: function.vectorcall(),
        };
        if self.0.set(known).is_ok() {
            let replaced = Replaced {
                name: name.to_owned(),
                function: function.function() as usize,
                vectorcall,
            };
            let all = REPLACED.lock();
            all.unwrap_or_else(PoisonError::into_inner).push(replaced);
            // SAFETY: the caller vouches for it.
            unsafe { function.set_vectorcall(vectorcall) };
        }
        Ok(())
    }

    /// Calls the function as it was.
    ///
    /// # Safety
    /// The thread is attached, and the arguments are those of a vectorcall.
    pub unsafe fn call(
        &self,
        args: *const *mut PyObject,
        nargsf: usize,
        kwnames: *mut PyObject,
    ) -> *mut PyObject {
        let Some(known) = self.0.get() else {
            // Set before `vectorcall` was made reachable.
            return std::ptr::null_mut();
        };
        let function = known.function.as_ptr();
        // SAFETY: as this function's.
        unsafe {
            if let Some(vectorcall) = known.vectorcall {
                return vectorcall(function, args, nargsf, kwnames);
            }
            let arguments = Arguments {
                args,
                nargsf,
                kwnames,
            };
            by_tuple(arguments, |args, kwargs| {
                calling::object_call()(function, args, kwargs)
            })
        }
    }
}

/// Makes a call by a tuple, and a dict where there are arguments with a name.
///
/// # Safety
/// The thread is attached, and the arguments are those of a vectorcall.
pub unsafe fn by_tuple(
    arguments: Arguments,
    call: impl FnOnce(*mut PyObject, *mut PyObject) -> *mut PyObject,
) -> *mut PyObject {
    let Arguments {
        args,
        nargsf,
        kwnames,
    } = arguments;
    // SAFETY: as this function's. Nothing is dropped after the call that unwinding would miss but
    // the references in `positional` and `named`, which are then lost.
    unsafe {
        let count = ffi::PyVectorcall_NARGS(nargsf);
        let positional = ffi::PyTuple_New(count);
        if positional.is_null() {
            return positional;
        }
        for index in 0..count {
            let item = ffi::Py_NewRef(*args.offset(index));
            ffi::PyTuple_SET_ITEM(positional, index, item);
        }
        let mut named = std::ptr::null_mut();
        if !kwnames.is_null() {
            named = ffi::PyDict_New();
            for index in 0..ffi::PyTuple_GET_SIZE(kwnames) {
                let name = ffi::PyTuple_GET_ITEM(kwnames, index);
                if named.is_null()
                    || ffi::PyDict_SetItem(named, name, *args.offset(count + index)) != 0
                {
                    ffi::Py_XDECREF(named);
                    ffi::Py_DECREF(positional);
                    return std::ptr::null_mut();
                }
            }
        }
        let result = call(positional, named);
        ffi::Py_XDECREF(named);
        ffi::Py_DECREF(positional);
        result
    }
}
