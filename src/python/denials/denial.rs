//! The facts of a denial, and the exception that carries it.
//!
//! The exception is the class `AuditDenied` of `fastaudit_rs/denied.py`: one that PyO3 makes from
//! `PermissionError` crashes when it is freed, as the deallocator of `OSError` wants to untrack
//! what PyO3's did untrack. Making one runs no Python code, whatever was done to the class.
//!
//! A denial is often caught and forgotten, so that only what cannot be had later is noted when it
//! is made. The rest is worked out when somebody reads it.

use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTraceback, PyTuple, PyType};

use crate::policy::events::{self, EventEffect};
use crate::policy::judge::Moment;
use crate::policy::network::Part;
use crate::policy::written::values::Switch;
use crate::policy::written::widening::Lack;
use crate::policy::written::wording;
use crate::policy::{Policy, Why};
use crate::python::callees::caller::Library;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::{Once, intern, lock};
use crate::python::denials::text::{self, FirstLine};
use crate::python::frames::stack::{self, Site};
use crate::python::guard::entered_at::SourcePlace;
use crate::python::importing::imports::Importing;
use crate::python::values::simple;

/// The state of its guard and of the moment that a denial keeps. All of it is plain values.
pub struct Asked {
    pub(super) policy: Arc<Policy>,
    /// The wording of its policy; `None` for a guard that `mk_audit` made.
    pub told: Option<Arc<wording::HintStyle>>,
    pub(super) moment: Moment,
    pub(super) importing: Option<Importing>,
    pub(super) lacks: OnceLock<Vec<Lack>>,
}

#[derive(Default)]
pub struct Hint {
    /// The text, worded as the policy was written.
    pub text: Option<String>,
    pub suggestion: Option<Py<PyDict>>,
}

#[doc = doc!("_Denial")]
// It holds plain values, so that it keeps no object of the guarded code alive and is in no reference
// cycle.
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Denial")]
pub struct Denial {
    #[pyo3(get)]
    pub event: Cow<'static, str>,
    #[pyo3(get, name = "event_args")]
    pub args: Py<PyTuple>,
    message: OnceLock<Py<PyString>>,
    first_line: Option<FirstLine>,
    pub decision: Decision,
    read: OnceLock<Box<Read>>,
}

#[derive(Default)]
pub(super) struct Read {
    chain: Mutex<Vec<String>>,
    /// True if the chain came from another process; the local traceback must then be ignored.
    pub(super) is_chain_told: AtomicBool,
    pub(super) hint: OnceLock<Hint>,
    /// The permissions that answers of a host would give, as they came from another process.
    pub(super) offers: OnceLock<Offers>,
    /// The end of a question to the host.
    pub(super) answer: OnceLock<String>,
}

/// What an answer for this subject alone, and for its pattern, would give.
pub(super) type Offers = [Option<Py<PyDict>>; 2];

const WHYS: [Why; 9] = [
    Why::Unapproved,
    Why::Unreadable,
    Why::Blocked,
    Why::Protected,
    Why::Environment,
    Why::Command,
    Why::Import,
    Why::Native,
    Why::TooMuch,
];

pub(super) fn why_of(rule: &str) -> Option<Why> {
    let network = Part::EACH.into_iter().map(Why::Network);
    WHYS.into_iter()
        .chain(Switch::ALL.map(Why::Switch))
        .chain(network)
        .find(|why| why.field() == rule)
}

pub enum Message<'py> {
    Written(Bound<'py, PyString>),
    /// The facts to write it from when somebody reads it: all arguments are plain values.
    Later(FirstLine),
}

#[derive(Default)]
pub struct Decision {
    /// Position among the arguments of the path that may not be used so.
    pub path: Option<usize>,
    /// The place that it leads to.
    pub resolved: Option<Py<PyString>>,
    /// The link that would be made, where `resolved` is that which it leads to.
    pub link: Option<Py<PyString>>,
    /// The reason; `None` if the event is denied as such.
    pub why: Option<Why>,
    /// The roots of the guard; `None` if it failed to check.
    pub roots: Option<Py<PyTuple>>,
    /// The data for its hint; `None` if the guard failed to check.
    pub asked: Option<Asked>,
    pub told: Option<Box<LegacyContext>>,
    /// Where in the user's files it was asked for.
    pub place: Option<SourcePlace>,
    pub tool: Option<String>,
    /// The library of native code that asked for it.
    pub library: Option<Library>,
}

/// The facts of a denial under the rules of fastaudit 0.2 beside its message.
pub struct LegacyContext {
    /// Where the guard was entered, if that was in another thread or task.
    pub origin: Option<String>,
    /// The functions that led to it, the innermost first. The call chain then ends with the native
    /// code that would have been called.
    pub sites: Option<Vec<Site>>,
}

static CLASS: Once<Py<PyType>> = Once::new();
static VIOLATION: Once<Py<PyType>> = Once::new();

static RAISES_VIOLATIONS: AtomicBool = AtomicBool::new(false);

pub fn prepare(py: Python<'_>) -> PyResult<()> {
    class(py)?;
    violation(py).map(|_| ())
}

pub fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    calling::class_of_package(py, &CLASS, "fastaudit_rs.denied", "AuditDenied")
}

/// The class of the exception in a process with a sandbox of hooks, a subclass.
pub fn violation(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    calling::class_of_package(py, &VIOLATION, "fastaudit_rs.denied", "SandboxViolation")
}

#[doc = doc!("_raise_violations")]
#[pyfunction]
#[pyo3(name = "_raise_violations")]
pub fn raise_violations() {
    RAISES_VIOLATIONS.store(true, Ordering::Relaxed);
}

pub fn exception<'py>(denial: &Bound<'py, Denial>) -> PyResult<Bound<'py, PyAny>> {
    let py = denial.py();
    // Its arguments are worked out when they are read.
    let class = match RAISES_VIOLATIONS.load(Ordering::Relaxed) {
        true => violation(py)?,
        false => class(py)?,
    };
    let exception = raw::new_permission_error(class)?;
    exception.set_attr(intern!(py, "_denial"), denial)?;
    Ok(exception)
}

pub fn is_denial(error: &PyErr, py: Python<'_>) -> bool {
    let class = CLASS.get(py);
    class.is_some_and(|class| error.is_instance(py, class.bind(py)))
}

impl Denial {
    pub fn new(
        event: Cow<'static, str>,
        args: &Bound<'_, PyTuple>,
        message: Message<'_>,
        decision: Decision,
    ) -> PyResult<Self> {
        let (message, first_line) = match message {
            Message::Written(message) => (OnceLock::from(message.unbind()), None),
            Message::Later(first_line) => (OnceLock::new(), Some(first_line)),
        };
        Ok(Self {
            event,
            args: simple::tuple(args)?.unbind(),
            message,
            first_line,
            decision,
            read: OnceLock::new(),
        })
    }

    pub(super) fn first_line<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyString>> {
        if let (None, Some(first_line)) = (self.message.get(), &self.first_line) {
            let message = first_line.write(&self.event, self.args.bind(py))?;
            let _ = self.message.set(message.unbind());
        }
        let message = self.message.get_or_init(|| PyString::new(py, "").unbind());
        Ok(message.bind(py))
    }

    pub(super) fn effect_of(&self) -> Option<EventEffect> {
        events::known(&self.event).map(|known| known.effect)
    }

    pub fn is_of_native_code(&self) -> bool {
        self.decision.library.is_some()
    }

    pub fn path_text(&self, py: Python<'_>) -> Option<String> {
        let path = self.text_at(py, self.decision.path?).ok()??;
        Some(path.bind(py).to_string_lossy().into_owned())
    }

    pub(super) fn text_at(&self, py: Python<'_>, index: usize) -> PyResult<Option<Py<PyString>>> {
        Ok(text::text_at(self.args.bind(py), index)?.map(Bound::unbind))
    }

    pub(super) fn read(&self) -> &Read {
        self.read.get_or_init(Box::default)
    }

    pub(super) fn keep_chain(&self, chain: &[String]) {
        *lock(&self.read().chain) = chain.to_vec();
    }

    /// Frames that were left no longer know their callers, so the longest chain seen counts.
    pub fn chain_of(&self, traceback: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let py = traceback.py();
        let sites = self.decision.told.as_ref().and_then(|told| told.sites.as_ref());
        let Some(sites) = sites else {
            return self.chain_of_frames(traceback);
        };
        let mut chain = stack::names(py, sites)?;
        if let Some(callee) = self.callee(py)? {
            chain.push(callee.bind(py).to_string_lossy().into_owned());
        }
        Ok(chain)
    }

    fn chain_of_frames(&self, traceback: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let before = lock(&self.read().chain).clone();
        if self.read().is_chain_told.load(Ordering::Relaxed) {
            return Ok(before);
        }
        let Ok(traceback) = traceback.cast::<PyTraceback>() else {
            return Ok(before);
        };
        let chain = text::call_chain(traceback.py(), Some(traceback.clone()))?;
        if chain.len() < before.len() {
            return Ok(before);
        }
        self.keep_chain(&chain);
        Ok(chain)
    }

    /// Notes the call chain while the denied operation is still going on.
    pub fn note_chain(&self, py: Python<'_>) -> PyResult<()> {
        if self.decision.told.is_some() {
            return Ok(());
        }
        self.keep_chain(&text::call_chain(py, None)?);
        Ok(())
    }
}

// Denials because of an error inside the guard itself.

pub fn deny_by_failure(
    py: Python<'_>,
    event: &CStr,
    args: Option<&Bound<'_, PyTuple>>,
    what: &str,
) -> PyErr {
    let event = event.to_string_lossy();
    let message = format!("Audit: {event} denied: fastaudit_rs could not check it ({what})");
    let args = args.cloned().unwrap_or_else(|| PyTuple::empty(py));
    let message = Message::Written(PyString::new(py, &message));
    let event = Cow::Owned(event.into_owned());
    let exception = Denial::new(event, &args, message, Decision::default())
        .and_then(|denial| exception(&Bound::new(py, denial)?));
    match exception {
        Ok(exception) => {
            raw::raise(&exception);
            PyErr::fetch(py)
        }
        Err(error) => error,
    }
}
