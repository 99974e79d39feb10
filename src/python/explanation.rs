//! What `Policy.explain` answers.

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// What `Policy.explain` answers.
#[pyclass(frozen, module = "fastaudit_rs")]
pub struct Explanation {
    pub denied: Option<Py<PyAny>>,
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
