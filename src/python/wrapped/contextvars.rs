//! Contexts that guarded code enters, makes or changes, and those of its tasks and greenlets: it
//! stays under its guard in all of them.
//!
//! A guard is in force if its context variable says so. Guarded code cannot change the variable, a
//! context that it makes has the guard, and one that it enters has it for as long as that takes.

use std::sync::OnceLock;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::python::cpython::called::{Called, CalledByTuple, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::cpython::slots::{self, Attribute, Slot, Truth, WrappedSetter};
use crate::python::cpython::{ffi as raw, process, replace};
use crate::python::guard::{carry, copies, scope};
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
        let copies = process::branch();
        let result = called.make();
        copies::call_is_over(called.py, copies);
        result
    };
    carry::during(called.py, lent, make, |_, lent| carry::take_back(&context, lent))
}

fn make_if(called: Called<'_>, may: impl FnOnce(Python<'_>) -> PyResult<bool>) -> Returned {
    called.make_if(scope::may_be_guarded(), |py| match may(py)? {
        true => Ok(()),
        false => Err(errors::variable_kept()),
    })
}

fn change(called: Called<'_>, may: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<bool>) -> Returned {
    make_if(
        called,
        |py| Ok(!carry::is_var(&called.receiver()) || may(&called.arguments.at(py, 0))?),
    )
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

// Tasks that guarded code makes in a context of its choice: in one that was made before the guard
// they would not have it. Such a task is made in a copy of the context that has the guard.

static RUNNING_LOOP: OnceLock<Py<PyAny>> = OnceLock::new();

pub fn install_tasks(module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    let Some(running) = module.attr_opt("_get_running_loop")? else {
        return Ok(());
    };
    let _ = RUNNING_LOOP.set(running.unbind());
    replace::wrap_slot!(class, Slot::Init, init_task)
}

fn init_task(called: CalledByTuple<'_>) -> Returned {
    if !scope::may_be_guarded() {
        return called.make();
    }
    let Some(lent) = called.ours(carry::lend_guest) else {
        return Returned::failed();
    };
    carry::during(called.py, lent, || init_guarded_task(called), carry::take_back_here)
}

fn init_guarded_task(called: CalledByTuple<'_>) -> Returned {
    let Some(kwargs) = called.kwargs() else {
        return called.make();
    };
    match called.ours(|_| with_guarded_context(&kwargs)) {
        None => Returned::failed(),
        Some(None) => called.make(),
        Some(Some(given)) => called.make_with(given),
    }
}

/// The arguments with a context that has the guard in force; `None` if they stay as they are. If no
/// loop runs yet, the task runs in one that runs under the guard.
fn with_guarded_context<'py>(kwargs: &Bound<'py, PyDict>) -> PyResult<Option<Bound<'py, PyDict>>> {
    let py = kwargs.py();
    let name = intern!(py, "context");
    let context = kwargs.get_item(name)?.filter(raw::is_context);
    let (Some(context), Some(active)) = (context, scope::guard(py)?) else {
        return Ok(None);
    };
    let running = RUNNING_LOOP.get().map(|running| running.bind(py).invoke0());
    if running.transpose()?.is_none_or(|running| running.is_none()) {
        return Ok(None);
    }
    let Some(context) = carry::with_guard(Some(&context), &active)? else {
        return Ok(None);
    };
    let given = kwargs.copy()?;
    given.set_item(name, context)?;
    Ok(Some(given))
}

// Greenlets that are made or started under a guard: each has a context of its own, which its
// library enters by itself, and which has the guard.

const CONTEXT_NAME: &str = "gr_context";

struct Known {
    context: Attribute,
    dead: Attribute,
    is_active: Truth,
}

static KNOWN: OnceLock<Known> = OnceLock::new();

struct Context;

pub fn install_greenlets(_module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    if KNOWN.get().is_none() {
        let (Some(context), Some(dead), Some(is_active)) =
            (Attribute::of(class, CONTEXT_NAME)?, Attribute::of(class, "dead")?, Truth::of(class))
        else {
            // The greenlets of an old version share the context of the thread.
            return Ok(());
        };
        let _ = KNOWN.set(Known { context, dead, is_active });
    }
    slots::setter::<Context>(class, CONTEXT_NAME)?;
    replace::method_by_tuple::<Switch>(class, "switch")?;
    replace::wrap_method!(class, "throw", throw)?;
    replace::wrap_slot!(class, Slot::New, new_greenlet)
}

/// Gives a greenlet that does not run the guard in force.
fn equip(greenlet: &Bound<'_, PyAny>) -> PyResult<()> {
    let (Some(active), Some(known)) = (scope::guard(greenlet.py())?, KNOWN.get()) else {
        return Ok(());
    };
    let context = known.context.get(greenlet)?;
    let context = (!context.is_none()).then_some(context);
    match carry::with_guard(context.as_ref(), &active)? {
        Some(context) => known.context.set(greenlet, Some(&context)),
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

fn new_greenlet(called: CalledByTuple<'_>) -> Returned {
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
        let Some(Known { context: attribute, .. }) = KNOWN.get() else {
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
    called.make_if(scope::may_be_guarded(), |_| equip_new(&called.receiver()))
}

fn throw(called: Called<'_>) -> Returned {
    called.make_if(scope::may_be_guarded(), |_| equip_new(&called.receiver()))
}
