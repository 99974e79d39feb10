//! SQL statements that open databases by themselves: `sqlite3` raises no event for them, and SQLite
//! asks nobody. Under a guard each raises `sqlite3.attach` first, also on a connection that was
//! open before.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple, PyType};

use crate::policy::sql::statements::{Opened, may_open, opened};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::functions::Method;
use crate::python::cpython::replace;
use crate::python::guard::scope;

type One = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
type Fast =
    unsafe extern "C-unwind" fn(*mut PyObject, *const *mut PyObject, isize) -> *mut PyObject;

/// The module of the classes.
pub const MODULE: &str = "_sqlite3";

macro_rules! methods {
    ($($original:ident, $fast:ident, $one:ident, $class:literal, $name:literal;)*) => {
        $(
            static $original: OnceLock<Method> = OnceLock::new();

            /// # Safety
            /// Called by CPython by the convention `METH_FASTCALL`.
            unsafe extern "C-unwind" fn $fast(
                slf: *mut PyObject,
                args: *const *mut PyObject,
                count: isize,
            ) -> *mut PyObject {
                let Some(original) = $original.get() else {
                    return std::ptr::null_mut();
                };
                // SAFETY: as this function's; the original has the same convention.
                unsafe {
                    if !may_run(args, count) {
                        return std::ptr::null_mut();
                    }
                    std::mem::transmute::<*mut (), Fast>(original.function())(slf, args, count)
                }
            }

            /// # Safety
            /// Called by CPython by the convention `METH_O`.
            unsafe extern "C-unwind" fn $one(
                slf: *mut PyObject,
                sql: *mut PyObject,
            ) -> *mut PyObject {
                let Some(original) = $original.get() else {
                    return std::ptr::null_mut();
                };
                // SAFETY: as this function's; the original has the same convention.
                unsafe {
                    if !may_run(&raw const sql, 1) {
                        return std::ptr::null_mut();
                    }
                    std::mem::transmute::<*mut (), One>(original.function())(slf, sql)
                }
            }
        )*

        /// Makes the methods that run statements look at them.
        ///
        /// # Errors
        /// `RuntimeError` if they are called by a convention that is not known here.
        pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
            $({
                let by = |convention| match convention {
                    ffi::METH_FASTCALL => Some($fast as *mut ()),
                    ffi::METH_O => Some($one as *mut ()),
                    _ => None,
                };
                // If the module is not ready yet, it will be looked at again.
                if let Some(class) = module.getattr_opt($class)? {
                    let class = class.cast_into::<PyType>()?;
                    // SAFETY: the functions have the conventions that they are given for.
                    if !unsafe { Method::replace(&class, $name, &$original, by)? } {
                        return Err(crate::python::values::errors::unknown_method($class, $name));
                    }
                }
            })*
            Ok(())
        }
    };
}

methods! {
    CONNECTION, connection_fast, connection_one, "Connection", "execute";
    CONNECTION_SCRIPT, connection_script_fast, connection_script_one, "Connection", "executescript";
    CURSOR, cursor_fast, cursor_one, "Cursor", "execute";
    CURSOR_SCRIPT, cursor_script_fast, cursor_script_one, "Cursor", "executescript";
}

/// Returns whether the statements may be run; else the exception is set.
///
/// # Safety
/// The thread is attached; there are `count` arguments, which live for the call.
unsafe fn may_run(args: *const *mut PyObject, count: isize) -> bool {
    if !scope::may_be_guarded() || count == 0 {
        return true;
    }
    // SAFETY: as this function's.
    unsafe {
        let asked = replace::ours(|py| {
            let sql = Borrowed::from_ptr(py, *args);
            let parameters = (count > 1).then(|| Borrowed::from_ptr(py, *args.add(1)));
            // A statement that is not text is an error of its own.
            match sql.cast::<PyString>() {
                Ok(sql) => raise(&sql, parameters.as_deref()),
                Err(_) => Ok(()),
            }
        });
        asked.is_some()
    }
}

/// Raises an event for each database that the statements open.
fn raise(sql: &Bound<'_, PyString>, parameters: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let py = sql.py();
    let text = raw::fs_encode(sql.as_borrowed())?;
    if !may_open(text.as_bytes()) {
        return Ok(());
    }
    for opened in opened(text.as_bytes()) {
        let name = match opened {
            Opened::Named(name) => raw::fs_decode(py, &name)?.into_any(),
            Opened::Parameter => parameters
                .and_then(only)
                .unwrap_or_else(|| py.None().into_bound(py)),
            Opened::Unknown => py.None().into_bound(py),
        };
        raw::audit(py, c"sqlite3.attach", &[&name, sql.as_any()])?;
    }
    Ok(())
}

/// The first parameter of a statement, if it is a text that cannot be another later.
fn only<'py>(parameters: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let first = match parameters.cast_exact::<PyTuple>() {
        Ok(parameters) => parameters.get_item(0).ok()?,
        Err(_) => parameters.cast_exact::<PyList>().ok()?.get_item(0).ok()?,
    };
    let is_text =
        first.is_exact_instance_of::<PyString>() || first.is_exact_instance_of::<PyBytes>();
    is_text.then_some(first)
}
