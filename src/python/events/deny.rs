//! A denial: its first line, what it keeps of the moment, the exception.

use std::borrow::Cow;
use std::cell::OnceCell;

use pyo3::exceptions::PyPermissionError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::policy::Why;
use crate::policy::events;
use crate::policy::judge::Reason;
use crate::policy::learn::Landing;
use crate::python::cpython::ffi as raw;
use crate::python::denials::denial::Asked;
use crate::python::denials::denial::{Decision, Denial, Message, Told};
use crate::python::denials::first_line::FirstLine;
use crate::python::guard::event::Event;
use crate::python::guard::scope::{self, Active};
use crate::python::values::native_caller;
use crate::python::values::place;
use crate::python::values::simple;
use crate::python::values::stack;

/// An event that its policy denies.
pub struct Refusal<'a, 'py> {
    /// The event.
    pub event: &'a Event<'a, 'py>,
    /// Its name.
    pub name: Cow<'static, str>,
    /// The note of the moment under the rules of fastaudit 0.2.
    pub told: Option<Box<Told>>,
    /// The reason.
    pub reason: Reason,
    landing: &'a Landing,
    first_line: FirstLine,
    message: OnceCell<Bound<'py, PyString>>,
}

impl<'a, 'py> Refusal<'a, 'py> {
    /// Notes the denial of an event, and words it if that cannot wait.
    ///
    /// # Errors
    /// The error that the `__repr__` of an argument raised, if it is not an `Exception`; the denial
    /// in its least form while the interpreter ends.
    #[inline]
    pub fn new(event: &'a Event<'a, 'py>, reason: Reason, landing: &'a Landing) -> PyResult<Self> {
        let (py, config) = (event.args.py(), event.config);
        let told = match config.is_strict() {
            true => Some(Told::new(event.active, py)?),
            false => None,
        };
        let name = match event.name.to_str() {
            Ok(name) => match events::known(name) {
                Some(known) => Cow::Borrowed(known.name),
                None => Cow::Owned(name.to_owned()),
            },
            Err(_) => Cow::Owned(event.name.to_string_lossy().into_owned()),
        };
        let count = match reason {
            // The arguments after the module's name are `sys.path` and its hooks.
            Reason::Switch(Why::Import) => 1,
            // A third argument is the call chain.
            Reason::Switch(Why::Native) if told.is_some() && event.name != c"import" => 2,
            _ => usize::MAX,
        };
        let refusal = Self {
            event,
            name,
            told,
            reason,
            landing,
            first_line: FirstLine::of(config, py, reason, count),
            message: OnceCell::new(),
        };
        if raw::is_finalizing(py) {
            // The objects that a denial and a host's callback need may be gone.
            return Err(PyPermissionError::new_err(refusal.message()?.unbind()));
        }
        if !simple::is_plain(event.args) {
            // Other objects show themselves as they are now.
            refusal.message()?;
        }
        Ok(refusal)
    }

    /// Returns the first line.
    ///
    /// # Errors
    /// The error that the `__repr__` of an argument raised, if it is not an `Exception`.
    pub fn message(&self) -> PyResult<Bound<'py, PyString>> {
        if let Some(message) = self.message.get() {
            return Ok(message.clone());
        }
        let message = self.first_line.write(&self.name, self.event.args)?;
        Ok(self.message.get_or_init(|| message).clone())
    }

    /// Returns the denial.
    ///
    /// # Errors
    /// The error that reading an argument raised.
    #[inline]
    pub fn denial(self) -> PyResult<Bound<'py, Denial>> {
        let Event {
            args,
            active,
            config,
            ..
        } = *self.event;
        let py = args.py();
        let why = self.reason.why();
        let asked = Asked::now(active, config, &self.name, args, why)?;
        let decision = Decision {
            path: match self.reason {
                Reason::Event | Reason::Switch(_) => None,
                Reason::Path(index, _) => Some(index),
            },
            why,
            resolved: text(py, self.landing.place.as_deref())?,
            link: text(py, self.landing.link.as_deref())?,
            roots: Some(config.oks(py)),
            asked: Some(asked),
            told: self.told,
            place: place::here(py)?,
            tool: scope::tool_running(py)?,
            library: native_caller::now(),
        };
        let message = match self.message.into_inner() {
            Some(message) => Message::Written(message),
            None => Message::Later(self.first_line),
        };
        let denial = Denial::new(self.name, args, message, decision)?;
        Bound::new(py, denial)
    }
}

/// A place as text.
fn text<'py>(py: Python<'py>, place: Option<&[u8]>) -> PyResult<Option<Bound<'py, PyString>>> {
    place.map(|place| raw::fs_decode(py, place)).transpose()
}

/// Adds a denial to the guard's log.
#[inline]
pub fn log(active: &Active, denial: &Bound<'_, Denial>) {
    let earlier = active.log().add(denial.as_any(), denial.get().why);
    if let (Some(asked), Some(earlier)) = (&denial.get().asked, earlier)
        && let Ok(earlier) = earlier.cast_into_exact::<Denial>()
    {
        asked.follow(earlier.unbind());
    }
}

/// Denies: returns the exception as an error.
#[inline]
pub fn deny(exception: &Bound<'_, PyAny>) -> PyErr {
    raw::raise(exception);
    PyErr::fetch(exception.py())
}

impl Told {
    fn new(active: &Active, py: Python<'_>) -> PyResult<Box<Self>> {
        let origin = active.origin().map(|origin| origin.note(py)).transpose()?;
        Ok(Box::new(Self {
            origin: origin.flatten(),
            sites: Some(stack::sites(py)?),
        }))
    }
}
