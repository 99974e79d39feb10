//! The work to do as guards begin and end, in functions of the parts above.

use std::sync::OnceLock;

use pyo3::prelude::*;

use crate::python::guard::config::AuditCfg;
use crate::python::guard::environment::Before;

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
