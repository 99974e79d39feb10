//! The effect of assigning a function's `__code__`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;

/// `CO_ITERABLE_COROUTINE` of `cpython/code.h`: a generator that may be awaited.
const ITERABLE_COROUTINE: i64 = 0x100;

/// The attributes that say how a code object acts and what it is called. Compared one by one, as
/// comparing code objects compares constants by their classes' `==`.
const ATTRIBUTES: &[&str] = &[
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_stacksize",
    "co_code",
    "co_consts",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_filename",
    "co_name",
    "co_firstlineno",
];

/// Returns whether the assignment only marks a generator function as awaitable, as
/// `types.coroutine` does: `import asyncio` needs this.
pub fn only_marks_awaitable(function: &Bound<'_, PyAny>, new: &Bound<'_, PyAny>) -> bool {
    if !raw::is_python_function(function) {
        return false;
    }
    let flags = |code: &Bound<'_, PyAny>| raw::int_value(&code.attr("co_flags").ok()?);
    let Ok(old) = function.attr("__code__") else {
        return false;
    };
    if !old.get_type().is(new.get_type()) {
        return false;
    }
    matches!((flags(&old), flags(new)), (Some(old), Some(new)) if old | ITERABLE_COROUTINE == new && old != new)
        && ATTRIBUTES.iter().chain(EXCEPTION_TABLE).all(|name| {
            matches!((old.attr(*name), new.attr(*name)), (Ok(old), Ok(new)) if is_same(&old, &new))
        })
}

#[cfg(Py_3_11)]
const EXCEPTION_TABLE: &[&str] = &["co_exceptiontable"];
/// Part of the code itself before 3.11.
#[cfg(not(Py_3_11))]
const EXCEPTION_TABLE: &[&str] = &[];

/// Returns whether two values are one object or equal plain data.
fn is_same(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> bool {
    if a.is(b) {
        return true;
    }
    if let (Ok(a), Ok(b)) = (a.cast_exact::<PyTuple>(), b.cast_exact::<PyTuple>()) {
        return a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| is_same(&a, &b));
    }
    if let (Ok(a), Ok(b)) = (a.cast_exact::<PyBytes>(), b.cast_exact::<PyBytes>()) {
        return a.as_bytes() == b.as_bytes();
    }
    if let (Ok(a), Ok(b)) = (a.cast_exact::<PyString>(), b.cast_exact::<PyString>()) {
        return a.to_string_lossy() == b.to_string_lossy();
    }
    matches!((raw::int_value(a), raw::int_value(b)), (Some(a), Some(b)) if a == b)
}
