//! The executor of loky that is used again: one for the whole process. With workers that were
//! started under a guard it serves that guard alone: others find it shut down, and the library
//! makes another.

use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::intern;
use crate::python::guard::tempfile;

const MODULES: &[&str] = &[
    "joblib.externals.loky.reusable_executor",
    "loky.reusable_executor",
];

/// An executor's flag for being shut down: true except under these guards.
#[pyclass(
    frozen,
    immutable_type,
    module = "fastaudit_rs._native",
    name = "_ShutDown"
)]
pub struct ShutDown {
    guards: Vec<Py<AuditCfg>>,
}

#[pymethods]
impl ShutDown {
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let now = tempfile::in_force(py)?;
        let are_the_same = now.len() == self.guards.len()
            && now.iter().zip(&self.guards).all(|(now, own)| now.is(own));
        Ok(!are_the_same)
    }
}

/// Marks the existing executors, as their workers will be started under the guards in force.
pub fn mark(py: Python<'_>) -> PyResult<()> {
    for module in MODULES {
        let module = raw::imported_module(py, &pyo3::types::PyString::new(py, module))?;
        let Some(module) = module else {
            continue;
        };
        let Some(executor) = module.attr_opt(intern!(py, "_executor"))? else {
            continue;
        };
        let Some(flags) = calling::getattr_opt(&executor, intern!(py, "_flags"))? else {
            continue;
        };
        let name = intern!(py, "shutdown");
        let now = calling::getattr_opt(&flags, name)?;
        if now.is_some_and(|now| now.cast_exact::<PyBool>().is_ok_and(|now| !now.is_true())) {
            let guards = tempfile::in_force(py)?;
            flags.set_attr(name, Bound::new(py, ShutDown { guards })?)?;
        }
    }
    Ok(())
}
