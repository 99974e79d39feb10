//! The audit hook (PEP 578).

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::policy::judge::{self, is_open_for_reading};
use crate::policy::rules::Rule;
use crate::policy::rules_02;
use crate::policy::written::values::Switch;
use crate::policy::{Policy, events};
use crate::python::configuration::config::EventWatch;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::hook::{self, Hook, HookVerdict, Raised};
use crate::python::denials::denial;
use crate::python::events::{guest_code, logged, observe};
use crate::python::guard::event::Event;
use crate::python::guard::holds;
use crate::python::guard::scope::{self, Active, Current};
use crate::python::guard::{tempfile, tool_rights};
use crate::python::values::errors;

/// Raised once, to see that the hook is there: CPython does not report a refusal.
const PROBE: &CStr = c"fastaudit_rs.installed";

const ABSENT: u8 = 0;
const INSTALLING: u8 = 1;
const INSTALLED: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(ABSENT);
static PROBED: AtomicBool = AtomicBool::new(false);

/// Installs the hook, once for the process: after its preparations, and before anything that relies
/// on it.
pub fn install(
    py: Python<'_>,
    prepare: fn(Python<'_>) -> PyResult<()>,
    finish: fn(Python<'_>) -> PyResult<()>,
) -> PyResult<()> {
    match STATE.compare_exchange(ABSENT, INSTALLING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {}
        Err(INSTALLED) => return Ok(()),
        Err(_) => return Err(errors::being_installed()),
    }
    let result = prepare(py).and_then(|()| add(py)).and_then(|()| finish(py));
    let state = if result.is_ok() { INSTALLED } else { ABSENT };
    STATE.store(state, Ordering::Release);
    result
}

/// Begins anew in a copy of a process of which another thread was installing it.
pub fn begin_anew() {
    let _ = STATE.compare_exchange(INSTALLING, ABSENT, Ordering::AcqRel, Ordering::Relaxed);
}

fn add(py: Python<'_>) -> PyResult<()> {
    if PROBED.load(Ordering::Acquire) {
        // It is there since the last time, when what belongs to it failed, or the process was copied.
        return Ok(());
    }
    hook::add::<Ours>(py).map_err(|error| errors::hook_vetoed(py, Some(error)))?;
    // A hook that denies events it does not know may stop the probe, but not before ours saw it
    // if ours is there: native hooks are asked first.
    let probe = raw::audit(py, PROBE, ()).err();
    if !PROBED.load(Ordering::Acquire) {
        return Err(errors::hook_vetoed(py, probe));
    }
    Ok(())
}

struct Ours;

impl Hook for Ours {
    #[inline(always)]
    fn judge(event: Raised<'_>) -> HookVerdict {
        let may_load = matches!(event.first_byte(), b'i' | b'c');
        if !scope::any_guard() && !may_load && STATE.load(Ordering::Relaxed) == INSTALLED {
            return HookVerdict::ALLOWED;
        }
        look(event, may_load)
    }
}

/// Handles an event that may need something done. `may_load`: the event may say that native code is
/// going to be loaded.
#[inline(never)]
fn look(event: Raised<'_>, may_load: bool) -> HookVerdict {
    if !scope::may_be_guarded() {
        if scope::installed().next().is_some() && !scope::is_ours() {
            return elsewhere(event).into();
        }
        if may_load && scope::is_ours() {
            note_loading(event);
        }
        if STATE.load(Ordering::Relaxed) == INSTALLING {
            PROBED.fetch_or(event.name() == PROBE, Ordering::AcqRel);
        }
        return HookVerdict::ALLOWED;
    }
    let name = event.name();
    event.with_args(move |args| {
        let py = args.py();
        let verdict = catch_unwind(AssertUnwindSafe(move || {
            if may_load {
                return check_loading(py, name, args);
            }
            check(py, name, args)
        }));
        match verdict {
            Ok(Ok(())) => HookVerdict::ALLOWED,
            Ok(Err(())) => HookVerdict::DENIED,
            Err(_panic) => {
                fail(py, name, "internal error");
                HookVerdict::DENIED
            }
        }
    })
}

/// Judges an event in another interpreter while a policy is installed. The objects of that
/// interpreter are not ours to use, so that whatever has a rule is denied but for reading and
/// imports.
#[cold]
fn elsewhere(event: Raised<'_>) -> Result<(), ()> {
    let all = |allows: fn(&Policy) -> bool| {
        scope::installed()
            .filter_map(|installed| installed.active.get().config())
            .all(|config| allows(config.get().policy()))
    };
    let reads_everything = || all(|policy| !policy.checks_reads());
    let allowed = match events::lookup(event.name().to_bytes()) {
        None | Some(Rule::Import | Rule::Exec) => true,
        Some(Rule::Read(_)) => reads_everything(),
        Some(Rule::Network(_) | Rule::Bind) => all(|policy| policy.network().is_open()),
        Some(rule @ Rule::Open) => {
            // The arguments are looked at alone, and by no object of ours.
            event.with_args(|args| is_open_for_reading(args, rule)) && reads_everything()
        }
        Some(_) => false,
    };
    if allowed {
        return Ok(());
    }
    raw::refuse_elsewhere();
    Err(())
}

/// Takes note of native code that is loaded while no guard is in force.
#[cold]
fn note_loading(event: Raised<'_>) {
    let name = event.name().to_bytes();
    event.with_args(|args| {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            // Nothing is to be watched yet, so nothing can fail.
            let _ = holds::native_code_loads(name, args);
            tempfile::import(name, args);
        }));
    });
}

fn fail(py: Python<'_>, event: &CStr, what: &str) {
    raw::with_attachment_counted(py, || denial::deny_by_failure(py, event, None, what).restore(py));
}

/// Checks an event that may say that code is going to be loaded, and notes it.
#[inline(never)]
fn check_loading(py: Python<'_>, event: &CStr, args: &Bound<'_, PyTuple>) -> Result<(), ()> {
    raw::or_set_error(py, || holds::native_code_loads(event.to_bytes(), args))?;
    check(py, event, args)?;
    raw::with_attachment_counted(py, || tempfile::import(event.to_bytes(), args));
    Ok(())
}

/// Checks an event. On `Err` the exception is set.
#[inline(always)]
fn check(py: Python<'_>, event: &CStr, args: &Bound<'_, PyTuple>) -> Result<(), ()> {
    // Modules and objects are being taken apart then, ours among them.
    if raw::is_finalizing() && scope::installed().next().is_none() {
        return Ok(());
    }
    let restricts_more = scope::any_guard_restricts_more();
    // What passes in each context does not ask for it.
    let classic = match restricts_more {
        true => None,
        false => match to_judge(events::lookup_if(event.to_bytes(), false), args) {
            None => return Ok(()),
            rule => rule,
        },
    };
    let active = match scope::current(py) {
        Ok(Current::Unguarded) if tool_rights::any_tool() => return see_tool(event, args),
        Ok(Current::Unguarded) => return Ok(()),
        Ok(Current::Guarded(active)) => active,
        Ok(Current::Tampered) => {
            fail(py, event, "the guard's context variable was changed");
            return Err(());
        }
        Err(error) => {
            raw::with_attachment_counted(py, || error.restore(py));
            return Err(());
        }
    };
    if restricts_more && tool_rights::any_tool() {
        see_guest(event, args, active.get())?;
    }
    let by_02_alone = |active: &Active| {
        active.is_strict() && active.other().is_none() && scope::installed().next().is_none()
    };
    let rule = match classic {
        None if !by_02_alone(active.get()) => {
            return check_by_each_guard(event, args, active.get());
        }
        None => to_judge(rules_02::lookup(event.to_bytes()), args),
        rule => rule,
    };
    let Some(rule) = rule else {
        return Ok(());
    };
    let Some(config) = active.get().config() else {
        return Ok(());
    };
    let event = Event { reads_passed: true, ..Event::new(event, args, active.get(), config.get()) };
    raw::or_set_error(py, || judge::judge(&event, rule))
}

/// The rule, unless the event is an `open` that only reads, which no rule of either release stops.
#[inline(always)]
fn to_judge(rule: Option<Rule>, args: &Bound<'_, PyTuple>) -> Option<Rule> {
    rule.filter(|&rule| !is_open_for_reading(args, rule))
}

#[cold]
#[inline(never)]
fn see_tool(event: &CStr, args: &Bound<'_, PyTuple>) -> Result<(), ()> {
    raw::or_set_error(args.py(), || guest_code::note_tool(event, args))?;
    judge_native(event, args)
}

#[cold]
#[inline(never)]
fn see_guest(event: &CStr, args: &Bound<'_, PyTuple>, active: &Active) -> Result<(), ()> {
    raw::or_set_error(args.py(), || guest_code::note(event, args, active))?;
    judge_native(event, args)
}

/// Judges the import of native code by a tool: by the guard of the guest that may have written it.
fn judge_native(event: &CStr, args: &Bound<'_, PyTuple>) -> Result<(), ()> {
    if event != c"import" {
        return Ok(());
    }
    match raw::or_set_error(args.py(), || guest_code::writer_of_native(args))? {
        Some(guest) => check_by_each_guard(event, args, guest.get()),
        None => Ok(()),
    }
}

/// Checks an event by each guard that judges it: while one of them restricts more than fastaudit 0.1
/// does, or is installed.
#[inline(never)]
fn check_by_each_guard(event: &CStr, args: &Bound<'_, PyTuple>, active: &Active) -> Result<(), ()> {
    scope::judging(active).try_for_each(|active| check_by_guard(event, args, active))
}

/// Returns whether an event is part of running a process, so that an installed policy lets it pass:
/// a guard that is entered can only restrict more, uncaught exceptions are only reported, and a
/// policy holds in other interpreters as well.
fn is_part_of_running(event: &CStr) -> bool {
    let event = event.to_bytes();
    event.starts_with(b"audit_perms.")
        || event.starts_with(b"_interpreters.")
        || matches!(event, b"sys.excepthook" | b"sys.unraisablehook")
}

/// Checks an event by one guard, which need not be in force any more.
pub fn check_by_guard(event: &CStr, args: &Bound<'_, PyTuple>, active: &Active) -> Result<(), ()> {
    let Some(config) = active.config() else {
        return Ok(());
    };
    if scope::is_installed(active) && is_part_of_running(event) {
        return Ok(());
    }
    let py = args.py();
    if let Some(watch) = config.get().watch() {
        return raw::or_set_error(py, || match watch {
            EventWatch::Records(records) => {
                observe::event(event, args, active, config.get(), records)
            }
            EventWatch::Logs(log) => logged::event(event, args, active, config.get(), log),
        });
    }
    let policy = config.get().policy();
    let rule = policy.rules().rule(event.to_bytes());
    if rule.is_none() && policy.has(Switch::UnknownEvents) {
        return Ok(());
    }
    let event = Event::new(event, args, active, config.get());
    raw::or_set_error(py, || judge::judge_any(&event, rule))
}

/// Checks an act of native code on a thread that holds the lock, as the event that Python raises for
/// the same. On `Err` the exception is set.
pub fn check_act(event: &CStr, args: &Bound<'_, PyTuple>) -> Result<(), ()> {
    check(args.py(), event, args)
}
