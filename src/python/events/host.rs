//! The host's say in a denial: callbacks that may allow the event before it is denied, and one that is
//! told of the denial.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::judge::Reason;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::denials::denial::{Denial, Told};
use crate::python::events::deny::Refusal;
use crate::python::guard::asking::{Asking, is_asking_host, is_awaitable};
use crate::python::guard::config::AuditCfg;
use crate::python::guard::declared::Declared;
use crate::python::values::errors;
use crate::python::values::stack;

/// Asks the host, and before it the hooks that packages declare for the rules of fastaudit 0.2.
#[inline(never)]
pub fn is_approved(refusal: &Refusal<'_, '_>) -> PyResult<bool> {
    let (config, args) = (refusal.event.config, refusal.event.args);
    let py = args.py();
    let hooks = match refusal.told {
        Some(_) => Declared::known(py).map_or(&[][..], |declared| &declared.audit_hooks),
        None => &[],
    };
    let mut callbacks = hooks.iter().chain(config.asks_before_deny()).peekable();
    if callbacks.peek().is_none() {
        return Ok(false);
    }
    let frame = stack::first_foreign(py)?;
    let (event, message) = (PyString::new(py, &refusal.name), refusal.message()?);
    let (args, message) = match &refusal.told {
        Some(told) => told.given(&event, args, &message, refusal.reason)?,
        None => (args.clone(), message),
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
pub fn tell(
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
            exception.set_attr(intern!(py, "__cause__"), error.into_value(py))
        }
        Err(error) => Err(error),
    }
}
