//! The guards in force: their configuration, their scope, and how they are carried.

pub mod active;
pub mod carry;
pub mod copies;
pub mod entered_at;
pub mod environment;
pub mod event;
pub mod governing;
pub mod log_handlers;
#[cfg(Py_3_12)]
pub mod monitoring;
pub mod scope;
pub mod tempfile;
pub mod tool_rights;
pub mod tool_scope;

/// What stands in for it before Python 3.12, which has no `sys.monitoring`.
#[cfg(not(Py_3_12))]
pub mod monitoring {
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
}
