//! Policies that are in force for good: in the whole process, or in a thread of it.

use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::kernel::landlock::LandlockRules;
use crate::kernel::privileges;
use crate::python::api::policy::PyPolicy;
use crate::python::api::setup;
use crate::python::configuration::{resolve, temporary};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::process;
use crate::python::excuses::pool_files;
use crate::python::guard::{scope, tempfile};
use crate::python::wrapped::workers;

#[doc = doc!("installed_policy")]
#[pyfunction]
pub fn installed_policy(py: Python<'_>) -> Option<Bound<'_, PyPolicy>> {
    let last = scope::installed().next()?;
    last.policy.bind(py).clone().cast_into().ok()
}

/// Checks that a policy allows nothing that the installed one does not.
///
/// # Errors
/// `RuntimeError`, which names the field.
pub fn check_stricter(py: Python<'_>, policy: &PyPolicy, before: &PyPolicy) -> PyResult<()> {
    let (new, old) = (policy.spec(), before.spec());
    if new == old {
        return Ok(());
    }
    let (new, old) = (resolve::resolved(py, new)?, resolve::resolved(py, old)?);
    match new.allows_more_than(&old) {
        None => Ok(()),
        Some(field) => Err(PyRuntimeError::new_err(format!(
            "a policy is installed already, and this one is not stricter: its {field} allows what \
             that does not"
        ))),
    }
}

/// Checks that nothing guards this process yet.
///
/// # Errors
/// `RuntimeError` if a guard is active or a policy is installed.
pub fn check_none(py: Python<'_>) -> PyResult<()> {
    match scope::current(py)? {
        scope::Current::Unguarded => Ok(()),
        _ => Err(PyRuntimeError::new_err("a guard is active, or a policy is installed")),
    }
}

// `Policy.call`: the part of a policy that the kernel can hold, for a thread of its own.

#[doc = doc!("_Confinement")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Confinement")]
pub struct Confinement {
    rules: LandlockRules,
}

#[pymethods]
impl Confinement {
    /// The confinement of a policy; the `needed` files can be read whatever it says, and these
    /// `ports` are free.
    #[new]
    #[pyo3(signature = (policy, needed, ports=vec![]), text_signature = "(policy, needed, ports=())")]
    fn new(
        py: Python<'_>,
        policy: &Bound<'_, PyPolicy>,
        needed: Vec<PathBuf>,
        ports: Vec<u16>,
    ) -> PyResult<Self> {
        let resolved = resolve::resolved(py, policy.get().spec())?;
        Ok(Self { rules: LandlockRules::new(resolved, needed, ports) })
    }

    // The main thread would never be free again.
    #[doc = doc!("_Confinement.enter")]
    fn enter(&self) -> PyResult<()> {
        if rustix::thread::gettid() == rustix::process::getpid() {
            return Err(PyRuntimeError::new_err(
                "the main thread would be confined for good: use policy.call()",
            ));
        }
        // Some containers deny it: the thread has the process's directory and umask there.
        let _ = process::own_directory();
        self.confine()
    }

    #[doc = doc!("_Confinement.enter_process")]
    fn enter_process(&self) -> PyResult<()> {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads > 1 {
            return Err(PyRuntimeError::new_err(format!(
                "the process has {threads} threads, and only the current one can be confined"
            )));
        }
        tempfile::note_held();
        self.confine()
    }
}

impl Confinement {
    fn confine(&self) -> PyResult<()> {
        workers::note_confined();
        let failed = |error| PyOSError::new_err(format!("it cannot be confined: {error}"));
        self.rules.confine_thread().map_err(|error| failed(error.to_string()))?;
        privileges::drop_those_of_the_machine().map_err(|error| failed(error.to_string()))
    }
}

// The first line of a worker that is started anew: it enters the policy.

#[doc = doc!("_enter_worker")]
#[pyfunction]
#[pyo3(name = "_enter_worker")]
pub fn enter_worker(policy: &Bound<'_, PyPolicy>, calls: Option<&str>, mark: &str) -> PyResult<()> {
    let py = policy.py();
    setup::install(py)?;
    check_none(py)?;
    let options = PyDict::new(py);
    match calls {
        Some(side) => options.set_item("calls", side)?,
        None => options.set_item("monitor_calls", false)?,
    }
    temporary::take_over(mark);
    policy.invoke_method("install", (), Some(&options))?;
    pool_files::note_worker();
    workers::note_worker();
    Ok(())
}
