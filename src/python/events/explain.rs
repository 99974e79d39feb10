//! The answer of `Policy.explain`.

use std::ffi::CString;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::events;
use crate::policy::judge;
use crate::policy::written::spec::OnViolation;
use crate::python::denials::denial;
use crate::python::guard::allowed::Allowed;
use crate::python::guard::config::AuditCfg;
use crate::python::guard::event::Event;
use crate::python::guard::scope::Active;

#[doc = doc!("Explanation")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs")]
pub struct Explanation {
    denied: Option<Py<PyAny>>,
}

impl Explanation {
    /// Judges an event under a guard with these permissions, without doing it.
    ///
    /// # Errors
    /// Errors raised while judging that are not denials.
    pub fn of(
        mut allowed: Allowed,
        event: &Bound<'_, PyString>,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<Self> {
        let py = event.py();
        let name = CString::new(event.to_str()?)?;
        denial::prepare(py)?;
        // An event that would be denied is reported so, whatever the answer to a violation.
        allowed.on_violation = OnViolation::Raise;
        let config = AuditCfg::plain(py, allowed);
        let active = Active::detached();
        let event = Event {
            name: &name,
            args,
            active: &active,
            config: &config,
            reads_passed: false,
            probe: None,
        };
        let denied = match judge::judge_any(&event, events::lookup(name.as_bytes())) {
            Ok(()) => None,
            Err(error) if denial::is_denial(&error, py) => Some(error.into_value(py).into_any()),
            Err(error) => return Err(error),
        };
        Ok(Self { denied })
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
