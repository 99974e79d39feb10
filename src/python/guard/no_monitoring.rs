//! `monitoring` before Python 3.12, which has no `sys.monitoring`.

use pyo3::prelude::*;

use crate::python::configuration::config::AuditCfg;
use crate::python::values::errors;

/// Never made: there are no tool ids.
#[derive(Clone, Copy)]
pub enum Free {}

/// Never made: calls cannot be watched.
pub enum Hold {}

impl Hold {
    /// No guard can ask for monitoring.
    pub fn new(_py: Python<'_>, _config: &AuditCfg) -> PyResult<Self> {
        Err(errors::no_monitoring("monitor_calls=True"))
    }
}

pub fn is_registering() -> bool {
    false
}
