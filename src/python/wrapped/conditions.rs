//! Functions without an event that are judged with some arguments alone.

use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::python::cpython::ffi as raw;
use crate::python::wrapped::kinds::Call;

/// Returns whether `faulthandler.dump_traceback_later` is to end the process.
pub fn ends_later(py: Python<'_>, call: &Call<'_>) -> bool {
    let exit = call.find(py, 3, c"exit");
    exit.is_some_and(|exit| {
        !exit
            .cast_exact::<PyBool>()
            .is_ok_and(|exit| !exit.is_true())
    })
}

/// Returns whether `os.wait4` waits for more than one process.
pub fn waits_for_some(py: Python<'_>, call: &Call<'_>) -> bool {
    call.find(py, 0, c"pid").is_some_and(|pid| is_some(&pid))
}

/// Returns whether a number stands for more than one process, or is not known.
pub fn is_some(pid: &Bound<'_, PyAny>) -> bool {
    raw::int_value(pid).is_none_or(|pid| pid <= 0)
}

/// Returns whether `os.waitid` does: for another kind than `P_PID` and `P_PIDFD`.
pub fn waits_by_kind(py: Python<'_>, call: &Call<'_>) -> bool {
    let kind = call.find(py, 0, c"");
    kind.is_some_and(|kind| !matches!(raw::int_value(&kind), Some(1 | 3)))
}
