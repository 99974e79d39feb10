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

/// The native core of `fastaudit_rs`.
#[pymodule(gil_used = true)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::api::{
        audit_log::AuditLog,
        confined::Confinement,
        fields::PyNetwork,
        guard::{AuditPerms, Guard},
        installed::{installed_policy, raise_violations},
        mk_audit::{audit_state, mk_audit, mk_audit_02},
        policy::{PyPolicy, govern, governing_files},
        question::merged_approvals,
        recording::{Observer, Recording},
        reports::json_extent,
        setup::native_tables,
        supervisor::{Interrupts, descriptor_of, hold_sockets, listeners, own_directory},
        tool::Tool,
        tool_function::{in_tool, run_in, tool_arguments, tool_result},
    };
    #[cfg(unix)]
    #[pymodule_export]
    use super::api::{
        children::{Child, Children},
        directory::{Directory, DiskWatch, remove_directory},
        worker_entry::enter_worker,
    };
    #[pymodule_export]
    use super::configuration::{
        config::AuditCfg, declared::lxml_monitor, temporary::TemporaryFiles,
    };
    #[pymodule_export]
    use super::denials::{denial::Denial, report::Effect};
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
