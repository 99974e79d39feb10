//! Readers of arguments: lists of paths, names and hosts, switches, sizes.

use crate::policy::written::fields::name_of;
use crate::policy::written::toml_text::parse_size;
use crate::policy::written::values::{Choice, Where};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::values::decode;
use crate::python::values::errors::{self, as_list};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyString};

const PACKAGES: &str = "'data' or an iterable of packages";

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
        return Err(errors::wrong_type_write(field, accepted, given, instead));
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
    let Ok(text) = given.cast::<PyString>() else {
        // A size beyond TOML's numbers is no limit that anything could reach.
        return whole(field, given, ACCEPTED).map(Some);
    };
    let text = text.to_string_lossy();
    let size = parse_size(&text).ok_or_else(|| {
        PyValueError::new_err(format!("{field} must be {ACCEPTED}, not {text:?}"))
    })?;
    Ok(Some(size))
}

/// Reads a whole number that the type holds.
///
/// # Errors
/// `TypeError` for another object, `ValueError` for another number.
pub fn whole<T: TryFrom<i64>>(
    argument: &str,
    given: &Bound<'_, PyAny>,
    accepted: &str,
) -> PyResult<T> {
    if given.is_instance_of::<PyBool>() || !given.is_instance_of::<PyInt>() {
        return Err(errors::wrong_type(argument, accepted, given));
    }
    let number = raw::int_value(given).and_then(|number| T::try_from(number).ok());
    number
        .ok_or_else(|| PyValueError::new_err(format!("{argument} must be {accepted}, not {given}")))
}

/// Reads `True` or `False`.
///
/// # Errors
/// `TypeError` for another object.
pub fn flag(argument: &str, given: &Bound<'_, PyAny>) -> PyResult<bool> {
    let flag = given.cast::<PyBool>().map(|value| value.is_true());
    flag.map_err(|_| {
        let given = errors::shown(given);
        PyTypeError::new_err(format!("{argument} must be True or False, not {given}"))
    })
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
    if given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.is_instance_of::<PyDict>()
        || given.has_attr("__fspath__")?
    {
        let list = as_list(given);
        return Err(errors::wrong_type_write(field, accepted, given, &list));
    }
    let items = given.iterate().map_err(|_| errors::wrong_type(field, accepted, given))?;
    let mut texts = Vec::new();
    for (index, item) in items.enumerate() {
        let item = item?;
        let path = calling::fs_path(&item).map_err(|_| {
            let argument = format!("{field}[{index}]");
            errors::wrong_type(&argument, "str, bytes or os.PathLike", &item)
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

/// Opens a file of text by Python's own `open`, so that a guard judges it.
pub fn open_text<'py>(
    py: Python<'py>,
    path: impl IntoPyObject<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(py);
    options.set_item("encoding", "utf-8")?;
    let open = calling::import(py, "io")?.attr("open")?;
    open.invoke((path,), Some(&options))
}

/// Reads such a file to its end, and closes it.
pub fn read_text(file: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = file.invoke_method0("read");
    file.invoke_method0("close")?;
    text?.extract()
}

/// Reads the argument `packages` of a function, if it is given.
///
/// # Errors
/// `TypeError` for a value that names no packages.
pub fn named_packages(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<String>>> {
    given.map(|given| packages("packages", given)).transpose()
}

/// An argument, or its default when the caller leaves it out (`None` is an argument).
#[derive(Default)]
pub enum OrDefault<'py> {
    #[default]
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
    flag(argument, given)
}
