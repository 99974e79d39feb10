//! The guards in force: their configuration, their scope, and how they are carried.

pub mod active;
pub mod carry;
pub mod copies;
pub mod entered_at;
pub mod environment;
pub mod event;
pub mod governing;
pub mod holds;
pub mod log_handlers;
#[cfg(Py_3_12)]
pub mod monitoring;
pub mod own_events;
pub mod scope;
pub mod tempfile;
pub mod tool_rights;
pub mod tool_scope;

/// What stands in for it before Python 3.12, which has no `sys.monitoring`.
#[cfg(not(Py_3_12))]
pub mod monitoring {
    use pyo3::prelude::*;

    use crate::python::values::errors;

    pub fn prepare_for(_py: Python<'_>, _retires: bool) -> PyResult<()> {
        Err(errors::no_monitoring("calls='events'"))
    }

    pub fn hold(_py: Python<'_>, _retires: bool) -> PyResult<()> {
        Err(errors::no_monitoring("calls='events'"))
    }

    pub fn release(_retires: bool) {}

    pub fn tool_id() -> Option<i32> {
        None
    }

    pub fn switches_off() -> bool {
        false
    }

    pub fn is_late() -> bool {
        false
    }

    pub fn native_code_loads(_py: Python<'_>) -> PyResult<()> {
        Ok(())
    }
}
