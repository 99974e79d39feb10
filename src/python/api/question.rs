//! The arguments `on_ask` and `ask_seconds`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::exceptions::{PyFileNotFoundError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use crate::policy::RuleSet;
use crate::policy::written::approved::{self, Kept};
use crate::policy::written::fields::{FIELDS, FieldKind};
use crate::policy::written::spec::Spec;
use crate::python::api::fields::{self, PyNetwork};
use crate::python::api::{policy, readers};
use crate::python::configuration::approvals::{self, Approvals};
use crate::python::configuration::callbacks;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::Once;
use crate::python::guard::{governing, scope};
use crate::python::values::errors;

/// Reads the arguments: whom to ask, and the answers in the file; `None` if nobody is to be asked.
///
/// # Errors
/// `TypeError` for a callback that cannot be asked, `ValueError` for a file that holds no answers.
pub fn read(
    py: Python<'_>,
    on_ask: Option<&Bound<'_, PyAny>>,
    seconds: Option<&Bound<'_, PyAny>>,
    rules: RuleSet,
) -> PyResult<Option<(Approvals, Kept)>> {
    let Some(on_ask) = on_ask else {
        return match seconds {
            None => Ok(None),
            Some(_) => {
                Err(PyTypeError::new_err("ask_seconds needs on_ask, a coroutine function to ask"))
            }
        };
    };
    let (on_ask, held) = match on_ask.is_exact_instance(up_to_class(py)?) {
        false => (on_ask.clone(), None),
        true => {
            let held = on_ask.attr("held")?;
            let held = held.cast::<policy::PyPolicy>()?.get().allowed(py)?;
            (on_ask.attr("ask")?, Some(Arc::new(held.policy)))
        }
    };
    let (ask, file, kept) = match on_ask.is_exact_instance(class(py)?) {
        false => (on_ask.clone(), None, Kept::default()),
        true => {
            // Guards write the file without asking another guard.
            if scope::may_be_guarded() && !scope::in_force(py)?.is_empty() {
                return Err(PyRuntimeError::new_err(
                    "on_ask is a file of approvals, which only code outside of guards may name",
                ));
            }
            let path: PathBuf = on_ask.attr("path")?.extract()?;
            let kept = read_kept(py, &path)?;
            governing::note(py, path.as_os_str().as_encoded_bytes())?;
            let ask = on_ask.attr("ask")?;
            let ask = match ask.is_none() {
                true => calling::import(py, "fastaudit_rs.approvals")?.attr("_nobody")?,
                false => ask,
            };
            (ask, Some(path), kept)
        }
    };
    let ask = match callbacks::is_async(&ask)? {
        true => {
            let waiting = calling::import(py, "fastaudit_rs._waiting")?.attr("Waiting")?;
            waiting.invoke1((&ask, seconds))?
        }
        false if seconds.is_some() => {
            return Err(PyTypeError::new_err(
                "ask_seconds needs an on_ask that is a coroutine function: a plain one cannot be \
                 left before it has answered",
            ));
        }
        false => ask,
    };
    let ask = callbacks::read(&ask, &callbacks::ON_ASK, rules)?;
    Ok(Some((Approvals::new(ask, file, held), kept)))
}

fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: Once<Py<PyType>> = Once::new();
    calling::class_of_package(py, &CLASS, "fastaudit_rs.approvals", "Approvals")
}

/// The class of callbacks whose answers the kernel bounds.
fn up_to_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: Once<Py<PyType>> = Once::new();
    calling::class_of_package(py, &CLASS, "fastaudit_rs.approvals", "_UpTo")
}

/// The answers in a file; without the file there are none.
///
/// # Errors
/// The error of opening the file; `ValueError`, which names the file, and the line or the field.
fn read_kept(py: Python<'_>, path: &Path) -> PyResult<Kept> {
    let file = match readers::open_text(py, path) {
        Ok(file) => file,
        Err(error) if error.is_instance_of::<PyFileNotFoundError>(py) => {
            return Ok(Kept::default());
        }
        Err(error) => return Err(error),
    };
    let text = readers::read_text(&file)?;
    approvals::parse(&text)
        .map_err(|problem| PyValueError::new_err(format!("{}: {problem}", path.display())))
}

/// The answers that `Policy.explain` is given: a file of answers, or its path.
///
/// # Errors
/// `TypeError` for anything else, and the errors of reading the file.
pub fn named(given: &Bound<'_, PyAny>) -> PyResult<(PathBuf, Kept)> {
    let py = given.py();
    let path = match given.is_exact_instance(class(py)?) {
        true => given.attr("path")?,
        false => given.clone(),
    };
    let path: PathBuf = path
        .extract()
        .map_err(|_| errors::wrong_type("approvals", "Approvals or the path of its file", given))?;
    let kept = read_kept(py, &path)?;
    Ok((path, kept))
}

#[doc = doc!("_merged_approvals")]
#[pyfunction(name = "_merged_approvals", signature = (text, more, never=false))]
pub fn merged_approvals(text: &str, more: &Bound<'_, PyDict>, never: bool) -> PyResult<String> {
    let wrong = PyValueError::new_err::<String>;
    let mut kept = approvals::parse(text).map_err(wrong)?;
    let mut added = Spec::default();
    for (field, value) in more {
        let field = fields::named(&FIELDS, field.cast::<PyString>()?.to_str()?)?;
        let value = match value.cast::<PyDict>() {
            Ok(rules) if matches!(field.kind, FieldKind::Network(_)) => {
                more.py().get_type::<PyNetwork>().invoke((), Some(rules))?
            }
            _ => value,
        };
        fields::set(&mut added, field, field.name, &value)?;
    }
    approved::check(&added).map_err(|error| wrong(error.to_string()))?;
    let into = match never {
        true => &mut kept.never,
        false => &mut kept.allowed,
    };
    approved::merge(into, &added);
    Ok(kept.to_toml())
}
