//! The functions of `sys.monitoring` that change tools: guarded code may not change the monitor's.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::ffi as raw;
use crate::python::guard::monitoring::{holds, id, note_changed, tool_id, while_registering};
use crate::python::guard::scope::{self, Current};
use crate::python::values::errors;

/// The event of `register_callback(id, event, function)`.
const CALLBACK: &CStr = c"sys.monitoring.register_callback";
const EVENTS: &CStr = c"sys.monitoring.set_events";
const LOCAL_EVENTS: &CStr = c"sys.monitoring.set_local_events";
const ALL: &CStr = c"sys.monitoring.free_tool_id";

pub const FUNCTIONS: &[(&str, &CStr)] = &[
    ("set_events", EVENTS),
    ("set_local_events", LOCAL_EVENTS),
    ("register_callback", CALLBACK),
    ("free_tool_id", ALL),
    ("clear_tool_id", ALL),
];

pub fn call(called: Called<'_>, event: &CStr) -> Returned {
    let arguments = called.arguments;
    if event == CALLBACK && is_for_another(called) {
        return while_registering(|| called.make());
    }
    let may = arguments.positional() == 0
        || tool_id().is_none()
        || called
            .ours(|py| {
                let at = |index: usize| arguments.find(py, index, None);
                check(py, event, at(0), at(1))
            })
            .is_some();
    match may {
        true => called.make(),
        false => Returned::failed(),
    }
}

/// Returns whether a callback is registered for a tool that is not the monitor. The tool and the
/// event have to be plain numbers: objects that compute theirs later run code of their own, and may
/// return ours.
fn is_for_another(called: Called<'_>) -> bool {
    let arguments = called.arguments;
    if arguments.positional() < 2 || arguments.named() != 0 {
        return false;
    }
    let [tool, event] = [0, 1].map(|index| arguments.at(called.py, index));
    tool.is_exact_instance_of::<PyInt>()
        && event.is_exact_instance_of::<PyInt>()
        && raw::int_value(&tool).is_some_and(|tool| tool != i64::from(id()))
}

/// Denies a change that would blind the guards in force.
fn check<'py>(
    py: Python<'py>,
    event: &CStr,
    tool: Option<Bound<'py, PyAny>>,
    what: Option<Bound<'py, PyAny>>,
) -> PyResult<()> {
    let Some(tool) = tool.filter(|tool| match raw::int_value(tool) {
        Some(number) => number == i64::from(id()),
        // An object that computes its number later may return ours.
        None => raw::is_index(tool),
    }) else {
        return Ok(());
    };
    let is_guarded = !matches!(scope::own(py)?, Current::Unguarded);
    if is_guarded || scope::installed().next().is_some() {
        raw::audit(py, event, &[&tool])?;
    } else if holds() > 0 && event != LOCAL_EVENTS {
        let events = what.as_ref().and_then(raw::int_value).unwrap_or(0);
        let keeps_calls = event == EVENTS && events & CALL != 0;
        if !keeps_calls {
            return Err(errors::would_blind());
        }
    }
    note_changed();
    Ok(())
}

/// `sys.monitoring.events.CALL`
const CALL: i64 = 1 << 4;
