//! `Network`: the rules of a policy for the network, as a Python object.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString, PyTuple};

use crate::policy::network::{NetworkRules, Ports};
use crate::python::api::readers;
use crate::python::api::readers::OrDefault;
use crate::python::api::wrong_calls;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::values::errors;
use crate::python::values::suggestions::as_list;

#[doc = doc!("Network")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs")]
pub struct Network {
    pub rules: NetworkRules,
}

const HOSTS: &str = "None or an iterable of hosts";

#[pymethods]
impl Network {
    #[new]
    #[pyo3(
        signature = (*given, hosts=OrDefault::Default, block=OrDefault::Default, ports=OrDefault::Default, listen=OrDefault::Default, unix=OrDefault::Default, lookup=OrDefault::Default, max_connections=OrDefault::Default, **named),
        text_signature = "(*, hosts=None, block=(), ports=None, listen=False, unix=(), lookup=True, max_connections=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn new(
        given: &Bound<'_, PyTuple>,
        hosts: OrDefault<'_>,
        block: OrDefault<'_>,
        ports: OrDefault<'_>,
        listen: OrDefault<'_>,
        unix: OrDefault<'_>,
        lookup: OrDefault<'_>,
        max_connections: OrDefault<'_>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        wrong_calls::check_fields("Network", "hosts", given)?;
        wrong_calls::check_named("Network", named)?;
        let mut rules = NetworkRules::default();
        let given = [hosts, block, ports, listen, unix, lookup, max_connections];
        for (key, given) in NetworkRules::KEYS.iter().zip(given) {
            if let OrDefault::Given(given) = given {
                set(&mut rules, key, &given)?;
            }
        }
        rules
            .validate()
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
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
    fn lookup(&self) -> bool {
        self.rules.lookup
    }

    #[doc = doc!("Network.max_connections")]
    #[getter]
    fn max_connections(&self) -> Option<u32> {
        self.rules.max_connections
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let fields = NetworkRules::KEYS.iter().map(|key| {
            let value = self.get(py, key)?;
            Ok(format!("{key}={}", value.shown()?))
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
        for key in NetworkRules::KEYS {
            fields.set_item(key, self.get(py, key)?)?;
        }
        Ok((PyTuple::empty(py), fields))
    }
}

impl Network {
    fn get<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        let rules = &self.rules;
        match key {
            "hosts" => readers::from_places(py, &rules.hosts),
            "block" => Ok(PyTuple::new(py, &rules.block)?.into_any()),
            "ports" => match &rules.ports {
                None => Ok(py.None().into_bound(py)),
                Some(ports) => {
                    let ports = ports.iter().map(|ports| match ports.single() {
                        Some(port) => Ok(port.into_pyobject(py)?.into_any()),
                        None => Ok(PyString::new(py, &ports.to_string()).into_any()),
                    });
                    let ports = ports.collect::<PyResult<Vec<_>>>()?;
                    Ok(PyTuple::new(py, ports)?.into_any())
                }
            },
            "listen" => readers::from_choice(py, &rules.listen),
            "unix" => readers::from_places(py, &rules.unix),
            "lookup" => Ok(PyBool::new(py, rules.lookup).to_owned().into_any()),
            _ => Ok(rules.max_connections.into_pyobject(py)?.into_any()),
        }
    }
}

fn set(rules: &mut NetworkRules, key: &str, given: &Bound<'_, PyAny>) -> PyResult<()> {
    match key {
        "hosts" => rules.hosts = readers::some(key, given, HOSTS)?,
        "block" => rules.block = readers::texts(key, given, "an iterable of hosts")?,
        "ports" => rules.ports = ports(given)?,
        "listen" => {
            rules.listen = readers::choice(key, given, "True, False or an iterable of hosts")?;
        }
        "unix" => rules.unix = readers::some(key, given, "None or an iterable of paths")?,
        "lookup" => rules.lookup = readers::flag(key, given)?,
        _ => rules.max_connections = count(key, given)?,
    }
    Ok(())
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
    let items = given
        .iterate()
        .map_err(|_| errors::wrong_type("ports", ACCEPTED, given))?;
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
