//! `Policy`: what code may do, as a Python object.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString, PyTuple};

use super::config::{Allowed, ApprovedRoots, read_oks};
use super::context::Active;
use super::event::Event;
use super::guard::AuditPerms;
use super::mk_audit::{GuardOptions, OrDefault};
use super::{command, config, decode, denied, errors, ffi as raw};
use crate::policy::fs::Os;
use crate::policy::path::{self, Base};
use crate::policy::places::PRESET;
use crate::policy::rules;
use crate::policy::spec::{Env, FIELDS, Programs, Protect, Spec, Where};
use crate::policy::{Blocked, Commands, Environment, Protected};

/// What code may do. Immutable.
#[pyclass(frozen, module = "fastaudit_rs")]
pub struct Policy {
    spec: Spec,
}

const PLACES: &str = "None or an iterable of paths";
const PATHS: &str = "an iterable of paths";
const NAMES: &str = "True, False or an iterable of names";
const PROGRAMS: &str = "True, False or an iterable of programs";

#[pymethods]
impl Policy {
    /// The names that are protected unless a policy says otherwise.
    #[classattr]
    const PROTECTED: [&'static str; PRESET.len()] = {
        let mut names = [""; PRESET.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = PRESET[index];
            index += 1;
        }
        names
    };

    #[new]
    #[pyo3(
        signature = (*, write=OrDefault::Default, read=OrDefault::Default, block=OrDefault::Default, protect=OrDefault::Default, env=OrDefault::Default, network=OrDefault::Default, commands=OrDefault::Default),
        text_signature = "(*, write=(), read=None, block=(), protect=True, env=False, network=True, commands=False)"
    )]
    fn new(
        write: OrDefault<'_>,
        read: OrDefault<'_>,
        block: OrDefault<'_>,
        protect: OrDefault<'_>,
        env: OrDefault<'_>,
        network: OrDefault<'_>,
        commands: OrDefault<'_>,
    ) -> PyResult<Self> {
        let mut spec = Spec::default();
        for (field, given) in FIELDS
            .iter()
            .zip([write, read, block, protect, env, network, commands])
        {
            if let OrDefault::Given(given) = given {
                set(&mut spec, field, &given)?;
            }
        }
        Self::checked(spec)
    }

    /// Where may be written: paths, or `None` for anywhere.
    #[getter]
    fn write<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        places(py, &self.spec.write)
    }

    /// Where may be read: paths, or `None` for anywhere.
    #[getter]
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        places(py, &self.spec.read)
    }

    /// What no root opens.
    #[getter]
    fn block<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.spec.block)
    }

    /// Which names are kept from writing inside the roots.
    #[getter]
    fn protect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.spec.protect {
            Protect::Preset(preset) => Ok(PyBool::new(py, *preset).to_owned().into_any()),
            Protect::Names(names) => Ok(PyTuple::new(py, names)?.into_any()),
        }
    }

    /// Which environment variables may be set.
    #[getter]
    fn env<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.spec.env {
            Env::Harmless(harmless) => Ok(PyBool::new(py, *harmless).to_owned().into_any()),
            Env::Names(names) => Ok(PyTuple::new(py, names)?.into_any()),
        }
    }

    /// Whether the network may be used.
    #[getter]
    fn network(&self) -> bool {
        self.spec.network
    }

    /// Which programs may be started.
    #[getter]
    fn commands<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.spec.commands {
            Programs::Any(any) => Ok(PyBool::new(py, *any).to_owned().into_any()),
            Programs::Named(names) => Ok(PyTuple::new(py, names)?.into_any()),
        }
    }

    /// The same policy with other values for some fields.
    #[pyo3(signature = (**changes))]
    fn replace(&self, changes: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut spec = self.spec.clone();
        for (field, value) in changes.into_iter().flatten() {
            let field = field.cast_into::<PyString>()?;
            let field = field.to_str()?;
            if !FIELDS.contains(&field) {
                return Err(PyTypeError::new_err(format!(
                    "a policy has no field {field:?}: the fields are {}",
                    FIELDS.join(", ")
                )));
            }
            set(&mut spec, field, &value)?;
        }
        Self::checked(spec)
    }

    /// Makes a guard factory, as `mk_audit` does.
    #[pyo3(
        signature = (before_deny=None, on_call=None, data=None, tool_id=OrDefault::Default, monitor_calls=OrDefault::Default, *, retire_sites=OrDefault::Default, on_denied=None),
        text_signature = "($self, before_deny=None, on_call=None, data=None, tool_id=3, monitor_calls=True, *, retire_sites=False, on_denied=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn guard<'py>(
        slf: &Bound<'py, Self>,
        before_deny: Option<Bound<'py, PyAny>>,
        on_call: Option<Bound<'py, PyAny>>,
        data: Option<Bound<'py, PyAny>>,
        tool_id: OrDefault<'py>,
        monitor_calls: OrDefault<'py>,
        retire_sites: OrDefault<'py>,
        on_denied: Option<Bound<'py, PyAny>>,
    ) -> PyResult<AuditPerms> {
        let options = GuardOptions {
            before_deny,
            on_call,
            data,
            tool_id,
            monitor_calls,
            retire_sites,
            on_denied,
        };
        options.make(slf.as_any(), || allowed(slf.py(), &slf.get().spec))
    }

    /// What would become of an event under a guard of this policy, without doing it.
    #[pyo3(signature = (event, /, *args))]
    fn explain<'py>(
        slf: &Bound<'py, Self>,
        event: &Bound<'py, PyString>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Explanation> {
        let py = slf.py();
        let name = std::ffi::CString::new(event.to_str()?)?;
        let Some(rule) = rules::lookup(name.as_bytes()) else {
            return Ok(Explanation { denied: None });
        };
        denied::prepare(py)?;
        let config = config::AuditCfg::plain(py, allowed(py, &slf.get().spec)?);
        let active = Active::detached();
        let event = Event {
            name: &name,
            args,
            active: &active,
            config: &config,
            reads_passed: false,
        };
        match event.check(rule) {
            Ok(()) => Ok(Explanation { denied: None }),
            Err(error) if denied::is_denial(&error, py) => Ok(Explanation {
                denied: Some(error.into_value(py).into_any()),
            }),
            Err(error) => Err(error),
        }
    }

    /// The policy as TOML, with all fields.
    fn to_toml(&self) -> String {
        self.spec.to_toml()
    }

    /// Reads a policy from a TOML file, or from `[tool.fastaudit]` in a `pyproject.toml`.
    #[staticmethod]
    fn from_toml(path: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = path.py();
        // Python's own `open`, so that a guard has its say.
        let options = PyDict::new(py);
        options.set_item("encoding", "utf-8")?;
        let file = py
            .import("io")?
            .getattr("open")?
            .call((path,), Some(&options))?;
        let text = file.call_method0("read");
        file.call_method0("close")?;
        let text: String = text?.extract()?;
        let shown = raw::fs_path(path)?;
        let name = shown.str()?.to_string();
        let in_pyproject = name.rsplit(['/', '\\']).next() == Some("pyproject.toml");
        Self::parse(&text, in_pyproject, &name)
    }

    /// Reads a policy from the text of a TOML file.
    #[staticmethod]
    fn parse_toml(text: &str) -> PyResult<Self> {
        Self::parse(text, false, "the policy")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut fields = Vec::new();
        for field in FIELDS {
            let value = self.field(py, field)?;
            fields.push(format!("{field}={}", value.repr()?));
        }
        Ok(format!("Policy({})", fields.join(", ")))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> Option<bool> {
        let other = other.cast::<Self>().ok()?;
        Some(self.spec == other.get().spec)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.spec.hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let parse = py.get_type::<Self>().getattr("parse_toml")?;
        let text = PyTuple::new(py, [slf.get().to_toml()])?;
        PyTuple::new(py, [parse, text.into_any()])
    }
}

/// What `Policy.explain` answers.
#[pyclass(frozen, module = "fastaudit_rs")]
pub struct Explanation {
    denied: Option<Py<PyAny>>,
}

#[pymethods]
impl Explanation {
    /// Whether the event would pass.
    #[getter]
    fn allowed(&self) -> bool {
        self.denied.is_none()
    }

    /// The denial that would be raised.
    #[getter]
    fn denied(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.denied.as_ref().map(|denied| denied.clone_ref(py))
    }

    /// The field of the policy that denies it.
    #[getter]
    fn rule<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let denied = self.denied.as_ref();
        denied
            .map(|denied| denied.bind(py).getattr("rule"))
            .transpose()
    }

    fn __str__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        match &self.denied {
            Some(denied) => denied.bind(py).str(),
            None => Ok(PyString::new(py, "allowed")),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(match &self.denied {
            Some(denied) => format!("<Explanation: {}>", denied.bind(py).repr()?),
            None => "<Explanation: allowed>".to_owned(),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.denied)
    }
}

impl Policy {
    fn checked(spec: Spec) -> PyResult<Self> {
        spec.validate()
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { spec })
    }

    fn parse(text: &str, in_pyproject: bool, source: &str) -> PyResult<Self> {
        let spec = Spec::from_toml(text, in_pyproject)
            .map_err(|error| PyValueError::new_err(format!("{source}: {error}")))?;
        Ok(Self { spec })
    }

    fn field<'py>(&self, py: Python<'py>, field: &str) -> PyResult<Bound<'py, PyAny>> {
        match field {
            "write" => Ok(self.write(py)?.into_pyobject(py)?.into_any()),
            "read" => Ok(self.read(py)?.into_pyobject(py)?.into_any()),
            "block" => Ok(self.block(py)?.into_any()),
            "protect" => self.protect(py),
            "env" => self.env(py),
            "commands" => self.commands(py),
            _ => Ok(PyBool::new(py, self.spec.network).to_owned().into_any()),
        }
    }
}

fn places<'py>(py: Python<'py>, place: &Where) -> PyResult<Option<Bound<'py, PyTuple>>> {
    match place {
        Where::Anywhere => Ok(None),
        Where::Below(paths) => PyTuple::new(py, paths).map(Some),
    }
}

/// Sets a field from a Python value.
fn set(spec: &mut Spec, field: &str, given: &Bound<'_, PyAny>) -> PyResult<()> {
    let place = || {
        if given.is_none() {
            return Ok(Where::Anywhere);
        }
        read_paths(field, given, PLACES).map(Where::Below)
    };
    match field {
        "write" => spec.write = place()?,
        "read" => spec.read = place()?,
        "block" => spec.block = read_paths(field, given, PATHS)?,
        "env" => {
            spec.env = match given.cast::<PyBool>() {
                Ok(harmless) => Env::Harmless(harmless.is_true()),
                Err(_) => Env::Names(read_paths(field, given, NAMES)?),
            }
        }
        "commands" => {
            spec.commands = match given.cast::<PyBool>() {
                Ok(any) => Programs::Any(any.is_true()),
                Err(_) => Programs::Named(read_paths(field, given, PROGRAMS)?),
            }
        }
        "network" => {
            let network = given.cast::<PyBool>();
            spec.network = network
                .map_err(|_| errors::not_a_bool(field, given))?
                .is_true();
        }
        _ => {
            spec.protect = match given.cast::<PyBool>() {
                Ok(preset) => Protect::Preset(preset.is_true()),
                Err(_) => Protect::Names(read_paths(field, given, NAMES)?),
            }
        }
    }
    Ok(())
}

/// Reads an iterable of paths; one path is none, as for `mk_audit`.
fn read_paths(field: &str, given: &Bound<'_, PyAny>, accepted: &str) -> PyResult<Vec<String>> {
    let wrong = || {
        PyTypeError::new_err(format!(
            "{field} must be {accepted}, not {}",
            errors::type_name(given)
        ))
    };
    if given.is_instance_of::<PyString>()
        || given.is_instance_of::<PyBytes>()
        || given.hasattr("__fspath__")?
    {
        return Err(wrong());
    }
    let mut paths = Vec::new();
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
        paths.push(text.ok_or_else(|| {
            PyValueError::new_err(format!("{field}[{index}] must be UTF-8 text, as TOML is"))
        })?);
    }
    Ok(paths)
}

/// What a guard of the policy allows.
fn allowed(py: Python<'_>, spec: &Spec) -> PyResult<Allowed> {
    let write = match &spec.write {
        Where::Anywhere => roots(py, &["/".to_owned()])?,
        Where::Below(paths) => roots(py, paths)?,
    };
    let (read, readable) = match &spec.read {
        Where::Anywhere => (None, None),
        Where::Below(paths) => {
            // Imports read what is put behind the policy's own.
            let mut all = paths.clone();
            all.extend(library_paths(py)?);
            let all = roots(py, &all)?;
            let own = all.names.bind(py).get_slice(0, paths.len());
            (Some(all.roots), Some(own.unbind()))
        }
    };
    let mut blocked = Blocked::default();
    for (index, path) in spec.block.iter().enumerate() {
        let expanded = expand(py, path)?;
        let name = decode::root_name(expanded.as_any())?;
        let resolved = path::resolve(&Os, &name, Base::CurrentDir).ok_or_else(|| {
            PyValueError::new_err(format!("block[{index}] cannot be resolved: {path:?}"))
        })?;
        blocked.add(&resolved);
    }
    let mut protected = Protected::default();
    for name in spec.protect.names() {
        protected.add(name);
    }
    Ok(Allowed {
        policy: crate::policy::Policy::new(write.roots)
            .reading(read)
            .without(blocked, protected)
            .setting(match &spec.env {
                Env::Harmless(false) => Environment::Fixed,
                Env::Harmless(true) => Environment::Harmless,
                Env::Names(names) => Environment::Only(names.clone()),
            })
            .offline(!spec.network)
            .starting(match &spec.commands {
                Programs::Any(false) => Commands::None,
                Programs::Any(true) => Commands::All,
                Programs::Named(names) => {
                    let names = names.iter().map(|name| expand(py, name));
                    let names = names.collect::<PyResult<Vec<_>>>()?;
                    let names = names.iter().map(|name| decode::root_name(name.as_any()));
                    let names = names.collect::<PyResult<Vec<_>>>()?;
                    Commands::named(
                        &Os,
                        names.iter().map(|name| &name[..]),
                        &command::own_path(),
                    )
                }
            }),
        oks: write.names,
        readable,
        is_of_policy: true,
    })
}

fn roots(py: Python<'_>, paths: &[String]) -> PyResult<ApprovedRoots> {
    let expanded = paths.iter().map(|path| expand(py, path));
    let expanded = PyList::new(py, expanded.collect::<PyResult<Vec<_>>>()?)?;
    read_oks(expanded.as_any())
}

/// The path with `~` and `~user` in it expanded.
fn expand<'py>(py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyString>> {
    if !path.starts_with('~') {
        return Ok(PyString::new(py, path));
    }
    let expanded = py.import("os.path")?.call_method1("expanduser", (path,))?;
    Ok(expanded.cast_into()?)
}

/// The directories that modules are imported from: the standard library and installed packages.
fn library_paths(py: Python<'_>) -> PyResult<Vec<String>> {
    let paths = py.import("sysconfig")?.call_method0("get_paths")?;
    ["stdlib", "platstdlib", "purelib", "platlib"]
        .into_iter()
        .map(|name| paths.get_item(name)?.extract())
        .collect()
}
