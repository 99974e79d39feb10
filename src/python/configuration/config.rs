//! The configuration of one guard: its policy, callbacks and host data.

use std::sync::Arc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::kernel::started::Started;
use crate::policy::written::spec::{OnViolation, Spec};
use crate::policy::written::wording::HintStyle;
use crate::policy::{Policy, RuleSet};
use crate::python::configuration::allowed::{self, Allowed, Stated};
use crate::python::configuration::approvals::Approvals;
use crate::python::configuration::callbacks::Callback;
use crate::python::configuration::live::{Live, Own};
use crate::python::configuration::temporary::{Memory, TemporaryDirectories};
use crate::python::cpython::calling::Calling;
use crate::python::logs::audit_log::DecisionLog;
use crate::python::logs::log::Records;
use crate::python::values::errors;

#[doc = doc!("AuditCfg")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native")]
pub struct AuditCfg {
    /// Its rules, for all threads.
    live: Own,
    pub stated: Stated,
    watch: Option<EventWatch>,
    pub callbacks: Arc<Callbacks>,
    #[doc = doc!("AuditCfg.data")]
    #[pyo3(get)]
    pub data: Py<PyAny>,
    #[doc = doc!("AuditCfg.monitor_calls")]
    #[pyo3(get)]
    pub monitor_calls: bool,
    /// The side from which calls are watched.
    pub side: Side,
    #[doc = doc!("AuditCfg.retire_sites")]
    #[pyo3(get)]
    pub retire_sites: bool,
    /// True if it restricts more than fastaudit 0.1 does: asked with each entry.
    pub restricts_more: bool,
    is_strict: bool,
    /// The processes that were started under guards of it.
    pub started: Arc<Started>,
    /// The number of the set of native code that is called without asking; 0 for none.
    pub safe_set: u64,
    /// The shared memory that was made under them.
    pub memory: Arc<Memory>,
}

/// A use of events beside their judgement: one field, so that a guard with none asks once.
#[derive(Clone)]
pub enum EventWatch {
    Records(Records),
    Logs(DecisionLog),
}

/// The side of a call from which it is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// By the interpreter's events of calls, from Python 3.12 on.
    Caller,
    /// By what is called.
    Callee,
}

impl Side {
    pub const NAMES: [(&str, Self); 2] = [("events", Self::Caller), ("callee", Self::Callee)];

    /// That of guards which are given none.
    pub const USUAL: Self = if cfg!(Py_3_12) { Self::Caller } else { Self::Callee };

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

#[derive(Default)]
pub struct Callbacks {
    pub before_deny: Option<Callback>,
    pub on_call: Option<Callback>,
    pub on_denied: Option<Callback>,
    /// The host's answers to questions, if it is asked.
    pub approvals: Option<Approvals>,
}

fn function<'py>(py: Python<'py>, callback: Option<&Callback>) -> Option<Bound<'py, PyAny>> {
    callback.map(|callback| callback.bind(py).clone())
}

impl AuditCfg {
    pub fn new(
        allowed: Allowed,
        callbacks: Callbacks,
        data: Py<PyAny>,
        monitor_calls: bool,
        side: Side,
        retire_sites: bool,
    ) -> Self {
        let is_asked = callbacks.on_call.is_some() || allowed.records.is_some();
        let safe_set = allowed::number(&allowed, is_asked);
        let watch = match (allowed.records, allowed.log) {
            (Some(records), _) => Some(EventWatch::Records(records)),
            (None, log) => log.map(EventWatch::Logs),
        };
        let observes = matches!(&watch, Some(EventWatch::Records(records)) if !records.enforces);
        let proceeds = observes || allowed.stated.on_violation != OnViolation::Raise;
        let directories = Arc::<TemporaryDirectories>::default();
        Self {
            safe_set,
            restricts_more: allowed.policy.restricts_more() || watch.is_some(),
            is_strict: allowed.policy.rules() == RuleSet::Strict,
            live: Own(Live::new(
                Arc::new(allowed.policy.with_temporary(&directories.paths)),
                directories,
                (proceeds, watch.is_some()),
                Arc::default(),
            )),
            stated: allowed.stated,
            watch,
            callbacks: Arc::new(callbacks),
            data,
            monitor_calls,
            side,
            retire_sites,
            started: Arc::default(),
            memory: Arc::default(),
        }
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            live: self.live_with(Arc::clone(&self.live.0.policy)),
            stated: self.stated.clone_ref(py),
            watch: self.watch.clone(),
            callbacks: Arc::clone(&self.callbacks),
            data: self.data.clone_ref(py),
            monitor_calls: self.monitor_calls,
            side: self.side,
            retire_sites: self.retire_sites,
            restricts_more: self.restricts_more,
            is_strict: self.is_strict,
            started: Arc::clone(&self.started),
            safe_set: self.safe_set,
            memory: Arc::clone(&self.memory),
        }
    }

    pub fn approvals(&self) -> Option<&Approvals> {
        self.callbacks.approvals.as_ref()
    }

    /// The same configuration with another policy and no callbacks, to judge by both.
    pub fn judging_by(&self, py: Python<'_>, policy: Arc<Policy>) -> Self {
        Self { live: self.live_with(policy), callbacks: Arc::default(), ..self.clone_ref(py) }
    }

    pub fn with_data(&self, py: Python<'_>, data: Py<PyAny>) -> Self {
        Self { data, ..self.clone_ref(py) }
    }

    /// The same configuration with more packages whose import may do what is denied otherwise.
    pub fn with_imports(&self, py: Python<'_>, more: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let mut packages = self.policy().rest().import_allow.clone();
        read_modules("mods", more.as_any(), &mut packages)?;
        let policy = Policy::clone(self.policy()).importing(packages);
        Ok(Self { live: self.live_with(Arc::new(policy)), ..self.clone_ref(py) })
    }

    #[inline]
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Returns the fields of its `Policy`, their paths resolved; `None` if there is no such policy.
    pub fn spec(&self) -> Option<&Spec> {
        self.stated.spec.as_deref()
    }

    pub fn policy(&self) -> &Policy {
        &self.live.0.policy
    }

    #[inline]
    pub fn live(&self) -> &Arc<Live> {
        &self.live.0
    }

    fn live_with(&self, policy: Arc<Policy>) -> Own {
        let directories = Arc::clone(self.directories());
        Own(self.live.0.with(policy, directories))
    }

    /// The same configuration with the temporary directory of another one.
    pub fn with_directories(&self, py: Python<'_>, directories: Arc<TemporaryDirectories>) -> Self {
        let policy = Policy::clone(self.policy()).with_temporary(&directories.paths);
        Self { live: Own(self.live.0.with(Arc::new(policy), directories)), ..self.clone_ref(py) }
    }

    pub fn directories(&self) -> &Arc<TemporaryDirectories> {
        &self.live.0.directories
    }

    /// True if it may write at all, or records operations and lets them proceed.
    pub fn may_have_temporary(&self) -> bool {
        self.policy().may_write() || self.records().is_some_and(|records| !records.enforces)
    }

    /// The roots for reading; empty if reading is not restricted to some.
    pub fn readable<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        match &self.stated.readable {
            Some(roots) => roots.bind(py).clone(),
            None => PyTuple::empty(py),
        }
    }

    /// Returns whether a `Policy` made it, not `mk_audit`.
    pub fn is_of_policy(&self) -> bool {
        self.stated.told.is_some()
    }

    pub fn told(&self) -> Option<&Arc<HintStyle>> {
        self.stated.told.as_ref()
    }

    /// Returns the call by which the host made it.
    pub fn call(&self) -> &'static str {
        match (&self.stated.told, self.records(), self.is_strict) {
            (Some(_), None, _) => "policy.guard()",
            (Some(_), Some(_), _) => "policy.observe()",
            (None, _, true) => "v02.mk_audit([...])",
            (None, _, false) => "mk_audit([...])",
        }
    }

    pub fn records(&self) -> Option<&Records> {
        match &self.watch {
            Some(EventWatch::Records(records)) => Some(records),
            _ => None,
        }
    }

    pub fn log(&self) -> Option<&DecisionLog> {
        match &self.watch {
            Some(EventWatch::Logs(log)) => Some(log),
            _ => None,
        }
    }

    #[inline]
    pub fn watch(&self) -> Option<&EventWatch> {
        self.watch.as_ref()
    }
}

#[pymethods]
impl AuditCfg {
    #[doc = doc!("AuditCfg.oks")]
    #[getter]
    pub fn oks<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        self.stated.oks.bind(py).clone()
    }

    #[doc = doc!("AuditCfg.before_deny")]
    #[getter]
    pub fn before_deny<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        function(py, self.callbacks.before_deny.as_ref())
    }

    #[doc = doc!("AuditCfg.on_call")]
    #[getter]
    pub fn on_call<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        function(py, self.callbacks.on_call.as_ref())
    }

    #[doc = doc!("AuditCfg.on_denied")]
    #[getter]
    pub fn on_denied<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        function(py, self.callbacks.on_denied.as_ref())
    }

    #[doc = doc!("AuditCfg.on_ask")]
    #[getter]
    pub fn on_ask<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        function(py, self.approvals().map(|approvals| &approvals.ask))
    }

    #[doc = doc!("AuditCfg.import_allow")]
    #[getter]
    pub fn import_allow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.policy().rest().import_allow)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let repr = |callback: Option<&Callback>| match callback {
            Some(callback) => callback.bind(py).shown().map(|text| text.to_string()),
            None => Ok("None".to_owned()),
        };
        let mut text = format!(
            "AuditCfg(oks={}, before_deny={}, on_call={}, data={}, monitor_calls={}",
            self.stated.oks.bind(py).shown()?,
            repr(self.callbacks.before_deny.as_ref())?,
            repr(self.callbacks.on_call.as_ref())?,
            self.data.bind(py).shown()?,
            if self.monitor_calls { "True" } else { "False" },
        );
        // fastaudit's messages include this repr; 0.2 has these fields, 0.1 does not.
        if self.is_strict {
            text.push_str(&format!(", import_allow={}", self.import_allow(py)?.shown()?));
        }
        if self.retire_sites {
            text.push_str(", retire_sites=True");
        }
        if let Some(on_denied) = &self.callbacks.on_denied {
            text.push_str(&format!(", on_denied={}", repr(Some(on_denied))?));
        }
        if let Some(approvals) = self.approvals() {
            text.push_str(&format!(", on_ask={}", repr(Some(&approvals.ask))?));
        }
        text.push(')');
        Ok(text)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.stated.oks)?;
        visit.call(&self.stated.violation_call)?;
        // Configurations that share them hold one reference together, which nobody shows twice.
        if Arc::strong_count(&self.callbacks) == 1 {
            let Callbacks { before_deny, on_call, on_denied, approvals } = &*self.callbacks;
            let on_ask = approvals.as_ref().map(|approvals| &approvals.ask);
            let callbacks = [before_deny.as_ref(), on_call.as_ref(), on_denied.as_ref(), on_ask];
            for callback in callbacks.into_iter().flatten() {
                callback.traverse(&visit)?;
            }
        }
        visit.call(&self.data)
    }
}

/// Adds the names of modules in an iterable, or one name, to a list without duplicates.
pub fn read_modules(
    argument: &str,
    given: &Bound<'_, PyAny>,
    names: &mut Vec<String>,
) -> PyResult<()> {
    const NAMES: &str = "names of modules (str)";
    let add = |item: &Bound<'_, PyAny>, names: &mut Vec<String>| -> PyResult<()> {
        let name =
            item.cast::<PyString>().map_err(|_| errors::wrong_type(argument, NAMES, item))?;
        let name = name.to_string_lossy();
        let name = name.trim();
        if !name.is_empty() {
            names.push(name.to_owned());
        }
        Ok(())
    };
    if given.is_instance_of::<PyString>() {
        add(given, names)?;
    } else {
        let items = given.iterate().map_err(|_| errors::wrong_type(argument, NAMES, given))?;
        for item in items {
            add(&item?, names)?;
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(())
}
