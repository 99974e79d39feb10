//! The CPython binding: the only part that knows of Python objects.

mod active;
mod acts_of_packages;
mod allowed;
mod arguments;
mod asked;
mod callbacks;
#[cfg(Py_3_12)]
mod callee;
mod caller;
mod calls;
mod chain;
mod channels;
#[cfg(unix)]
mod child;
#[cfg(unix)]
mod children_signals;
mod code;
mod command;
mod config;
mod confined;
mod context;
mod declared;
mod decode;
mod denial;
mod denied;
mod distributions;
mod errors;
mod event;
mod excuses;
mod executors;
mod explanation;
mod ffi;
mod fields;
mod file_methods;
mod foreign_functions;
mod forks;
#[cfg(Py_3_12)]
mod fragile;
mod frames;
mod guard;
mod handlers;
mod hint;
mod hook;
mod host_code;
mod importing;
mod install;
mod intercept;
mod lacking;
mod later;
#[cfg(Py_3_12)]
mod layout;
mod lending;
#[cfg(Py_3_12)]
mod loaded;
mod lookups;
mod methods;
mod mk_audit;
mod monitor;
#[cfg(Py_3_12)]
mod named;
#[cfg(Py_3_12)]
mod native_call;
mod natives;
mod network;
mod network_rules;
mod noted;
mod origin;
mod place;
mod plain;
mod policy;
#[cfg(unix)]
mod pool_files;
mod pool_starts;
mod pools;
mod probes;
mod process_start;
#[cfg(Py_3_12)]
mod quiet;
mod quota;
mod raw_frames;
mod recorder;
mod recording;
mod records;
#[cfg(unix)]
mod reused_executors;
mod safe_sets;
mod scope;
#[cfg(unix)]
mod servers;
mod shared_values;
mod signature;
mod silent;
#[cfg(unix)]
mod starts;
mod statements;
mod tempfile;
mod temporary;
mod temporary_directory;
mod threads;
#[cfg(Py_3_12)]
mod tool;
#[cfg(unix)]
mod unchanging;
mod v02;
mod variables;
mod violation;
mod violations;
mod with_statement;
mod wording;
#[cfg(unix)]
mod workers;
#[cfg(Py_3_12)]
mod writes;
mod wrong_calls;

use pyo3::prelude::*;

/// The native core of `fastaudit_rs`.
#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use super::calls::{_use_tracker, ActiveCall, CallTracker};
    #[cfg(unix)]
    #[pymodule_export]
    use super::child::{Child, Children};
    #[pymodule_export]
    use super::config::AuditCfg;
    #[pymodule_export]
    use super::confined::Confinement;
    #[pymodule_export]
    use super::declared::lxml_monitor;
    #[pymodule_export]
    use super::denied::Denial;
    #[pymodule_export]
    use super::explanation::Explanation;
    #[pymodule_export]
    use super::guard::{AuditPerms, Guard};
    #[pymodule_export]
    use super::install::installed_policy;
    #[pymodule_export]
    use super::mk_audit::mk_audit;
    #[pymodule_export]
    use super::network_rules::Network;
    #[pymodule_export]
    use super::policy::Policy;
    #[pymodule_export]
    use super::recording::{Observer, Recording};
    #[pymodule_export]
    use super::records::Effect;
    #[pymodule_export]
    use super::temporary::TemporaryFiles;
    #[cfg(unix)]
    #[pymodule_export]
    use super::workers::enter_worker;

    #[pymodule_export]
    use super::v02::{audit_state, mk_audit_02};

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
