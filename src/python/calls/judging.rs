//! The judgement of a call, from whichever side it is seen: the guard that watches it, the callee's
//! name, and the question to the host.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

use crate::python::callees::{callee_cache as cache, caller};
use crate::python::calls::ask::{self, NativeCall, SiteAnswer};
use crate::python::calls::{deferred, named};
use crate::python::configuration::approvals;
use crate::python::configuration::config::{AuditCfg, Side};
use crate::python::cpython::{ffi as raw, frames, layout};
use crate::python::denials::denial;
use crate::python::guard::scope::{self, Active, Current};
use crate::python::guard::{holds, monitoring};
use crate::python::values::errors;

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

/// The code object of a call and the offset in it, as an event of the caller's side has them.
pub type EventSite<'a, 'py> = (&'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>);

/// Where the running frame is.
fn here(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Bound<'_, PyAny>)> {
    let frame = frames::current_frame(py).ok_or_else(errors::no_frame)?;
    let offset = frames::last_instruction(&frame).into_pyobject(py)?.into_any();
    Ok((frames::code(&frame), offset))
}

/// Judges a call: it is denied by an error. The callee's side has no event.
pub fn judge<'py>(
    event: Option<EventSite<'_, 'py>>,
    callee: &Bound<'py, PyAny>,
    first: Option<&Bound<'py, PyAny>>,
) -> PyResult<SiteAnswer> {
    let py = callee.py();
    let side = if event.is_some() { Side::Caller } else { Side::Callee };
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
            && let Some(config) = config
            && holds::is_remembered(config.safe_set)
        {
            let lasts = ask::is_lasting_object(&found.native.name, callee)?;
            holds::remember_in(config.safe_set, || {
                cache::remember_safe(callee.as_borrowed(), versions);
                if lasts {
                    cache::remember_safe_object(callee.clone().unbind());
                }
            });
        }
        SiteAnswer::Watch
    } else {
        let found_here;
        let site = match event {
            Some(site) => site,
            None => {
                found_here = here(py)?;
                (&found_here.0, &found_here.1)
            }
        };
        let caller = caller::name(site.0)?;
        let call = NativeCall { caller: &caller, callee: &found, site };
        match passes.and_then(|_| call.ask(config)) {
            Ok(answer) => answer,
            Err(denial) => return deferred::deny(py, &caller, denial).map(|()| SiteAnswer::Watch),
        }
    };
    if found.is_fragile {
        let by_events = side == Side::Caller;
        deferred::begins(py, if by_events { monitoring::tool_id() } else { None })?;
        if !by_events {
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
