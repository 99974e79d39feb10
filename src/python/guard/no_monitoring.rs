//! `monitoring` before Python 3.12, which has no `sys.monitoring`.

use pyo3::prelude::*;

use crate::python::configuration::config::AuditCfg;
use crate::python::values::errors;

pub use self::{NoHold as Hold, NoTool as Free};

/// Never made: there are no tool ids.
#[derive(Clone, Copy)]
pub enum NoTool {}

/// Never made: calls cannot be watched.
pub enum NoHold {}

impl NoHold {
    pub fn new(_py: Python<'_>, _config: &AuditCfg) -> PyResult<Self> {
        Err(errors::no_monitoring("monitor_calls=True"))
    }
}

pub fn is_registering() -> bool {
    false
}
