//! The callbacks of a host: whether they can do what they will be asked to, and how they are
//! called.

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::policy::RuleSet;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::frames::tracked_calls;
use crate::python::values::errors;
use crate::python::values::signature::{self, Takes};

pub struct Contract {
    name: &'static str,
    signature: &'static str,
    arguments: usize,
    /// True if the tracked calls may follow.
    may_take_calls: bool,
}

const fn contract(name: &'static str, arguments: usize, signature: &'static str) -> Contract {
    Contract { name, signature, arguments, may_take_calls: arguments > 1 }
}

pub const BEFORE_DENY: Contract = contract("before_deny", 5, "(event, args, frame, msg, data)");
pub const ON_CALL: Contract = contract("on_call", 6, "(caller, callee, fn, code, off, data)");
pub const ON_DENIED: Contract = contract("on_denied", 1, "(denied)");
pub const ON_ASK: Contract = contract("on_ask", 1, "(denied)");
pub const ON_VIOLATION: Contract = contract("on_violation", 1, "(violation)");

pub struct Callback {
    function: Py<PyAny>,
    takes_calls: bool,
}

impl Callback {
    pub fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.function.bind(py)
    }

    /// Calls it, with the tracked calls if it takes them.
    pub fn call<'py>(&self, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        if !self.takes_calls {
            return calling::call(self.bind(py), args, None);
        }
        let more = PyTuple::new(py, [tracked_calls::active(py)?])?;
        let args = args.as_sequence().concat(more.as_sequence())?.to_tuple()?;
        calling::call(self.bind(py), &args, None)
    }

    /// The same with arguments that are not in a tuple yet.
    #[cfg(Py_3_12)]
    pub fn call_with<'py, const COUNT: usize>(
        &self,
        args: [&Bound<'py, PyAny>; COUNT],
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args[0].py();
        if self.takes_calls {
            return self.call(&PyTuple::new(py, args)?);
        }
        calling::call_with(self.bind(py), args)
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)
    }
}

/// Checks a callback before anything depends on it. It gets the tracked calls if it must take one
/// argument more, or has one that is called `calls`; under the rules of fastaudit 0.2 if it can
/// take one.
///
/// # Errors
/// `TypeError` if it cannot be called, does not take the arguments, or would return a coroutine or
/// generator, which is always true.
pub fn read(
    callback: &Bound<'_, PyAny>,
    contract: &Contract,
    rules: RuleSet,
) -> PyResult<Callback> {
    let at_once = signature::of_plain(callback, contract.arguments)?;
    let takes = match at_once {
        Some(takes) if takes.given || takes.more => takes,
        _ => look(callback, contract)?,
    };
    let takes_calls = contract.may_take_calls
        && takes.more
        && (!takes.given || takes.is_named_calls || rules == RuleSet::Strict);
    if !takes.given && !takes_calls {
        let error = errors::wrong_signature(contract.name, contract.signature, callback);
        return Err(error);
    }
    Ok(Callback { function: callback.clone().unbind(), takes_calls })
}

/// Returns whether a callback is a coroutine function, or an object that is called like one.
pub fn is_async(callback: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Some(takes) = signature::of_plain(callback, 1)?
        && (takes.given || takes.more)
    {
        return Ok(false);
    }
    let is = calling::import(callback.py(), "inspect")?.attr("iscoroutinefunction")?;
    let call = callback.get_type().attr_opt(intern!(callback.py(), "__call__"))?;
    Ok(is.invoke1((callback,))?.truth()?
        || match call {
            Some(call) => is.invoke1((call,))?.truth()?,
            None => false,
        })
}

fn look(callback: &Bound<'_, PyAny>, contract: &Contract) -> PyResult<Takes> {
    if !callback.is_callable() {
        return Err(errors::not_callable(contract.name, contract.signature, callback));
    }
    let inspect = calling::import(callback.py(), "inspect")?;
    let call = callback.get_type().attr("__call__")?;
    for what in ["iscoroutinefunction", "isasyncgenfunction", "isgeneratorfunction"] {
        let is = inspect.attr(what)?;
        if is.invoke1((callback,))?.truth()? || is.invoke1((&call,))?.truth()? {
            return Err(errors::not_a_plain_function(contract.name, callback));
        }
    }
    signature::of_any(callback, contract.arguments)
}
