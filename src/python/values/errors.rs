//! The words for a wrong argument, and for the accepted values: all in one place.

use std::ffi::OsStr;
use std::io;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{
    PyImportError, PyOSError, PyPermissionError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyList, PyString, PyTuple};
use rustix::io::Errno;
use toml::Value;

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
pub use crate::python::cpython::ffi::class_name as type_name;

pub fn shown(object: &Bound<'_, PyAny>) -> String {
    object.shown().map_or_else(|_| "…".to_owned(), |repr| repr.to_string())
}

pub fn wrong_type(argument: &str, accepted: &str, given: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("{argument} must be {accepted}, not {}", type_name(given)))
}

/// The same, with a word on how to write what was meant.
pub fn wrong_type_write(
    argument: &str,
    accepted: &str,
    given: &Bound<'_, PyAny>,
    instead: &str,
) -> PyErr {
    PyTypeError::new_err(format!(
        "{argument} must be {accepted}, not {}: write {instead}",
        type_name(given)
    ))
}

/// The error of reading an argument; if it says that the type is wrong, in our words.
pub fn unless_wrong_type(py: Python<'_>, error: PyErr, wrong: impl FnOnce() -> PyErr) -> PyErr {
    match error.is_instance_of::<PyTypeError>(py) {
        true => wrong(),
        false => error,
    }
}

/// `OSError` with the number and the text of the system.
pub fn of_system(error: Errno) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), text_of(&error.into())))
}

/// The same with the name of the file that was asked for.
pub fn of_file(error: impl Into<io::Error>, name: &OsStr) -> PyErr {
    let error = error.into();
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, text_of(&error), name.to_owned())),
        None => error.into(),
    }
}

/// The system's words, without the number that Rust puts after them.
fn text_of(error: &io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_owned()
}

/// What calls native code has no frame.
pub fn no_frame() -> PyErr {
    PyRuntimeError::new_err("no Python code runs")
}

pub fn no_room_for_callees() -> PyErr {
    PyRuntimeError::new_err(
        "calls='callee' has no room for all the native code that is loaded: write calls='events'",
    )
}

pub fn without_monitor(argument: &str) -> PyErr {
    PyRuntimeError::new_err(format!("{argument} requires monitor_calls=True"))
}

fn caused_by(py: Python<'_>, error: PyErr, cause: PyErr) -> PyErr {
    error.set_cause(py, Some(cause));
    error
}

pub fn oks_is_one_path(oks: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "oks must be an iterable of paths, not one path of type {}: write mk_audit([{}])",
        type_name(oks),
        shown(oks)
    ))
}

pub fn oks_not_paths(oks: &Bound<'_, PyAny>) -> PyErr {
    let instead = if type_name(oks) == "Policy" {
        ": write policy.guard()"
    } else if oks.is_instance_of::<PyDict>() {
        ": a Policy has fields, write Policy(**fields).guard()"
    } else if oks.is_none() {
        ": write mk_audit([]) for nowhere and mk_audit(['/']) for anywhere, \
         as fastaudit_rs.v02.mk_audit(None) does"
    } else if oks.is_callable() {
        ": to decorate a function write @mk_audit([...])()"
    } else {
        ""
    };
    PyTypeError::new_err(format!(
        "oks must be an iterable of paths (str, bytes or os.PathLike), not {}{instead}",
        type_name(oks)
    ))
}

pub fn root_empty(index: usize) -> PyErr {
    PyValueError::new_err(format!("oks[{index}] must not be empty: '.' is the current directory"))
}

pub fn root_unreadable(index: usize, path: &Bound<'_, PyAny>, cause: PyErr) -> PyErr {
    let error = PyValueError::new_err(format!(
        "oks[{index}] must be a path that the file system can hold, not {}",
        shown(path)
    ));
    caused_by(path.py(), error, cause)
}

pub fn root_unresolvable(index: usize, path: &Bound<'_, PyAny>, name: &[u8]) -> PyErr {
    if name.contains(&0) {
        return PyValueError::new_err(format!(
            "oks[{index}] must be a path without embedded NUL characters, not {}",
            shown(path)
        ));
    }
    PyOSError::new_err(format!("oks[{index}] cannot be resolved: {}", shown(path)))
}

pub fn not_callable(argument: &str, signature: &str, given: &Bound<'_, PyAny>) -> PyErr {
    // A path given there was meant as one more root.
    let is_path =
        given.is_instance_of::<PyString>() || given.has_attr("__fspath__").unwrap_or(false);
    let instead = if argument == "before_deny" && (is_path || given.is_instance_of::<PyList>()) {
        ": all roots are in one list, mk_audit(['/tmp', '/srv']), or in Policy(write=[...])"
    } else {
        ""
    };
    PyTypeError::new_err(format!(
        "{argument} must be None or a function {argument}{signature}, not {}{instead}",
        type_name(given)
    ))
}

pub fn wrong_signature(argument: &str, signature: &str, given: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "{argument} must take the arguments {signature}, which {} does not",
        shown(given)
    ))
}

/// A callback would return a coroutine or a generator, which is always true.
pub fn not_a_plain_function(argument: &str, given: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "{argument} must be a plain function, not a coroutine or generator function: what {} \
         returns is true before it has run",
        shown(given)
    ))
}

pub fn returned_awaitable(argument: &str, returned: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "{argument} must return a plain value, not an awaitable of type {}; the operation is denied",
        type_name(returned)
    ))
}

pub fn no_monitoring(argument: &str) -> PyErr {
    PyRuntimeError::new_err(format!("{argument} requires Python 3.12+ sys.monitoring"))
}

#[cfg(Py_3_12)]
pub fn other_tool_id(ours: i32) -> PyErr {
    PyRuntimeError::new_err(format!("fastaudit_rs already uses sys.monitoring tool id {ours}"))
}

#[cfg(Py_3_12)]
pub fn tool_id_taken(id: i32, tool: &Bound<'_, PyAny>) -> PyErr {
    PyRuntimeError::new_err(format!(
        "sys.monitoring tool id {id} is already used by {}: pass another tool_id, from 0 to 5",
        shown(tool)
    ))
}

#[cfg(Py_3_12)]
pub fn tool_id_lost(id: i32) -> PyErr {
    PyRuntimeError::new_err(format!(
        "sys.monitoring tool id {id} no longer belongs to fastaudit_rs, so native calls cannot be \
         watched; call mk_audit() again"
    ))
}

pub fn hook_vetoed(py: Python<'_>, cause: Option<PyErr>) -> PyErr {
    let error = PyRuntimeError::new_err(
        "the audit hook could not be installed: another audit hook refused it, so nothing would be guarded",
    );
    error.set_cause(py, cause);
    error
}

pub fn left_elsewhere(py: Python<'_>, cause: PyErr) -> PyErr {
    if !cause.is_instance_of::<PyValueError>(py) {
        return cause;
    }
    let error = PyValueError::new_err(
        "this guard was entered in another context (another task or thread), where it is still \
         in force: leave it there",
    );
    caused_by(py, error, cause)
}

pub fn unknown_method(class: &str, name: &str) -> PyErr {
    PyRuntimeError::new_err(format!(
        "fastaudit_rs: no guard can be held here: {class}.{name} is called in an unknown way"
    ))
}

/// Errors with the same words each time.
macro_rules! constant {
    ($($(#[$cfg:meta])? $name:ident, $class:ident: $words:literal;)*) => {$(
        $(#[$cfg])?
        pub fn $name() -> PyErr {
            $class::new_err($words)
        }
    )*};
}

constant! {
    no_imports_to_add, PyRuntimeError:
        "add_imports() is for guards with the rules of fastaudit 0.2 (fastaudit_rs.v02); a Policy \
        has the field import_allow";
    left_by_what_it_guards, PyRuntimeError:
        "this guard was entered by a with statement, and is left by the end of that statement alone";
    being_installed, PyRuntimeError:
        "the audit hook is being installed by another call of mk_audit()";
    other_python, PyImportError:
        "fastaudit_rs works in the first Python of a process alone, and that one has ended \
        (Py_Finalize): keep one Python for the life of the process, or start a new process";
    variable_changed, PyPermissionError:
        "fastaudit_rs: the guard's context variable was changed, so no context can be entered or made";
    variable_kept, PyPermissionError:
        "fastaudit_rs: the guard's context variable keeps the guard while it is in force";
    #[cfg(Py_3_12)]
    no_tool_id, PyRuntimeError:
        "all sys.monitoring tool ids are in use by other tools: free one, or pass monitor_calls=False";
    #[cfg(Py_3_12)]
    would_blind, PyPermissionError:
        "this sys.monitoring tool id is that of fastaudit_rs, and a guard is in force that watches \
        calls by it: use another one, or wait until the guard is left";
}

// Values of a policy as objects and expressions of Python.

pub fn literal(py: Python<'_>, value: &Value) -> Option<String> {
    let object = object(py, value).ok()?;
    Some(object.shown().ok()?.to_string_lossy().into_owned())
}

/// A value of TOML as one of Python, which JSON can hold.
pub fn object<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        // In Python these are not texts.
        Value::String(text) if matches!(&text[..], "anywhere" | "any" | "unlimited") => {
            Ok(py.None().into_bound(py))
        }
        Value::String(text) => text.into_bound_py_any(py),
        Value::Integer(number) => number.into_bound_py_any(py),
        Value::Boolean(is) => is.into_bound_py_any(py),
        Value::Array(items) => {
            let items = items.iter().map(|item| object(py, item));
            items.collect::<PyResult<Vec<_>>>()?.into_bound_py_any(py)
        }
        Value::Table(table) => {
            let dict = PyDict::new(py);
            for (key, value) in table {
                dict.set_item(key, object(py, value)?)?;
            }
            Ok(dict.into_any())
        }
        // A policy holds no other types.
        Value::Float(_) | Value::Datetime(_) => Ok(py.None().into_bound(py)),
    }
}

/// A copy of a suggestion: the reader may change it.
pub fn copied<'py>(suggestion: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    copied_to(suggestion, DEEPEST)
}

/// The depth of suggestions: a list in a field of the network.
const DEEPEST: usize = 3;

fn copied_to<'py>(value: &Bound<'py, PyAny>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    if value.is_none()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyBool>()
    {
        return Ok(value.clone());
    }
    if let (Ok(items), 1..) = (value.cast_exact::<PyList>(), depth) {
        let items = items.iter().map(|item| copied_to(&item, depth - 1));
        return Ok(PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any());
    }
    if let (Ok(items), 1..) = (value.cast_exact::<PyDict>(), depth) {
        let copy = PyDict::new(py);
        for (key, item) in items {
            copy.set_item(copied_to(&key, 0)?, copied_to(&item, depth - 1)?)?;
        }
        return Ok(copy.into_any());
    }
    Err(PyTypeError::new_err(format!(
        "fields[\"suggestion\"] must hold plain values, not {}",
        type_name(value)
    )))
}

pub fn list(texts: &[Bound<'_, PyString>]) -> Option<String> {
    let shown = |text| Some(raw::str_repr(text).ok()?.to_string_lossy().into_owned());
    let shown = texts.iter().map(shown).collect::<Option<Vec<_>>>()?;
    Some(format!("[{}]", shown.join(", ")))
}

// The correction of a wrong argument: a list of it, and the nearest of some names.
//
// The words for wrong names are in `fastaudit_rs._near`, which is imported only for such an error.

/// Calls a function of the module with the words, which a guard may not let be imported.
pub fn near<'py>(
    py: Python<'py>,
    function: &str,
    args: impl IntoPyObject<'py, Target = PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    calling::import(py, "fastaudit_rs._near")?.invoke_method1(function, args)
}

pub fn as_list(given: &Bound<'_, PyAny>) -> String {
    if given.is_instance_of::<PyDict>() {
        let names = given.iterate().and_then(Iterator::collect);
        let names: Vec<Bound<'_, PyAny>> = names.unwrap_or_default();
        let names: Vec<_> = names.iter().map(shown).collect();
        return format!("[{}]", names.join(", "));
    }
    let is_one = given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.iterate().is_err();
    match is_one || given.has_attr("__fspath__").unwrap_or(true) {
        true => format!("[{}]", shown(given)),
        false => shown(given),
    }
}

/// The end of a sentence, and one that names the nearest of some names; empty if none is near.
pub fn suggestion(py: Python<'_>, name: &str, names: &[&str]) -> String {
    match near(py, "suggestion", (name, names.to_vec())).map(|told| told.to_string()) {
        Ok(told) if !told.is_empty() => format!(".{told}"),
        _ => String::new(),
    }
}
