//! The options that `mk_audit` and `Policy.guard` take beside the permissions.

use std::env;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::policy::RuleSet;
use crate::python::api::policy::PyPolicy;
use crate::python::api::readers::{self, GivenArguments};
use crate::python::api::{audit_log, question, setup, wrong_calls};
use crate::python::callees::distributions;
use crate::python::calls::callee_side;
#[cfg(Py_3_12)]
use crate::python::calls::monitor;
use crate::python::configuration::allowed::Allowed;
use crate::python::configuration::callbacks;
use crate::python::configuration::config::{AuditCfg, Callbacks, Side};
use crate::python::cpython::ffi as raw;
use crate::python::events::deny;
use crate::python::guard::{governing, tempfile};
use crate::python::importing::imports;
use crate::python::values::errors;
use crate::python::wrapped::{quota, sockets, threads};

/// The options that are also taken by position.
pub const BY_POSITION: usize = 5;

/// Those of `Policy.guard`.
pub const OPTIONS: [&str; 11] = [
    "before_deny",
    "on_call",
    "data",
    "tool_id",
    "monitor_calls",
    "on_denied",
    "on_ask",
    "ask_seconds",
    "log",
    "calls",
    "retire_sites",
];

/// The configuration of guards of a policy.
///
/// # Errors
/// As those of `configure`.
pub fn of_policy<'py>(
    options: &GivenArguments<'py>,
    policy: &Bound<'py, PyPolicy>,
) -> PyResult<Py<AuditCfg>> {
    let allowed = || policy.get().allowed(policy.py());
    configure(options, RuleSet::Classic, policy.as_any(), allowed)
}

/// Checks all options, installs what is missing, makes a configuration of guards. `given` is the
/// argument of the audit event `audit_perms.set_config`; the rules decide the arguments of callbacks.
pub fn configure<'py>(
    options: &GivenArguments<'py>,
    rules: RuleSet,
    given: &Bound<'py, PyAny>,
    read_allowed: impl FnOnce() -> PyResult<Allowed>,
) -> PyResult<Py<AuditCfg>> {
    let py = given.py();
    raw::audit(py, c"audit_perms.set_config", (given,))?;
    #[cfg_attr(not(Py_3_12), expect(unused_variables, reason = "there are no tools"))]
    let tool_id = options.get("tool_id").map(read_tool_id).transpose()?;
    let monitor_calls = options.flag("monitor_calls", true)?;
    let retire_sites = options.flag("retire_sites", false)?;
    if retire_sites && !monitor_calls {
        return Err(errors::without_monitor("retire_sites"));
    }
    let side = match options.some("calls") {
        Some(given) => read_side("calls", given)?,
        None if retire_sites => Side::Caller,
        None => usual_side(py)?,
    };
    if retire_sites && side == Side::Callee {
        return Err(PyValueError::new_err(
            "retire_sites needs calls='events': without events there are no call sites to stop",
        ));
    }
    if retire_sites && cfg!(not(Py_3_12)) {
        return Err(errors::no_monitoring("retire_sites=True"));
    }
    let read = |name, contract| {
        let callback = options.some(name);
        callback.map(|callback| callbacks::read(callback, contract, rules)).transpose()
    };
    let mut callbacks = Callbacks {
        before_deny: read("before_deny", &callbacks::BEFORE_DENY)?,
        on_call: read("on_call", &callbacks::ON_CALL)?,
        on_denied: read("on_denied", &callbacks::ON_DENIED)?,
        approvals: None,
    };
    if callbacks.on_call.is_some() && !monitor_calls {
        return Err(errors::without_monitor("on_call"));
    }
    let question = question::read(py, options.some("on_ask"), options.some("ask_seconds"), rules)?;
    let mut allowed = read_allowed()?;
    // A recording has a log of its own.
    if allowed.records.is_none() {
        allowed.log = options.some("log").map(audit_log::read).transpose()?;
    }
    if allowed.log.is_some() && rules == RuleSet::Strict {
        return Err(PyValueError::new_err(
            "log needs rules='0.1': the rules of fastaudit 0.2 have no log",
        ));
    }
    let is_asked = callbacks.on_call.is_some() || allowed.records.is_some();
    // If all native code may be called there is nothing to watch.
    let monitor_calls = monitor_calls && (is_asked || !allowed.policy.calls_all_native());
    wrong_calls::warn_of_missing(py, &allowed)?;
    let turn = setup::turn(py)?;
    #[cfg(Py_3_12)]
    let free = match monitor_calls && side == Side::Caller {
        true => monitor::find_tool_id(py, tool_id)?,
        false => None,
    };
    allowed.policy = allowed.policy.keeping(&governing::files());
    setup::install(py)?;
    prepare(py, &allowed, question.is_some())?;
    if let Some((approvals, kept)) = question {
        approvals.begin(py, &kept, &allowed.policy)?;
        callbacks.approvals = Some(approvals);
    }
    tempfile::look_again(py);
    #[cfg(Py_3_12)]
    if let Some(free) = free {
        monitor::install(py, free)?;
    }
    if monitor_calls && side == Side::Callee {
        callee_side::install(py)?;
    }
    drop(turn);
    let data = options.get("data").map_or_else(|| py.None(), |data| data.clone().unbind());
    let config = AuditCfg::new(allowed, callbacks, data, monitor_calls, side, retire_sites);
    Py::new(py, config)
}

/// Installs and imports what a policy needs beside the hook.
fn prepare(py: Python<'_>, allowed: &Allowed, asks: bool) -> PyResult<()> {
    distributions::prepare(py)?;
    distributions::note_beginning();
    let policy = &allowed.policy;
    let records = allowed.records.is_some();
    if policy.network().rules().is_some() || records || asks {
        sockets::install_lookups(py)?;
    }
    let rest = policy.rest();
    // Some start under every guard, and take it along.
    threads::install(py)?;
    // Some acts of installed modules are excused.
    imports::learn_libraries(py)?;
    imports::know_import_system(py)?;
    if rest.max_bytes.is_some() {
        quota::install(py)?;
    }
    deny::prepare(py, allowed.stated.on_violation)
}

/// The variable with the side of guards that are given none.
const USUAL_SIDE: &str = "FASTAUDIT_RS_CALLS";

fn usual_side(py: Python<'_>) -> PyResult<Side> {
    match env::var(USUAL_SIDE) {
        Ok(given) => read_side(USUAL_SIDE, &PyString::new(py, &given)),
        Err(_) => Ok(Side::USUAL),
    }
}

fn read_side(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Side> {
    match readers::one_of(name, given, &Side::NAMES, "")? {
        Side::Caller if cfg!(not(Py_3_12)) => {
            Err(errors::no_monitoring(&format!("{name}='events'")))
        }
        side => Ok(side),
    }
}

fn read_tool_id(given: &Bound<'_, PyAny>) -> PyResult<i32> {
    const ACCEPTED: &str = "an int from 0 to 5";
    let id = readers::whole("tool_id", given, ACCEPTED)?;
    match (0..=5).contains(&id) {
        true => Ok(id),
        false => Err(PyValueError::new_err(format!("tool_id must be {ACCEPTED}, not {id}"))),
    }
}
