//! An event under a guard, with the facts that are known before it is judged.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::files::os::Os;
use crate::policy::files::path::Base;
use crate::policy::judge::Follows;
use crate::policy::learn::{self, Need};
use crate::policy::{Operation, Why};
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::ffi as raw;
use crate::python::guard::scope::Active;
use crate::python::logs::log::Decided;

pub struct Event<'a, 'py> {
    pub name: &'a CStr,
    pub args: &'a Bound<'py, PyTuple>,
    pub active: &'a Active,
    pub config: &'a AuditCfg,
    /// True if an `open` that only reads was let pass before.
    pub reads_passed: bool,
    /// Records the needs of the event, if somebody asks for them.
    pub probe: Option<&'a Probe<'a>>,
}

/// The needs of an event, and the verdict on it, for whoever records or logs.
pub struct Probe<'a> {
    purpose: Purpose<'a>,
    pub needs: RefCell<Vec<Need>>,
    /// `Some` if it is denied, with the field that denies it.
    pub denied: Cell<Option<Option<Why>>>,
}

pub enum Purpose<'a> {
    /// Records, and lets pass.
    Observes,
    /// Records, and denies.
    Enforces,
    /// Logs the decision.
    Logs(&'a Logged),
    /// Tells how it is decided, and lets pass.
    Judges,
}

pub struct Logged {
    pub decided: RefCell<Decided>,
    /// The question to the host that there was.
    pub asked: Cell<Option<&'static str>>,
    /// True if the host allowed it.
    pub is_approved: Cell<bool>,
}

impl<'a> Probe<'a> {
    pub fn new(purpose: Purpose<'a>) -> Self {
        Self { purpose, needs: RefCell::default(), denied: Cell::new(None) }
    }

    pub fn logged(&self) -> Option<&'a Logged> {
        match self.purpose {
            Purpose::Logs(logged) => Some(logged),
            _ => None,
        }
    }

    #[inline]
    pub fn records(&self) -> bool {
        matches!(self.purpose, Purpose::Observes | Purpose::Enforces)
    }

    pub fn enforces(&self) -> bool {
        !matches!(self.purpose, Purpose::Observes | Purpose::Judges)
    }

    #[cold]
    pub fn note(&self, operation: Operation<'_>) {
        match self.logged() {
            Some(logged) => logged.decided.borrow_mut().note(operation),
            None => self.needs.borrow_mut().extend(learn::needs(&Os, operation)),
        }
    }

    /// Notes a need that is not an operation.
    pub fn need(&self, need: Need) {
        if self.records() {
            self.needs.borrow_mut().push(need);
        }
    }
}

impl<'a, 'py> Event<'a, 'py> {
    /// An event that is judged in full, and not probed.
    #[inline]
    pub fn new(
        name: &'a CStr,
        args: &'a Bound<'py, PyTuple>,
        active: &'a Active,
        config: &'a AuditCfg,
    ) -> Self {
        Self { name, args, active, config, reads_passed: false, probe: None }
    }

    /// The argument at a position, if there is one.
    pub fn argument(&self, index: usize) -> Option<Bound<'py, PyAny>> {
        self.args.get_item(index).ok()
    }

    pub fn text(&self, index: usize) -> Option<Bound<'py, PyString>> {
        self.argument(index)?.cast_into().ok()
    }

    pub fn number(&self, index: usize) -> Option<i32> {
        raw::i32_value(&self.argument(index)?)
    }

    /// Returns whether the argument at a position is there and `None`.
    pub fn is_none(&self, index: usize) -> bool {
        self.argument(index).is_some_and(|given| given.is_none())
    }

    /// Notes a question to the host, for a log.
    pub fn note_asked(&self, callback: &'static str, is_approved: bool) {
        if let Some(logged) = self.probe.and_then(Probe::logged) {
            logged.asked.set(Some(callback));
            logged.is_approved.set(is_approved);
        }
    }

    pub fn observes(&self) -> bool {
        self.probe.is_some_and(|probe| !probe.enforces())
    }
}

// Notes on the call in progress: arguments that its audit event leaves out. They are the directory
// that a relative name starts from, and whether links are followed.

#[derive(Clone, Copy)]
pub struct CallNote {
    pub base: Base,
    pub follows: Follows,
    /// True if an address is only written out: its name is not looked up.
    pub is_numeric: bool,
}

pub const NOTHING: CallNote =
    CallNote { base: Base::CurrentDir, follows: Follows::Always, is_numeric: false };

thread_local! {
    static NOTED: Cell<CallNote> = const { Cell::new(NOTHING) };
}

/// The notes on the call that raises the event; without `dir_fd` and the like, [`NOTHING`].
pub fn call_note() -> CallNote {
    NOTED.get()
}

pub fn replace_note(noted: CallNote) -> CallNote {
    NOTED.replace(noted)
}
