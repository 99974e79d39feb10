//! The facts of a denial, and the exception that carries it.
//!
//! The exception is the class `AuditDenied` of `fastaudit_rs/denied.py`: one that PyO3 makes from
//! `PermissionError` crashes when it is freed, as the deallocator of `OSError` wants to untrack
//! what PyO3's did untrack. Making one runs no Python code, whatever was done to the class.
//!
//! A denial is often caught and forgotten, so that only what cannot be had later is noted when it
//! is made. The rest is worked out when somebody reads it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTraceback, PyTuple, PyType};

use crate::policy::Why;
use crate::policy::events::{self, Effect};
use crate::policy::network::Part;
use crate::python::cpython::ffi as raw;
use crate::python::denials::asked::Asked;
use crate::python::denials::hint::{self, Hint};
use crate::python::values::chain;
use crate::python::values::errors;
use crate::python::values::place::Place;
use crate::python::values::simple;
use crate::python::values::stack::{self, Site};
use crate::python::values::wording;

/// The number of frames that the text shows at either end of a long call chain.
const SHOWN_FRAMES: usize = 8;

/// The end of a denial's text: agents have been seen to try again and again.
const FINAL: &str = "This is a decision of policy: the same operation will be denied again.";

#[doc = doc!("_Denial")]
// It holds plain values and the code object of its place, so that it keeps no other object of the
// guarded code alive and is in no reference cycle.
#[pyclass(
    frozen,
    immutable_type,
    module = "fastaudit_rs._native",
    name = "_Denial"
)]
pub struct Denial {
    pub event: Py<PyString>,
    pub args: Py<PyTuple>,
    message: Py<PyString>,
    /// Position among the arguments of the path that decided.
    pub path: Option<usize>,
    /// The reason; `None` if the event is denied as such.
    pub why: Option<Why>,
    roots: Option<Py<PyTuple>>,
    /// The data for its hint.
    pub asked: Option<Asked>,
    told: Option<Box<Told>>,
    place: Option<Place>,
    /// The values that were worked out, or came from another process.
    read: OnceLock<Box<Read>>,
}

#[derive(Default)]
struct Read {
    chain: Mutex<Vec<String>>,
    /// True if the chain came from another process; the local traceback must then be ignored.
    is_chain_told: AtomicBool,
    hint: OnceLock<Hint>,
}

const WHYS: [Why; 11] = [
    Why::Unapproved,
    Why::Unreadable,
    Why::Blocked,
    Why::Protected,
    Why::Environment,
    Why::Command,
    Why::Import,
    Why::Native,
    Why::Thread,
    Why::Unknown,
    Why::TooMuch,
];

/// The reason that a field of a policy stands for.
fn why_of(rule: &str) -> Option<Why> {
    let network = Part::EACH.into_iter().map(Why::Network);
    WHYS.into_iter()
        .chain(network)
        .find(|why| why.field() == rule)
}

/// The decision behind a denial.
#[derive(Default)]
pub struct Decision<'py> {
    /// Position among the arguments of the path that may not be used so.
    pub path: Option<usize>,
    /// The policy that denied it.
    pub why: Option<Why>,
    /// The roots of the guard; `None` if it failed to check.
    pub roots: Option<Bound<'py, PyTuple>>,
    /// The data for its hint; `None` if the guard failed to check.
    pub asked: Option<Asked>,
    /// The additional facts under the rules of fastaudit 0.2.
    pub told: Option<Box<Told>>,
    /// Where in the user's files it was asked for.
    pub place: Option<Place>,
}

/// The facts of a denial under the rules of fastaudit 0.2 beside its message.
pub struct Told {
    /// Where the guard was entered, if that was in another thread or task.
    pub origin: Option<String>,
    /// The functions that led to it, the innermost first. The call chain then ends with the native
    /// code that would have been called.
    pub sites: Option<Vec<Site>>,
}

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Finds the class of the exception, before anything can be denied.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    class(py).map(|_| ())
}

/// The class of the exception.
pub fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let class = CLASS.get_or_try_init(py, || {
        let class = py.import("fastaudit_rs.denied")?.getattr("AuditDenied")?;
        let class = class.cast_into::<PyType>()?;
        raw::make_immutable(&class);
        PyResult::Ok(class.unbind())
    })?;
    Ok(class.bind(py))
}

/// The exception for a denial.
pub fn exception<'py>(denial: &Bound<'py, Denial>) -> PyResult<Bound<'py, PyAny>> {
    let py = denial.py();
    let exception = raw::new_permission_error(class(py)?, denial.get().message.bind(py))?;
    exception.setattr(pyo3::intern!(py, "_denial"), denial)?;
    Ok(exception)
}

/// Returns whether an error is a denial.
pub fn is_denial(error: &PyErr, py: Python<'_>) -> bool {
    CLASS
        .get(py)
        .is_some_and(|class| error.is_instance(py, class.bind(py)))
}

impl Denial {
    /// A denial of an event.
    ///
    /// # Errors
    /// Errors raised by the `__repr__` of an argument that are not an `Exception`.
    pub fn new(
        event: Bound<'_, PyString>,
        args: &Bound<'_, PyTuple>,
        message: Bound<'_, PyString>,
        decision: Decision<'_>,
    ) -> PyResult<Self> {
        Ok(Self {
            event: event.unbind(),
            args: simple::tuple(args)?.unbind(),
            message: message.unbind(),
            path: decision.path,
            why: decision.why,
            roots: decision.roots.map(Bound::unbind),
            asked: decision.asked,
            told: decision.told,
            place: decision.place,
            read: OnceLock::new(),
        })
    }

    /// Returns whether the same field of the policy denied the other one.
    pub fn is_alike(&self, other: &Self) -> bool {
        match (self.why, other.why) {
            (Some(Why::Network(_)), Some(Why::Network(_))) => true,
            (own, others) => own.is_some() && own == others,
        }
    }

    fn whole_hint(&self, py: Python<'_>) -> &Hint {
        let hint = &self.read().hint;
        if let Some(known) = hint.get() {
            return known;
        }
        // Python code runs, so that nobody may wait for it meanwhile.
        let found = hint::of(py, self);
        hint.get_or_init(|| found)
    }

    fn effect_of(&self, py: Python<'_>) -> Option<Effect> {
        let event = self.event.bind(py).to_str().ok()?;
        events::known(event).map(|known| known.effect)
    }

    /// The argument at a position, as text.
    fn text_at(&self, py: Python<'_>, index: usize) -> PyResult<Option<Py<PyString>>> {
        let Ok(arg) = self.args.bind(py).get_item(index) else {
            return Ok(None);
        };
        simple::text(&arg).map(|text| text.map(Bound::unbind))
    }

    fn read(&self) -> &Read {
        self.read.get_or_init(Box::default)
    }

    fn known_chain(&self) -> Vec<String> {
        let chain = self.read().chain.lock();
        chain.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep_chain(&self, chain: &[String]) {
        let known = self.read().chain.lock();
        *known.unwrap_or_else(PoisonError::into_inner) = chain.to_vec();
    }

    /// Returns the call chain, from the traceback of the exception that is read. Frames that were
    /// left no longer know their callers, so the longest chain seen counts.
    fn chain_of(&self, traceback: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let py = traceback.py();
        let Some(sites) = self.told.as_ref().and_then(|told| told.sites.as_ref()) else {
            return self.chain_of_frames(traceback);
        };
        let mut chain = stack::names(py, sites)?;
        if let Some(callee) = self.callee(py)? {
            chain.push(callee.bind(py).to_string_lossy().into_owned());
        }
        Ok(chain)
    }

    fn chain_of_frames(&self, traceback: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let before = self.known_chain();
        if self.read().is_chain_told.load(Ordering::Relaxed) {
            return Ok(before);
        }
        let Ok(traceback) = traceback.cast::<PyTraceback>() else {
            return Ok(before);
        };
        let chain = chain::shown(traceback.py(), Some(traceback.clone()))?;
        if chain.len() < before.len() {
            return Ok(before);
        }
        self.keep_chain(&chain);
        Ok(chain)
    }

    /// Notes the call chain while the denied operation is still going on.
    pub fn note_chain(&self, py: Python<'_>) -> PyResult<()> {
        if self.told.is_some() {
            return Ok(());
        }
        self.keep_chain(&chain::shown(py, None)?);
        Ok(())
    }
}

#[pymethods]
impl Denial {
    /// A denial that only has a message.
    #[new]
    fn of_message(message: Bound<'_, PyString>) -> PyResult<Self> {
        let py = message.py();
        Self::new(
            PyString::new(py, ""),
            &PyTuple::empty(py),
            message,
            Decision::default(),
        )
    }

    /// The audit event.
    #[getter]
    fn event(&self, py: Python<'_>) -> Py<PyString> {
        self.event.clone_ref(py)
    }

    /// The arguments of the event, with the ``repr()`` of those that are no plain values.
    ///
    /// (``args`` are those of the exception: the message.)
    #[getter]
    fn event_args(&self, py: Python<'_>) -> Py<PyTuple> {
        self.args.clone_ref(py)
    }

    /// The first line of the text.
    #[getter]
    pub fn message(&self, py: Python<'_>) -> Py<PyString> {
        self.message.clone_ref(py)
    }

    /// The effect that the operation would have had: ``'write'``, ``'process'``, ``'native'``, …
    #[getter]
    fn effect(&self, py: Python<'_>) -> Option<&'static str> {
        self.effect_of(py).map(|effect| match effect {
            Effect::Open if self.why == Some(Why::Unreadable) => Effect::Read.name(),
            Effect::Open => Effect::Write.name(),
            effect => effect.name(),
        })
    }

    /// The path that is not approved.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<Option<Py<PyString>>> {
        match self.path {
            Some(index) => self.text_at(py, index),
            None => Ok(None),
        }
    }

    /// The field of the policy that decided: ``'write'``, ``'read'``, ``'block'``, ``'protect'``.
    #[getter]
    fn rule(&self) -> Option<&'static str> {
        self.why.map(Why::field)
    }

    /// The host that would have been reached.
    #[getter]
    pub fn host(&self, py: Python<'_>) -> PyResult<Option<Py<PyString>>> {
        if self.effect_of(py) != Some(Effect::Network) {
            return Ok(None);
        }
        let args = self.args.bind(py);
        let Some(address) = args.iter().find_map(|arg| arg.cast_into::<PyTuple>().ok()) else {
            return self.text_at(py, 0);
        };
        match address.get_item(0) {
            Ok(host) => simple::text(&host).map(|host| host.map(Bound::unbind)),
            Err(_) => Ok(None),
        }
    }

    /// The command that would have been run, as a shell would read it.
    #[getter]
    fn command(&self, py: Python<'_>) -> PyResult<Option<Py<PyString>>> {
        if self.effect_of(py) != Some(Effect::Process) {
            return Ok(None);
        }
        let args = self.args.bind(py);
        for index in [1, 0] {
            let Ok(arg) = args.get_item(index) else {
                continue;
            };
            if let Some(text) = simple::text(&arg)? {
                return Ok(Some(text.unbind()));
            }
            if let Some(words) = simple::texts(&arg)? {
                let command = py.import("shlex")?.call_method1("join", (words,))?;
                return Ok(Some(command.cast_into::<PyString>()?.unbind()));
            }
        }
        Ok(None)
    }

    /// The native code that would have been called.
    #[getter]
    fn callee(&self, py: Python<'_>) -> PyResult<Option<Py<PyString>>> {
        if self.event.bind(py) != "fastaudit.call" {
            return Ok(None);
        }
        self.text_at(py, 1)
    }

    /// The approved roots of the guard.
    #[getter]
    pub fn roots(&self, py: Python<'_>) -> Py<PyTuple> {
        match &self.roots {
            Some(roots) => roots.clone_ref(py),
            None => PyTuple::empty(py).unbind(),
        }
    }

    /// Where the guard was entered, if that was in another thread or task.
    #[getter]
    fn origin(&self) -> Option<&str> {
        self.told.as_ref()?.origin.as_deref()
    }

    /// Where in the user's files the operation was asked for, ``'file:line'``.
    #[getter]
    fn place(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.place.as_ref().map(|place| place.text(py)).transpose()
    }

    /// The functions that led to the operation, the outermost first.
    fn call_chain<'py>(&self, traceback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(traceback.py(), self.chain_of(traceback)?)
    }

    /// The setting by which the host would allow the operation.
    #[getter]
    fn hint(&self, py: Python<'_>) -> Option<&str> {
        self.whole_hint(py).text.as_deref()
    }

    /// The same as values: each field to change, as a whole.
    #[getter]
    fn suggestion(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let Some(suggestion) = &self.whole_hint(py).suggestion else {
            return Ok(None);
        };
        wording::copied(suggestion.bind(py).as_any()).map(|copy| Some(copy.unbind()))
    }

    /// All facts of the denial, as JSON can hold them.
    fn to_dict<'py>(&self, traceback: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let py = traceback.py();
        let dict = PyDict::new(py);
        dict.set_item("message", self.message(py))?;
        dict.set_item("event", self.event(py))?;
        dict.set_item("args", simple::json(self.args.bind(py))?)?;
        dict.set_item("effect", self.effect(py))?;
        dict.set_item("path", self.path(py)?)?;
        dict.set_item("rule", self.rule())?;
        dict.set_item("host", self.host(py)?)?;
        dict.set_item("command", self.command(py)?)?;
        dict.set_item("callee", self.callee(py)?)?;
        dict.set_item("roots", self.roots(py).bind(py).to_list())?;
        dict.set_item("call_chain", self.chain_of(traceback)?)?;
        dict.set_item("place", self.place(py)?)?;
        dict.set_item("origin", self.origin())?;
        dict.set_item("hint", self.hint(py))?;
        dict.set_item("suggestion", self.suggestion(py)?)?;
        Ok(dict)
    }

    /// The denial that ``to_dict()`` described.
    #[staticmethod]
    fn from_dict(fields: &Bound<'_, PyDict>) -> PyResult<Py<PyAny>> {
        let py = fields.py();
        let field = |name: &str| -> PyResult<Bound<'_, PyAny>> {
            fields.get_item(name)?.ok_or_else(|| {
                PyKeyError::new_err(format!("fields must have the key {name:?} of to_dict()"))
            })
        };
        let text = |name: &str| {
            let value = field(name)?;
            value.cast_into::<PyString>().map_err(|error| {
                PyTypeError::new_err(format!(
                    "fields[{name:?}] must be a str, not {}",
                    errors::type_name(&error.into_inner())
                ))
            })
        };
        let optional = |name: &str| -> PyResult<Option<String>> {
            let value = field(name)?;
            if value.is_none() {
                return Ok(None);
            }
            let value = value.cast_into::<PyString>().map_err(|error| {
                PyTypeError::new_err(format!(
                    "fields[{name:?}] must be a str or None, not {}",
                    errors::type_name(&error.into_inner())
                ))
            })?;
            Ok(Some(value.to_string_lossy().into_owned()))
        };
        let args = simple::unjson(&field("args")?)?;
        let roots = field("roots")?.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let path = field("path")?;
        let rule = optional("rule")?;
        let why = rule.as_deref().and_then(why_of);
        let index = args
            .iter()
            .position(|arg| !path.is_none() && arg.eq(&path).unwrap_or(false));
        let decision = Decision {
            path: index,
            why,
            roots: Some(PyTuple::new(py, roots)?),
            asked: None,
            told: optional("origin")?.map(|origin| {
                Box::new(Told {
                    origin: Some(origin),
                    sites: None,
                })
            }),
            place: optional("place")?.map(Place::Told),
        };
        let denial = Self::new(text("event")?, &args, text("message")?, decision)?;
        denial.keep_chain(&field("call_chain")?.extract::<Vec<String>>()?);
        denial.read().is_chain_told.store(true, Ordering::Relaxed);
        let suggestion = field("suggestion")?;
        let hint = Hint {
            text: optional("hint")?,
            suggestion: match suggestion.is_none() {
                true => None,
                false => Some(
                    wording::copied(&suggestion)?
                        .cast_into::<PyDict>()?
                        .unbind(),
                ),
            },
        };
        let _ = denial.read().hint.set(hint);
        exception(&Bound::new(py, denial)?).map(Bound::unbind)
    }

    /// The text of the exception.
    fn text(&self, traceback: &Bound<'_, PyAny>) -> PyResult<String> {
        let py = traceback.py();
        let mut text = self.message.bind(py).to_string_lossy().into_owned();
        let chain = self.chain_of(traceback)?;
        if !chain.is_empty() {
            text.push_str("\nCall chain: ");
            text.push_str(&shown(&chain));
        }
        if let Some(origin) = self.origin() {
            text.push('\n');
            text.push_str(origin);
        }
        if let Some(hint) = self.hint(py) {
            text.push_str("\nTo allow it: ");
            text.push_str(hint);
        }
        text.push('\n');
        text.push_str(FINAL);
        Ok(text)
    }
}

/// A call chain, without the middle of a long one.
fn shown(chain: &[String]) -> String {
    if chain.len() <= 2 * SHOWN_FRAMES + 1 {
        return chain.join(" -> ");
    }
    let (first, last) = (&chain[..SHOWN_FRAMES], &chain[chain.len() - SHOWN_FRAMES..]);
    let left_out = chain.len() - 2 * SHOWN_FRAMES;
    let middle = format!("… {left_out} more …");
    [&first.join(" -> "), &middle, &last.join(" -> ")]
        .map(String::as_str)
        .join(" -> ")
}
