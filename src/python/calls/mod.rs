//! Calls that the monitor sees: the callee's name, its cache, and the question to the host.

#[cfg(Py_3_12)]
pub mod ask;
#[cfg(Py_3_12)]
pub mod callee_side;
#[cfg(Py_3_12)]
pub mod deferred;
#[cfg(Py_3_12)]
pub mod monitor;
#[cfg(Py_3_12)]
pub mod named;

/// The monitor on a Python before 3.12, which cannot watch calls.
#[cfg(not(Py_3_12))]
pub mod monitor {
    use std::sync::atomic::{AtomicBool, Ordering};

    use pyo3::exceptions::PyRuntimeWarning;
    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    use crate::python::cpython::calling;
    use crate::python::guard::monitoring::Free;
    use crate::python::values::errors;

    /// True if this process was told that calls are not watched.
    static TOLD: AtomicBool = AtomicBool::new(false);

    /// To a caller that demands it by an error, to others by a warning, the first time.
    pub fn is_possible(py: Python<'_>, demanded_by: Option<&str>) -> PyResult<bool> {
        if let Some(argument) = demanded_by {
            return Err(errors::no_monitoring(argument));
        }
        // Before Python code runs, which could come here again.
        if !TOLD.swap(true, Ordering::Relaxed) {
            let class = py.get_type::<PyRuntimeWarning>();
            let text = errors::not_watched(py);
            // Ours has no frame: the innermost one is the caller's.
            calling::warn(&class, &text).inspect_err(|_| TOLD.store(false, Ordering::Relaxed))?;
        }
        Ok(false)
    }

    pub fn native_code_loads(_event: &[u8], _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        Ok(())
    }

    pub fn tool_id() -> Option<i32> {
        None
    }

    pub fn holds() -> usize {
        0
    }

    pub fn find_tool_id(_py: Python<'_>, _chosen: Option<i32>) -> PyResult<Option<Free>> {
        Err(errors::no_monitoring("monitor_calls=True"))
    }

    pub fn install(_py: Python<'_>, _free: Free) -> PyResult<()> {
        Err(errors::no_monitoring("monitor_calls=True"))
    }
}
