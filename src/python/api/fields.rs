//! The fields of a policy and of its rules for the network, from and to Python values; `Network`.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString, PyTuple};

use crate::policy::network::{NetworkRules, Ports};
use crate::policy::written::fields::{
    FIELDS, Field, FieldKind, IMPORTS, Items, MODULES, NETWORK, find, name_of, names,
};
use crate::policy::written::spec::{Imports, NetworkUse, OnViolation, Spec, UNJUDGED};
use crate::policy::written::values::{Choice, Where};
use crate::python::api::readers::{self, GivenArguments};
use crate::python::api::wrong_calls;
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::values::errors::{self, as_list, suggestion};

const NATIVE: &str = "True, False, 'unjudged' or an iterable of modules";
const IMPORTED: &str = "True, False, an iterable of modules or a dict of 'allow' and 'block'";

/// Sets a field, which messages name by `key`, but for `on_violation` if it is a function: the policy
/// does this itself.
///
/// # Errors
/// `TypeError` and `ValueError`, which name the field and what it accepts.
pub fn set<S>(into: &mut S, field: &Field<S>, key: &str, given: &Bound<'_, PyAny>) -> PyResult<()> {
    let iterable = |items: &Items| format!("an iterable of {}", items.many);
    match &field.kind {
        FieldKind::Places(at, items) => {
            *(at.get_mut)(into) =
                readers::some(key, given, &format!("None or {}", iterable(items)), items)?;
        }
        FieldKind::Names(at, items) => {
            *(at.get_mut)(into) = readers::texts(key, given, &iterable(items), items)?;
        }
        FieldKind::Choice(at, items) => {
            let accepted = format!("True, False or {}", iterable(items));
            *(at.get_mut)(into) = readers::choice(key, given, &accepted, items)?;
        }
        FieldKind::Switch(at, switch) => {
            let on = readers::switch(key, given, &switch.values())?;
            (at.get_mut)(into).set(*switch, on);
        }
        FieldKind::Flag(at) => *(at.get_mut)(into) = readers::flag(key, given)?,
        FieldKind::Bytes(at) => *(at.get_mut)(into) = readers::size(key, given)?,
        FieldKind::Count(at) => *(at.get_mut)(into) = count(key, given)?,
        FieldKind::Ports(at) => *(at.get_mut)(into) = ports(given)?,
        FieldKind::Packages(at) => *(at.get_mut)(into) = readers::packages(key, given)?,
        FieldKind::Native { set, .. } => set(
            into,
            match given.cast::<PyString>() {
                Ok(text) if text.to_string_lossy() == UNJUDGED => None,
                _ => Some(readers::choice(key, given, NATIVE, &MODULES)?),
            },
        ),
        FieldKind::OnViolation(at) => {
            *(at.get_mut)(into) =
                readers::one_of(key, given, &OnViolation::NAMED, " or a function")?;
        }
        FieldKind::Imports(at) => *(at.get_mut)(into) = imports(key, given)?,
        FieldKind::Network(at) => *(at.get_mut)(into) = network(key, given)?,
    }
    Ok(())
}

pub fn get<'py, S>(py: Python<'py>, of: &S, field: &Field<S>) -> PyResult<Bound<'py, PyAny>> {
    match &field.kind {
        FieldKind::Places(at, _) => match (at.get)(of) {
            Where::Anywhere => Ok(py.None().into_bound(py)),
            Where::Below(names) => Ok(PyTuple::new(py, names)?.into_any()),
        },
        FieldKind::Names(at, _) | FieldKind::Packages(at) => {
            Ok(PyTuple::new(py, (at.get)(of))?.into_any())
        }
        FieldKind::Choice(at, _) => from_choice(py, (at.get)(of)),
        FieldKind::Switch(at, switch) => {
            name_of(&switch.values(), &(at.get)(of).has(*switch)).into_bound_py_any(py)
        }
        FieldKind::Flag(at) => (at.get)(of).into_bound_py_any(py),
        FieldKind::Bytes(at) => (at.get)(of).into_bound_py_any(py),
        FieldKind::Count(at) => (at.get)(of).into_bound_py_any(py),
        FieldKind::Ports(at) => {
            let Some(ports) = (at.get)(of) else {
                return Ok(py.None().into_bound(py));
            };
            let ports = ports.iter().map(|ports| match ports.single() {
                Some(port) => port.into_bound_py_any(py),
                None => ports.to_string().into_bound_py_any(py),
            });
            Ok(PyTuple::new(py, ports.collect::<PyResult<Vec<_>>>()?)?.into_any())
        }
        FieldKind::Native { get, .. } => match get(of) {
            Some(native) => from_choice(py, native),
            None => UNJUDGED.into_bound_py_any(py),
        },
        FieldKind::OnViolation(at) => {
            name_of(&OnViolation::NAMED, (at.get)(of)).into_bound_py_any(py)
        }
        FieldKind::Imports(at) => match (at.get)(of) {
            imports if imports.block.is_empty() => from_choice(py, &imports.allow),
            imports => {
                let dict = PyDict::new(py);
                for field in &IMPORTS {
                    dict.set_item(field.name, get(py, imports, field)?)?;
                }
                Ok(dict.into_any())
            }
        },
        FieldKind::Network(at) => match (at.get)(of) {
            NetworkUse::All(all) => all.into_bound_py_any(py),
            NetworkUse::Rules(rules) => {
                let rules = (**rules).clone();
                PyNetwork { rules }.into_bound_py_any(py)
            }
        },
    }
}

fn from_choice<'py>(py: Python<'py>, choice: &Choice) -> PyResult<Bound<'py, PyAny>> {
    match choice {
        Choice::All(all) => all.into_bound_py_any(py),
        Choice::Named(names) => Ok(PyTuple::new(py, names)?.into_any()),
    }
}

fn imports(field: &str, given: &Bound<'_, PyAny>) -> PyResult<Imports> {
    let mut imports = Imports { allow: Choice::All(true), block: Vec::new() };
    let Ok(dict) = given.cast::<PyDict>() else {
        imports.allow = readers::choice(field, given, IMPORTED, &MODULES)?;
        return Ok(imports);
    };
    for (key, value) in dict {
        let key = key.text()?.to_string();
        let Some(field) = find(&IMPORTS, &key) else {
            let near = suggestion(given.py(), &key, &names(&IMPORTS));
            return Err(PyValueError::new_err(format!(
                "{field} has the unknown key {key:?}: the keys are 'allow', 'block'{near}"
            )));
        };
        set(&mut imports, field, &format!("imports['{key}']"), &value)?;
    }
    Ok(imports)
}

fn network(field: &str, given: &Bound<'_, PyAny>) -> PyResult<NetworkUse> {
    if let Ok(all) = given.cast::<PyBool>() {
        return Ok(NetworkUse::All(all.is_true()));
    }
    let given = match given.cast::<PyDict>() {
        Ok(fields) => {
            let class = given.py().get_type::<PyNetwork>();
            &calling::call(&class, &PyTuple::empty(given.py()), Some(fields))?
        }
        Err(_) => given,
    };
    match given.cast::<PyNetwork>() {
        Ok(network) => Ok(NetworkUse::Rules(Box::new(network.get().rules.clone()))),
        Err(_) => Err(PyTypeError::new_err(format!(
            "{field} must be True, False, a Network or a dict of its fields, not {}{}",
            errors::type_name(given),
            network_instead(given)
        ))),
    }
}

/// Returns the text to write instead of the value that was given for the network.
fn network_instead(given: &Bound<'_, PyAny>) -> String {
    let has_hosts = given.is_instance_of::<PyString>() || given.iterate().is_ok();
    match has_hosts {
        true => format!(": write Network(hosts={})", as_list(given)),
        false => String::new(),
    }
}

fn count(key: &str, given: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    match given.is_none() {
        true => Ok(None),
        false => readers::whole(key, given, "None or a whole number").map(Some),
    }
}

fn ports(given: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Ports>>> {
    if given.is_none() {
        return Ok(None);
    }
    const ACCEPTED: &str = "None or an iterable of ports";
    if given.is_instance_of::<PyString>() || given.is_instance_of::<PyInt>() {
        let list = as_list(given);
        return Err(errors::wrong_type_write("ports", ACCEPTED, given, &list));
    }
    let items = given.iterate().map_err(|_| errors::wrong_type("ports", ACCEPTED, given))?;
    let mut ports = Vec::new();
    for (index, item) in items.enumerate() {
        let item = item?;
        let read = match item.cast::<PyString>() {
            Ok(text) => Ports::parse(&text.to_string_lossy()),
            Err(_) => raw::int_value(&item)
                .filter(|_| !item.is_instance_of::<PyBool>())
                .and_then(|port| u16::try_from(port).ok())
                .map(Ports::one),
        };
        ports.push(read.ok_or_else(|| {
            PyValueError::new_err(format!(
                "ports[{index}] must be a port from 0 to 65535 or a range ('8000-8999'), not {}",
                errors::shown(&item)
            ))
        })?);
    }
    Ok(Some(ports))
}

/// Returns a policy in one line, with only the fields that differ from their defaults.
pub fn shown(py: Python<'_>, spec: &Spec, call: Option<&Py<PyAny>>) -> PyResult<String> {
    let usual = Spec::default();
    let mut fields = Vec::new();
    for field in &FIELDS {
        let value = match call {
            Some(call) if field.name == "on_violation" => call.bind(py).clone(),
            _ => get(py, spec, field)?,
        };
        if !value.equals(get(py, &usual, field)?)? {
            fields.push(format!("{}={}", field.name, value.shown()?));
        }
    }
    Ok(format!("Policy({})", fields.join(", ")))
}

/// Shows the policy or the roots of a guard, in one line.
pub fn shown_of(py: Python<'_>, config: &AuditCfg) -> PyResult<String> {
    match config.told() {
        Some(told) => shown(py, &told.spec, config.stated.violation_call.as_ref()),
        None => {
            let oks = config.oks(py);
            let oks = match oks.is_empty() && config.policy().may_write() {
                // The rules of 0.2 approve every path so.
                true => "None".to_owned(),
                false => oks.to_list().shown()?.to_string(),
            };
            Ok(config.call().replace("[...]", &oks))
        }
    }
}

#[doc = doc!("Network")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs", name = "Network")]
pub struct PyNetwork {
    pub rules: NetworkRules,
}

#[pymethods]
impl PyNetwork {
    #[new]
    #[pyo3(
        signature = (*given, **fields),
        text_signature = "(*, hosts=None, block=(), ports=None, listen=False, unix=(), lookup=True, max_connections=None, http=())"
    )]
    fn new(given: &Bound<'_, PyTuple>, fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        wrong_calls::check_fields("Network", "hosts", given)?;
        let given = GivenArguments::read("Network", &names(&NETWORK), 0, given, fields)?;
        let mut rules = NetworkRules::default();
        for field in &NETWORK {
            if let Some(value) = given.get(field.name) {
                set(&mut rules, field, field.name, value)?;
            }
        }
        rules.validate().map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { rules })
    }

    #[doc = doc!("Network.hosts")]
    #[getter]
    fn hosts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, "hosts")
    }

    #[doc = doc!("Network.block")]
    #[getter]
    fn block<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, "block")
    }

    #[doc = doc!("Network.ports")]
    #[getter]
    fn ports<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, "ports")
    }

    #[doc = doc!("Network.listen")]
    #[getter]
    fn listen<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, "listen")
    }

    #[doc = doc!("Network.unix")]
    #[getter]
    fn unix<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, "unix")
    }

    #[doc = doc!("Network.lookup")]
    #[getter]
    fn lookup<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, "lookup")
    }

    #[doc = doc!("Network.max_connections")]
    #[getter]
    fn max_connections<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, "max_connections")
    }

    #[doc = doc!("Network.http")]
    #[getter]
    fn http<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get(py, "http")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let fields = NETWORK.iter().map(|field| {
            let value = get(py, &self.rules, field)?;
            Ok(format!("{}={}", field.name, value.shown()?))
        });
        let fields = fields.collect::<PyResult<Vec<_>>>()?;
        Ok(format!("Network({})", fields.join(", ")))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Option<bool> {
        let other = other.cast::<Self>().ok()?;
        Some(self.rules == other.get().rules)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.rules.hash(&mut hasher);
        hasher.finish()
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let fields = PyDict::new(py);
        for field in &NETWORK {
            fields.set_item(field.name, get(py, &self.rules, field)?)?;
        }
        Ok((PyTuple::empty(py), fields))
    }
}

impl PyNetwork {
    fn get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        get(py, &self.rules, named(&NETWORK, name)?)
    }
}

/// The field of this name.
///
/// # Errors
/// `AttributeError` if there is none.
pub fn named<S>(fields: &'static [Field<S>], name: &str) -> PyResult<&'static Field<S>> {
    find(fields, name)
        .ok_or_else(|| PyAttributeError::new_err(format!("no field is named {name:?}")))
}
