//! Policies that are in force in the whole process for good.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::python::api::policy::PyPolicy;
use crate::python::configuration::resolve;
use crate::python::denials::denial;
use crate::python::guard::scope;

pub fn installed(py: Python<'_>) -> Option<Bound<'_, PyPolicy>> {
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
#[cfg(unix)]
pub fn check_none(py: Python<'_>) -> PyResult<()> {
    let is_guarded = !matches!(scope::own(py)?, scope::Current::Unguarded);
    match is_guarded || scope::installed().next().is_some() {
        true => Err(PyRuntimeError::new_err(
            "a guard is active, or a policy is installed",
        )),
        false => Ok(()),
    }
}

#[doc = doc!("_raise_violations")]
#[pyfunction]
#[pyo3(name = "_raise_violations")]
pub fn raise_violations() {
    denial::raise_violations();
}

#[doc = doc!("installed_policy")]
#[pyfunction]
pub fn installed_policy(py: Python<'_>) -> Option<Bound<'_, PyPolicy>> {
    installed(py)
}
