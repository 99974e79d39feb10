//! The one place that refuses: the message, the host's answer, the exception.

use std::ffi::CStr;
use std::fmt::{self, Write};

use pyo3::exceptions::{PyException, PyPermissionError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::Why;
use crate::policy::judge::Reason;
use crate::policy::written::spec::OnViolation;
use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;
use crate::python::denials::asked::Asked;
use crate::python::denials::denial::{self, Decision, Denial, Told};
use crate::python::events::outcome;
use crate::python::guard::asking::{Asking, is_asking_host, is_awaitable};
use crate::python::guard::config::AuditCfg;
use crate::python::guard::declared::Declared;
use crate::python::guard::scope::Active;
use crate::python::values::errors;
use crate::python::values::place;
use crate::python::values::process_start;
use crate::python::values::simple::shown;
use crate::python::values::stack;

/// Most messages are no longer than this, in bytes.
const USUAL_MESSAGE: usize = 160;

/// Denies an event, unless `before_deny` allows it.
///
/// # Errors
/// `AuditDenied` when it is denied; otherwise the error that `before_deny` raised.
pub fn deny(
    active: &Active,
    config: &AuditCfg,
    event: &CStr,
    args: &Bound<'_, PyTuple>,
    reason: Reason,
) -> PyResult<()> {
    let py = args.py();
    let proceeds = config.on_violation() != OnViolation::Raise;
    if proceeds && is_asking_host() {
        return Ok(());
    }
    let told = match config.is_strict() {
        true => Some(Told::new(active, py)?),
        false => None,
    };
    let name = event;
    let event = match event.to_str() {
        Ok(event) => PyString::new(py, event),
        Err(_) => PyString::new(py, &event.to_string_lossy()),
    };
    let message = match reason {
        // The arguments after the module's name are `sys.path` and its hooks.
        Reason::Switch(Why::Import) => message(config, &event, &args.get_slice(0, 1), reason)?,
        // A third argument is the call chain.
        Reason::Switch(Why::Native) if told.is_some() && name != c"import" => {
            message(config, &event, &args.get_slice(0, 2), reason)?
        }
        _ => message(config, &event, args, reason)?,
    };
    if raw::is_finalizing(py) {
        // The objects that a denial and a host's callback need may be gone.
        return Err(PyPermissionError::new_err(message.unbind()));
    }
    if (told.is_some() || config.asks_before_deny().is_some())
        && !is_asking_host()
        && is_approved(config, &event, args, &message, told.as_deref(), reason)?
    {
        process_start::approved(name, args);
        return Ok(());
    }
    let why = reason.why();
    let asked = Asked::now(active, config, &name.to_string_lossy(), args, why)?;
    let decision = Decision {
        path: match reason {
            Reason::Event | Reason::Switch(_) => None,
            Reason::Path(index, _) => Some(index),
        },
        why,
        roots: Some(config.oks(py)),
        asked: Some(asked),
        told,
        place: place::here(py)?,
    };
    let denial = Denial::new(event, args, message, decision)?;
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
    let exception = denial::exception(&denial)?;
    tell(config, &denial, &exception)?;
    if proceeds {
        denial.get().note_chain(py)?;
        let _asking = Asking::begin();
        outcome::tell(config, &denial, &exception)?;
        process_start::approved(name, args);
        return Ok(());
    }
    raw::raise(&exception);
    Err(PyErr::fetch(py))
}

/// Asks the host, and before it the hooks that packages declare for the rules of fastaudit 0.2.
#[inline(never)]
fn is_approved(
    config: &AuditCfg,
    event: &Bound<'_, PyString>,
    args: &Bound<'_, PyTuple>,
    message: &Bound<'_, PyString>,
    told: Option<&Told>,
    reason: Reason,
) -> PyResult<bool> {
    let py = event.py();
    let hooks = match told {
        Some(_) => Declared::known(py).map_or(&[][..], |declared| &declared.audit_hooks),
        None => &[],
    };
    let mut callbacks = hooks.iter().chain(config.asks_before_deny()).peekable();
    if callbacks.peek().is_none() {
        return Ok(false);
    }
    let frame = stack::first_foreign(py)?;
    let (args, message) = match told {
        Some(told) => told.given(event, args, message, reason)?,
        None => (args.clone(), message.clone()),
    };
    let given = (event, args, frame, message, config.data(py)).into_pyobject(py)?;
    let _asking = Asking::begin();
    for callback in callbacks {
        let answer = callback.call(&given)?;
        if is_awaitable(&answer) {
            return Err(errors::returned_awaitable("before_deny", &answer));
        }
        if calling::is_true(&answer)? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Told {
    fn new(active: &Active, py: Python<'_>) -> PyResult<Box<Self>> {
        let origin = active.origin().map(|origin| origin.note(py)).transpose()?;
        Ok(Box::new(Self {
            origin: origin.flatten(),
            sites: Some(stack::sites(py)?),
        }))
    }

    /// Returns the arguments and the message that callbacks get.
    fn given<'py>(
        &self,
        event: &Bound<'py, PyString>,
        args: &Bound<'py, PyTuple>,
        message: &Bound<'py, PyString>,
        reason: Reason,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyString>)> {
        let py = event.py();
        let mut chain = stack::names(py, self.sites.as_deref().unwrap_or_default())?.join(" -> ");
        let mut args = args.clone();
        if event == "fastaudit.call" && args.len() == 2 {
            chain.push_str(" -> ");
            chain.push_str(&calling::str(&args.get_item(1)?)?.to_string_lossy());
            let more = PyTuple::new(py, [PyString::new(py, &chain)])?;
            args = args.as_sequence().concat(more.as_sequence())?.to_tuple()?;
        }
        let mut text = message.to_string_lossy().into_owned();
        if !matches!(reason, Reason::Path(..)) {
            text.push_str("\nCall chain: ");
            text.push_str(&chain);
        }
        if let Some(origin) = &self.origin {
            text.push('\n');
            text.push_str(origin);
        }
        Ok((args, PyString::new(py, &text)))
    }
}

/// Tells the host of a denial.
///
/// # Errors
/// Errors raised by its callback that are not an `Exception` (`KeyboardInterrupt`, say); any other
/// becomes the cause of the denial.
fn tell(
    config: &AuditCfg,
    denial: &Bound<'_, Denial>,
    exception: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = denial.py();
    let Some(on_denied) = config.on_denied(py) else {
        return Ok(());
    };
    if is_asking_host() {
        return Ok(());
    }
    denial.get().note_chain(py)?;
    let _asking = Asking::begin();
    match calling::call(&on_denied, &(exception,).into_pyobject(py)?, None) {
        Ok(_) => Ok(()),
        Err(error) if error.is_instance_of::<PyException>(py) => {
            exception.setattr(pyo3::intern!(py, "__cause__"), error.into_value(py))
        }
        Err(error) => Err(error),
    }
}

fn message<'py>(
    config: &AuditCfg,
    event: &Bound<'py, PyString>,
    args: &Bound<'py, PyTuple>,
    reason: Reason,
) -> PyResult<Bound<'py, PyString>> {
    let py = event.py();
    match reason {
        Reason::Event | Reason::Switch(_) => {
            let args = shown_all(args)?;
            formatted(
                py,
                format_args!("Audit: {event} blocked in sandbox with args: {args}"),
            )
        }
        Reason::Path(index, why) => {
            let path = shown(&args.get_item(index)?)?;
            match why {
                // fastaudit writes the empty tuple, and so does `mk_audit`.
                Why::Unapproved if config.is_of_policy() && config.oks(py).is_empty() => {
                    formatted(py, format_args!("{event} {path}: nothing may be written"))
                }
                Why::Unreadable if config.readable(py).is_empty() => {
                    formatted(py, format_args!("{event} {path}: nothing may be read"))
                }
                Why::Unapproved
                | Why::Environment
                | Why::Network(_)
                | Why::Command
                | Why::Import
                | Why::Native
                | Why::Thread
                | Why::Unknown
                | Why::TooMuch => {
                    let oks = config.oks(py).repr()?;
                    formatted(py, format_args!("{event} {path} not in {oks}"))
                }
                Why::Unreadable => {
                    let roots = config.readable(py).repr()?;
                    formatted(
                        py,
                        format_args!("{event} {path} not readable: not in {roots}"),
                    )
                }
                Why::Blocked => formatted(py, format_args!("{event} {path} is blocked")),
                Why::Protected => formatted(py, format_args!("{event} {path} is protected")),
            }
        }
    }
}

/// Returns a text, in one piece of memory if it is no longer than most.
fn formatted<'py>(py: Python<'py>, text: fmt::Arguments<'_>) -> PyResult<Bound<'py, PyString>> {
    let mut whole = String::with_capacity(USUAL_MESSAGE);
    if whole.write_fmt(text).is_err() {
        return Err(PyRuntimeError::new_err("the message could not be written"));
    }
    Ok(PyString::new(py, &whole))
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
