//! The fields of a policy, from and to Python values.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple};

use crate::policy::written::spec::{
    FIELDS, Imports, NetworkUse, OnViolation, Spec, THREADS, UNJUDGED, UNKNOWN_EVENTS, name_of,
};
use crate::policy::written::values::Choice;
use crate::python::api::network_rules::Network;
use crate::python::api::readers::{
    choice, from_choice, from_places, one_of, packages, places, size, switch, texts,
};
use crate::python::cpython::calling::Calling;
use crate::python::guard::config::AuditCfg;
use crate::python::values::errors;
use crate::python::values::suggestions::{as_list, suggestion};

const PATHS: &str = "an iterable of paths";
const NAMES: &str = "True, False or an iterable of names";
const PROGRAMS: &str = "True, False or an iterable of programs";
const MODULES: &str = "an iterable of modules";
const NATIVE: &str = "True, False, 'unjudged' or an iterable of modules";
const SOME_MODULES: &str = "True, False or an iterable of modules";
const IMPORTS: &str = "True, False, an iterable of modules or a dict of 'allow' and 'block'";

/// Sets a field of a policy, except `on_violation` if it is a function: the policy does this
/// itself.
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
        "native" => spec.set_native(match given.cast::<PyString>() {
            Ok(text) if text.to_string_lossy() == UNJUDGED => None,
            _ => Some(choice(field, given, NATIVE)?),
        }),
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
        "native" => match spec.judged_native() {
            Some(native) => from_choice(py, native),
            None => Ok(PyString::new(py, UNJUDGED).into_any()),
        },
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

/// Returns a policy in one line, with only the fields that differ from their defaults.
pub fn shown(py: Python<'_>, spec: &Spec, call: Option<&Py<PyAny>>) -> PyResult<String> {
    let usual = Spec::default();
    let mut fields = Vec::new();
    for field in FIELDS {
        let value = match call {
            Some(call) if *field == "on_violation" => call.bind(py).clone(),
            _ => get(py, spec, field)?,
        };
        if !value.equals(get(py, &usual, field)?)? {
            fields.push(format!("{field}={}", value.shown()?));
        }
    }
    Ok(format!("Policy({})", fields.join(", ")))
}

/// Returns the text to write instead of the value that was given for the network.
fn network_instead(given: &Bound<'_, PyAny>) -> String {
    if given.is_instance_of::<PyDict>() {
        return ": write Network(**fields)".to_owned();
    }
    let has_hosts = given.is_instance_of::<PyString>() || given.iterate().is_ok();
    match has_hosts {
        true => format!(": write Network(hosts={})", as_list(given)),
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
        let key = key.text()?.to_string();
        match key.as_str() {
            "allow" => imports.allow = choice("imports['allow']", &value, SOME_MODULES)?,
            "block" => imports.block = texts("imports['block']", &value, MODULES)?,
            _ => {
                let near = suggestion(given.py(), &key, &["allow", "block"]);
                let stop = if near.is_empty() { "" } else { "." };
                return Err(PyValueError::new_err(format!(
                    "{field} has the unknown key {key:?}: the keys are 'allow', 'block'{stop}{near}"
                )));
            }
        }
    }
    Ok(imports)
}

/// Shows the policy or the roots of a guard, in one line.
pub fn shown_of(py: Python<'_>, config: &AuditCfg) -> PyResult<String> {
    match config.told() {
        Some(told) => shown(
            py,
            &told.spec,
            config.violation_call(py).map(Bound::unbind).as_ref(),
        ),
        None => {
            let oks = config.oks(py).to_list().shown()?;
            Ok(config.call().replace("[...]", &oks.to_string()))
        }
    }
}
