//! The work to do as guards begin and end, in functions of the parts above.

use std::env;
use std::ffi::OsString;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use pyo3::prelude::*;

use crate::policy::Environment;
use crate::python::configuration::config::AuditCfg;

/// The work, each in a function.
pub struct Turns {
    /// The first guard of the process begins.
    pub first_begins: fn(Python<'_>),
    /// The last guard of the process has ended.
    pub last_ended: fn(Python<'_>),
    /// A guard whose code removed variables is left.
    pub left: fn(Python<'_>, &AuditCfg, &Before),
    /// Calls are watched for a guard.
    pub watch: fn(Python<'_>, &AuditCfg) -> PyResult<Watched>,
    /// They are no longer.
    pub unwatch: fn(Watched),
}

static TURNS: OnceLock<Turns> = OnceLock::new();

/// Sets the work, once for the process.
pub fn set(turns: Turns) {
    let _ = TURNS.set(turns);
}

/// Runs the work as the first guard of the process begins.
pub fn first_begins(py: Python<'_>) {
    if let Some(turns) = TURNS.get() {
        (turns.first_begins)(py);
    }
}

/// Runs the work as the last guard of the process has ended.
pub fn last_ended(py: Python<'_>) {
    if let Some(turns) = TURNS.get() {
        (turns.last_ended)(py);
    }
}

/// Runs the work as a guard whose code removed variables is left.
#[cold]
pub fn left(py: Python<'_>, config: &AuditCfg, before: &Before) {
    if let Some(turns) = TURNS.get() {
        (turns.left)(py, config, before);
    }
}

/// The way in which calls are watched for a guard.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(Py_3_12),
    expect(dead_code, reason = "no guard watches calls there")
)]
pub struct Watched {
    /// Its call sites may be retired.
    pub retires: bool,
    /// It allows the callees that are remembered as safe.
    pub is_of_safe_set: bool,
}

/// Keeps calls watched for as long as it lives.
pub struct Hold(Watched);

impl Hold {
    /// Watches calls; returns `None` if they cannot be watched.
    ///
    /// # Errors
    /// `RuntimeError` if calls would go unseen.
    #[inline]
    pub fn new(py: Python<'_>, config: &AuditCfg) -> PyResult<Option<Self>> {
        match TURNS.get() {
            Some(turns) => (turns.watch)(py, config).map(Self).map(Some),
            None => Ok(None),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(turns) = TURNS.get() {
            (turns.unwatch)(self.0);
        }
    }
}

// The environment as it was before guarded code first removed a variable.

/// The environment as it was.
pub struct Before {
    /// The environment of the process.
    pub own: Vec<(OsString, OsString)>,
    /// The names and values that `os.environ` showed.
    pub shown: Vec<(Vec<u8>, Vec<u8>)>,
    /// True if a change was denied while a variable that may not be changed was missing: then the
    /// variables that may be changed are missing on the way to that change, and not for themselves.
    pub is_half_way: AtomicBool,
}

impl Before {
    /// Returns whether a variable had this value.
    pub fn has(&self, name: &[u8], value: &[u8]) -> bool {
        let mut own = self.own.iter();
        own.any(|(own, had)| own.as_encoded_bytes() == name && had.as_encoded_bytes() == value)
    }

    /// Returns whether a variable that may not be changed is missing.
    pub fn lacks(&self, environment: &Environment) -> bool {
        let mut kept = self.own.iter().map(|(name, _)| name);
        kept.any(|name| {
            !environment.may_set(name.as_encoded_bytes()) && env::var_os(name).is_none()
        })
    }
}
