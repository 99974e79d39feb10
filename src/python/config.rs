//! What one guard is made of: its policy, callbacks and host data.

use std::sync::Arc;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use super::decode;
use super::errors;
use super::ffi as raw;
use super::recorder::Records;
use crate::policy::fs::Os;
use crate::policy::path::{self, Base};
use crate::policy::spec::OnViolation;
use crate::policy::{Policy, Roots};

/// The configuration of a guard. Immutable: changing it makes another one.
#[pyclass(frozen, module = "fastaudit_rs._native")]
pub struct AuditCfg {
    policy: Arc<Policy>,
    oks: Py<PyTuple>,
    /// The roots for reading, where a `Policy` has some.
    readable: Option<Py<PyTuple>>,
    is_of_policy: bool,
    on_violation: OnViolation,
    violation_call: Option<Py<PyAny>>,
    records: Option<Records>,
    before_deny: Option<Py<PyAny>>,
    on_call: Option<Py<PyAny>>,
    on_denied: Option<Py<PyAny>>,
    data: Py<PyAny>,
    monitor_calls: bool,
    retire_sites: bool,
    /// Whether it restricts more than fastaudit 0.1 does: asked with each entry.
    restricts_more: bool,
}

/// The callbacks of a host, checked.
pub struct Callbacks<'py> {
    pub before_deny: Option<Bound<'py, PyAny>>,
    pub on_call: Option<Bound<'py, PyAny>>,
    pub on_denied: Option<Bound<'py, PyAny>>,
}

impl AuditCfg {
    /// Puts a configuration together from arguments that were checked.
    pub fn new(
        allowed: Allowed,
        callbacks: Callbacks<'_>,
        data: Py<PyAny>,
        monitor_calls: bool,
        retire_sites: bool,
    ) -> Self {
        Self {
            restricts_more: allowed.policy.restricts_more() || allowed.records.is_some(),
            policy: Arc::new(allowed.policy),
            oks: allowed.oks,
            readable: allowed.readable,
            is_of_policy: allowed.is_of_policy,
            on_violation: allowed.on_violation,
            violation_call: allowed.violation_call,
            records: allowed.records,
            before_deny: callbacks.before_deny.map(Bound::unbind),
            on_call: callbacks.on_call.map(Bound::unbind),
            on_denied: callbacks.on_denied.map(Bound::unbind),
            data,
            monitor_calls,
            retire_sites,
        }
    }

    /// A configuration with no callbacks that watches no calls.
    pub fn plain(py: Python<'_>, allowed: Allowed) -> Self {
        let callbacks = Callbacks {
            before_deny: None,
            on_call: None,
            on_denied: None,
        };
        Self::new(allowed, callbacks, py.None(), false, false)
    }

    /// The same configuration with other host data.
    pub fn with_data(&self, py: Python<'_>, data: Py<PyAny>) -> Self {
        let cloned = |callback: &Option<Py<PyAny>>| {
            let callback = callback.as_ref();
            callback.map(|callback| callback.clone_ref(py))
        };
        Self {
            policy: Arc::clone(&self.policy),
            oks: self.oks.clone_ref(py),
            readable: self.readable.as_ref().map(|roots| roots.clone_ref(py)),
            is_of_policy: self.is_of_policy,
            on_violation: self.on_violation,
            violation_call: cloned(&self.violation_call),
            records: self.records.clone(),
            before_deny: cloned(&self.before_deny),
            on_call: cloned(&self.on_call),
            on_denied: cloned(&self.on_denied),
            data,
            monitor_calls: self.monitor_calls,
            retire_sites: self.retire_sites,
            restricts_more: self.restricts_more,
        }
    }

    /// Whether it restricts more than fastaudit 0.1 does.
    pub fn restricts_more(&self) -> bool {
        self.restricts_more
    }

    /// What the guard allows.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The roots for reading; none where reading is not restricted to some.
    pub fn readable<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        match &self.readable {
            Some(roots) => roots.bind(py).clone(),
            None => PyTuple::empty(py),
        }
    }

    /// Whether a `Policy` made it, not `mk_audit`.
    pub fn is_of_policy(&self) -> bool {
        self.is_of_policy
    }

    /// How it records, if it does.
    pub fn records(&self) -> Option<&Records> {
        self.records.as_ref()
    }

    /// What becomes of a violation.
    pub fn on_violation(&self) -> OnViolation {
        self.on_violation
    }

    /// The function that is called for one.
    pub fn violation_call<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let call = self.violation_call.as_ref();
        call.map(|call| call.bind(py).clone())
    }
}

#[pymethods]
impl AuditCfg {
    /// The approved roots, resolved when the guard was made; `'.'` is the current directory at
    /// the time of each check.
    #[getter]
    pub fn oks<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        self.oks.bind(py).clone()
    }

    /// The callback that may allow what would be denied.
    #[getter]
    pub fn before_deny<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.before_deny
            .as_ref()
            .map(|callback| callback.bind(py).clone())
    }

    /// The callback that may suppress the event of a native call.
    #[getter]
    pub fn on_call<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.on_call
            .as_ref()
            .map(|callback| callback.bind(py).clone())
    }

    /// The callback that is told of each denial.
    #[getter]
    pub fn on_denied<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.on_denied
            .as_ref()
            .map(|callback| callback.bind(py).clone())
    }

    /// The host data, handed to both callbacks.
    #[getter]
    pub fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.data.bind(py).clone()
    }

    /// Whether native calls raise `fastaudit.call`.
    #[getter]
    pub fn monitor_calls(&self) -> bool {
        self.monitor_calls
    }

    /// Whether a call site is watched no longer once it called what is not native code.
    #[getter]
    pub fn retire_sites(&self) -> bool {
        self.retire_sites
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let repr = |callback: &Option<Py<PyAny>>| match callback {
            Some(callback) => callback.bind(py).repr().map(|text| text.to_string()),
            None => Ok("None".to_owned()),
        };
        Ok(format!(
            "AuditCfg(oks={}, before_deny={}, on_call={}, data={}, monitor_calls={}{}{})",
            self.oks.bind(py).repr()?,
            repr(&self.before_deny)?,
            repr(&self.on_call)?,
            self.data.bind(py).repr()?,
            if self.monitor_calls { "True" } else { "False" },
            // The original, whose messages show this, has no such fields.
            if self.retire_sites {
                ", retire_sites=True"
            } else {
                ""
            },
            match &self.on_denied {
                Some(_) => format!(", on_denied={}", repr(&self.on_denied)?),
                None => String::new(),
            },
        ))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.oks)?;
        visit.call(&self.violation_call)?;
        visit.call(&self.before_deny)?;
        visit.call(&self.on_call)?;
        visit.call(&self.on_denied)?;
        visit.call(&self.data)
    }
}

/// What a guard allows, and what messages call it.
pub struct Allowed {
    pub policy: Policy,
    pub oks: Py<PyTuple>,
    pub readable: Option<Py<PyTuple>>,
    pub is_of_policy: bool,
    pub on_violation: OnViolation,
    pub violation_call: Option<Py<PyAny>>,
    pub records: Option<Records>,
}

impl Allowed {
    /// What fastaudit 0.1 allows with these roots.
    pub fn below(roots: ApprovedRoots) -> Self {
        Self {
            policy: Policy::new(roots.roots),
            oks: roots.names,
            readable: None,
            is_of_policy: false,
            on_violation: OnViolation::Raise,
            violation_call: None,
            records: None,
        }
    }
}

/// The roots a host approved, and the names that messages give them.
pub struct ApprovedRoots {
    pub roots: Roots,
    pub names: Py<PyTuple>,
}

/// Reads the `oks` argument.
///
/// # Errors
/// `TypeError` for one path in place of an iterable of them and for what is not a path,
/// `ValueError` for a path that no file can have, `OSError` when it cannot be resolved.
pub fn read_oks(oks: &Bound<'_, PyAny>) -> PyResult<ApprovedRoots> {
    let py = oks.py();
    if oks.is_instance_of::<PyString>()
        || oks.is_instance_of::<PyBytes>()
        || oks.hasattr("__fspath__")?
    {
        return Err(errors::oks_is_one_path(oks));
    }
    let items = oks
        .try_iter()
        .map_err(|error| errors::oks_not_iterable(oks, error))?;
    let mut roots = Roots::new();
    let mut names = Vec::new();
    for (index, item) in items.enumerate() {
        let item = item?;
        if let Ok(text) = item.cast::<PyString>()
            && raw::fs_encode(text.as_borrowed()).is_ok_and(|name| name.as_bytes() == b".")
        {
            roots.follow_current_dir();
            names.push(PyString::new(py, "."));
            continue;
        }
        let path =
            raw::fs_path(&item).map_err(|error| errors::root_not_a_path(index, &item, error))?;
        let name = decode::root_name(&path)
            .map_err(|error| errors::root_unreadable(index, &path, error))?;
        let root = path::resolve(&Os, &name, Base::CurrentDir)
            .ok_or_else(|| errors::root_unresolvable(index, &path, &name))?;
        roots.add(&root);
        names.push(raw::fs_decode(py, root.as_bytes())?);
    }
    Ok(ApprovedRoots {
        roots,
        names: PyTuple::new(py, names)?.unbind(),
    })
}
