//! `mk_audit`: reads its arguments, installs what is missing, makes the guards.
//!
//! All arguments are checked before anything is installed.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::policy::RuleSet;
use crate::python::api::guard::AuditPerms;
use crate::python::api::options::{self, BY_POSITION, OPTIONS};
use crate::python::api::readers::{self, GivenArguments};
use crate::python::configuration::allowed::{Allowed, read_oks};
use crate::python::configuration::config::read_modules;
use crate::python::configuration::declared::Declared;
use crate::python::guard::scope::{self, Current};
use crate::python::guard::{holds, monitoring};

#[doc = doc!("mk_audit")]
#[pyfunction]
#[pyo3(
    signature = (*given, **named),
    text_signature = "(oks, before_deny=None, on_call=None, data=None, tool_id=3, monitor_calls=True, *, calls=None, retire_sites=False, on_denied=None, on_ask=None, ask_seconds=None, log=None, rules='0.1', packages=())"
)]
pub fn mk_audit<'py>(
    given: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<AuditPerms> {
    let names = [&["oks"], &OPTIONS[..], &["rules", "packages"]].concat();
    let arguments = GivenArguments::read("mk_audit", &names, 1 + BY_POSITION, given, named)?;
    let rules = arguments.get("rules").map_or(Ok(RuleSet::default()), read_rules)?;
    made(&arguments, rules)
}

fn made(arguments: &GivenArguments<'_>, rules: RuleSet) -> PyResult<AuditPerms> {
    let oks = arguments.get("oks").ok_or_else(|| {
        PyTypeError::new_err("mk_audit() missing 1 required positional argument: 'oks'")
    })?;
    let config = options::configure(arguments, rules, oks, || {
        let allowed = match rules {
            RuleSet::Classic => read_oks(oks).map(Allowed::below)?,
            RuleSet::Strict => allowed_below(oks, arguments.some("allow_imports"))?,
        };
        let packages = arguments.some("packages");
        let packages = packages.map(|given| readers::packages("packages", given)).transpose()?;
        allowed.with_packages(oks.py(), packages)
    })?;
    Ok(AuditPerms::new(config))
}

fn read_rules(given: &Bound<'_, PyAny>) -> PyResult<RuleSet> {
    const NAMED: [(&str, RuleSet); 2] = [("0.1", RuleSet::Classic), ("0.2", RuleSet::Strict)];
    readers::one_of("rules", given, &NAMED, "")
}

// The native part of `fastaudit_rs.v02`: `mk_audit` with the rules of fastaudit 0.2, and their
// state.

#[doc = doc!("_mk_audit_02")]
#[pyfunction]
#[pyo3(
    name = "_mk_audit_02",
    signature = (*given, **named),
    text_signature = "(oks, before_deny=None, on_call=None, data=None, tool_id=3, monitor_calls=True, allow_imports=(), *, packages=())"
)]
pub fn mk_audit_02<'py>(
    given: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<AuditPerms> {
    let names = [&["oks"], &OPTIONS[..BY_POSITION], &["allow_imports", "packages"]].concat();
    let arguments = GivenArguments::read("v02.mk_audit", &names, 2 + BY_POSITION, given, named)?;
    made(&arguments, RuleSet::Strict)
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
    // `None` stands for all paths.
    let roots = (!oks.is_none()).then(|| read_oks(oks)).transpose()?;
    let declared = Declared::get(oks.py())?;
    packages.extend(declared.import_allow.iter().cloned());
    packages.sort_unstable();
    packages.dedup();
    Ok(Allowed::strictly_below(oks.py(), roots, packages))
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
    state.set_item("tool_id", monitoring::tool_id())?;
    state.set_item("active", config.is_some())?;
    state.set_item("monitor_on", holds::holds())?;
    let calls = config.as_ref().map(|config| config.get().monitor_calls);
    state.set_item("monitor_calls", calls)?;
    let packages = match &config {
        Some(config) => config.get().import_allow(py)?,
        None => PyTuple::new(py, &declared.import_allow)?,
    };
    state.set_item("import_allow", packages)?;
    Ok(state)
}
