//! The guard that is in force while a tool runs: none or the tool's own for the code of the host, and the
//! guest's for all code of the guest that runs meanwhile.
//!
//! Code of the guest is told by notes on code objects. A note is the level of the code plus one:
//! level 0 is code that came into being under a guard that no tool entered.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::python::cpython::calling::Calling;
use crate::python::cpython::frames;
use crate::python::cpython::once::intern;
use crate::python::guard::active::{Active, ToolCall, restrict_more};
use crate::python::importing::imports;

/// True once there is a tool in this process: code is noted from then on.
static ANY_TOOL: AtomicBool = AtomicBool::new(false);

/// The highest level that is told apart.
const HIGHEST: usize = 200;

#[inline]
pub fn any_tool() -> bool {
    ANY_TOOL.load(Ordering::Relaxed)
}

/// Notes that there is one. Events are looked at more closely from then on, as under guards that restrict
/// more: without a tool nothing is asked for it.
pub fn note_tool() {
    if !any_tool() {
        restrict_more();
        ANY_TOOL.store(true, Ordering::Relaxed);
    }
}

/// Returns the guard that judges the running code where a context has this value; `None` if none does.
#[cold]
#[inline(never)]
pub fn in_force<'py>(value: Bound<'py, Active>) -> Option<Bound<'py, Active>> {
    let py = value.py();
    let mut value = value;
    loop {
        let guest = match value.get().tool() {
            Some((call, guest)) if call.is_over() || is_guest_running(py, call) => guest.bind(py),
            _ => break,
        };
        value = guest.clone();
    }
    value.get().config().is_some().then_some(value)
}

/// The level of the code that runs under a guard.
pub fn level(guest: &Active) -> usize {
    guest.tool().map_or(0, |(call, _)| call.depth)
}

/// The depth of a tool that code under this guard calls.
pub fn depth_below(guest: &Active) -> usize {
    (level(guest) + 1).min(HIGHEST)
}

/// Returns whether code of the guest is on the stack above the call of the tool. In a thread or task
/// that the tool started all of its stack counts.
fn is_guest_running(py: Python<'_>, call: &ToolCall) -> bool {
    let mut frame = frames::current_frame(py);
    let mut is_seen = false;
    let mut seen_in_task = None;
    while let Some(current) = frame {
        if current.as_ptr() as usize == call.caller() {
            return is_seen;
        }
        let code = frames::code(&current);
        let note = frames::get(&code, frames::GUEST);
        is_seen |= note != 0 && note <= call.depth;
        if is_seen && seen_in_task.is_none() {
            return true;
        }
        if seen_in_task.is_none() && note == 0 && is_step_of_loop(&code) {
            // A loop of the guest may run tasks that the tool started.
            seen_in_task = Some(is_seen);
        }
        frame = frames::outer(&current);
    }
    seen_in_task.unwrap_or(is_seen)
}

/// Returns whether code is the method by which an event loop calls what is due.
fn is_step_of_loop(code: &Bound<'_, PyAny>) -> bool {
    let py = code.py();
    let text = |name| -> Option<Bound<'_, PyString>> {
        code.attr(name).ok()?.cast_into::<PyString>().ok()
    };
    let is_named = text(intern!(py, "co_name")).is_some_and(|name| name == "_run");
    is_named
        && imports::is_installed(code).unwrap_or(false)
        && text(intern!(py, "co_filename")).is_some_and(|file| {
            let file = file.to_string_lossy();
            file.ends_with("asyncio/events.py") || file.ends_with("asyncio\\events.py")
        })
}

/// Notes that code, and all code in it, is the guest's.
pub fn note_guest(code: &Bound<'_, PyAny>, level: usize) -> PyResult<()> {
    let py = code.py();
    let mut rest = vec![code.clone()];
    while let Some(code) = rest.pop() {
        let before = frames::get(&code, frames::GUEST);
        if before != 0 && before <= level + 1 {
            continue;
        }
        frames::set(&code, frames::GUEST, level + 1);
        let constants = code.attr(intern!(py, "co_consts"))?;
        let constants = constants.cast_into_exact::<PyTuple>()?;
        let inner = constants.iter().filter(|inner| frames::is_code(inner));
        rest.extend(inner);
    }
    Ok(())
}

pub fn is_of_guest(code: &Bound<'_, PyAny>, level: usize) -> bool {
    let note = frames::get(code, frames::GUEST);
    note != 0 && note <= level + 1
}
