//! An event under a guard, with the facts that are known before it is judged.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::policy::files::os::Os;
use crate::policy::learn::{self, Need};
use crate::policy::{Operation, Why};
use crate::python::guard::config::AuditCfg;
use crate::python::guard::scope::Active;

/// An event under a guard.
pub struct Event<'a, 'py> {
    pub name: &'a CStr,
    /// Its arguments.
    pub args: &'a Bound<'py, PyTuple>,
    /// The guard.
    pub active: &'a Active,
    /// The guard's configuration.
    pub config: &'a AuditCfg,
    /// True if an `open` that only reads was let pass before.
    pub reads_passed: bool,
    /// Records the needs of the event, if somebody asks for them.
    pub probe: Option<&'a Probe>,
}

/// The needs of an event, and the verdict on it, for whoever records.
pub struct Probe {
    enforces: bool,
    needs: RefCell<Vec<Need>>,
    denied: Cell<Option<Option<Why>>>,
}

impl Probe {
    /// A probe for an event that was not judged yet.
    pub fn new(enforces: bool) -> Self {
        Self {
            enforces,
            needs: RefCell::default(),
            denied: Cell::new(None),
        }
    }

    pub fn needs(&self) -> Vec<Need> {
        self.needs.borrow().clone()
    }

    /// Tells whether it is denied, and by which field.
    pub fn denied(&self) -> Option<Option<Why>> {
        self.denied.get()
    }

    /// Forgets the needs: the event passes whatever the policy says.
    pub fn forget(&self) {
        self.needs.borrow_mut().clear();
    }

    /// Notes that it is denied, and by which field.
    pub fn note_denied(&self, why: Option<Why>) {
        self.denied.set(Some(why));
    }

    /// Returns whether denials are raised.
    pub fn enforces(&self) -> bool {
        self.enforces
    }

    /// Notes what an operation needs.
    #[cold]
    pub fn note(&self, operation: Operation<'_>) {
        self.needs.borrow_mut().extend(learn::needs(&Os, operation));
    }

    /// Notes a need that is not an operation.
    pub fn need(&self, need: Need) {
        self.needs.borrow_mut().push(need);
    }
}

impl Event<'_, '_> {
    /// Returns whether it is only observed, and happens whatever the policy says.
    pub fn observes(&self) -> bool {
        self.probe.is_some_and(|probe| !probe.enforces())
    }
}
