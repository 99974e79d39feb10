//! Contexts that guarded code enters, makes or changes: it stays under its guard in all of them.
//!
//! A guard is in force if its context variable says so. Guarded code cannot change the variable, a
//! context that it makes has the guard, and one that it enters has it for as long as that takes.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::called::{Called, CalledByTuple, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::cpython::process;
use crate::python::cpython::replace;
use crate::python::cpython::slots::Slot;
use crate::python::guard::{carry, scope};
use crate::python::values::errors;

pub fn install(py: Python<'_>) -> PyResult<()> {
    let module = calling::import(py, "_contextvars")?;
    let class = |name| -> PyResult<_> { Ok(module.attr(name)?.cast_into::<PyType>()?) };
    let (context, variable) = (class("Context")?, class("ContextVar")?);
    let replaced = replace::wrap_method!(&context, "run", run)?
        && replace::wrap_method!(&variable, "set", |called| change(called, carry::may_set))?
        && replace::wrap_method!(&variable, "reset", |called| {
            change(called, carry::may_reset)
        })?;
    let token = class("Token")?;
    // Tokens are context managers since 3.14.
    let ends = replace::wrap_method!(&token, "__exit__", token_exit)?;
    if !replaced || ends != cfg!(Py_3_14) {
        return Err(PyRuntimeError::new_err(
            "no guard can be held here: contextvars works in an unknown way",
        ));
    }
    replace::wrap_slot!(&context, Slot::New, new)
}

/// Gives copies of a context that code of the guest takes in the course of a tool its own guard.
pub fn install_copies(py: Python<'_>) -> PyResult<()> {
    replace::wrap_function!(py, "_contextvars", "copy_context", copy_context)
}

fn copy_context(called: Called<'_>) -> Returned {
    let Some(lent) = called.ours(carry::lend_guest) else {
        return Returned::failed();
    };
    carry::during(called.py, lent, || called.make(), carry::take_back_here)
}

fn run(called: Called<'_>) -> Returned {
    if !scope::may_be_guarded() {
        return called.make();
    }
    let context = called.receiver();
    let Some(lent) = called.ours(|py| {
        let function = (called.arguments.positional() > 0).then(|| called.arguments.at(py, 0));
        carry::lend(py, &context, function.as_ref())
    }) else {
        return Returned::failed();
    };
    let make = || {
        let copies = process::generation();
        let result = called.make();
        #[cfg(unix)]
        crate::python::guard::copies::call_is_over(called.py, copies);
        result
    };
    carry::during(called.py, lent, make, |_, lent| {
        carry::take_back(&context, lent)
    })
}

fn make_if(called: Called<'_>, may: impl FnOnce(Python<'_>) -> PyResult<bool>) -> Returned {
    if !scope::may_be_guarded() {
        return called.make();
    }
    called.make_if(|py| match may(py)? {
        true => Ok(()),
        false => Err(errors::variable_kept()),
    })
}

fn change(called: Called<'_>, may: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<bool>) -> Returned {
    make_if(called, |py| {
        Ok(!carry::is_var(&called.receiver()) || may(&called.arguments.at(py, 0))?)
    })
}

fn token_exit(called: Called<'_>) -> Returned {
    make_if(called, |py| {
        let token = called.receiver();
        let variable = token.attr(intern!(py, "var"))?;
        Ok(!carry::is_var(&variable) || carry::may_reset(&token)?)
    })
}

fn new(called: CalledByTuple<'_>) -> Returned {
    let result = called.make();
    let Some(context) = result.object(called.py).filter(|_| scope::may_be_guarded()) else {
        return result;
    };
    let carried = called.ours(|py| match scope::guard(py)? {
        Some(active) => scope::carry_into(&context, &active),
        None => Ok(()),
    });
    result.if_done(called.py, carried)
}
