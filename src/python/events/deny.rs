//! A denial: its first line, what it keeps of the moment, the exception.

use std::ffi::CStr;

use pyo3::exceptions::{PyException, PyPermissionError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::Why;
use crate::policy::judge::Reason;
use crate::policy::wording::{Line, NamedRoots};
use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;
use crate::python::denials::denial::Asked;
use crate::python::denials::denial::{Decision, Denial, Told};
use crate::python::guard::config::AuditCfg;
use crate::python::guard::event::Event;
use crate::python::guard::scope::Active;
use crate::python::values::place;
use crate::python::values::simple::shown;
use crate::python::values::stack;

/// Most messages are no longer than this, in bytes.
const USUAL_MESSAGE: usize = 160;

/// An event that its policy denies, in words.
pub struct Refusal<'py> {
    /// The name of the event.
    pub event: Bound<'py, PyString>,
    /// The first line.
    pub message: Bound<'py, PyString>,
    /// The note of the moment under the rules of fastaudit 0.2.
    pub told: Option<Box<Told>>,
    reason: Reason,
}

impl<'py> Refusal<'py> {
    /// Words the denial of an event.
    ///
    /// # Errors
    /// The error that the `__repr__` of an argument raised, if it is not an `Exception`; the denial
    /// in its least form while the interpreter ends.
    #[inline]
    pub fn new(event: &Event<'_, 'py>, reason: Reason) -> PyResult<Self> {
        let (py, config) = (event.args.py(), event.config);
        let told = match config.is_strict() {
            true => Some(Told::new(event.active, py)?),
            false => None,
        };
        let name = match event.name.to_str() {
            Ok(name) => PyString::new(py, name),
            Err(_) => PyString::new(py, &event.name.to_string_lossy()),
        };
        let args = match reason {
            // The arguments after the module's name are `sys.path` and its hooks.
            Reason::Switch(Why::Import) => &event.args.get_slice(0, 1),
            // A third argument is the call chain.
            Reason::Switch(Why::Native) if told.is_some() && event.name != c"import" => {
                &event.args.get_slice(0, 2)
            }
            _ => event.args,
        };
        let message = first_line(config, &name, args, reason)?;
        if raw::is_finalizing(py) {
            // The objects that a denial and a host's callback need may be gone.
            return Err(PyPermissionError::new_err(message.unbind()));
        }
        Ok(Self {
            event: name,
            message,
            told,
            reason,
        })
    }

    /// Returns the denial, and adds it to the guard's log.
    ///
    /// # Errors
    /// The error that reading an argument raised.
    #[inline]
    pub fn denial(
        self,
        active: &Active,
        config: &AuditCfg,
        name: &CStr,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, Denial>> {
        let py = args.py();
        let why = self.reason.why();
        let asked = Asked::now(active, config, &name.to_string_lossy(), args, why)?;
        let decision = Decision {
            path: match self.reason {
                Reason::Event | Reason::Switch(_) => None,
                Reason::Path(index, _) => Some(index),
            },
            why,
            roots: Some(config.oks(py)),
            asked: Some(asked),
            told: self.told,
            place: place::here(py)?,
        };
        let denial = Denial::new(self.event, args, self.message, decision)?;
        let denial = Bound::new(py, denial)?;
        active.log().add(denial.as_any(), |earlier| {
            let asked = denial.get().asked.as_ref();
            let earlier = earlier.cast_exact::<Denial>();
            match (asked, earlier) {
                (Some(asked), Ok(earlier)) if denial.get().is_alike(earlier.get()) => {
                    asked.follow(earlier.as_unbound(), py);
                    true
                }
                _ => asked.is_none(),
            }
        });
        Ok(denial)
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

fn first_line<'py>(
    config: &AuditCfg,
    event: &Bound<'py, PyString>,
    args: &Bound<'py, PyTuple>,
    reason: Reason,
) -> PyResult<Bound<'py, PyString>> {
    let py = event.py();
    let given = match reason {
        Reason::Event | Reason::Switch(_) => shown_all(args)?,
        Reason::Path(index, _) => shown(&args.get_item(index)?)?,
    };
    let line = Line::of(
        reason,
        // fastaudit writes the empty tuple, and so does `mk_audit`.
        || !(config.is_of_policy() && config.oks(py).is_empty()),
        || !config.readable(py).is_empty(),
    );
    let roots = match line.roots() {
        Some(NamedRoots::Write) => config.oks(py).repr()?,
        Some(NamedRoots::Read) => shown_places(&config.readable(py))?,
        None => given.clone(),
    };
    // In one piece of memory if it is no longer than most.
    let mut text = String::with_capacity(USUAL_MESSAGE);
    if line.write(&mut text, event, &given, &roots).is_err() {
        return Err(PyRuntimeError::new_err("the message could not be written"));
    }
    Ok(PyString::new(py, &text))
}

/// The places that a line names; of many, as in a sandbox, the first ones.
const NAMED_PLACES: usize = 4;

/// Returns `repr(places)`, without the end of a long list.
fn shown_places<'py>(places: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyString>> {
    if places.len() <= 2 * NAMED_PLACES {
        return places.repr();
    }
    let first = places.iter().take(NAMED_PLACES).map(|place| place.repr());
    let first = first.collect::<PyResult<Vec<_>>>()?;
    let first = first.iter().map(|place| place.to_string_lossy());
    let first = first.collect::<Vec<_>>().join(", ");
    let more = places.len() - NAMED_PLACES;
    PyString::from_fmt(places.py(), format_args!("({first}, … {more} more)"))
}

/// Returns `repr(args)`, item by item if that fails.
fn shown_all<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyString>> {
    let py = args.py();
    match calling::repr(args) {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            let items = args
                .iter()
                .map(|item| shown(&item))
                .collect::<PyResult<Vec<_>>>()?;
            let items = items.iter().map(|item| item.to_string_lossy().into_owned());
            let mut items = items.collect::<Vec<_>>().join(", ");
            if args.len() == 1 {
                items.push(',');
            }
            PyString::from_fmt(py, format_args!("({items})"))
        }
        repr => repr,
    }
}
