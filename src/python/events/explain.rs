//! The answer of `Policy.explain`.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use pyo3::{IntoPyObjectExt, PyTraverseError};

use crate::policy::rules::Rule;
use crate::policy::written::approved::Kept;
use crate::policy::written::spec::OnViolation;
use crate::policy::written::values::Switch;
use crate::policy::{events, judge};
use crate::python::configuration::allowed::Allowed;
use crate::python::configuration::approvals;
use crate::python::configuration::config::{AuditCfg, Callbacks, Side};
use crate::python::cpython::calling::Calling;
use crate::python::denials::denial;
use crate::python::guard::event::Event;
use crate::python::guard::governing;
use crate::python::guard::scope::Active;
use crate::python::wrapped::threads;

#[doc = doc!("Explanation")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs")]
pub struct Explanation {
    denied: Option<Py<PyAny>>,
    /// The file of answers that allows it.
    approved_by: Option<PathBuf>,
    /// The file of answers that keeps its denial.
    refused_by: Option<PathBuf>,
}

impl Explanation {
    /// Judges an event under a guard with these permissions, without doing it.
    pub fn of(
        allowed: Allowed,
        event: &Bound<'_, PyString>,
        args: &Bound<'_, PyTuple>,
        approvals: Option<(PathBuf, Kept)>,
    ) -> PyResult<Self> {
        let py = event.py();
        let args = &with_mode(event, args)?;
        let mut explanation = Self {
            denied: Self::judge(allowed.clone_ref(py), event, args)?,
            approved_by: None,
            refused_by: None,
        };
        let Some((path, kept)) = approvals.filter(|_| explanation.denied.is_some()) else {
            return Ok(explanation);
        };
        let passes_with = |spec| -> PyResult<bool> {
            let wider = Allowed {
                policy: approvals::widened(py, &allowed.policy, spec)?,
                ..allowed.clone_ref(py)
            };
            Ok(Self::judge(wider, event, args)?.is_none())
        };
        if passes_with(&kept.never)? {
            explanation.refused_by = Some(path);
        } else if passes_with(&kept.allowed)? {
            explanation.denied = None;
            explanation.approved_by = Some(path);
        }
        Ok(explanation)
    }

    fn judge(
        mut allowed: Allowed,
        event: &Bound<'_, PyString>,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<Option<Py<PyAny>>> {
        let py = event.py();
        let name = CString::new(event.to_str()?)?;
        denial::prepare(py)?;
        let rule = events::lookup(name.as_bytes());
        let inherited = match rule {
            Some(Rule::Thread) if allowed.policy.has(Switch::Threads) => {
                Some(threads::inheriting(args)?)
            }
            _ => None,
        };
        let args = inherited.as_ref().unwrap_or(args);
        // An event that would be denied is reported so, whatever the answer to a violation.
        allowed.stated.on_violation = OnViolation::Raise;
        allowed.policy = allowed.policy.keeping(&governing::files());
        let callbacks = Callbacks::default();
        let config = AuditCfg::new(allowed, callbacks, py.None(), false, Side::Caller, false);
        let active = Active::detached();
        let event = Event::new(&name, args, &active, &config);
        match judge::judge_any(&event, rule) {
            Ok(()) => Ok(None),
            Err(error) if denial::is_denial(&error, py) => {
                Ok(Some(error.into_value(py).into_any()))
            }
            Err(error) => Err(error),
        }
    }

    fn allowed_text(&self) -> String {
        match &self.approved_by {
            None => "allowed".to_owned(),
            Some(path) => format!("allowed by an approval in {}", path.display()),
        }
    }
}

#[pymethods]
impl Explanation {
    #[doc = doc!("Explanation.allowed")]
    #[getter]
    pub fn allowed(&self) -> bool {
        self.denied.is_none()
    }

    #[doc = doc!("Explanation.denied")]
    #[getter]
    fn denied(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.denied.as_ref().map(|denied| denied.clone_ref(py))
    }

    #[doc = doc!("Explanation.rule")]
    #[getter]
    fn rule<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let denied = self.denied.as_ref();
        denied.map(|denied| denied.bind(py).attr("rule")).transpose()
    }

    #[doc = doc!("Explanation.approved_by")]
    #[getter]
    fn approved_by(&self) -> Option<&Path> {
        self.approved_by.as_deref()
    }

    #[doc = doc!("Explanation.refused_by")]
    #[getter]
    fn refused_by(&self) -> Option<&Path> {
        self.refused_by.as_deref()
    }

    fn __str__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        match &self.denied {
            Some(denied) => {
                let text = denied.bind(py).text()?;
                Ok(match &self.refused_by {
                    None => text,
                    Some(path) => {
                        let kept = format!("{text}\nNobody is asked: denied in {}", path.display());
                        PyString::new(py, &kept)
                    }
                })
            }
            None => Ok(PyString::new(py, &self.allowed_text())),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(match &self.denied {
            Some(denied) => format!("<Explanation: {}>", denied.bind(py).shown()?),
            None => format!("<Explanation: {}>", self.allowed_text()),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.denied)
    }
}

/// The arguments of the event; those of `open` with its mode and flags, where they were left out.
fn with_mode<'py>(
    event: &Bound<'py, PyString>,
    args: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyTuple>> {
    let py = args.py();
    if event.to_string_lossy() != "open" || !(1..3).contains(&args.len()) {
        return Ok(args.clone());
    }
    let mode = args.get_item(1).or_else(|_| "r".into_bound_py_any(py))?;
    PyTuple::new(py, [args.get_item(0)?, mode, 0.into_bound_py_any(py)?])
}
