//! The errors for calls that are wrong as a whole, and for names that do not exist: the message
//! says which one to write.
//!
//! The words for wrong names are in `fastaudit_rs._near`, which is imported only for such an error.

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::policy::events::{self, EVENTS};
use crate::policy::files::fs::FileSystem;
use crate::policy::files::os::Os;
use crate::policy::files::path;
use crate::policy::written::lint;
use crate::policy::written::values::{Choice, SpecError};
use crate::policy::written::wording::Words;
use crate::python::configuration::allowed::Allowed;
use crate::python::configuration::resolve;
use crate::python::cpython::calling::Calling;
use crate::python::values::decode;
use crate::python::values::errors::{self, as_list, near, suggestion};

/// The error for a keyword that a function does not have, with the nearest one.
pub fn unknown(function: &str, name: &Bound<'_, PyAny>) -> PyErr {
    let told = near(name.py(), "unknown", (function, name));
    PyTypeError::new_err(match told {
        Ok(message) => message.to_string(),
        // A guard that lets nothing be imported may be in force.
        Err(_) => format!("{function}() has no argument {}", errors::shown(name)),
    })
}

fn last(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or_default()
}

/// The error in a policy that was read from text, with the nearest key.
pub fn of_text(py: Python<'_>, error: &SpecError) -> String {
    let SpecError::UnknownKey { key, keys } = error else {
        return error.to_string();
    };
    let names: Vec<_> = keys.iter().map(|key| last(key)).collect();
    format!("{error}{}", suggestion(py, last(key), &names))
}

/// Refuses positional arguments of functions that take fields by name. `example` writes one of them
/// with a value.
///
/// # Errors
/// `TypeError`, which says how to write it.
pub fn check_fields(function: &str, field: &str, given: &Bound<'_, PyTuple>) -> PyResult<()> {
    let Ok(first) = given.get_item(0) else {
        return Ok(());
    };
    let example = match first.is_instance_of::<PyDict>() {
        true => "**fields".to_owned(),
        false => format!("{field}={}", as_list(&first)),
    };
    Err(PyTypeError::new_err(format!(
        "{function}() takes its fields by name: write {function}({example})"
    )))
}

/// The error for a maker of guards that is entered like a guard. `call` is its text, `guard` the
/// text of a guard of it.
pub fn not_called(call: &str, guard: &str) -> PyErr {
    PyTypeError::new_err(format!("{call} makes guards and is none: call it, `with {guard}:`"))
}

/// The error for a maker of guards that is called with an argument, as a decorator for example.
///
/// # Errors
/// `TypeError`, if there is an argument.
pub fn check_bare(
    call: &str,
    given: &Bound<'_, PyTuple>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let first = given.get_item(0);
    if first.is_err() && named.is_none_or(|named| named.is_empty()) {
        return Ok(());
    }
    let is_decorator = first.is_ok_and(|first| first.is_callable());
    Err(PyTypeError::new_err(match is_decorator {
        true => format!("{call} makes guards, and a guard decorates: write @{call}()"),
        false => format!("{call} makes guards and takes no arguments: `with {call}():`"),
    }))
}

/// The error for an attribute that a maker of guards does not have. If the guards have it, it says so.
pub fn no_attribute(
    maker: &Bound<'_, PyAny>,
    guards: &Bound<'_, PyType>,
    call: &str,
    name: &Bound<'_, PyString>,
) -> PyResult<Py<PyAny>> {
    let text = name.to_string_lossy();
    if !text.starts_with('_') && guards.has_attr(name)? {
        return Err(PyAttributeError::new_err(format!(
            "{call} makes guards, and the guard has {text}: write `with {call}() as guard:` and \
             guard.{text}"
        )));
    }
    // It raises the error of CPython.
    let plain = maker.py().get_type::<PyAny>();
    plain.invoke_method1("__getattribute__", (maker, name)).map(Bound::unbind)
}

/// Warns of an event that passes because nobody knows it.
///
/// # Errors
/// The warning, if the host makes warnings errors.
pub fn warn_of_event(name: &Bound<'_, PyString>) -> PyResult<()> {
    let own = name.to_str()?;
    if events::known(own).is_some() || is_of_others(own) {
        return Ok(());
    }
    let names: Vec<_> = EVENTS.iter().map(|known| known.name).collect();
    let text = near(name.py(), "event", (name, names))?;
    near(name.py(), "warn", (text,)).map(drop)
}

/// Returns whether it is named like an event of another package: by a module that does not exist in
/// Python.
fn is_of_others(event: &str) -> bool {
    let Some((module, _)) = event.split_once('.') else {
        return false;
    };
    let modules = EVENTS.iter().filter_map(|known| known.name.split_once('.'));
    modules.into_iter().all(|(known, _)| known != module)
}

/// Warns of roots and programs that do not exist. A sandbox warns of its own.
///
/// # Errors
/// The warning, if the host makes warnings errors.
pub fn warn_of_missing(py: Python<'_>, allowed: &Allowed) -> PyResult<()> {
    let told = allowed.stated.told.as_ref();
    let is_sandboxed = |words| matches!(words, Words::Sandbox | Words::SandboxOptions);
    if told.is_some_and(|told| is_sandboxed(told.words)) {
        return Ok(());
    }
    let argument = if told.is_some() { "write" } else { "oks" };
    let looked_for = match allowed.are_there {
        true => PyTuple::empty(py),
        false => allowed.stated.oks.bind(py).clone(),
    };
    for root in looked_for {
        let name = decode::root_name(&root)?;
        let is_of_lint = told.is_some() && name.contains(&b'*');
        let may_miss = name.as_slice() == b"." || is_of_lint;
        if !may_miss && !Os.exists(&name) && !is_to_be_made(&name, told.is_some()) {
            let text = format!("{argument}: there is no {}", errors::shown(&root));
            near(py, "warn", (text,))?;
        }
    }
    let Some(told) = told else {
        return Ok(());
    };
    for text in lint::stars(&told.spec) {
        near(py, "warn", (text,))?;
    }
    if let Choice::Named(names) = &told.spec.commands {
        for index in resolve::missing_programs(py, names)? {
            let text = format!("commands: there is no program {:?}", names[index]);
            near(py, "warn", (text,))?;
        }
    }
    Ok(())
}

/// Returns whether a root is likely to be made: hints and recordings name exact paths in a policy,
/// and files for `mk_audit` (`report.txt`), in an existing directory.
fn is_to_be_made(name: &[u8], of_policy: bool) -> bool {
    let (directory, last) = path::split(name);
    let has_suffix = last.iter().skip(1).any(|&byte| byte == b'.');
    (of_policy || has_suffix) && !last.contains(&b'*') && Os.is_dir(directory)
}
