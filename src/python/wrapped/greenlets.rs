//! Greenlets that are made or started under a guard: each has a context of its own, which its
//! library enters by itself, and which has the guard.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::called::{Called, CalledByTuple, Returned};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::replace;
use crate::python::cpython::slots::{self, Attribute, Slot, Truth, WrappedSetter};
use crate::python::guard::{carry, scope};
use crate::python::values::errors;

const CONTEXT_NAME: &str = "gr_context";

struct Known {
    dead: Attribute,
    is_active: Truth,
}

static KNOWN: OnceLock<Known> = OnceLock::new();

struct Context;

static CONTEXT: OnceLock<Attribute> = OnceLock::new();

pub fn install(_module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    if CONTEXT.get().is_none() {
        let (Some(context), Some(dead), Some(is_active)) = (
            Attribute::of(class, CONTEXT_NAME)?,
            Attribute::of(class, "dead")?,
            Truth::of(class),
        ) else {
            // The greenlets of an old version share the context of the thread.
            return Ok(());
        };
        let _ = KNOWN.set(Known { dead, is_active });
        let _ = CONTEXT.set(context);
    }
    slots::setter::<Context>(class, CONTEXT_NAME)?;
    replace::method_by_tuple::<Switch>(class, "switch")?;
    replace::wrap_method!(class, "throw", throw)?;
    replace::wrap_slot!(class, Slot::New, new)
}

/// Gives a greenlet that does not run the guard in force.
fn equip(greenlet: &Bound<'_, PyAny>) -> PyResult<()> {
    let (Some(active), Some(attribute)) = (scope::guard(greenlet.py())?, CONTEXT.get()) else {
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

replace::wrapped! {
    Switch: WrappedByTuple(CalledByTuple) => switch;
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
        let with_guard = match scope::guard(greenlet.py())? {
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
    match scope::may_be_guarded() {
        true => called.make_if(|_| equip_new(&called.receiver())),
        false => called.make(),
    }
}

fn throw(called: Called<'_>) -> Returned {
    match scope::may_be_guarded() {
        true => called.make_if(|_| equip_new(&called.receiver())),
        false => called.make(),
    }
}
