//! `mk_audit`: reads its arguments, installs what is missing, makes the guards.
//!
//! Everything that can be wrong is looked at before anything is installed.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::policy::RuleSet;
use crate::python::api::guard::AuditPerms;
use crate::python::api::options::GuardOptions;
use crate::python::api::readers;
use crate::python::api::readers::OrDefault;
use crate::python::api::v02;
use crate::python::api::wrong_calls;
use crate::python::guard::config::{Allowed, read_oks};
use crate::python::values::errors;

/// Make a guard factory for code that may write only below the approved roots.
///
/// Args:
///     oks: Approved roots, an iterable of ``str``, ``bytes`` or ``os.PathLike``. Each is expanded
///         (``'~'``) and resolved now, links included; ``'.'`` stands for the current directory at the
///         time of each check; ``'/'`` approves every path. No roots: nothing may be written. One that
///         is not there warns, unless it looks like a file that will be made.
///     before_deny: ``before_deny(event, args, frame, msg, data)``, called before an event is
///         denied. A true answer allows it. ``frame`` is the innermost Python frame. Its exceptions
///         go to the guarded code. An event that is denied while it runs is denied without asking
///         it again.
///     on_call: ``on_call(caller, callee, fn, code, off, data)``, called before a native call
///         raises ``fastaudit.call``. ``False`` suppresses the event;
///         ``sys.monitoring.DISABLE`` does so for the call site. Needs ``monitor_calls``.
///     data: Any object; handed to both callbacks.
///     tool_id: The ``sys.monitoring`` tool id to watch calls with, 0 to 5; when it is not given, 3 or
///         another one that is free (``AuditPerms.tool_id``).
///     monitor_calls: True if calls of native code that is not in the standard library raise the
///         audit event ``fastaudit.call``. Needs Python 3.12 (PEP 669): before, ``True`` is an
///         error; without the argument calls are not watched there, which a ``RuntimeWarning`` says
///         once in a process.
///     retire_sites: Stop watching a call site after its first harmless call, one of Python code or
///         of the standard library. Code runs at nearly full speed, but native code called there
///         later is not seen. Needs ``monitor_calls``.
///     on_denied: ``on_denied(denied)``, called with the ``AuditDenied`` before it is raised. Its
///         exceptions become the cause of the denial. An event that is denied while it runs is
///         denied without telling it.
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
    options.make(oks, || {
        let allowed = match rules {
            RuleSet::Classic => read_oks(oks).map(Allowed::below)?,
            RuleSet::Strict => v02::allowed_below(oks, None)?,
        };
        allowed.with_packages(oks.py(), readers::named_packages(packages.as_ref())?)
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
