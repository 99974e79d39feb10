//! `Policy.call`: the part of a policy that the kernel can hold, for a thread of its own.

use std::path::PathBuf;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::policy::written::spec::Spec;
use crate::python::api::policy::PyPolicy;
use crate::python::configuration::resolve;

#[doc = doc!("_Confinement")]
#[pyclass(
    frozen,
    immutable_type,
    module = "fastaudit_rs._native",
    name = "_Confinement"
)]
pub struct Confinement {
    #[cfg(target_os = "linux")]
    rules: crate::kernel::landlock::LandlockRules,
}

#[pymethods]
impl Confinement {
    /// The confinement of a policy; the `needed` files can be read whatever it says.
    #[new]
    fn new(py: Python<'_>, policy: &Bound<'_, PyPolicy>, needed: Vec<PathBuf>) -> PyResult<Self> {
        let resolved = resolve::resolved(py, policy.get().spec())?;
        Self::of(resolved, needed)
    }

    // The main thread would never be free again.
    #[doc = doc!("_Confinement.enter")]
    fn enter(&self) -> PyResult<()> {
        #[cfg(unix)]
        crate::python::wrapped::workers::note_confined();
        self.confine_thread()
    }
}

#[cfg(target_os = "linux")]
impl Confinement {
    #[expect(clippy::unnecessary_wraps, reason = "other systems have none")]
    fn of(resolved: Spec, needed: Vec<PathBuf>) -> PyResult<Self> {
        let rules = crate::kernel::landlock::LandlockRules::new(resolved, needed);
        Ok(Self { rules })
    }

    fn confine_thread(&self) -> PyResult<()> {
        use pyo3::exceptions::PyRuntimeError;

        if rustix::thread::gettid() == rustix::process::getpid() {
            return Err(PyRuntimeError::new_err(
                "the main thread would be confined for good: use policy.call()",
            ));
        }
        // Some containers deny it: the thread has the process's directory and umask there.
        let _ = crate::python::cpython::process::own_directory();
        let failed = |error| PyOSError::new_err(format!("it cannot be confined: {error}"));
        self.rules
            .confine_thread()
            .map_err(|error| failed(error.to_string()))?;
        crate::kernel::privileges::drop_those_of_the_machine()
            .map_err(|error| failed(error.to_string()))
    }
}

#[cfg(not(target_os = "linux"))]
impl Confinement {
    fn of(_resolved: Spec, _needed: Vec<PathBuf>) -> PyResult<Self> {
        Err(PyOSError::new_err(
            "it cannot be confined: that needs Linux, with Landlock",
        ))
    }

    fn confine_thread(&self) -> PyResult<()> {
        Ok(())
    }
}
