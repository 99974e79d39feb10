//! Greenlets that are made or started under a guard: each has a context of its own, which its
//! library enters by itself, and which has the guard.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::called::{Called, CalledByTuple, Returned, ours};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::replace::{self, wrapped};
use crate::python::cpython::slots::{self, Attribute, Slot, Truth, WrappedSetter};
use crate::python::guard::carry;
use crate::python::guard::scope::{self, Active, Current};
use crate::python::values::errors;

pub const MODULE: &str = "greenlet._greenlet";

const CONTEXT_NAME: &str = "gr_context";

wrapped! {
    New: WrappedByTuple(CalledByTuple) => new;
    Switch: WrappedByTuple(CalledByTuple) => switch;
    Throw: Wrapped(Called) => throw;
}

struct Known {
    dead: Attribute,
    is_active: Truth,
}

static KNOWN: OnceLock<Known> = OnceLock::new();

struct Context;

static CONTEXT: OnceLock<Attribute> = OnceLock::new();

pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
    // An old version has none, and its greenlets share the context of the thread.
    let Some(class) = module.attr_opt("greenlet")? else {
        return Ok(());
    };
    let class = class.cast_into::<PyType>()?;
    if CONTEXT.get().is_none() {
        let (Some(context), Some(dead), Some(is_active)) = (
            Attribute::of(&class, CONTEXT_NAME)?,
            Attribute::of(&class, "dead")?,
            Truth::of(&class),
        ) else {
            return Ok(());
        };
        let _ = KNOWN.set(Known { dead, is_active });
        let _ = CONTEXT.set(context);
    }
    slots::setter::<Context>(&class, CONTEXT_NAME)?;
    replace::method_by_tuple::<Switch>(&class, "switch")?;
    replace::method::<Throw>(&class, "throw")?;
    replace::slot::<New>(&class, Slot::New)
}

fn guard(py: Python<'_>) -> PyResult<Option<Bound<'_, Active>>> {
    match scope::own(py)? {
        Current::Guarded(active) => Ok(Some(active)),
        Current::Unguarded => Ok(None),
        Current::Tampered => Err(errors::variable_changed()),
    }
}

/// Gives a greenlet that does not run the guard in force.
fn equip(greenlet: &Bound<'_, PyAny>) -> PyResult<()> {
    let (Some(active), Some(attribute)) = (guard(greenlet.py())?, CONTEXT.get()) else {
        return Ok(());
    };
    let context = attribute.get(greenlet)?;
    let context = (!context.is_none()).then_some(context);
    match carry::with_guard(context.as_ref(), &active)? {
        Some(context) => attribute.set(greenlet, Some(&context)),
        None => Ok(()),
    }
}

/// The same for one that was not started yet.
fn equip_new(greenlet: &Bound<'_, PyAny>) -> PyResult<()> {
    let Some(known) = KNOWN.get() else {
        return Ok(());
    };
    if known.is_active.is_true(greenlet) || known.dead.get(greenlet)?.truth()? {
        return Ok(());
    }
    equip(greenlet)
}

fn new(called: CalledByTuple<'_>) -> Returned {
    let result = called.make();
    let Some(greenlet) = result.object(called.py).filter(|_| scope::may_be_guarded()) else {
        return result;
    };
    let equipped = called.ours(|_| equip(&greenlet));
    result.if_done(called.py, equipped)
}

impl WrappedSetter for Context {
    fn set(greenlet: &Bound<'_, PyAny>, value: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(attribute) = CONTEXT.get() else {
            return Err(errors::variable_changed());
        };
        let Some(value) = value.filter(|_| scope::may_be_guarded()) else {
            return attribute.set(greenlet, value);
        };
        let context = (!value.is_none()).then_some(value);
        let with_guard = match guard(greenlet.py())? {
            Some(active) if context.is_none_or(raw::is_context) => {
                carry::with_guard(context, &active)?
            }
            _ => None,
        };
        attribute.set(greenlet, Some(with_guard.as_ref().unwrap_or(value)))
    }
}

/// Starts a greenlet, or goes on with it. While it runs, and others do in its place, there is nothing on
/// this stack that anybody else uses.
fn switch(called: CalledByTuple<'_>) -> Returned {
    match may_start(called.py, &called.receiver()) {
        true => called.make(),
        false => Returned::failed(),
    }
}

fn throw(called: Called<'_>) -> Returned {
    match may_start(called.py, &called.receiver()) {
        true => called.make(),
        false => Returned::failed(),
    }
}

/// Gives a greenlet the guard if it is about to be started; else the exception is set.
fn may_start(py: Python<'_>, greenlet: &Bound<'_, PyAny>) -> bool {
    !scope::may_be_guarded() || ours(py, |_| equip_new(greenlet)).is_some()
}
