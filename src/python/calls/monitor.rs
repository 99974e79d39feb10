//! The CALL monitor (PEP 669): sees calls while some guard that asks for it is in force.
//!
//! Outside guards its events are off, and code runs at full speed. No call site is switched off
//! because its first callee was harmless, unless the host asks for that: the next callee may not
//! be.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use crate::python::callees::{callee_cache as cache, caller};
use crate::python::calls::ask::{self, DISABLE, NativeCall, SiteAnswer};
use crate::python::calls::{deferred, named};
use crate::python::configuration::approvals;
use crate::python::configuration::config::{AuditCfg, Side};
use crate::python::cpython::callbacks::{CallEvent, Monitor, of_call, of_end};
use crate::python::cpython::called::{Called, Returned};
#[cfg(not(Py_3_14))]
use crate::python::cpython::{calling, unpacked};
use crate::python::cpython::{ffi as raw, frames, layout};
use crate::python::denials::denial;
use crate::python::guard::monitoring::{self, Free, id, note_changed, while_registering};
use crate::python::guard::scope::{self, Active, Current};
use crate::python::importing::loaded;
use crate::python::values::errors;

pub use crate::python::guard::monitoring::{holds, tool_id};

#[expect(clippy::unnecessary_wraps, reason = "what it is before Python 3.12")]
pub fn is_possible(_py: Python<'_>, _demanded_by: Option<&str>) -> PyResult<bool> {
    Ok(true)
}

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

/// Begins to watch if the event says that the first native code from outside the standard library
/// loads.
pub fn native_code_loads(event: &[u8], args: &Bound<'_, PyTuple>) -> PyResult<()> {
    match loaded::take_note(event, args) {
        true => monitoring::native_code_loads(args.py()),
        false => Ok(()),
    }
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
    if monitoring::all_have_safe_set() && cache::is_plainly_safe(event.callee()) {
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
    let site = CallerSite::Event(&code, &offset);
    match caught(py, || judge(Side::Caller, site, &callee, Some(&first))) {
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

/// Runs our own part of an event. `None` if that failed, or panicked: then an exception is set.
pub fn caught<T>(py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(|| raw::or_set_error(py, work)));
    match result {
        Ok(result) => result.ok(),
        Err(_panic) => {
            denial::deny_by_failure(py, c"fastaudit.call", None, "internal error").restore(py);
            None
        }
    }
}

/// Where a call is made: a code object and an offset in it.
#[derive(Clone, Copy)]
pub enum CallerSite<'a, 'py> {
    Event(&'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>),
    /// Where the running frame is.
    Here,
}

impl<'py> CallerSite<'_, 'py> {
    fn parts(self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let frame = match self {
            Self::Event(code, offset) => return Ok((code.clone(), offset.clone())),
            Self::Here => frames::current_frame(py).ok_or_else(errors::no_frame)?,
        };
        let offset = frames::last_instruction(&frame).into_pyobject(py)?.into_any();
        Ok((frames::code(&frame), offset))
    }
}

/// Judges a call: it is denied by an error.
pub fn judge(
    side: Side,
    site: CallerSite<'_, '_>,
    callee: &Bound<'_, PyAny>,
    first: Option<&Bound<'_, PyAny>>,
) -> PyResult<SiteAnswer> {
    let py = callee.py();
    if !scope::may_be_guarded() || approvals::ASKING_HOST.get() {
        return Ok(SiteAnswer::Watch);
    }
    let Some((config, is_alone)) = watcher(py, side)? else {
        return Ok(SiteAnswer::Watch);
    };
    let config = config.as_ref().map(|config| config.get());
    let versions = layout::class_versions_of(callee.as_borrowed());
    let Some(found) = named::of(callee, first)? else {
        return Ok(SiteAnswer::Quiet);
    };
    let passes = match config {
        Some(config) if is_alone || config.is_strict() => ask::passes(config, &found.native),
        _ => Ok(false),
    };
    let answer = if let Ok(true) = passes {
        // A class that calls its first argument has to be looked at each time.
        if found.native.function.is(callee)
            && !found.is_fragile
            && config.is_some_and(|config| monitoring::is_remembered(config.safe_set))
        {
            cache::remember_safe(callee.as_borrowed(), versions);
            if ask::is_lasting_object(&found.native.name, callee)? {
                cache::remember_safe_object(callee.clone().unbind());
            }
        }
        SiteAnswer::Watch
    } else {
        let (code, offset) = site.parts(py)?;
        let caller = caller::name(&code)?;
        let call = NativeCall { caller: &caller, callee: &found, site: (&code, &offset) };
        match passes.and_then(|_| call.ask(config)) {
            Ok(answer) => answer,
            Err(denial) => return deferred::deny(py, &caller, denial).map(|()| SiteAnswer::Watch),
        }
    };
    if found.is_fragile {
        deferred::begins(py, (side == Side::Caller).then(monitoring::id))?;
        if side == Side::Callee {
            return Ok(SiteAnswer::Fragile);
        }
    }
    Ok(answer)
}

/// The configuration of the guard that watches this call, and whether no other does; without one
/// the event is denied as every other. `None` if no guard watches.
fn watcher(py: Python<'_>, side: Side) -> PyResult<Option<(Option<Py<AuditCfg>>, bool)>> {
    let mut installed = scope::installed().map(|installed| installed.active.get());
    let own = match scope::own(py)? {
        Current::Tampered => return Ok(Some((None, false))),
        Current::Guarded(active) => Some(active),
        Current::Unguarded => None,
    };
    let own = own.as_ref().map(|active| active.get());
    let watches = |active: &Active| active.watches(side);
    let (watching, is_alone) = match own.and_then(|active| active.watching(side)) {
        Some(watching) => {
            let has_other = own.is_some_and(|active| active.other().is_some());
            (Some(watching), !has_other && !installed.any(watches))
        }
        None => (installed.find(|active| watches(active)), false),
    };
    let config = |active: &Active| active.config().map(|config| config.clone_ref(py));
    Ok(watching.map(|active| (config(active), is_alone)))
}

// The functions of `sys.monitoring` that change tools: guarded code may not change the monitor's.

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

pub fn change_tools(called: Called<'_>, event: &CStr) -> Returned {
    let arguments = called.arguments;
    if event == CALLBACK && is_for_another(called) {
        return while_registering(|| called.make());
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
    let is_guarded = !matches!(scope::own(py)?, Current::Unguarded);
    if is_guarded || scope::installed().next().is_some() {
        raw::audit(py, event, (&tool,))?;
    } else if holds() > 0 && event != LOCAL_EVENTS {
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
