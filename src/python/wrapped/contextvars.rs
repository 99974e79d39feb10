//! Contexts that guarded code enters, makes or changes: it stays under its guard in all of them.
//!
//! A guard is in force if its context variable says so. Guarded code cannot change the variable, a
//! context that it makes has the guard, and one that it enters has it for as long as that takes.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::ffi as raw;
use crate::python::cpython::forks;
use crate::python::cpython::functions::{KEYWORDS, Keywords, Method};
use crate::python::cpython::replace;
use crate::python::guard::carry;
use crate::python::guard::scope::{self, Current};
use crate::python::values::errors;

static RUN: OnceLock<Method> = OnceLock::new();
static SET: OnceLock<Method> = OnceLock::new();
static RESET: OnceLock<Method> = OnceLock::new();
static TOKEN_EXIT: OnceLock<Method> = OnceLock::new();
static NEW: OnceLock<ffi::newfunc> = OnceLock::new();

type One = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
type Fast =
    unsafe extern "C-unwind" fn(*mut PyObject, *const *mut PyObject, isize) -> *mut PyObject;
/// Makes the methods of contexts and context variables keep guards in force.
///
/// # Errors
/// `RuntimeError` if they are called by a convention that is not known here.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let module = py.import("_contextvars")?;
    let class = |name| -> PyResult<_> { Ok(module.getattr(name)?.cast_into::<PyType>()?) };
    let (context, variable) = (class("Context")?, class("ContextVar")?);
    let with =
        |known, function: *mut ()| move |convention| (convention == known).then_some(function);
    // SAFETY: the functions have the conventions that they are given for, and call the original.
    let replaced = unsafe {
        Method::replace(&context, "run", &RUN, with(KEYWORDS, run as *mut ()))?
            && Method::replace(&variable, "set", &SET, with(ffi::METH_O, set as *mut ()))?
            && Method::replace(
                &variable,
                "reset",
                &RESET,
                with(ffi::METH_O, reset as *mut ()),
            )?
    };
    let token = class("Token")?;
    // SAFETY: as above. Tokens are context managers since 3.14.
    let ends = unsafe {
        let exit = with(ffi::METH_FASTCALL, token_exit as *mut ());
        Method::replace(&token, "__exit__", &TOKEN_EXIT, exit)?
    };
    if !replaced || ends != cfg!(Py_3_14) {
        return Err(PyRuntimeError::new_err(
            "no guard can be held here: contextvars works in an unknown way",
        ));
    }
    // SAFETY: the class lives for ever, and has this slot; the GIL is held.
    unsafe {
        let class = context.as_type_ptr();
        if let Some(original) = (*class).tp_new
            && NEW.set(original).is_ok()
        {
            (*class).tp_new = Some(new);
        }
    }
    Ok(())
}

/// # Safety
/// Called by CPython by the convention `METH_FASTCALL | METH_KEYWORDS`, with a `Context`.
unsafe extern "C-unwind" fn run(
    context: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    let Some(original) = RUN.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: as this function's; the original has the same convention. While it runs nothing is
    // held that unwinding would have to drop: what was lent is a plain pointer then.
    unsafe {
        let original = std::mem::transmute::<*mut (), Keywords>(original.function());
        if !scope::may_be_guarded() {
            return original(context, args, count, kwnames);
        }
        let lent = replace::ours(|py| {
            let lent = carry::lend(py, &Borrowed::from_ptr(py, context))?;
            Ok(lent.map(|lent| Box::into_raw(Box::new(lent))))
        });
        let Some(lent) = lent else {
            return std::ptr::null_mut();
        };
        let copies = forks::generation();
        let result = original(context, args, count, kwnames);
        #[cfg(unix)]
        crate::python::guard::copies::call_is_over(copies);
        let Some(lent) = lent else {
            return result;
        };
        carry::after(result, |py| {
            carry::take_back(&Borrowed::from_ptr(py, context), *Box::from_raw(lent))
        })
    }
}

/// Returns whether a call may change a variable; else the exception is set.
///
/// # Safety
/// The thread is attached.
unsafe fn may(change: impl FnOnce(Python<'_>) -> PyResult<bool>) -> bool {
    if !scope::may_be_guarded() {
        return true;
    }
    let allow = |py| match change(py)? {
        true => Ok(()),
        false => Err(errors::variable_kept()),
    };
    // SAFETY: as this function's.
    unsafe { replace::ours(allow).is_some() }
}

/// # Safety
/// Called by CPython by the convention `METH_O`, with a `ContextVar`.
unsafe extern "C-unwind" fn set(variable: *mut PyObject, value: *mut PyObject) -> *mut PyObject {
    // SAFETY: as this function's; the original has the same convention.
    unsafe {
        let may_set = may(|py| {
            let [variable, value] = [variable, value].map(|object| Borrowed::from_ptr(py, object));
            Ok(!carry::is_var(&variable) || carry::may_set(&value)?)
        });
        call(&SET, may_set, variable, value)
    }
}

/// # Safety
/// Called by CPython by the convention `METH_O`, with a `ContextVar`.
unsafe extern "C-unwind" fn reset(variable: *mut PyObject, token: *mut PyObject) -> *mut PyObject {
    // SAFETY: as this function's; the original has the same convention.
    unsafe {
        let may_reset = may(|py| {
            let [variable, token] = [variable, token].map(|object| Borrowed::from_ptr(py, object));
            Ok(!carry::is_var(&variable) || carry::may_reset(&token)?)
        });
        call(&RESET, may_reset, variable, token)
    }
}

/// # Safety
/// The arguments are those of the convention `METH_O`, which the original has.
unsafe fn call(
    original: &OnceLock<Method>,
    may: bool,
    variable: *mut PyObject,
    argument: *mut PyObject,
) -> *mut PyObject {
    match original.get() {
        // SAFETY: as this function's.
        Some(original) if may => unsafe {
            std::mem::transmute::<*mut (), One>(original.function())(variable, argument)
        },
        _ => std::ptr::null_mut(),
    }
}

/// # Safety
/// Called by CPython by the convention `METH_FASTCALL`, with a `Token`.
unsafe extern "C-unwind" fn token_exit(
    token: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
) -> *mut PyObject {
    let Some(original) = TOKEN_EXIT.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: as this function's; the original has the same convention.
    unsafe {
        let may_reset = may(|py| {
            let token = Borrowed::from_ptr(py, token);
            let variable = token.getattr(pyo3::intern!(py, "var"))?;
            Ok(!carry::is_var(&variable) || carry::may_reset(&token)?)
        });
        if !may_reset {
            return std::ptr::null_mut();
        }
        std::mem::transmute::<*mut (), Fast>(original.function())(token, args, count)
    }
}

/// # Safety
/// Called by CPython as the `tp_new` of `Context`.
unsafe extern "C" fn new(
    class: *mut ffi::PyTypeObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    let Some(original) = NEW.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: as this function's.
    unsafe {
        let context = original(class, args, kwargs);
        if context.is_null() || !scope::may_be_guarded() {
            return context;
        }
        let carried = replace::ours(|py| match scope::own(py)? {
            Current::Guarded(active) => {
                scope::carry_into(&Borrowed::from_ptr(py, context), &active)
            }
            Current::Unguarded => Ok(()),
            Current::Tampered => Err(errors::variable_changed()),
        });
        if carried.is_none() {
            raw::with_attachment_counted(|| ffi::Py_DECREF(context));
            return std::ptr::null_mut();
        }
        context
    }
}
