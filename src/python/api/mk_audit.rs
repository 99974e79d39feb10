//! `mk_audit`: reads its arguments, installs what is missing, makes the guards.
//!
//! All arguments are checked before anything is installed.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::policy::RuleSet;
use crate::python::api::guard::AuditPerms;
use crate::python::api::options::GuardOptions;
use crate::python::api::readers;
use crate::python::api::readers::OrDefault;
use crate::python::api::v02;
use crate::python::api::wrong_calls;
use crate::python::guard::allowed::Allowed;
use crate::python::guard::roots::read_oks;
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
        retire_sites,
        rules,
        ..GuardOptions::new(
            before_deny,
            on_call,
            data,
            tool_id,
            monitor_calls,
            on_denied,
        )
        .asking(on_ask, ask_seconds)
        .logging(log)
    };
    let config = options.configure(oks, || {
        let allowed = match rules {
            RuleSet::Classic => read_oks(oks).map(Allowed::below)?,
            RuleSet::Strict => v02::allowed_below(oks, None)?,
        };
        allowed.with_packages(oks.py(), readers::named_packages(packages.as_ref())?)
    })?;
    Ok(AuditPerms::new(config))
}

/// The rules that a host picks by name.
fn read_rules(given: &OrDefault<'_>) -> PyResult<RuleSet> {
    let OrDefault::Given(given) = given else {
        return Ok(RuleSet::default());
    };
    const ACCEPTED: &str = "'0.1' or '0.2'";
    let name = given.cast::<PyString>();
    match name
        .map_err(|_| errors::wrong_type("rules", ACCEPTED, given))?
        .to_str()
    {
        Ok("0.1") => Ok(RuleSet::Classic),
        Ok("0.2") => Ok(RuleSet::Strict),
        _ => Err(PyValueError::new_err(format!(
            "rules must be {ACCEPTED}, not {}",
            errors::shown(given)
        ))),
    }
}
