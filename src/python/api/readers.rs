//! Readers of arguments: lists of paths, names and hosts, switches, sizes.

use crate::policy::written::fields::{Items, PACKAGES, name_of};
use crate::policy::written::toml_text::parse_size;
use crate::policy::written::values::{Choice, Where};
use crate::python::api::wrong_calls;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::values::decode;
use crate::python::values::errors::{self, as_list};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyString, PyTuple};

/// `None`, or an iterable of accepted values.
pub fn some(
    field: &str,
    given: &Bound<'_, PyAny>,
    accepted: &str,
    items: &Items,
) -> PyResult<Where> {
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
    texts(field, given, accepted, items).map(Where::Below)
}

pub fn choice(
    field: &str,
    given: &Bound<'_, PyAny>,
    accepted: &str,
    items: &Items,
) -> PyResult<Choice> {
    match given.cast::<PyBool>() {
        Ok(all) => Ok(Choice::All(all.is_true())),
        Err(_) => texts(field, given, accepted, items).map(Choice::Named),
    }
}

pub fn one_of<T: Copy>(
    field: &str,
    given: &Bound<'_, PyAny>,
    names: &[(&str, T)],
    or: &str,
) -> PyResult<T> {
    let text = given.cast::<PyString>().ok();
    if let Some(text) = text
        && let Some((_, named)) = names.iter().find(|(name, _)| *name == text.to_string_lossy())
    {
        return Ok(*named);
    }
    let accepted: Vec<_> = names.iter().map(|(name, _)| format!("{name:?}")).collect();
    let accepted = accepted.join(" or ").replace('"', "'");
    Err(match text {
        Some(_) => PyValueError::new_err(format!(
            "{field} must be {accepted}{or}, not {}",
            errors::shown(given)
        )),
        None => errors::wrong_type(field, &format!("{accepted}{or}"), given),
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
        Err(_) => texts(field, given, "'data' or an iterable of packages", &PACKAGES),
    }
}

/// Reads an iterable of paths or names; a single text is not one, as for `mk_audit`.
pub fn texts(
    field: &str,
    given: &Bound<'_, PyAny>,
    accepted: &str,
    items: &Items,
) -> PyResult<Vec<String>> {
    if given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.is_instance_of::<PyDict>()
        || given.has_attr("__fspath__")?
    {
        let list = as_list(given);
        return Err(errors::wrong_type_write(field, accepted, given, &list));
    }
    let given = given.iterate().map_err(|_| errors::wrong_type(field, accepted, given))?;
    let mut texts = Vec::new();
    for (index, item) in given.enumerate() {
        let item = item?;
        let path = decode::path_at(field, index, &item, items.one)?;
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

/// The arguments of a call, by their names.
#[derive(Default)]
pub struct GivenArguments<'py>(Vec<(&'static str, Bound<'py, PyAny>)>);

impl<'py> GivenArguments<'py> {
    /// Reads the arguments of a function that has these names, the first ones also by position.
    ///
    /// # Errors
    /// `TypeError`, which names the argument that the function does not have, or has twice.
    pub fn read(
        function: &str,
        names: &[&'static str],
        by_position: usize,
        given: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        if given.len() > by_position {
            return Err(PyTypeError::new_err(format!(
                "{function}() takes at most {by_position} positional arguments, and {} were given",
                given.len()
            )));
        }
        let mut all: Vec<_> = names.iter().copied().zip(given.iter()).collect();
        for (name, value) in named.into_iter().flatten() {
            let text = name.text()?;
            let Some(known) = names.iter().find(|known| **known == text.to_string_lossy()) else {
                return Err(wrong_calls::unknown(function, &name));
            };
            if all.iter().any(|(own, _)| own == known) {
                return Err(PyTypeError::new_err(format!(
                    "{function}() got multiple values for argument '{known}'"
                )));
            }
            all.push((known, value));
        }
        Ok(Self(all))
    }

    /// Returns an argument, `None` among others; nothing if it is left out.
    pub fn get(&self, name: &str) -> Option<&Bound<'py, PyAny>> {
        let mut all = self.0.iter();
        all.find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// The same for an argument whose default is `None`.
    pub fn some(&self, name: &str) -> Option<&Bound<'py, PyAny>> {
        self.get(name).filter(|value| !value.is_none())
    }

    /// Reads a switch.
    ///
    /// # Errors
    /// `TypeError` for a value that is not a `bool`.
    pub fn flag(&self, name: &str, default: bool) -> PyResult<bool> {
        self.get(name).map_or(Ok(default), |given| flag(name, given))
    }
}
