//! `mk_audit`: reads its arguments, installs what is missing, makes the guards.
//!
//! Everything that can be wrong is looked at before anything is installed.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};

use super::config::{Allowed, AuditCfg, Callbacks, read_oks};
use super::ffi as raw;
use super::guard::AuditPerms;
use super::{
    callbacks, distributions, errors, hook, importing, lookups, monitor, quota, tempfile, threads,
    v02, violation, wrong_calls,
};
use crate::policy::RuleSet;

/// An argument, or its default when the caller leaves it out (`None` is an argument).
pub enum OrDefault<'py> {
    Default,
    Given(Bound<'py, PyAny>),
}

impl<'py> OrDefault<'py> {
    /// The roots of `mk_audit`, which it needs. A keyword that is wrong is to be told of first.
    ///
    /// # Errors
    /// `TypeError`, as CPython words it.
    pub fn given(self) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Given(given) => Ok(given),
            Self::Default => Err(PyTypeError::new_err(
                "mk_audit() missing 1 required positional argument: 'oks'",
            )),
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for OrDefault<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self::Given(object.to_owned()))
    }
}

/// Make a guard factory for code that may write only below the approved roots.
///
/// Args:
///     oks: Approved roots, an iterable of ``str``, ``bytes`` or ``os.PathLike``. Each is expanded
///         (``'~'``) and resolved now, links included; ``'.'`` stands for the current directory at the
///         time of each check; ``'/'`` approves every path. No roots: nothing may be written. One that
///         is not there warns, unless it looks like a file that will be made.
///     before_deny: ``before_deny(event, args, frame, msg, data)``, called before an event is
///         denied. A true answer allows it. ``frame`` is the innermost Python frame. What it
///         raises goes to the guarded code. What is denied while it runs is denied without asking
///         it again.
///     on_call: ``on_call(caller, callee, fn, code, off, data)``, called before a native call
///         raises ``fastaudit.call``. ``False`` suppresses the event;
///         ``sys.monitoring.DISABLE`` does so for the call site. Needs ``monitor_calls``.
///     data: Any object; handed to both callbacks.
///     tool_id: The ``sys.monitoring`` tool id to watch calls with, 0 to 5; when it is not given, 3 or
///         another one that is free (``AuditPerms.tool_id``).
///     monitor_calls: Whether calls of native code that is not in the standard library raise the
///         audit event ``fastaudit.call``. Needs Python 3.12 (PEP 669): before, ``True`` is an
///         error, and where it is not given they are not watched, which a ``RuntimeWarning`` says
///         once in a process.
///     retire_sites: Whether a call site is watched no longer once it called Python code or the
///         standard library: code runs at nearly full speed, and native code that is called there
///         later goes unseen. Needs ``monitor_calls``.
///     on_denied: ``on_denied(denied)``, called with the ``AuditDenied`` before it is raised. What it
///         raises becomes the cause of the denial. What is denied while it runs is denied without
///         telling it.
///     packages: Packages that may do what they need, as one installs or imports them: their native
///         code may be called, importing them may do what is denied otherwise, environment variables
///         of theirs may be set, their own code may use ``ctypes``, and threads may start, under the
///         same guard. ``'data'`` names all that fastaudit_rs declares.
///     rules: Whose rules the guard keeps: ``'0.1'``, those of fastaudit 0.1, or ``'0.2'``, those of
///         fastaudit 0.2, as ``fastaudit_rs.v02.mk_audit`` has them.
///
/// Returns:
///     A factory: ``with audit_perms(): ...`` turns the checks on in the current context, and
///     ``audit_perms.set_data(d)`` replaces ``data``.
///
/// Raises:
///     TypeError: An argument has the wrong type; the message names it.
///     ValueError: A root is empty, holds a NUL or cannot be encoded, ``tool_id`` is out of range, or a name in
///         ``packages`` is neither installed nor declared.
///     RuntimeError: ``monitor_calls`` on a Python without ``sys.monitoring``; a tool id in use;
///         ``on_call`` or ``retire_sites`` without ``monitor_calls``; another audit hook refused ours.
///     PermissionError: Called inside a guard.
///
/// The first call installs one audit hook (PEP 578) for the life of the process. Raises the audit
/// event ``audit_perms.set_config`` with ``oks``.
#[pyfunction]
#[pyo3(
    signature = (oks=OrDefault::Default, before_deny=None, on_call=None, data=None, tool_id=OrDefault::Default, monitor_calls=OrDefault::Default, *, retire_sites=OrDefault::Default, on_denied=None, rules=OrDefault::Default, packages=None, **named),
    text_signature = "(oks, before_deny=None, on_call=None, data=None, tool_id=3, monitor_calls=True, *, retire_sites=False, on_denied=None, rules='0.1', packages=())"
)]
#[expect(clippy::too_many_arguments, reason = "Python's keyword arguments")]
pub fn mk_audit<'py>(
    oks: OrDefault<'py>,
    before_deny: Option<Bound<'py, PyAny>>,
    on_call: Option<Bound<'py, PyAny>>,
    data: Option<Bound<'py, PyAny>>,
    tool_id: OrDefault<'py>,
    monitor_calls: OrDefault<'py>,
    retire_sites: OrDefault<'py>,
    on_denied: Option<Bound<'py, PyAny>>,
    rules: OrDefault<'py>,
    packages: Option<Bound<'py, PyAny>>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<AuditPerms> {
    wrong_calls::check_named("mk_audit", named)?;
    let oks = &oks.given()?;
    let rules = read_rules(&rules)?;
    let options = GuardOptions {
        before_deny,
        on_call,
        data,
        tool_id,
        monitor_calls,
        retire_sites,
        on_denied,
        rules,
    };
    options.make(oks, || match rules {
        RuleSet::Classic => read_oks(oks)
            .map(Allowed::below)?
            .with_packages(packages.as_ref()),
        RuleSet::Strict => v02::allowed_below(oks, None)?.with_packages(packages.as_ref()),
    })
}

/// The rules that a host picks by name.
fn read_rules(given: &OrDefault<'_>) -> PyResult<RuleSet> {
    let OrDefault::Given(given) = given else {
        return Ok(RuleSet::default());
    };
    let Ok(name) = given.cast::<PyString>() else {
        return Err(errors::rules_type(given));
    };
    match name.to_str() {
        Ok("0.1") => Ok(RuleSet::Classic),
        Ok("0.2") => Ok(RuleSet::Strict),
        _ => Err(errors::no_such_rules(given)),
    }
}

/// What `mk_audit` and `Policy.guard` take beside what is allowed.
pub struct GuardOptions<'py> {
    pub before_deny: Option<Bound<'py, PyAny>>,
    pub on_call: Option<Bound<'py, PyAny>>,
    pub data: Option<Bound<'py, PyAny>>,
    pub tool_id: OrDefault<'py>,
    pub monitor_calls: OrDefault<'py>,
    pub retire_sites: OrDefault<'py>,
    pub on_denied: Option<Bound<'py, PyAny>>,
    /// The rules of the guard, which say what callbacks get.
    pub rules: RuleSet,
}

impl<'py> GuardOptions<'py> {
    /// Checks everything, installs what is missing, makes the guards. `given` is the argument of the
    /// audit event `audit_perms.set_config`.
    pub fn make(
        self,
        given: &Bound<'py, PyAny>,
        read_allowed: impl FnOnce() -> PyResult<Allowed>,
    ) -> PyResult<AuditPerms> {
        self.configure(given, read_allowed).map(AuditPerms::new)
    }

    /// The same for one guard of this configuration.
    pub fn configure(
        self,
        given: &Bound<'py, PyAny>,
        read_allowed: impl FnOnce() -> PyResult<Allowed>,
    ) -> PyResult<Py<AuditCfg>> {
        let py = given.py();
        raw::audit(py, c"audit_perms.set_config", &[given])?;
        let rules = self.rules;
        let tool_id = read_tool_id(&self.tool_id)?;
        let monitor_calls = read_bool(&self.monitor_calls, "monitor_calls", true)?;
        let retire_sites = read_bool(&self.retire_sites, "retire_sites", false)?;
        if retire_sites && !monitor_calls {
            return Err(errors::retire_sites_without_monitor());
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
            return Err(errors::on_call_without_monitor());
        }
        // Who says nothing of calls gets what this Python can do.
        let demanded_by = match self.monitor_calls {
            OrDefault::Given(_) => Some("monitor_calls=True"),
            OrDefault::Default if callbacks.on_call.is_some() => Some("on_call"),
            OrDefault::Default if retire_sites => Some("retire_sites=True"),
            OrDefault::Default => None,
        };
        let allowed = read_allowed()?;
        let is_asked = callbacks.on_call.is_some() || allowed.records.is_some();
        // Where all native code may be called there is nothing to watch.
        let monitor_calls = monitor_calls
            && (is_asked || !allowed.policy.calls_all_native())
            && monitor::is_possible(py, demanded_by)?;
        wrong_calls::warn_of_missing(py, &allowed)?;
        let free = match monitor_calls {
            true => monitor::find_tool_id(py, tool_id)?,
            false => None,
        };
        hook::install(py)?;
        prepare(py, &allowed)?;
        tempfile::look_again(py);
        if let Some(free) = free {
            monitor::install(py, free)?;
        }
        let data = self.data.map_or_else(|| py.None(), Bound::unbind);
        let config = AuditCfg::new(allowed, callbacks, data, monitor_calls, retire_sites);
        Py::new(py, config)
    }
}

/// Installs and imports what a policy needs beside the hook.
fn prepare(py: Python<'_>, allowed: &Allowed) -> PyResult<()> {
    distributions::prepare(py)?;
    let policy = &allowed.policy;
    let records = allowed.records.is_some();
    if policy.network().rules().is_some() || records {
        lookups::install(py)?;
    }
    let rest = policy.rest();
    // Some start under every guard, and take it along.
    threads::install(py)?;
    // What installed modules do is excused in places.
    importing::learn_libraries(py)?;
    let is_strict = policy.rules() == RuleSet::Strict;
    let imports = !rest.import_allow.is_empty() || !rest.packages.is_empty();
    if policy.restricts_imports() || imports || records || is_strict {
        importing::prepare(py)?;
    }
    importing::know_import_system(py)?;
    if rest.max_bytes.is_some() {
        quota::install(py)?;
    }
    violation::prepare(py, allowed.on_violation)
}

/// The tool id that the host chose; `None` where any does.
fn read_tool_id(given: &OrDefault<'_>) -> PyResult<Option<i32>> {
    let OrDefault::Given(given) = given else {
        return Ok(None);
    };
    if given.is_instance_of::<PyBool>() || !given.is_instance_of::<pyo3::types::PyInt>() {
        return Err(errors::tool_id_type(given));
    }
    raw::int_value(given)
        .and_then(|id| i32::try_from(id).ok())
        .filter(|id| (0..=5).contains(id))
        .map(Some)
        .ok_or_else(|| errors::tool_id_range(given))
}

/// Reads a switch.
///
/// # Errors
/// `TypeError` for what is none.
pub fn read_bool(given: &OrDefault<'_>, argument: &str, default: bool) -> PyResult<bool> {
    let OrDefault::Given(given) = given else {
        return Ok(default);
    };
    given
        .cast::<PyBool>()
        .map(|value| value.is_true())
        .map_err(|_| errors::not_a_bool(argument, given))
}
