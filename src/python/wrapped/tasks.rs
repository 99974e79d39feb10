//! Tasks that guarded code makes in a context of its choice: in one that was made before the guard
//! they would not have it. Such a task is made in a copy of the context that has the guard.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::python::cpython::called::{CalledByTuple, Returned};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::intern;
use crate::python::cpython::replace;
use crate::python::cpython::slots::Slot;
use crate::python::guard::{carry, scope};

static RUNNING_LOOP: OnceLock<Py<PyAny>> = OnceLock::new();

pub fn install(module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    let Some(running) = module.attr_opt("_get_running_loop")? else {
        return Ok(());
    };
    let _ = RUNNING_LOOP.set(running.unbind());
    replace::wrap_slot!(class, Slot::Init, init)
}

fn init(called: CalledByTuple<'_>) -> Returned {
    if !scope::may_be_guarded() {
        return called.make();
    }
    let Some(lent) = called.ours(carry::lend_guest) else {
        return Returned::failed();
    };
    carry::during(
        called.py,
        lent,
        || init_guarded(called),
        carry::take_back_here,
    )
}

fn init_guarded(called: CalledByTuple<'_>) -> Returned {
    let Some(kwargs) = called.kwargs() else {
        return called.make();
    };
    match called.ours(|_| guarded(&kwargs)) {
        None => Returned::failed(),
        Some(None) => called.make(),
        Some(Some(given)) => called.make_with(given),
    }
}

/// The arguments with a context that has the guard in force; `None` if they stay as they are. If no
/// loop runs yet, the task runs in one that runs under the guard.
fn guarded<'py>(kwargs: &Bound<'py, PyDict>) -> PyResult<Option<Bound<'py, PyDict>>> {
    let py = kwargs.py();
    let name = intern!(py, "context");
    let Some(context) = kwargs.get_item(name)? else {
        return Ok(None);
    };
    if !raw::is_context(&context) {
        return Ok(None);
    }
    let Some(active) = scope::guard(py)? else {
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
