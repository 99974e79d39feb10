//! `mk_audit`: reads its arguments, installs what is missing, makes the guards.
//!
//! All arguments are checked before anything is installed.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::policy::RuleSet;
use crate::python::api::guard::AuditPerms;
use crate::python::api::options::GuardOptions;
use crate::python::api::readers::{self, OrDefault};
use crate::python::api::wrong_calls;
use crate::python::calls::monitor;
use crate::python::configuration::allowed::{Allowed, ApprovedRoots, read_oks};
use crate::python::configuration::config::read_modules;
use crate::python::configuration::declared::Declared;
use crate::python::guard::scope::{self, Current};
use crate::python::values::errors;

#[doc = doc!("mk_audit")]
#[pyfunction]
#[pyo3(
    signature = (oks=OrDefault::Default, before_deny=None, on_call=None, data=None, tool_id=OrDefault::Default, monitor_calls=OrDefault::Default, *, retire_sites=OrDefault::Default, on_denied=None, on_ask=None, ask_seconds=None, log=None, rules=OrDefault::Default, packages=None, **named),
    text_signature = "(oks, before_deny=None, on_call=None, data=None, tool_id=3, monitor_calls=True, *, retire_sites=False, on_denied=None, on_ask=None, ask_seconds=None, log=None, rules='0.1', packages=())"
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
    on_ask: Option<Bound<'py, PyAny>>,
    ask_seconds: Option<Bound<'py, PyAny>>,
    log: Option<Bound<'py, PyAny>>,
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
        on_ask,
        ask_seconds,
        log,
        rules,
    };
    let config = options.configure(oks, || {
        let allowed = match rules {
            RuleSet::Classic => read_oks(oks).map(Allowed::below)?,
            RuleSet::Strict => allowed_below(oks, None)?,
        };
        allowed.with_packages(oks.py(), readers::named_packages(packages.as_ref())?)
    })?;
    Ok(AuditPerms::new(config))
}

fn read_rules(given: &OrDefault<'_>) -> PyResult<RuleSet> {
    let OrDefault::Given(given) = given else {
        return Ok(RuleSet::default());
    };
    const ACCEPTED: &str = "'0.1' or '0.2'";
    let name = given.cast::<PyString>();
    match name.map_err(|_| errors::wrong_type("rules", ACCEPTED, given))?.to_str() {
        Ok("0.1") => Ok(RuleSet::Classic),
        Ok("0.2") => Ok(RuleSet::Strict),
        _ => Err(PyValueError::new_err(format!(
            "rules must be {ACCEPTED}, not {}",
            errors::shown(given)
        ))),
    }
}

// The native part of `fastaudit_rs.v02`: `mk_audit` with the rules of fastaudit 0.2, and their
// state.

#[doc = doc!("_mk_audit_02")]
#[pyfunction]
#[pyo3(
    name = "_mk_audit_02",
    signature = (oks=OrDefault::Default, before_deny=None, on_call=None, data=None, tool_id=OrDefault::Default, monitor_calls=OrDefault::Default, allow_imports=None, *, packages=None, **named),
    text_signature = "(oks, before_deny=None, on_call=None, data=None, tool_id=3, monitor_calls=True, allow_imports=(), *, packages=())"
)]
#[expect(clippy::too_many_arguments, reason = "Python's keyword arguments")]
pub fn mk_audit_02<'py>(
    oks: OrDefault<'py>,
    before_deny: Option<Bound<'py, PyAny>>,
    on_call: Option<Bound<'py, PyAny>>,
    data: Option<Bound<'py, PyAny>>,
    tool_id: OrDefault<'py>,
    monitor_calls: OrDefault<'py>,
    allow_imports: Option<Bound<'py, PyAny>>,
    packages: Option<Bound<'py, PyAny>>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<AuditPerms> {
    wrong_calls::check_named("v02.mk_audit", named)?;
    let oks = &oks.given()?;
    let options = GuardOptions {
        before_deny,
        on_call,
        data,
        tool_id,
        monitor_calls,
        rules: RuleSet::Strict,
        ..GuardOptions::default()
    };
    let config = options.configure(oks, || {
        let allowed = allowed_below(oks, allow_imports.as_ref())?;
        allowed.with_packages(oks.py(), readers::named_packages(packages.as_ref())?)
    })?;
    Ok(AuditPerms::new(config))
}

/// The permissions by the rules of fastaudit 0.2, with these roots and these modules to import.
pub fn allowed_below(
    oks: &Bound<'_, PyAny>,
    allow_imports: Option<&Bound<'_, PyAny>>,
) -> PyResult<Allowed> {
    let mut packages = Vec::new();
    if let Some(more) = allow_imports {
        read_modules("allow_imports", more, &mut packages)?;
    }
    let roots = read_roots(oks)?;
    let declared = Declared::get(oks.py())?;
    packages.extend(declared.import_allow.iter().cloned());
    packages.sort_unstable();
    packages.dedup();
    Ok(Allowed::strictly_below(oks.py(), roots, packages))
}

/// `None` for all paths.
fn read_roots(oks: &Bound<'_, PyAny>) -> PyResult<Option<ApprovedRoots>> {
    if oks.is_none() {
        return Ok(None);
    }
    read_oks(oks).map(Some)
}

#[doc = doc!("_audit_state")]
#[pyfunction(name = "_audit_state")]
pub fn audit_state(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let declared = Declared::get(py)?;
    let config = match scope::own(py) {
        Ok(Current::Guarded(active)) => {
            let active = active.get();
            active.config().map(|config| config.clone_ref(py))
        }
        // Before the first guard there is no context variable.
        Ok(Current::Unguarded | Current::Tampered) | Err(_) => None,
    };
    let state = PyDict::new(py);
    state.set_item("safe_native", PyTuple::new(py, &declared.safe_native)?)?;
    state.set_item("monitoring", cfg!(Py_3_12))?;
    state.set_item("tool_id", monitor::tool_id())?;
    state.set_item("active", config.is_some())?;
    state.set_item("monitor_on", monitor::holds())?;
    let calls = config.as_ref().map(|config| config.get().monitor_calls);
    state.set_item("monitor_calls", calls)?;
    let packages = match &config {
        Some(config) => config.get().import_allow(py)?,
        None => PyTuple::new(py, &declared.import_allow)?,
    };
    state.set_item("import_allow", packages)?;
    Ok(state)
}
