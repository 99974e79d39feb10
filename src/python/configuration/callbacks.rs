//! The callbacks of a host: whether they can do what they will be asked to, and how they are
//! called.

use std::sync::Mutex;

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::policy::RuleSet;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::{Once, intern, lock};
use crate::python::cpython::{ffi as raw, frames};
use crate::python::frames::tracked_calls;
use crate::python::values::errors;

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
    let at_once = of_plain(callback, contract.arguments)?;
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
    if let Some(takes) = of_plain(callback, 1)?
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
    of_any(callback, contract.arguments)
}

// The number of arguments that a callback takes by position.
//
// `inspect.signature` knows it for everything, and takes longer than making a guard. So a Python
// function, a bound one and a `functools.partial` of positional arguments are looked at here first.

/// Flags of code objects, <https://docs.python.org/3/library/inspect.html#code-objects-bit-flags>.
const VARARGS: u32 = 0x4;
/// Flags of a generator, a coroutine, an asynchronous generator: their results have not run yet.
const NOT_PLAIN: u32 = 0x20 | 0x80 | 0x200;

/// The parameters of a callback: as many as are given by position, and perhaps one more, `calls`.
#[derive(Clone, Copy)]
struct Takes {
    given: bool,
    more: bool,
    is_named_calls: bool,
}

/// `None` for a generator or coroutine function, and if they cannot be told at once.
fn of_plain(callback: &Bound<'_, PyAny>, given: usize) -> PyResult<Option<Takes>> {
    let py = callback.py();
    let [partial, method] = standing(py)?;
    let (mut function, mut bound) = (callback.clone(), 0);
    if function.get_type().is(partial) {
        if !function.attr(intern!(py, "keywords"))?.cast::<PyDict>()?.is_empty() {
            return Ok(None);
        }
        bound += function.attr(intern!(py, "args"))?.cast::<PyTuple>()?.len();
        function = function.attr(intern!(py, "func"))?;
    }
    if function.get_type().is(method) {
        bound += 1;
        function = function.attr(intern!(py, "__func__"))?;
    }
    if !raw::is_python_function(&function) {
        return Ok(None);
    }
    // An attribute there may say that it is another kind of function, or wraps one.
    let said = function.attr(intern!(py, "__dict__"))?;
    if !said.cast::<PyDict>().is_ok_and(|said| said.is_empty()) {
        return Ok(None);
    }
    let code = frames::function_code(&function);
    let asked = (frames::function_defaults(&function), bound, given);
    match last(&code, asked) {
        Some(takes) => Ok(Some(takes)),
        None => of_code(&code, asked),
    }
}

/// The classes of objects that stand for a function: `functools.partial` and bound methods.
fn standing(py: Python<'_>) -> PyResult<&[Py<PyAny>; 2]> {
    static CLASSES: Once<[Py<PyAny>; 2]> = Once::new();
    CLASSES.get_or_try_init(py, || {
        let partial = calling::import(py, "functools")?.attr("partial")?;
        let method = calling::import(py, "types")?.attr("MethodType")?;
        Ok([partial.unbind(), method.unbind()])
    })
}

fn of_code(code: &Bound<'_, PyAny>, asked: Asked) -> PyResult<Option<Takes>> {
    let py = code.py();
    let number = |name: &Bound<'_, PyString>| code.attr(name)?.extract::<usize>();
    let flags: u32 = code.attr(intern!(py, "co_flags"))?.extract()?;
    let most = number(intern!(py, "co_argcount"))?;
    let named_only = number(intern!(py, "co_kwonlyargcount"))?;
    if flags & NOT_PLAIN != 0 || named_only > 0 {
        return Ok(None);
    }
    let (defaults, bound, given) = asked;
    let given = bound + given;
    let takes = |arguments: usize| {
        let has_room = arguments <= most || flags & VARARGS != 0;
        arguments + defaults >= most && has_room
    };
    let names = code.attr(intern!(py, "co_varnames"))?;
    let names = names.cast::<PyTuple>()?;
    let is_named_calls = given < most && names.get_item(given)?.equals("calls")?;
    let takes = Takes { given: takes(given), more: takes(given + 1), is_named_calls };
    note_last(code, asked, takes);
    Ok(Some(takes))
}

/// The number of a function's defaults, of bound arguments and of given ones.
type Asked = (usize, usize, usize);

/// The last question and its answer: hosts make many guards with one callback.
static LAST: Mutex<Option<(Py<PyAny>, Asked, Takes)>> = Mutex::new(None);

fn last(code: &Bound<'_, PyAny>, asked: Asked) -> Option<Takes> {
    let last = lock(&LAST);
    let (own, before, takes) = last.as_ref()?;
    (own.is(code) && *before == asked).then_some(*takes)
}

fn note_last(code: &Bound<'_, PyAny>, asked: Asked, takes: Takes) {
    let new = Some((code.clone().unbind(), asked, takes));
    let mut last = lock(&LAST);
    let before = std::mem::replace(&mut *last, new);
    drop(last);
    // Freeing code may run functions that were registered for it.
    drop(before);
}

/// Returns the parameters of a callback, according to `inspect`.
fn of_any(callback: &Bound<'_, PyAny>, given: usize) -> PyResult<Takes> {
    let py = callback.py();
    let signature = match calling::import(py, "inspect")?.invoke_method1("signature", (callback,)) {
        Ok(signature) => signature,
        // Some native functions have no signature. They get the benefit of the doubt; a `partial`
        // has none if its arguments do not fit.
        Err(error) if error.is_instance_of::<PyValueError>(py) => {
            let [partial, _] = standing(py)?;
            let fits = !callback.get_type().is(partial);
            return Ok(Takes { given: fits, more: false, is_named_calls: false });
        }
        Err(error) => return Err(error),
    };
    let bind = signature.attr("bind")?;
    let takes = |arguments: usize| -> PyResult<bool> {
        let arguments = PyTuple::new(py, (0..arguments).map(|_| py.None()))?;
        match bind.invoke1(arguments) {
            Ok(_) => Ok(true),
            Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(false),
            Err(error) => Err(error),
        }
    };
    let mut names = signature.attr("parameters")?.iterate()?;
    let name = names.nth(given).transpose()?;
    let more = takes(given + 1)?;
    let is_named_calls = match name {
        Some(name) => more && name.equals("calls")?,
        None => false,
    };
    Ok(Takes { given: takes(given)?, more, is_named_calls })
}
