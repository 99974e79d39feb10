//! The native classes, and the class of denials.

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::api::{
    audit_log, confined, fields, guard, policy, recording, supervisor, tool, tool_awaitable,
    tool_function,
};
#[cfg(unix)]
use crate::python::api::{children, directory};
use crate::python::configuration::{config, temporary};
use crate::python::denials::{denial, report};
use crate::python::events::explain;
use crate::python::frames::tracked_calls;
use crate::python::guard::{active, tempfile};
#[cfg(unix)]
use crate::python::wrapped::workers;
use crate::python::wrapped::{callbacks_later, executors, threads};

/// Makes them all: later there may be no memory, and PyO3 panics then.
pub fn all(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyType>>> {
    let mut classes = vec![
        py.get_type::<active::Active>(),
        py.get_type::<tracked_calls::ActiveCall>(),
        py.get_type::<tracked_calls::CallTracker>(),
        py.get_type::<audit_log::AuditLog>(),
        py.get_type::<config::AuditCfg>(),
        py.get_type::<confined::Confinement>(),
        py.get_type::<denial::Denial>(),
        py.get_type::<explain::Explanation>(),
        py.get_type::<guard::AuditPerms>(),
        py.get_type::<guard::Guard>(),
        py.get_type::<guard::Ready>(),
        py.get_type::<supervisor::Interrupts>(),
        py.get_type::<callbacks_later::Later>(),
        py.get_type::<fields::PyNetwork>(),
        py.get_type::<policy::PyPolicy>(),
        py.get_type::<recording::Observer>(),
        py.get_type::<recording::Recording>(),
        py.get_type::<report::Effect>(),
        py.get_type::<tool::Decorator>(),
        py.get_type::<tool::Text>(),
        py.get_type::<tool::Tool>(),
        py.get_type::<tool_awaitable::ToolAwaitable>(),
        py.get_type::<tempfile::Ask>(),
        py.get_type::<temporary::TemporaryFiles>(),
        py.get_type::<executors::Job>(),
        py.get_type::<threads::Carried>(),
        denial::class(py)?.clone(),
        denial::violation(py)?.clone(),
        tool_function::class(py)?.clone(),
    ];
    #[cfg(unix)]
    classes.extend([
        py.get_type::<children::Child>(),
        py.get_type::<children::Children>(),
        py.get_type::<directory::Directory>(),
        py.get_type::<directory::DiskWatch>(),
        py.get_type::<workers::ShutDown>(),
    ]);
    Ok(classes)
}
