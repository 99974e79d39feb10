//! The fields of a policy, from and to Python values.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyString, PyTuple};

use super::network_rules::Network;
use super::{decode, errors, ffi as raw, wrong_calls};
use crate::policy::spec::{
    Choice, FIELDS, Imports, NetworkUse, OnViolation, Spec, THREADS, UNKNOWN_EVENTS, Where, name_of,
};
use crate::policy::toml_form::parse_size;

const PLACES: &str = "None or an iterable of paths";
const PATHS: &str = "an iterable of paths";
const NAMES: &str = "True, False or an iterable of names";
const PROGRAMS: &str = "True, False or an iterable of programs";
const MODULES: &str = "an iterable of modules";
const PACKAGES: &str = "'data' or an iterable of packages";
const SOME_MODULES: &str = "True, False or an iterable of modules";
const IMPORTS: &str = "True, False, an iterable of modules or a dict of 'allow' and 'block'";

/// Sets a field of a policy; `on_violation` is done by the policy itself where it is a function.
///
/// # Errors
/// `TypeError` and `ValueError`, which name the field and what it accepts.
pub fn set(spec: &mut Spec, field: &str, given: &Bound<'_, PyAny>) -> PyResult<()> {
    match field {
        "write" => spec.write = places(field, given)?,
        "read" => spec.read = places(field, given)?,
        "block" => spec.block = texts(field, given, PATHS)?,
        "protect" => spec.protect = choice(field, given, NAMES)?,
        "max_bytes" => spec.max_bytes = size(field, given)?,
        "commands" => spec.commands = choice(field, given, PROGRAMS)?,
        "env" => spec.env = choice(field, given, NAMES)?,
        "import_allow" => spec.import_allow = texts(field, given, MODULES)?,
        "threads" => spec.threads = switch(field, given, &THREADS)?,
        "unknown_events" => spec.unknown_events = switch(field, given, &UNKNOWN_EVENTS)?,
        "native" => spec.native = choice(field, given, SOME_MODULES)?,
        "on_violation" => {
            spec.on_violation = one_of(field, given, &OnViolation::NAMED, " or a function")?;
        }
        "imports" => spec.imports = imports(field, given)?,
        "packages" => spec.packages = packages(field, given)?,
        _ => {
            spec.network = match given.cast::<PyBool>() {
                Ok(all) => NetworkUse::All(all.is_true()),
                Err(_) => match given.cast::<Network>() {
                    Ok(network) => NetworkUse::Rules(Box::new(network.get().rules.clone())),
                    Err(_) => {
                        return Err(PyTypeError::new_err(format!(
                            "{field} must be True, False or a Network, not {}{}",
                            errors::type_name(given),
                            network_instead(given)
                        )));
                    }
                },
            }
        }
    }
    Ok(())
}

/// A field of a policy as a Python value.
pub fn get<'py>(py: Python<'py>, spec: &Spec, field: &str) -> PyResult<Bound<'py, PyAny>> {
    let bool = |value: bool| PyBool::new(py, value).to_owned().into_any();
    let name = |name: Option<&str>| Ok(name.into_pyobject(py)?.into_any());
    match field {
        "write" => from_places(py, &spec.write),
        "read" => from_places(py, &spec.read),
        "block" => Ok(PyTuple::new(py, &spec.block)?.into_any()),
        "protect" => from_choice(py, &spec.protect),
        "max_bytes" => Ok(spec.max_bytes.into_pyobject(py)?.into_any()),
        "commands" => from_choice(py, &spec.commands),
        "env" => from_choice(py, &spec.env),
        "import_allow" => Ok(PyTuple::new(py, &spec.import_allow)?.into_any()),
        "threads" => name(name_of(&THREADS, &spec.threads)),
        "unknown_events" => name(name_of(&UNKNOWN_EVENTS, &spec.unknown_events)),
        "native" => from_choice(py, &spec.native),
        "packages" => Ok(PyTuple::new(py, &spec.packages)?.into_any()),
        "on_violation" => name(name_of(&OnViolation::NAMED, &spec.on_violation)),
        "imports" if spec.imports.block.is_empty() => from_choice(py, &spec.imports.allow),
        "imports" => {
            let dict = PyDict::new(py);
            dict.set_item("allow", from_choice(py, &spec.imports.allow)?)?;
            dict.set_item("block", PyTuple::new(py, &spec.imports.block)?)?;
            Ok(dict.into_any())
        }
        _ => match &spec.network {
            NetworkUse::All(all) => Ok(bool(*all)),
            NetworkUse::Rules(rules) => {
                let rules = (**rules).clone();
                Ok(Bound::new(py, Network { rules })?.into_any())
            }
        },
    }
}

/// A policy in one line, with the fields alone that are not as always.
///
/// # Errors
/// What `repr()` of a value raises.
pub fn shown(py: Python<'_>, spec: &Spec, call: Option<&Py<PyAny>>) -> PyResult<String> {
    let usual = Spec::default();
    let mut fields = Vec::new();
    for field in FIELDS {
        let value = match call {
            Some(call) if *field == "on_violation" => call.bind(py).clone(),
            _ => get(py, spec, field)?,
        };
        if !value.eq(get(py, &usual, field)?)? {
            fields.push(format!("{field}={}", value.repr()?));
        }
    }
    Ok(format!("Policy({})", fields.join(", ")))
}

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

fn places(field: &str, given: &Bound<'_, PyAny>) -> PyResult<Where> {
    some(field, given, PLACES)
}

/// `None`, or an iterable of what is accepted.
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

fn one_of<T: Copy>(
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

/// One of two names, of which the policy notes whether something may be.
fn switch(field: &str, given: &Bound<'_, PyAny>, names: &[(&'static str, bool)]) -> PyResult<bool> {
    one_of(field, given, names, "").map_err(|error| match given.cast::<PyBool>() {
        Ok(flag) => PyTypeError::new_err(format!(
            "{}: write {field}='{}'",
            error.value(given.py()),
            name_of(names, &flag.is_true()).unwrap_or_default()
        )),
        Err(_) => error,
    })
}

fn size(field: &str, given: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
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
    // More than TOML can hold is no limit that anything could reach.
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

/// How what is given for the network is written.
fn network_instead(given: &Bound<'_, PyAny>) -> String {
    if given.is_instance_of::<PyDict>() {
        return ": write Network(**fields)".to_owned();
    }
    let has_hosts = given.is_instance_of::<PyString>() || given.try_iter().is_ok();
    match has_hosts {
        true => format!(": write Network(hosts={})", wrong_calls::as_list(given)),
        false => String::new(),
    }
}

fn imports(field: &str, given: &Bound<'_, PyAny>) -> PyResult<Imports> {
    let mut imports = Imports {
        allow: Choice::All(true),
        block: Vec::new(),
    };
    let Ok(dict) = given.cast::<PyDict>() else {
        imports.allow = choice(field, given, IMPORTS)?;
        return Ok(imports);
    };
    for (key, value) in dict {
        let key = key.str()?.to_string();
        match key.as_str() {
            "allow" => imports.allow = choice("imports['allow']", &value, SOME_MODULES)?,
            "block" => imports.block = texts("imports['block']", &value, MODULES)?,
            _ => {
                let near = wrong_calls::suggestion(given.py(), &key, &["allow", "block"]);
                let stop = if near.is_empty() { "" } else { "." };
                return Err(PyValueError::new_err(format!(
                    "{field} has the unknown key {key:?}: the keys are 'allow', 'block'{stop}{near}"
                )));
            }
        }
    }
    Ok(imports)
}

/// Reads an iterable of paths or names; one of them is none, as for `mk_audit`.
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
        let list = wrong_calls::as_list(given);
        return Err(PyTypeError::new_err(format!(
            "{}: write {list}",
            wrong().value(given.py())
        )));
    }
    let mut texts = Vec::new();
    for (index, item) in given.try_iter().map_err(|_| wrong())?.enumerate() {
        let item = item?;
        let path = raw::fs_path(&item).map_err(|_| {
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
