//! The CALL monitor (PEP 669): sees calls while some guard that asks for it is in force.
//!
//! Outside guards its events are off, and code runs at full speed. No call site is switched off
//! because its first callee was harmless, unless the host asks for that: the next callee may not
//! be.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::python::callees::callee_cache as cache;
use crate::python::calls::ask::{DISABLE, SiteAnswer};
use crate::python::calls::deferred;
use crate::python::calls::judging::{caught, judge};
use crate::python::cpython::callbacks::{CallEvent, Monitor, of_call, of_end};
use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::ffi as raw;
#[cfg(not(Py_3_14))]
use crate::python::cpython::{calling, unpacked};
use crate::python::guard::holds;
use crate::python::guard::monitoring::{self, Free, id, note_changed, tool_id};
use crate::python::guard::own_events::{REGISTERS as CALLBACK, while_raising};
use crate::python::guard::scope::{self, Current};
use crate::python::importing::loaded;
use crate::python::values::errors;

/// `None` if the monitor runs already.
pub fn find_tool_id(py: Python<'_>, chosen: Option<i32>) -> PyResult<Option<Free>> {
    monitoring::find(py, of_call::<Ours>, chosen)
}

pub fn install(py: Python<'_>, free: Free) -> PyResult<()> {
    #[cfg(not(Py_3_14))]
    unpacked::prepare(py)?;
    loaded::install(py)?;
    deferred::prepare(py, of_end::<Ours>)?;
    DISABLE.set(monitoring::install(py, free)?);
    Ok(())
}

struct Ours;

impl Monitor for Ours {
    #[inline(always)]
    fn call(event: CallEvent<'_>) -> Returned {
        if cache::is_plainly_quiet(event.callee()) {
            return quiet_answer(event.py);
        }
        look(event)
    }

    fn ended(py: Python<'_>) -> Returned {
        let ended = || deferred::ends(py, Some(monitoring::id()));
        match caught(py, ended) {
            Some(()) => Returned::none(py),
            None => Returned::failed(),
        }
    }
}

/// The answer to an event whose callee is quiet: its site is watched further, unless every guard in
/// force lets it be retired.
#[inline]
fn quiet_answer(py: Python<'_>) -> Returned {
    match monitoring::retires() {
        true => DISABLE.give(py),
        false => Returned::none(py),
    }
}

#[inline(never)]
fn look(event: CallEvent<'_>) -> Returned {
    if holds::all_have_safe_set() && cache::is_plainly_safe(event.callee()) {
        return Returned::none(event.py);
    }
    if cache::is_quiet::<{ cache::SECOND }>(event.callee()) {
        return quiet_answer(event.py);
    }
    look_closely(event)
}

#[inline(never)]
fn look_closely(event: CallEvent<'_>) -> Returned {
    let (py, [code, offset, callee, first]) = (event.py, event.all());
    match caught(py, || judge(Some((&code, &offset)), &callee, Some(&first))) {
        Some(SiteAnswer::Quiet) => quiet_answer(py),
        Some(SiteAnswer::Watch | SiteAnswer::Fragile) => Returned::none(py),
        Some(SiteAnswer::SwitchOff) => DISABLE.give(py),
        None => {
            #[cfg(not(Py_3_14))]
            raw::beside_pending(py, || {
                let forgotten = unpacked::forget(&code, &offset, &callee, &first);
                forgotten.unwrap_or_else(|error| calling::write_unraisable(py, error));
            });
            Returned::failed()
        }
    }
}

// The functions of `sys.monitoring` that change tools: guarded code may not change the monitor's.

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

pub fn change_tools(called: Called<'_>, event: &CStr) -> Returned {
    let arguments = called.arguments;
    if event == CALLBACK && is_for_another(called) {
        return while_raising(CALLBACK, || called.make());
    }
    let may = arguments.positional() == 0
        || tool_id().is_none()
        || called
            .ours(|py| {
                let at = |index: usize| arguments.find(py, index, None);
                check_change(py, event, at(0), at(1))
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
fn check_change<'py>(
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
    if !matches!(scope::current(py)?, Current::Unguarded) {
        raw::audit(py, event, (&tool,))?;
    } else if monitoring::holds() > 0 && event != LOCAL_EVENTS {
        let events = what.as_ref().and_then(raw::int_value).unwrap_or(0);
        let keeps_calls = event == EVENTS && events & CALL_EVENT != 0;
        if !keeps_calls {
            return Err(errors::would_blind());
        }
    }
    note_changed();
    Ok(())
}

/// `sys.monitoring.events.CALL`
const CALL_EVENT: i64 = 1 << 4;
