//! Readers of arguments: lists of paths, names and hosts, switches, sizes.

use crate::policy::written::spec::name_of;
use crate::policy::written::toml_text::parse_size;
use crate::policy::written::values::{Choice, Where};
use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;
use crate::python::values::decode;
use crate::python::values::errors;
use crate::python::values::suggestions::as_list;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyString, PyTuple};

const PLACES: &str = "None or an iterable of paths";
const PACKAGES: &str = "'data' or an iterable of packages";

pub fn from_places<'py>(py: Python<'py>, place: &Where) -> PyResult<Bound<'py, PyAny>> {
    match place {
        Where::Anywhere => Ok(py.None().into_bound(py)),
        Where::Below(paths) => Ok(PyTuple::new(py, paths)?.into_any()),
    }
}

pub fn from_choice<'py>(py: Python<'py>, choice: &Choice) -> PyResult<Bound<'py, PyAny>> {
    match choice {
        Choice::All(all) => Ok(PyBool::new(py, *all).to_owned().into_any()),
        Choice::Named(names) => Ok(PyTuple::new(py, names)?.into_any()),
    }
}

pub fn places(field: &str, given: &Bound<'_, PyAny>) -> PyResult<Where> {
    some(field, given, PLACES)
}

/// `None`, or an iterable of accepted values.
pub fn some(field: &str, given: &Bound<'_, PyAny>, accepted: &str) -> PyResult<Where> {
    if given.is_none() {
        return Ok(Where::Anywhere);
    }
    if let Ok(all) = given.cast::<PyBool>() {
        let instead = match all.is_true() {
            true => "None for all of them",
            false => "[] for none",
        };
        return Err(PyTypeError::new_err(format!(
            "{field} must be {accepted}, not bool: write {instead}"
        )));
    }
    texts(field, given, accepted).map(Where::Below)
}

pub fn choice(field: &str, given: &Bound<'_, PyAny>, accepted: &str) -> PyResult<Choice> {
    match given.cast::<PyBool>() {
        Ok(all) => Ok(Choice::All(all.is_true())),
        Err(_) => texts(field, given, accepted).map(Choice::Named),
    }
}

pub fn one_of<T: Copy>(
    field: &str,
    given: &Bound<'_, PyAny>,
    names: &[(&str, T)],
    or: &str,
) -> PyResult<T> {
    let shown = match given.cast::<PyString>() {
        Ok(text) => {
            let text = text.to_string_lossy();
            if let Some((_, named)) = names.iter().find(|(name, _)| *name == text) {
                return Ok(*named);
            }
            format!("{text:?}")
        }
        Err(_) => errors::type_name(given),
    };
    let accepted: Vec<_> = names.iter().map(|(name, _)| format!("{name:?}")).collect();
    let accepted = accepted.join(" or ").replace('"', "'");
    let message = format!("{field} must be {accepted}{or}, not {shown}");
    Err(if given.is_instance_of::<PyString>() {
        PyValueError::new_err(message)
    } else {
        PyTypeError::new_err(message)
    })
}

/// Reads one of two names, which stand for true and false.
pub fn switch(
    field: &str,
    given: &Bound<'_, PyAny>,
    names: &[(&'static str, bool)],
) -> PyResult<bool> {
    one_of(field, given, names, "").map_err(|error| match given.cast::<PyBool>() {
        Ok(flag) => PyTypeError::new_err(format!(
            "{}: write {field}='{}'",
            error.value(given.py()),
            name_of(names, &flag.is_true()).unwrap_or_default()
        )),
        Err(_) => error,
    })
}

pub fn size(field: &str, given: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    const ACCEPTED: &str = "None, a number of bytes from 0 or a size such as '10M'";
    if given.is_none() {
        return Ok(None);
    }
    let wrong = |given: &str| format!("{field} must be {ACCEPTED}, not {given}");
    if let Ok(text) = given.cast::<PyString>() {
        let text = text.to_string_lossy();
        let size = parse_size(&text);
        let size = size.ok_or_else(|| PyValueError::new_err(wrong(&format!("{text:?}"))))?;
        return Ok(Some(size));
    }
    if given.is_instance_of::<PyBool>() || !given.is_instance_of::<PyInt>() {
        return Err(PyTypeError::new_err(wrong(&errors::type_name(given))));
    }
    // A size beyond TOML's numbers is no limit that anything could reach.
    let size = raw::int_value(given).and_then(|size| u64::try_from(size).ok());
    size.map(Some)
        .ok_or_else(|| PyValueError::new_err(wrong(&given.to_string())))
}

/// Reads the names of packages; one name stands for itself.
pub fn packages(field: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    match given.cast::<PyString>() {
        Ok(name) => Ok(vec![name.to_string_lossy().into_owned()]),
        Err(_) => texts(field, given, PACKAGES),
    }
}

/// Reads an iterable of paths or names; a single text is not one, as for `mk_audit`.
pub fn texts(field: &str, given: &Bound<'_, PyAny>, accepted: &str) -> PyResult<Vec<String>> {
    let wrong = || {
        PyTypeError::new_err(format!(
            "{field} must be {accepted}, not {}",
            errors::type_name(given)
        ))
    };
    if given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.is_instance_of::<PyDict>()
        || given.hasattr("__fspath__")?
    {
        let list = as_list(given);
        return Err(PyTypeError::new_err(format!(
            "{}: write {list}",
            wrong().value(given.py())
        )));
    }
    let mut texts = Vec::new();
    for (index, item) in given.try_iter().map_err(|_| wrong())?.enumerate() {
        let item = item?;
        let path = calling::fs_path(&item).map_err(|_| {
            PyTypeError::new_err(format!(
                "{field}[{index}] must be str, bytes or os.PathLike, not {}",
                errors::type_name(&item)
            ))
        })?;
        let text = match path.cast::<PyString>() {
            Ok(text) => text.to_str().map(str::to_owned).ok(),
            Err(_) => String::from_utf8(decode::root_name(&path)?.to_vec()).ok(),
        };
        texts.push(text.ok_or_else(|| {
            PyValueError::new_err(format!("{field}[{index}] must be UTF-8 text, as TOML is"))
        })?);
    }
    Ok(texts)
}

/// Reads the argument `packages` of a function, if it is given.
///
/// # Errors
/// `TypeError` for a value that names no packages.
pub fn named_packages(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<String>>> {
    given.map(|given| packages("packages", given)).transpose()
}

/// An argument, or its default when the caller leaves it out (`None` is an argument).
pub enum OrDefault<'py> {
    Default,
    Given(Bound<'py, PyAny>),
}

impl<'py> OrDefault<'py> {
    /// The roots of `mk_audit`, which it needs. A wrong keyword is reported first.
    ///
    /// # Errors
    /// `TypeError`, as CPython words it.
    pub fn given(self) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Given(given) => Ok(given),
            Self::Default => Err(PyTypeError::new_err(
                "mk_audit() missing 1 required positional argument: 'oks'",
            )),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for OrDefault<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self::Given(object.to_owned()))
    }
}

/// Reads a switch.
///
/// # Errors
/// `TypeError` for a value that is not a `bool`.
pub fn read_bool(given: &OrDefault<'_>, argument: &str, default: bool) -> PyResult<bool> {
    let OrDefault::Given(given) = given else {
        return Ok(default);
    };
    given
        .cast::<PyBool>()
        .map(|value| value.is_true())
        .map_err(|_| errors::not_a_bool(argument, given))
}
