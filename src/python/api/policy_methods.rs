//! The methods of a `Policy` that Python sees.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::policy::RuleSet;
use crate::policy::files::os::Os;
use crate::policy::files::places::PRESET;
use crate::policy::network::{Destination, Part, Reach};
use crate::policy::written::fields::{FIELDS, names};
use crate::policy::written::spec::OnViolation;
use crate::policy::written::spec::PRESETS;
use crate::policy::written::wording::{HintStyle, Words};
use crate::python::api::guard::AuditPerms;
use crate::python::api::options::{self, BY_POSITION, OPTIONS};
use crate::python::api::policy::PyPolicy;
use crate::python::api::readers::GivenArguments;
use crate::python::api::recording::Observer;
use crate::python::api::{audit_log, fields, installed, question, tool, wrong_calls};
use crate::python::configuration::resolve;
use crate::python::cpython::calling::{self, Calling};
use crate::python::events::explain::Explanation;
use crate::python::guard::scope;
use crate::python::logs::log::Records;
use crate::python::values::errors::{self, suggestion};

#[pymethods]
impl PyPolicy {
    #[classattr]
    #[pyo3(name = "PROTECTED")]
    fn protected() -> &'static [&'static str] {
        PRESET
    }

    #[classattr]
    #[pyo3(name = "PRESETS")]
    fn presets() -> Vec<&'static str> {
        PRESETS.iter().map(|(name, _)| *name).collect()
    }

    #[new]
    #[pyo3(
        signature = (*given, **fields),
        text_signature = "(*, write=(), read=None, block=(), protect=True, max_bytes=None, commands=False, env=False, import_allow=(), threads='deny', unknown_events='allow', native=False, on_violation='raise', imports=True, network=True, packages=())"
    )]
    fn new(given: &Bound<'_, PyTuple>, fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        wrong_calls::check_fields("Policy", "write", given)?;
        let given = GivenArguments::read("Policy", &names(&FIELDS), 0, given, fields)?;
        let mut policy = Self::default();
        for field in &FIELDS {
            if let Some(value) = given.get(field.name) {
                policy.set(field, value)?;
            }
        }
        policy.checked()
    }

    #[doc = doc!("Policy.write")]
    #[getter]
    fn write<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "write")
    }

    #[doc = doc!("Policy.read")]
    #[getter]
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "read")
    }

    #[doc = doc!("Policy.block")]
    #[getter]
    fn block<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "block")
    }

    #[doc = doc!("Policy.protect")]
    #[getter]
    fn protect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "protect")
    }

    #[doc = doc!("Policy.max_bytes")]
    #[getter]
    fn max_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "max_bytes")
    }

    #[doc = doc!("Policy.commands")]
    #[getter]
    fn commands<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "commands")
    }

    #[doc = doc!("Policy.env")]
    #[getter]
    fn env<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "env")
    }

    #[doc = doc!("Policy.import_allow")]
    #[getter]
    fn import_allow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "import_allow")
    }

    #[doc = doc!("Policy.threads")]
    #[getter]
    fn threads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "threads")
    }

    #[doc = doc!("Policy.unknown_events")]
    #[getter]
    fn unknown_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "unknown_events")
    }

    #[doc = doc!("Policy.native")]
    #[getter]
    fn native<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "native")
    }

    #[doc = doc!("Policy.on_violation")]
    #[getter]
    fn on_violation<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "on_violation")
    }

    #[doc = doc!("Policy.imports")]
    #[getter]
    fn imports<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "imports")
    }

    #[doc = doc!("Policy.network")]
    #[getter]
    fn network<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "network")
    }

    #[doc = doc!("Policy.packages")]
    #[getter]
    fn packages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.field(py, "packages")
    }

    #[doc = doc!("Policy.replace")]
    #[pyo3(signature = (*given, **changes), text_signature = "($self, **changes)")]
    fn replace(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyTuple>,
        changes: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        wrong_calls::check_fields("policy.replace", "write", given)?;
        let mut policy = self.told(py, None);
        for (field, value) in changes.into_iter().flatten() {
            let field = field.cast_into::<PyString>()?;
            let field = field.to_str()?;
            let Ok(field) = fields::named(&FIELDS, field) else {
                let names = names(&FIELDS);
                return Err(PyTypeError::new_err(format!(
                    "a policy has no field {field:?}: the fields are {}{}",
                    names.join(", "),
                    suggestion(py, field, &names),
                )));
            };
            policy.set(field, &value)?;
        }
        policy.checked()
    }

    #[doc = doc!("Policy.guard")]
    #[pyo3(
        signature = (*given, **named),
        text_signature = "($self, before_deny=None, on_call=None, data=None, tool_id=3, monitor_calls=True, *, calls=None, retire_sites=False, on_denied=None, on_ask=None, ask_seconds=None, log=None)"
    )]
    fn guard<'py>(
        slf: &Bound<'py, Self>,
        given: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<AuditPerms> {
        let options = GivenArguments::read("Policy.guard", &OPTIONS, BY_POSITION, given, named)?;
        options::of_policy(&options, slf).map(AuditPerms::new)
    }

    #[doc = doc!("Policy.observe")]
    #[pyo3(
        signature = (*given, **named),
        text_signature = "($self, before_deny=None, on_call=None, data=None, tool_id=3, monitor_calls=True, *, calls=None, on_denied=None, enforce=False, log=None)"
    )]
    fn observe<'py>(
        slf: &Bound<'py, Self>,
        given: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Observer> {
        let names = [&OPTIONS[..BY_POSITION], &["calls", "on_denied", "enforce", "log"]].concat();
        let options = GivenArguments::read("Policy.observe", &names, BY_POSITION, given, named)?;
        let py = slf.py();
        let enforces = options.flag("enforce", false)?;
        let config = options::configure(&options, RuleSet::Classic, slf.as_any(), || {
            let log = options.some("log").map(|path| {
                let file = audit_log::open_path(path, "log", "None, str, bytes or os.PathLike")?;
                PyResult::Ok(Arc::new(Mutex::new(file)))
            });
            let log = log.transpose()?;
            let mut allowed = slf.get().allowed(py)?;
            allowed.records = Some(Records { enforces, log });
            allowed.stated.on_violation = OnViolation::Raise;
            Ok(allowed)
        })?;
        Ok(Observer::new(Py::new(py, AuditPerms::new(config))?, slf.clone().unbind()))
    }

    #[doc = doc!("Policy.install")]
    #[pyo3(
        signature = (*given, **named),
        text_signature = "($self, before_deny=None, on_call=None, data=None, tool_id=3, monitor_calls=True, *, calls=None, on_denied=None, on_ask=None, ask_seconds=None, log=None)"
    )]
    fn install<'py>(
        slf: &Bound<'py, Self>,
        given: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        let [names @ .., _retire_sites] = &OPTIONS;
        let options = GivenArguments::read("Policy.install", names, BY_POSITION, given, named)?;
        let py = slf.py();
        if let Some(before) = installed::installed_policy(py) {
            installed::check_stricter(py, slf.get(), before.get())?;
        }
        let config = options::of_policy(&options, slf)?;
        scope::install_for_good(py, config, slf.clone().into_any().unbind())
    }

    #[doc = doc!("Policy.call")]
    #[pyo3(signature = (function, /, *args, **kwargs))]
    fn call<'py>(
        slf: &Bound<'py, Self>,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let confined = calling::import(slf.py(), "fastaudit_rs.confined")?;
        confined.invoke_method1("call", (slf, function, args, kwargs))
    }

    #[doc = doc!("Policy.tool")]
    #[pyo3(
        signature = (function=None, /, **options),
        text_signature = "($self, function=None, /, *, name=None, policy=None, raw=False)"
    )]
    fn tool<'py>(
        slf: &Bound<'py, Self>,
        function: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        tool::tool(slf.as_any(), function, options)
    }

    #[doc = doc!("Policy.session")]
    #[pyo3(signature = (**options), text_signature = "($self, *, tools=None, directory=None, timeout=None, output='10M', snapshots=8, tool_calls=1000, monitor_calls=True, **options)")]
    fn session<'py>(
        slf: &Bound<'py, Self>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let here = calling::import(slf.py(), "fastaudit_rs.sessions.here")?;
        here.invoke_method("HereSession", (slf,), options)
    }

    #[doc = doc!("Policy.worker_plugin")]
    fn worker_plugin<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let dask = calling::import(slf.py(), "fastaudit_rs.dask")?;
        dask.invoke_method1("GuardPlugin", (slf,))
    }

    #[doc = doc!("Policy.explain")]
    #[pyo3(signature = (event, /, *args, approvals=None))]
    fn explain<'py>(
        slf: &Bound<'py, Self>,
        event: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        approvals: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Explanation> {
        let event = event.cast::<PyString>().map_err(|_| {
            errors::wrong_type("event", "the name of an audit event ('open')", event)
        })?;
        let allowed = slf.get().allowed(slf.py())?;
        let approvals = approvals.as_ref().map(question::named).transpose()?;
        let explanation = Explanation::of(allowed, event, args, approvals)?;
        if explanation.allowed() {
            wrong_calls::warn_of_event(event)?;
        }
        Ok(explanation)
    }

    #[doc = doc!("Policy._name_rule")]
    #[pyo3(name = "_name_rule", signature = (name, port, /))]
    fn name_rule(&self, py: Python<'_>, name: &str, port: u16) -> PyResult<Option<&'static str>> {
        let (to, names) = (Destination::Name(name), &[][..]);
        let reach = Reach::Connect { to, names, port };
        let denied = self.allowed(py)?.policy.network().denies(&Os, reach);
        Ok(denied.map(Part::name))
    }

    #[doc = doc!("Policy._holds_requests")]
    #[pyo3(name = "_holds_requests", signature = (host, port, /))]
    fn holds_requests(&self, py: Python<'_>, host: &str, port: u16) -> PyResult<bool> {
        let allowed = self.allowed(py)?;
        let rules = allowed.policy.network().rules();
        Ok(rules.is_some_and(|rules| rules.holds_requests(&Destination::of(host), port)))
    }

    #[doc = doc!("Policy._request")]
    #[pyo3(name = "_request", signature = (host, port, method, path, /))]
    fn request(
        &self,
        py: Python<'_>,
        host: &str,
        port: u16,
        method: &str,
        path: &str,
    ) -> PyResult<Option<String>> {
        let allowed = self.allowed(py)?;
        let rules = allowed.policy.network().rules();
        let to = Destination::of(host);
        Ok(rules.and_then(|rules| rules.request(&to, port, method, path)))
    }

    #[doc = doc!("Policy.to_toml")]
    fn to_toml(&self) -> PyResult<String> {
        self.spec.to_toml().ok_or_else(|| {
            PyValueError::new_err("on_violation is a function, which TOML cannot hold")
        })
    }

    #[doc = doc!("Policy.preset")]
    #[staticmethod]
    fn preset(py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name = &str_of("name", name)?;
        let found = PRESETS.iter().find(|(own, _)| *own == name);
        let Some((_, text)) = found else {
            let names = Self::presets();
            return Err(PyValueError::new_err(format!(
                "name must be one of {}, not {name:?}{}",
                names.join(", "),
                suggestion(py, name, &names),
            )));
        };
        let preset = Self::parse(py, text, false, name)?;
        Ok(Self { told: None, ..preset })
    }

    #[doc = doc!("Policy._told_in")]
    #[pyo3(name = "_told_in", signature = (words, written=None, line="", unnamed=Vec::new()))]
    fn told_in(
        &self,
        py: Python<'_>,
        words: &str,
        written: Option<&Bound<'_, Self>>,
        line: &str,
        unnamed: Vec<String>,
    ) -> PyResult<Self> {
        let words = Words::named(words)
            .ok_or_else(|| PyValueError::new_err(format!("there are no words {words:?}")))?;
        let told = HintStyle {
            words,
            line: line.to_owned(),
            spec: written.map_or_else(|| self.spec.clone(), |policy| policy.get().spec.clone()),
            unnamed,
        };
        Ok(self.told(py, Some(Arc::new(told))))
    }

    #[doc = doc!("Policy._begun_in")]
    #[pyo3(name = "_begun_in")]
    fn begun_in_directory(&self, py: Python<'_>, directory: &str) -> Self {
        self.begun_in(py, directory)
    }

    #[doc = doc!("Policy._shown")]
    #[pyo3(name = "_shown")]
    pub fn shown(&self, py: Python<'_>) -> PyResult<String> {
        fields::shown(py, &self.spec, self.on_violation.as_ref())
    }

    #[doc = doc!("Policy._warn_of_missing")]
    fn _warn_of_missing(&self, py: Python<'_>) -> PyResult<()> {
        wrong_calls::warn_of_missing(py, &self.allowed(py)?)
    }

    #[doc = doc!("Policy.lint")]
    fn lint(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        resolve::lint(py, &self.spec)
    }

    #[doc = doc!("Policy.from_toml")]
    #[staticmethod]
    fn from_toml(path: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::of_file(path)
    }

    #[doc = doc!("Policy.parse_toml")]
    #[staticmethod]
    #[pyo3(signature = (text))]
    fn parse_toml(text: &Bound<'_, PyAny>) -> PyResult<Self> {
        let given = text;
        let is_path = given.has_attr("__fspath__")?;
        let text = match is_path {
            true => None,
            false => Some(str_of("text", given)?),
        };
        // The name of a file is not TOML.
        match text.filter(|text| !text.trim_end().ends_with(".toml") || text.contains('=')) {
            Some(text) => Self::parse(given.py(), &text, false, "the policy"),
            None => Err(PyValueError::new_err(format!(
                "text must be that of a policy, not the name of a file: write \
                 Policy.from_toml({})",
                errors::shown(given)
            ))),
        }
    }

    fn __enter__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a policy is no guard: write `with policy.guard()():`, or `with policy.observe()() as \
             recording:`",
        ))
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.__enter__()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut fields = Vec::new();
        for field in &FIELDS {
            let value = self.field(py, field.name)?;
            fields.push(format!("{}={}", field.name, value.shown()?));
        }
        Ok(format!("Policy({})", fields.join(", ")))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        let Ok(other) = other.cast::<Self>() else {
            return Ok(None);
        };
        let (own, others) = (&self.on_violation, &other.get().on_violation);
        Ok(Some(
            self.spec == other.get().spec
                && match (own, others) {
                    (Some(own), Some(others)) => own.bind(other.py()).equals(others)?,
                    _ => own.is_none() && others.is_none(),
                },
        ))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.spec.hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let policy = slf.get();
        let mut spec = policy.spec.clone();
        if policy.on_violation.is_some() {
            spec.on_violation = OnViolation::Raise;
        }
        let told = policy.told.as_ref().map(|told| told.parts());
        let call = policy.on_violation.as_ref().map(|call| call.clone_ref(py));
        let made = py.get_type::<Self>().attr("_made")?;
        let arguments = (spec.to_toml(), call, told).into_pyobject(py)?;
        PyTuple::new(py, [made, arguments.into_any()])
    }

    /// The policy that was taken apart.
    #[staticmethod]
    #[pyo3(name = "_made")]
    fn made(
        py: Python<'_>,
        text: &str,
        on_violation: Option<Bound<'_, PyAny>>,
        told: Option<(String, Option<String>, String, Vec<String>)>,
    ) -> PyResult<Self> {
        let mut policy = Self::parse(py, text, false, "the policy")?;
        policy.told = None;
        if let Some(call) = &on_violation {
            policy.set(fields::named(&FIELDS, "on_violation")?, call)?;
        }
        let Some((words, written, line, unnamed)) = told else {
            return Ok(policy);
        };
        let written = written.map(|text| Self::parse(py, &text, false, "the policy"));
        let written = written.transpose()?.map(|written| Bound::new(py, written));
        policy.told_in(py, &words, written.transpose()?.as_ref(), &line, unnamed)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.on_violation)
    }
}

fn str_of(argument: &str, given: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = given.cast::<PyString>();
    let text = text.map_err(|_| errors::wrong_type(argument, "str", given))?;
    Ok(text.to_str()?.to_owned())
}
