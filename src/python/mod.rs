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
mod pools;
mod values;
mod wrapped;

use pyo3::prelude::*;

/// The native core of `fastaudit_rs`.
#[pymodule(gil_used = true)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::api::audit_log::AuditLog;
    #[cfg(unix)]
    #[pymodule_export]
    use super::api::children::{Child, Children};
    #[pymodule_export]
    use super::api::confined::Confinement;
    #[cfg(unix)]
    #[pymodule_export]
    use super::api::directory::{Directory, DiskWatch, remove_directory};
    #[pymodule_export]
    use super::api::fields::PyNetwork;
    #[pymodule_export]
    use super::api::guard::{AuditPerms, Guard};
    #[pymodule_export]
    use super::api::installed::{installed_policy, raise_violations};
    #[pymodule_export]
    use super::api::mk_audit::{audit_state, mk_audit, mk_audit_02};
    #[pymodule_export]
    use super::api::policy::{PyPolicy, govern, governing_files};
    #[pymodule_export]
    use super::api::question::merged_approvals;
    #[pymodule_export]
    use super::api::recording::{Observer, Recording};
    #[pymodule_export]
    use super::api::reports::json_extent;
    #[pymodule_export]
    use super::api::setup::native_tables;
    #[pymodule_export]
    use super::api::supervisor::{
        Interrupts, descriptor_of, hold_sockets, listeners, own_directory,
    };
    #[pymodule_export]
    use super::api::tool::Tool;
    #[pymodule_export]
    use super::api::tool_function::{in_tool, run_in, tool_arguments, tool_result};
    #[cfg(unix)]
    #[pymodule_export]
    use super::api::worker_entry::enter_worker;
    #[pymodule_export]
    use super::configuration::config::AuditCfg;
    #[pymodule_export]
    use super::configuration::declared::lxml_monitor;
    #[pymodule_export]
    use super::configuration::temporary::TemporaryFiles;
    #[pymodule_export]
    use super::denials::denial::Denial;
    #[pymodule_export]
    use super::denials::report::Effect;
    #[pymodule_export]
    use super::events::explain::Explanation;
    #[pymodule_export]
    use super::frames::tracked_calls::{_use_tracker, ActiveCall, CallTracker};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::api::setup::know_classes(super::api::classes::all);
        super::api::setup::begin(module.py())
    }

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
