//! The number of arguments that a callback takes by position.
//!
//! `inspect.signature` knows it for everything, and takes longer than making a guard. So a Python
//! function, a bound one and a `functools.partial` of these are looked at here first.

use std::sync::Mutex;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::{Once, intern, lock};
use crate::python::cpython::{ffi as raw, frames};

/// Flags of code objects, <https://docs.python.org/3/library/inspect.html#code-objects-bit-flags>.
const VARARGS: u32 = 0x4;
const VARKEYWORDS: u32 = 0x8;
/// Flags of a generator, a coroutine, an asynchronous generator: their results have not run yet.
const NOT_PLAIN: u32 = 0x20 | 0x80 | 0x200;

/// The classes of objects that stand for a function: `functools.partial` and bound methods.
fn standing(py: Python<'_>) -> PyResult<&[Py<PyType>; 2]> {
    static CLASSES: Once<[Py<PyType>; 2]> = Once::new();
    CLASSES.get_or_try_init(py, || {
        let class = |module: &str, name: &str| -> PyResult<Py<PyType>> {
            let class = calling::import(py, module)?.attr(name)?;
            Ok(class.cast_into::<PyType>()?.unbind())
        };
        Ok([class("functools", "partial")?, class("types", "MethodType")?])
    })
}

/// The parameters of a callback: as many as are given by position, and perhaps one more, `calls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takes {
    pub given: bool,
    pub more: bool,
    pub is_named_calls: bool,
}

/// `None` for a generator or coroutine function, and if they cannot be told at once.
pub fn of_plain(callback: &Bound<'_, PyAny>, given: usize) -> PyResult<Option<Takes>> {
    let py = callback.py();
    let [partial, method] = standing(py)?;
    let mut callback = callback.clone();
    let mut keywords = None;
    let mut bound = 0;
    if callback.get_type().is(partial) {
        bound += callback.attr(intern!(py, "args"))?.cast::<PyTuple>()?.len();
        let named = callback.attr(intern!(py, "keywords"))?;
        keywords = Some(named.cast_into::<PyDict>()?);
        callback = callback.attr(intern!(py, "func"))?;
    }
    if callback.get_type().is(method) {
        bound += 1;
        callback = callback.attr(intern!(py, "__func__"))?;
    }
    if !raw::is_python_function(&callback) {
        return Ok(None);
    }
    // An attribute there may say that it is another kind of function, or wraps one.
    let said = callback.attr(intern!(py, "__dict__"))?;
    if !said.cast::<PyDict>().is_ok_and(|said| said.is_empty()) {
        return Ok(None);
    }
    of_function(&callback, bound, keywords.as_ref(), given)
}

fn of_function(
    function: &Bound<'_, PyAny>,
    bound: usize,
    keywords: Option<&Bound<'_, PyDict>>,
    given: usize,
) -> PyResult<Option<Takes>> {
    let py = function.py();
    let code = frames::function_code(function);
    let defaults = frames::function_defaults(function);
    let asked = (defaults, bound, given);
    if keywords.is_none()
        && let Some(takes) = last(&code, asked)
    {
        return Ok(Some(takes));
    }
    let number = |name: &Bound<'_, PyString>| code.attr(name)?.extract::<usize>();
    let flags: u32 = code.attr(intern!(py, "co_flags"))?.extract()?;
    let count = number(intern!(py, "co_argcount"))?;
    let named_only = number(intern!(py, "co_kwonlyargcount"))?;
    if flags & NOT_PLAIN != 0 || named_only > 0 {
        return Ok(None);
    }
    let names = code.attr(intern!(py, "co_varnames"))?;
    let names = names.cast::<PyTuple>()?;
    let first_default = count - defaults.min(count);
    let is_given = |position: usize| -> PyResult<bool> {
        match keywords {
            Some(keywords) => keywords.contains(names.get_item(position)?),
            None => Ok(false),
        }
    };
    let mut most = count;
    let mut least = 0;
    let mut by_name = 0;
    for position in 0..count {
        if is_given(position)? {
            by_name += 1;
            most = most.min(position);
        } else if position < first_default {
            least = position + 1;
        }
    }
    let unknown = keywords.is_some_and(|keywords| keywords.len() > by_name);
    if unknown && flags & VARKEYWORDS == 0 {
        return Ok(None);
    }
    let takes = |arguments: usize| {
        let arguments = arguments + bound;
        let has_room = arguments <= most || (flags & VARARGS != 0 && most == count);
        arguments >= least && has_room
    };
    let is_named_calls = bound + given < most && names.get_item(bound + given)?.equals("calls")?;
    let takes = Takes { given: takes(given), more: takes(given + 1), is_named_calls };
    if keywords.is_none() {
        note_last(&code, asked, takes);
    }
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
pub fn of_any(callback: &Bound<'_, PyAny>, given: usize) -> PyResult<Takes> {
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
