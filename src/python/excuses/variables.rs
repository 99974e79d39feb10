//! Changes of the environment that are denied in general and harm nothing here.
//!
//! A variable may be set to the value that it has, or had before the guarded code removed it. If a
//! guard lets some variables change, any may be removed for as long as it is in force, as
//! `os.environ.clear()` and `mock.patch.dict(os.environ)` do on the way: the others are put back
//! when the guard is left.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use crate::policy::Operation;
use crate::policy::environment::is_dangerous;
use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Base, Name, Target};
use crate::python::guard::environment::{bytes_of, now};
use crate::python::guard::event::Event;
use crate::python::guard::scope::{self, Active};

/// Notes the environment before a variable is removed from it under a guard that may put it back.
#[inline]
pub fn will_be_removed(event: &Event<'_, '_>) {
    if event.active.environment.get().is_none() {
        take_note(event);
    }
}

#[cold]
fn take_note(event: &Event<'_, '_>) {
    if event.config.policy().environment().allows_some() || event.observes() {
        let before = || Box::new(now(event.args.py()));
        event.active.environment.get_or_init(before);
    }
}

pub fn excuse(event: &Event<'_, '_>) -> PyResult<bool> {
    let passes = match event.name.to_bytes() {
        b"os.putenv" => sets_what_was(event) || places_temporary_files(event),
        b"os.unsetenv" => {
            bytes_at(event, 0).is_some_and(|name| may_be_removed(event, is_dangerous(&name)))
        }
        b"os._clearenv" => may_be_removed(event, true),
        _ => false,
    };
    // A question alone is no change.
    if !passes && event.active.config().is_some() {
        note_half_way(event.args.py())?;
    }
    Ok(passes)
}

/// True for the value that the variable has, or had before one of the guards here.
fn sets_what_was(event: &Event<'_, '_>) -> bool {
    let (Some(name), Some(value)) = (bytes_at(event, 0), bytes_at(event, 1)) else {
        return false;
    };
    let own = env::var_os(OsStr::from_bytes(&name));
    if own.is_some_and(|own| own.as_bytes() == value) {
        return true;
    }
    let had = |active: &Active| {
        let before = active.environment.get();
        before.is_some_and(|before| before.has(&name, &value))
    };
    let py = event.args.py();
    let outer = event.active.outer(py);
    let mut outer = std::iter::successors(outer, |active| active.get().outer(py));
    had(event.active) || outer.any(|active| had(active.get()))
}

/// Returns whether temporary files would go where the guard lets files be made.
fn places_temporary_files(event: &Event<'_, '_>) -> bool {
    let (Some(name), Some(mut place)) = (bytes_at(event, 0), bytes_at(event, 1)) else {
        return false;
    };
    let policy = event.config.policy();
    if !policy.environment().may_place(&name) || place.is_empty() {
        return false;
    }
    place.extend_from_slice(b"/file");
    let target = Target { name: Name::Path(&place), base: Base::CurrentDir };
    let operation = Operation::ChangeEntry(target);
    let landing = || path::resolve(&Os, &place, Base::CurrentDir);
    policy.check(&Os, operation).is_ok()
        || landing().is_some_and(|at| event.config.directories().hold(at.as_bytes()))
}

/// Returns whether a variable that may not be changed may be missing until the guard is left: not
/// if the guard has no end, or is left already. While a policy is learnt this holds for dangerous
/// variables alone, as the policy will name the others.
fn may_be_removed(event: &Event<'_, '_>, is_dangerous: bool) -> bool {
    let active = event.active;
    let has_end = !active.is_left() && !scope::is_installed(active) && active.other().is_none();
    let environment = event.config.policy().environment();
    has_end && (environment.allows_some() || (is_dangerous && event.observes()))
}

/// Notes the denial of a change, for the guards here under which it may be part of a larger one.
fn note_half_way(py: Python<'_>) -> PyResult<()> {
    for active in scope::in_force(py)? {
        let active = active.get();
        if let (Some(before), Some(config)) = (active.environment.get(), active.config())
            && before.lacks(config.get().policy().environment())
        {
            before.is_half_way.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn bytes_at(event: &Event<'_, '_>, index: usize) -> Option<Vec<u8>> {
    bytes_of(&event.argument(index)?)
}
