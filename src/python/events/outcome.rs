//! A violation that does not stop the code: a warning, a log record, or a call of the host's
//! function.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::policy::written::spec::OnViolation;
use crate::python::cpython::calling::{self, Calling};
use crate::python::denials::denial::Denial;
use crate::python::guard::config::AuditCfg;

/// The logger that violations go to.
const LOGGER: &str = "fastaudit_rs";

/// Reports a violation that proceeds.
///
/// # Errors
/// Errors raised by the host's function, by a warning that is an error, or by a log handler: then
/// the operation does not proceed.
pub fn tell(
    config: &AuditCfg,
    denial: &Bound<'_, Denial>,
    exception: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = denial.py();
    match config.on_violation() {
        OnViolation::Raise => Ok(()),
        OnViolation::Warn => {
            let class = calling::import(py, "fastaudit_rs.denied")?.attr("AuditWarning")?;
            let message = denial.get().message(py)?;
            let warn = calling::import(py, "warnings")?.attr("warn")?;
            // The innermost Python frame is that of the code to blame.
            let args = (message, class, 1).into_pyobject(py)?;
            calling::call(&warn, &args, None).map(|_| ())
        }
        OnViolation::Log => {
            let logger = calling::import(py, "logging")?.invoke_method1("getLogger", (LOGGER,))?;
            let fields = PyDict::new(py);
            let told = exception.attr("to_dict")?;
            fields.set_item(
                "fastaudit",
                calling::call(&told, &PyTuple::empty(py), None)?,
            )?;
            let options = PyDict::new(py);
            options.set_item("extra", fields)?;
            let warning = logger.attr("warning")?;
            let args = ("%s", denial.get().message(py)?).into_pyobject(py)?;
            calling::call(&warning, &args, Some(&options)).map(|_| ())
        }
        OnViolation::Call => match config.violation_call(py) {
            Some(call) => {
                let args = (exception,).into_pyobject(py)?;
                calling::call(&call, &args, None).map(|_| ())
            }
            None => Ok(()),
        },
    }
}

/// Imports the modules that a report needs, as a guard might deny it later.
pub fn prepare(py: Python<'_>, on_violation: OnViolation) -> PyResult<()> {
    match on_violation {
        OnViolation::Log => calling::import(py, "logging").map(|_| ()),
        OnViolation::Warn => calling::import(py, "warnings").map(|_| ()),
        OnViolation::Raise | OnViolation::Call => Ok(()),
    }
}
