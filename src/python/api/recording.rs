//! `Policy.observe`: guards that record operations, and the policy that would allow them.

use std::collections::BTreeSet;
use std::sync::Arc;

use pyo3::PyTraverseError;
use pyo3::exceptions::PyValueError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::policy::files::fs::PathBuf;
use crate::policy::learn::Need;
use crate::policy::written::suggested;
use crate::python::api::guard::{AuditPerms, Guard};
use crate::python::api::policy::PyPolicy;
use crate::python::api::{readers, wrong_calls};
use crate::python::configuration::resolve;
use crate::python::configuration::temporary::TemporaryFiles;
use crate::python::cpython::calling::Calling;
use crate::python::denials::report::{self, Effect};
use crate::python::logs::log::Entry;
use crate::python::values::decode;

const CALL: &str = "policy.observe()";

/// The number of entries of a directory that are named one by one before it may stand for them.
const THRESHOLD: usize = 10;

#[doc = doc!("Observer")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native")]
pub struct Observer {
    perms: Py<AuditPerms>,
    policy: Py<PyPolicy>,
}

impl Observer {
    pub fn new(perms: Py<AuditPerms>, policy: Py<PyPolicy>) -> Self {
        Self { perms, policy }
    }
}

#[pymethods]
impl Observer {
    #[pyo3(signature = (*given, **named))]
    fn __call__(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Recording> {
        wrong_calls::check_bare(CALL, given, named)?;
        Ok(Recording {
            guard: Py::new(py, Guard::new(self.perms.clone_ref(py)))?,
            policy: self.policy.clone_ref(py),
        })
    }

    fn __enter__(&self) -> PyResult<()> {
        Err(wrong_calls::not_called(CALL, &format!("{CALL}() as recording")))
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.__enter__()
    }

    fn __getattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        let guards = slf.py().get_type::<Recording>();
        wrong_calls::no_attribute(slf.as_any(), &guards, CALL, name)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let policy = self.policy.get().shown(py)?;
        Ok(format!("<Observer of {policy}>"))
    }

    #[doc = doc!("Observer._share")]
    #[pyo3(name = "_share")]
    fn share<'py>(
        &self,
        py: Python<'py>,
        files: &Bound<'py, TemporaryFiles>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.perms.bind(py).invoke_method1("_share", (files,))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.perms)?;
        visit.call(&self.policy)
    }
}

#[doc = doc!("Recording")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native")]
pub struct Recording {
    guard: Py<Guard>,
    policy: Py<PyPolicy>,
}

#[pymethods]
impl Recording {
    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.guard.get().enter(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (exc_type, exc, traceback, /))]
    #[expect(unused_variables, reason = "the context manager protocol passes them")]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.guard.get().leave(py, exc)
    }

    #[doc = doc!("Recording._keep")]
    #[pyo3(name = "_keep")]
    fn keep(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf.guard.get().go_on();
        slf
    }

    #[doc = doc!("Recording.effects")]
    #[getter]
    fn effects<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for entry in self.entries(py) {
            list.append(Bound::new(py, Effect::of(py, &entry)?)?)?;
        }
        Ok(list)
    }

    #[doc = doc!("Recording.dropped")]
    #[getter]
    fn dropped(&self, py: Python<'_>) -> u64 {
        let log = self.guard.get().log(py);
        log.map_or(0, |log| log.recorder().seen().dropped)
    }

    #[doc = doc!("Recording.never_allowed")]
    #[getter]
    fn never_allowed(&self, py: Python<'_>) -> Vec<String> {
        let needs = self.needs(py);
        let events = needs.into_iter().filter_map(|need| match need {
            Need::Never(event) => Some(event),
            _ => None,
        });
        events.collect()
    }

    #[doc = doc!("Recording.summary")]
    fn summary(&self, py: Python<'_>) -> PyResult<String> {
        Ok(report::text(&report::rows(py, &self.entries(py))?))
    }

    #[doc = doc!("Recording.to_json")]
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        report::json(py, &self.entries(py), self.dropped(py))
    }

    /// A table of the operations, for notebooks.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        report::html(py, &report::rows(py, &self.entries(py))?)
    }

    #[doc = doc!("Recording.suggest")]
    #[pyo3(signature = (threshold=None), text_signature = "($self, threshold=10)")]
    fn suggest(&self, py: Python<'_>, threshold: Option<&Bound<'_, PyAny>>) -> PyResult<PyPolicy> {
        let threshold = threshold.map_or(Ok(THRESHOLD), read_threshold)?;
        let base = resolve::resolved(py, self.policy.get().spec())?;
        let spec = suggested::suggest(&base, &self.needs(py), threshold, list);
        PyPolicy::of(spec)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let counts = report::counts(py, &self.entries(py))?;
        Ok(format!("<Recording: {}>", counts.shown()?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.guard)?;
        visit.call(&self.policy)
    }
}

impl Recording {
    /// Returns the operations seen so far: reading them may run code that is recorded itself.
    fn entries(&self, py: Python<'_>) -> Vec<Arc<Entry>> {
        let log = self.guard.get().log(py);
        log.map_or_else(Vec::new, |log| log.recorder().seen().entries.clone())
    }

    fn needs(&self, py: Python<'_>) -> BTreeSet<Need> {
        // A policy need not allow the acts of tools, which have rights of their own.
        let entries = self.entries(py).into_iter();
        let entries = entries.filter(|entry| entry.tool.is_none());
        entries.flat_map(|entry| entry.needs.clone()).collect()
    }
}

fn read_threshold(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    const ACCEPTED: &str = "a whole number from 1";
    match readers::whole("threshold", given, ACCEPTED)? {
        0 => Err(PyValueError::new_err(format!("threshold must be {ACCEPTED}, not 0"))),
        number => Ok(number),
    }
}

fn list(dir: &[u8]) -> Option<Vec<Vec<u8>>> {
    let entries = std::fs::read_dir(decode::native_path(PathBuf::from_slice(dir))).ok()?;
    entries.map(|entry| Some(entry.ok()?.file_name().into_encoded_bytes())).collect()
}
