//! The environment as it was before guarded code first removed a variable, and what is put back of it.

use std::env;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::policy::environment::Environment;
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::Once;
use crate::python::cpython::{ffi as raw, objects, process};

/// What `os.environ` showed when the hook was installed: guarded code can replace both.
static SHOWN: Once<Py<PyDict>> = Once::new();

pub fn prepare(py: Python<'_>) -> PyResult<()> {
    let environ = calling::import(py, "os")?.attr("environ")?;
    // A host may have put another mapping there.
    let data = environ.attr_opt("_data")?;
    if let Some(data) = data.and_then(|data| data.cast_into_exact::<PyDict>().ok()) {
        let _ = SHOWN.set(py, data.unbind());
    }
    Ok(())
}

pub fn now(py: Python<'_>) -> Before {
    let pair = |(name, value)| Some((bytes_of(&name)?, bytes_of(&value)?));
    let shown = SHOWN.get(py);
    let shown = shown.map(|shown| objects::items(shown.bind(py)).filter_map(pair).collect());
    Before {
        // Other names cannot be set.
        own: env::vars_os()
            .filter(|(name, _)| !name.is_empty() && !name.as_encoded_bytes().contains(&b'='))
            .collect(),
        shown: shown.unwrap_or_default(),
        is_half_way: AtomicBool::new(false),
    }
}

pub struct Before {
    pub own: Vec<(OsString, OsString)>,
    /// The names and values that `os.environ` showed.
    pub shown: Vec<(Vec<u8>, Vec<u8>)>,
    /// True if a change was denied while a variable that may not be changed was missing: then the
    /// variables that may be changed are missing on the way to that change, and not for themselves.
    pub is_half_way: AtomicBool,
}

impl Before {
    pub fn has(&self, name: &[u8], value: &[u8]) -> bool {
        let mut own = self.own.iter();
        own.any(|(own, had)| own.as_encoded_bytes() == name && had.as_encoded_bytes() == value)
    }

    pub fn lacks(&self, environment: &Environment) -> bool {
        let mut kept = self.own.iter().map(|(name, _)| name);
        kept.any(|name| {
            !environment.may_set(name.as_encoded_bytes()) && env::var_os(name).is_none()
        })
    }
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
        if stays(name.as_encoded_bytes()) && env::var_os(name).is_none() {
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
    let all: Vec<_> = objects::items(shown).collect();
    if all.iter().any(|(key, _)| bytes_of(key).is_none()) {
        let plain = all.into_iter().filter(|(key, _)| bytes_of(key).is_some());
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

/// Returns the bytes of a name or a value; `None` if it is not a plain one.
pub fn bytes_of(object: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        return Some(bytes.as_bytes().to_vec());
    }
    let text = object.cast_exact::<PyString>().ok()?;
    let encoded = raw::fs_encode(text.as_borrowed()).ok()?;
    Some(encoded.as_bytes().to_vec())
}

/// A name or a value as `os.environ` has it.
fn object<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    PyBytes::new_with(py, bytes.len(), |new| {
        new.copy_from_slice(bytes);
        Ok(())
    })
    .map(Bound::into_any)
}
