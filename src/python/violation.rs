//! A violation that does not stop what the code does: a warning, a log record, or a function of
//! the host.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::config::AuditCfg;
use super::denied::Denial;
use crate::policy::spec::OnViolation;

/// The logger that violations go to.
const LOGGER: &str = "fastaudit_rs";

/// Tells of a violation that proceeds.
///
/// # Errors
/// What the host's function raised, a warning that is an error, or a log handler's: then the
/// operation does not proceed.
pub fn tell(
    config: &AuditCfg,
    denial: &Bound<'_, Denial>,
    exception: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = denial.py();
    match config.on_violation() {
        OnViolation::Raise => Ok(()),
        OnViolation::Warn => {
            let class = py.import("fastaudit_rs.denied")?.getattr("AuditWarning")?;
            let message = denial.get().message(py);
            // The innermost Python frame is that of the code that did it.
            PyErr::warn(
                py,
                &class,
                &std::ffi::CString::new(message.bind(py).to_string_lossy().as_bytes())?,
                1,
            )
        }
        OnViolation::Log => {
            let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
            let fields = PyDict::new(py);
            fields.set_item("fastaudit", exception.call_method0("to_dict")?)?;
            let options = PyDict::new(py);
            options.set_item("extra", fields)?;
            let arguments = ("%s", denial.get().message(py));
            logger.call_method("warning", arguments, Some(&options))?;
            Ok(())
        }
        OnViolation::Call => match config.violation_call(py) {
            Some(call) => call.call1((exception,)).map(|_| ()),
            None => Ok(()),
        },
    }
}

/// Imports what telling needs, as a guard might deny that later.
///
/// # Errors
/// What importing raises.
pub fn prepare(py: Python<'_>, on_violation: OnViolation) -> PyResult<()> {
    match on_violation {
        OnViolation::Log => py.import("logging").map(|_| ()),
        OnViolation::Warn => py.import("warnings").map(|_| ()),
        OnViolation::Raise | OnViolation::Call => Ok(()),
    }
}
