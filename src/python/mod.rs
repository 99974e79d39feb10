//! The CPython binding: the only part that knows of Python objects.

/// The docstring of a class or function, from the stub.
macro_rules! doc {
    ($name:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/", $name))
    };
}

mod acts;
mod api;
mod callees;
mod calls;
mod configuration;
mod cpython;
mod denials;
mod events;
mod excuses;
mod frames;
mod guard;
mod importing;
mod logs;
mod values;
mod wrapped;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::api::{
    audit_log, children, directory, fields, installed, policy, recording, supervisor, tool,
    tool_awaitable, tool_function,
};
use crate::python::configuration::{config, temporary};
use crate::python::denials::{denial, report};
use crate::python::events::explain;
use crate::python::frames::tracked_calls;
use crate::python::guard::{active, tempfile};
use crate::python::wrapped::{callbacks_later, executors, threads, workers};

/// The native core of `fastaudit_rs`.
#[pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::acts::judge::tables;
    #[pymodule_export]
    use super::api::{
        audit_log::AuditLog,
        children::{Child, Children},
        directory::{Directory, DiskWatch, remove_directory},
        fields::PyNetwork,
        guard::{AuditPerms, Guard},
        installed::{Confinement, enter_worker, installed_policy},
        mk_audit::{audit_state, mk_audit, mk_audit_02},
        policy::{PyPolicy, govern, governing_files},
        question::merged_approvals,
        recording::{Observer, Recording},
        supervisor::{
            Interrupts, descriptor_of, directory, disconnect, hold_sockets, json_extent,
            landlock_version, listeners, own_directory,
        },
        tool::Tool,
        tool_function::{in_tool, run_in},
    };
    #[pymodule_export]
    use super::configuration::{
        config::AuditCfg, declared::lxml_monitor, temporary::TemporaryFiles,
    };
    #[pymodule_export]
    use super::denials::{
        denial::{Denial, raise_violations},
        report::Effect,
    };
    #[pymodule_export]
    use super::events::explain::Explanation;
    #[pymodule_export]
    use super::frames::tracked_calls::{_use_tracker, ActiveCall, CallTracker};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::api::setup::know_classes(super::classes);
        super::api::setup::begin(module.py())
    }

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}

/// Makes all native classes, and that of denials: later there may be no memory, and PyO3 panics then.
fn classes(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyType>>> {
    Ok(vec![
        py.get_type::<active::Active>(),
        py.get_type::<tracked_calls::ActiveCall>(),
        py.get_type::<tracked_calls::CallTracker>(),
        py.get_type::<audit_log::AuditLog>(),
        py.get_type::<config::AuditCfg>(),
        py.get_type::<installed::Confinement>(),
        py.get_type::<denial::Denial>(),
        py.get_type::<explain::Explanation>(),
        py.get_type::<api::guard::AuditPerms>(),
        py.get_type::<api::guard::Guard>(),
        py.get_type::<api::guard::Ready>(),
        py.get_type::<supervisor::Interrupts>(),
        py.get_type::<callbacks_later::Later>(),
        py.get_type::<fields::PyNetwork>(),
        py.get_type::<policy::PyPolicy>(),
        py.get_type::<recording::Observer>(),
        py.get_type::<recording::Recording>(),
        py.get_type::<report::Effect>(),
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
        py.get_type::<children::Child>(),
        py.get_type::<children::Children>(),
        py.get_type::<directory::Directory>(),
        py.get_type::<directory::DiskWatch>(),
        py.get_type::<workers::ShutDown>(),
    ])
}
