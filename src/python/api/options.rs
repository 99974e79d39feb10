//! The options that `mk_audit` and `Policy.guard` take beside the permissions.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::policy::RuleSet;
use crate::python::api::readers::{OrDefault, read_bool};
use crate::python::api::{audit_log, question, setup, wrong_calls};
use crate::python::callees::distributions;
use crate::python::calls::monitor;
use crate::python::configuration::allowed::Allowed;
use crate::python::configuration::callbacks;
use crate::python::configuration::config::{AuditCfg, Callbacks};
use crate::python::cpython::ffi as raw;
use crate::python::events::deny;
use crate::python::guard::{governing, tempfile};
use crate::python::importing::imports;
use crate::python::values::errors;
use crate::python::wrapped::{quota, sockets, threads};

#[derive(Default)]
pub struct GuardOptions<'py> {
    pub before_deny: Option<Bound<'py, PyAny>>,
    pub on_call: Option<Bound<'py, PyAny>>,
    pub data: Option<Bound<'py, PyAny>>,
    pub tool_id: OrDefault<'py>,
    pub monitor_calls: OrDefault<'py>,
    pub retire_sites: OrDefault<'py>,
    pub on_denied: Option<Bound<'py, PyAny>>,
    pub on_ask: Option<Bound<'py, PyAny>>,
    /// For an asynchronous `on_ask`.
    pub ask_seconds: Option<Bound<'py, PyAny>>,
    /// The log of decisions, or its path.
    pub log: Option<Bound<'py, PyAny>>,
    /// The rules of the guard, which decide the arguments of callbacks.
    pub rules: RuleSet,
}

impl<'py> GuardOptions<'py> {
    /// Checks everything, installs what is missing, makes a configuration of guards. `given` is the
    /// argument of the audit event `audit_perms.set_config`.
    pub fn configure(
        self,
        given: &Bound<'py, PyAny>,
        read_allowed: impl FnOnce() -> PyResult<Allowed>,
    ) -> PyResult<Py<AuditCfg>> {
        let py = given.py();
        raw::audit(py, c"audit_perms.set_config", (given,))?;
        let rules = self.rules;
        let tool_id = read_tool_id(&self.tool_id)?;
        let monitor_calls = read_bool(&self.monitor_calls, "monitor_calls", true)?;
        let retire_sites = read_bool(&self.retire_sites, "retire_sites", false)?;
        if retire_sites && !monitor_calls {
            return Err(errors::without_monitor("retire_sites"));
        }
        let read = |callback: &Option<Bound<'py, PyAny>>, contract| {
            let callback = callback.as_ref();
            let callback = callback.map(|callback| callbacks::read(callback, contract, rules));
            callback.transpose()
        };
        let callbacks = Callbacks {
            before_deny: read(&self.before_deny, &callbacks::BEFORE_DENY)?,
            on_call: read(&self.on_call, &callbacks::ON_CALL)?,
            on_denied: read(&self.on_denied, &callbacks::ON_DENIED)?,
        };
        if callbacks.on_call.is_some() && !monitor_calls {
            return Err(errors::without_monitor("on_call"));
        }
        // Callers who say nothing of calls get what this Python can do.
        let demanded_by = match self.monitor_calls {
            OrDefault::Given(_) => Some("monitor_calls=True"),
            OrDefault::Default if callbacks.on_call.is_some() => Some("on_call"),
            OrDefault::Default if retire_sites => Some("retire_sites=True"),
            OrDefault::Default => None,
        };
        let question = question::read(py, self.on_ask.as_ref(), self.ask_seconds.as_ref(), rules)?;
        let mut allowed = read_allowed()?;
        allowed.log = self.log.as_ref().map(audit_log::read).transpose()?;
        if allowed.log.is_some() && rules == RuleSet::Strict {
            return Err(PyValueError::new_err(
                "log needs rules='0.1': the rules of fastaudit 0.2 have no log",
            ));
        }
        let is_asked = callbacks.on_call.is_some() || allowed.records.is_some();
        // If all native code may be called there is nothing to watch.
        let monitor_calls = monitor_calls
            && (is_asked || !allowed.policy.calls_all_native())
            && monitor::is_possible(py, demanded_by)?;
        wrong_calls::warn_of_missing(py, &allowed)?;
        let turn = setup::turn(py)?;
        let free = match monitor_calls {
            true => monitor::find_tool_id(py, tool_id)?,
            false => None,
        };
        allowed.policy = allowed.policy.keeping(&governing::files());
        setup::install(py)?;
        prepare(py, &allowed, question.is_some())?;
        let approvals = question.map(|question| question.approvals(py, &allowed.policy));
        let approvals = approvals.transpose()?;
        tempfile::look_again(py);
        if let Some(free) = free {
            monitor::install(py, free)?;
        }
        drop(turn);
        let data = self.data.map_or_else(|| py.None(), Bound::unbind);
        let mut config = AuditCfg::new(allowed, callbacks, data, monitor_calls, retire_sites);
        if approvals.is_some() {
            config = config.asking(approvals);
        }
        Py::new(py, config)
    }
}

/// Installs and imports what a policy needs beside the hook.
fn prepare(py: Python<'_>, allowed: &Allowed, asks: bool) -> PyResult<()> {
    distributions::prepare(py)?;
    #[cfg(unix)]
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

fn read_tool_id(given: &OrDefault<'_>) -> PyResult<Option<i32>> {
    let OrDefault::Given(given) = given else {
        return Ok(None);
    };
    if given.is_instance_of::<PyBool>() || !given.is_instance_of::<pyo3::types::PyInt>() {
        return Err(errors::wrong_type("tool_id", "an int from 0 to 5", given));
    }
    raw::int_value(given)
        .and_then(|id| i32::try_from(id).ok())
        .filter(|id| (0..=5).contains(id))
        .map(Some)
        .ok_or_else(|| {
            let given = errors::shown(given);
            PyValueError::new_err(format!("tool_id must be from 0 to 5, not {given}"))
        })
}
