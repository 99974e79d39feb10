//! Changes of the environment that are denied in general and harm nothing here.
//!
//! A variable may be set to the value that it has, or had before the guarded code removed it. If a
//! guard lets some variables change, any may be removed for as long as it is in force, as
//! `os.environ.clear()` and `mock.patch.dict(os.environ)` do on the way: the others are put back
//! when the guard is left.

use std::env;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::policy::Operation;
use crate::policy::environment::is_dangerous;
use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Base, Name, Target};
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::Once;
use crate::python::cpython::{ffi as raw, process};
use crate::python::guard::event::Event;
use crate::python::guard::scope::{self, Active};
use crate::python::guard::turns::Before;

/// The dictionary that `os.environ` showed when the hook was installed: guarded code can replace
/// both.
static SHOWN: Once<Py<PyDict>> = Once::new();

/// Finds the dictionary that `os.environ` shows.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    let environ = calling::import(py, "os")?.attr("environ")?;
    // A host may have put another mapping there.
    let data = environ.attr_opt("_data")?;
    if let Some(data) = data.and_then(|data| data.cast_into_exact::<PyDict>().ok()) {
        let _ = SHOWN.set(py, data.unbind());
    }
    Ok(())
}

fn now(py: Python<'_>) -> Before {
    let shown = SHOWN.get(py).map(|shown| pairs(shown.bind(py)));
    Before {
        // Other names cannot be set.
        own: env::vars_os()
            .filter(|(name, _)| !name.is_empty() && !name.as_encoded_bytes().contains(&b'='))
            .collect(),
        shown: shown.unwrap_or_default(),
        is_half_way: AtomicBool::new(false),
    }
}

/// Notes the environment before a variable is removed from it under a guard that may put it back.
#[inline]
pub fn will_be_removed(event: &Event<'_, '_>) {
    if event.active.environment().get().is_none() {
        take_note(event);
    }
}

#[cold]
fn take_note(event: &Event<'_, '_>) {
    if may_remove_some(event) {
        let before = || Box::new(now(event.args.py()));
        event.active.environment().get_or_init(before);
    }
}

/// Returns whether a change of the environment that is about to be denied may pass.
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

/// Returns whether the variable has the value that it is set to, or had it before one of the guards
/// here.
fn sets_what_was(event: &Event<'_, '_>) -> bool {
    let (Some(name), Some(value)) = (bytes_at(event, 0), bytes_at(event, 1)) else {
        return false;
    };
    let own = os_text(&name).and_then(env::var_os);
    if own.is_some_and(|own| own.as_encoded_bytes() == value) {
        return true;
    }
    let had = |active: &Active| {
        let before = active.environment().get();
        before.is_some_and(|before| before.has(&name, &value))
    };
    if had(event.active) {
        return true;
    }
    let py = event.args.py();
    let mut outer = event.active.outer(py);
    while let Some(active) = outer {
        if had(active.get()) {
            return true;
        }
        outer = active.get().outer(py);
    }
    false
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
    let target = Target {
        name: Name::Path(&place),
        base: Base::CurrentDir,
    };
    let operation = Operation::ChangeEntry(target);
    let landing = || path::resolve(&Os, &place, Base::CurrentDir);
    policy.check(&Os, operation).allows()
        || landing().is_some_and(|at| event.config.directories().hold(at.as_bytes()))
}

/// Returns whether some variables may be changed, so that others may be missing for a while.
fn may_remove_some(event: &Event<'_, '_>) -> bool {
    event.config.policy().environment().allows_some() || event.observes()
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
        if let (Some(before), Some(config)) = (active.environment().get(), active.config())
            && before.lacks(config.get().policy().environment())
        {
            before.is_half_way.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Puts back the variables that nobody may remove under a guard that is left.
#[cold]
pub fn put_back(py: Python<'_>, config: &AuditCfg, before: &Before) {
    let environment = config.policy().environment();
    // A guard that only observes changes nothing.
    if !environment.allows_some() {
        return;
    }
    let is_half_way = before.is_half_way.load(Ordering::Relaxed);
    let stays = |name: &[u8]| is_half_way || !environment.may_set(name);
    for (name, value) in &before.own {
        if stays(name.as_encoded_bytes()) && !is_set(name) {
            process::set_variable(py, name, value);
        }
    }
    if let Some(shown) = SHOWN.get(py) {
        let kept = before.shown.iter().filter(|(name, _)| stays(name));
        // Without memory for it `os.environ` lacks a variable that the process has.
        let _ = show(shown.bind(py), kept);
    }
}

/// Shows these in `os.environ` if it shows nothing of their names.
fn show<'a>(
    shown: &Bound<'_, PyDict>,
    kept: impl Iterator<Item = &'a (Vec<u8>, Vec<u8>)>,
) -> PyResult<()> {
    let py = shown.py();
    // Keys of other kinds would run their own code when keys are compared.
    if shown.iter().any(|(key, _)| bytes_of(&key).is_none()) {
        let plain = shown.iter().filter(|(key, _)| bytes_of(key).is_some());
        let plain: Vec<_> = plain.collect();
        shown.clear();
        for (key, value) in plain {
            shown.set_item(key, value)?;
        }
    }
    for (name, value) in kept {
        let name = object(py, name)?;
        if !shown.contains(&name)? {
            shown.set_item(name, object(py, value)?)?;
        }
    }
    Ok(())
}

fn is_set(name: &OsStr) -> bool {
    env::var_os(name).is_some()
}

/// Returns the names and values in a dictionary.
fn pairs(shown: &Bound<'_, PyDict>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pair = |(name, value)| Some((bytes_of(&name)?, bytes_of(&value)?));
    shown.iter().filter_map(pair).collect()
}

fn bytes_at(event: &Event<'_, '_>, index: usize) -> Option<Vec<u8>> {
    bytes_of(&event.args.get_item(index).ok()?)
}

/// Returns the bytes of a name or a value; `None` if it is not a plain one.
fn bytes_of(object: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        return Some(bytes.as_bytes().to_vec());
    }
    let text = object.cast_exact::<PyString>().ok()?;
    let encoded = raw::fs_encode(text.as_borrowed()).ok()?;
    Some(encoded.as_bytes().to_vec())
}

/// A name or a value as `os.environ` has it.
fn object<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    if cfg!(windows) {
        return Ok(PyString::new(py, &String::from_utf8_lossy(bytes)).into_any());
    }
    PyBytes::new_with(py, bytes.len(), |new| {
        new.copy_from_slice(bytes);
        Ok(())
    })
    .map(Bound::into_any)
}

#[cfg(unix)]
fn os_text(bytes: &[u8]) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt;
    Some(OsString::from_vec(bytes.to_vec()))
}

#[cfg(not(unix))]
fn os_text(bytes: &[u8]) -> Option<OsString> {
    String::from_utf8(bytes.to_vec()).ok().map(OsString::from)
}
