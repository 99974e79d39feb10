//! The functions of `sys.monitoring` that change tools: guarded code may not change the monitor's.

use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::ffi as raw;
use crate::python::guard::monitoring::{holds, id, note_changed, tool_id, while_registering};
use crate::python::guard::scope::{self, Current};
use crate::python::values::errors;

/// The part of a tool that a function changes, by the tool's id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ToolPart {
    /// `set_events(id, events)`
    Events,
    /// `set_local_events(id, code, events)`
    LocalEvents,
    /// `register_callback(id, event, function)`, which has an audit event of its own.
    Callback,
    /// `free_tool_id(id)` and `clear_tool_id(id)`
    All,
}

/// The functions of `sys.monitoring` that change tools, with the events that they raise here.
pub const FUNCTIONS: &[(&str, ToolPart)] = &[
    ("set_events", ToolPart::Events),
    ("set_local_events", ToolPart::LocalEvents),
    ("register_callback", ToolPart::Callback),
    ("free_tool_id", ToolPart::All),
    ("clear_tool_id", ToolPart::All),
];

pub fn call(called: Called<'_>, changes: ToolPart) -> Returned {
    let arguments = called.arguments;
    if changes == ToolPart::Callback && is_for_another(called) {
        return while_registering(|| called.make());
    }
    let may = arguments.positional() == 0
        || tool_id().is_none()
        || called
            .ours(|py| {
                let at = |index: usize| arguments.find(py, index, None);
                check(py, changes, at(0), at(1))
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
    changes: ToolPart,
    tool: Option<Bound<'py, PyAny>>,
    what: Option<Bound<'py, PyAny>>,
) -> PyResult<()> {
    let number = |object: &Bound<'py, PyAny>| raw::int_value(object);
    let Some(tool) = tool.filter(|tool| match number(tool) {
        Some(number) => number == i64::from(id()),
        // An object that computes its number later may return ours.
        None => raw::is_index(tool),
    }) else {
        return Ok(());
    };
    let is_guarded = !matches!(scope::own(py)?, Current::Unguarded);
    if is_guarded || scope::installed().next().is_some() {
        let event = match changes {
            ToolPart::Events => c"sys.monitoring.set_events",
            ToolPart::LocalEvents => c"sys.monitoring.set_local_events",
            ToolPart::All => c"sys.monitoring.free_tool_id",
            ToolPart::Callback => c"sys.monitoring.register_callback",
        };
        raw::audit(py, event, &[&tool])?;
    } else if holds() > 0 && changes != ToolPart::LocalEvents {
        let events = what.as_ref().and_then(number).unwrap_or(0);
        let keeps_calls = changes == ToolPart::Events && events & CALL != 0;
        if !keeps_calls {
            return Err(errors::would_blind());
        }
    }
    note_changed();
    Ok(())
}

/// `sys.monitoring.events.CALL`
const CALL: i64 = 1 << 4;
