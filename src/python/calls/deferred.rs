//! Native functions that do not survive an exception in Python code that they call.
//!
//! A call is denied by raising where it is made. If the caller is Python code called by native code
//! which goes on as if nothing had been raised, the process crashes, as it would on any other
//! exception there. For the functions listed here a denial in their own Python code is kept until
//! they return, and raised then, so that their result does not reach the guarded code.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::{PyFrame, PyString};

#[cfg(Py_3_12)]
use crate::python::cpython::callbacks::NewCallback;
#[cfg(Py_3_12)]
use crate::python::cpython::calling;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::frames;
use crate::python::cpython::once::Once;
use crate::python::frames::stack;
use crate::python::guard::own_events::{REGISTERS, while_raising};

/// `DataFrame.to_json`, whose objToJSON.c reads `array_values` and others of a block unchecked; the
/// second name is the one that it had before pandas 3.
const FRAGILE: [&str; 2] = ["pandas._libs._ujson.ujson_dumps", "pandas._libs.json.ujson_dumps"];

/// The packages whose Python code they call without looking at the outcome.
const CALLED: [&str; 3] = ["pandas", "numpy", "pyarrow"];

struct Running {
    frame: Py<PyFrame>,
    at: Option<usize>,
    denial: Option<PyErr>,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

static ENDS: Once<Ends> = Once::new();

struct Ends {
    register: Py<PyAny>,
    events: [Py<PyAny>; 2],
    callback: Py<PyAny>,
}

#[cfg(Py_3_12)]
pub fn prepare(py: Python<'_>, callback: NewCallback) -> PyResult<()> {
    ENDS.get_or_try_init(py, || {
        let monitoring = calling::import(py, "sys")?.attr("monitoring")?;
        let events = monitoring.attr("events")?;
        let event = |name| events.attr(name).map(Bound::unbind);
        Ok::<_, PyErr>(Ends {
            register: monitoring.attr("register_callback")?.unbind(),
            events: [event("C_RETURN")?, event("C_RAISE")?],
            callback: callback(py)?.unbind(),
        })
    })
    .map(|_| ())
}

fn register(py: Python<'_>, tool_id: Option<i32>, on: bool) -> PyResult<()> {
    let (Some(ends), Some(tool_id)) = (ENDS.get(py), tool_id) else {
        return Ok(());
    };
    let none = py.None();
    let callback = if on { &ends.callback } else { &none };
    let events = ends.events.each_ref();
    let register = |event| ends.register.bind(py).invoke1((tool_id, event, callback));
    let mut results = while_raising(REGISTERS, || events.map(register)).into_iter();
    results.try_for_each(|result| result.map(|_| ()))
}

pub fn is_fragile(name: &Bound<'_, PyString>) -> bool {
    FRAGILE.iter().any(|fragile| name == fragile)
}

/// A fragile function is going to be called. Without a tool whoever makes the call says when it ends.
pub fn begins(py: Python<'_>, tool_id: Option<i32>) -> PyResult<()> {
    if !is_running(py)
        && let Some(frame) = frames::current_frame(py)
    {
        register(py, tool_id, true)?;
        let at = frames::last_instruction(&frame);
        let before = RUNNING.replace(Some(Running { frame: frame.unbind(), at, denial: None }));
        drop(before);
    }
    Ok(())
}

/// Returns whether the noted call is still being made: its frame is on the stack, where it was.
fn is_running(py: Python<'_>) -> bool {
    let noted = RUNNING.with_borrow(|running| {
        let running = running.as_ref()?;
        Some((running.frame.clone_ref(py), running.at))
    });
    noted.is_some_and(|(noted, at)| {
        let is_it = |frame: &Bound<'_, PyFrame>| frame.is(&noted);
        stack::frames(py).find(is_it).is_some_and(|frame| frames::last_instruction(&frame) == at)
    })
}

/// Returns the denial as an error, or `Ok(())` if it must wait until the fragile call returns.
pub fn deny(py: Python<'_>, caller: &Bound<'_, PyString>, denial: PyErr) -> PyResult<()> {
    let package = caller.to_str().unwrap_or_default().split('.').next();
    let is_its_own = package.is_some_and(|package| CALLED.contains(&package));
    if !is_its_own || !stack::is_of_its_module(py)? || !is_running(py) {
        return Err(denial);
    }
    RUNNING.with_borrow_mut(|running| {
        if let Some(running) = running {
            running.denial.get_or_insert(denial);
        }
    });
    Ok(())
}

/// Raises the denial that was kept, at the end of a native call.
pub fn ends(py: Python<'_>, tool_id: Option<i32>) -> PyResult<()> {
    let Some(frame) = frames::current_frame(py) else {
        return Ok(());
    };
    let at = frames::last_instruction(&frame);
    let is_it = |running: &Running| frame.is(&running.frame) && running.at == at;
    if !RUNNING.with_borrow(|running| running.as_ref().is_some_and(is_it)) {
        return Ok(());
    }
    let running = RUNNING.take();
    register(py, tool_id, false)?;
    match running.and_then(|running| running.denial) {
        Some(denial) => Err(denial),
        None => Ok(()),
    }
}
