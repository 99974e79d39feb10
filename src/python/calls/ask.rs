//! A call of native code of someone else: whether it is declared safe, and the host's answer.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString, PyType};

use crate::policy::Operation;
use crate::policy::files::os::Os;
use crate::python::callees::callee::{CalleeName, Native};
use crate::python::callees::distributions::{self, Announced};
use crate::python::calls::named::{self, NamedCallee};
use crate::python::configuration::approvals;
use crate::python::configuration::callbacks::Callback;
use crate::python::configuration::config::{AuditCfg, Side};
use crate::python::configuration::declared::Declared;
use crate::python::cpython::called::Forever;
use crate::python::cpython::{ffi as raw, layout};
use crate::python::guard::monitoring;
use crate::python::values::errors;

/// `sys.monitoring.DISABLE`.
pub static DISABLE: Forever = Forever::unknown();

pub struct NativeCall<'a, 'py> {
    pub caller: &'a Bound<'py, PyString>,
    pub callee: &'a NamedCallee<'py>,
    pub site: (&'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>),
}

pub enum SiteAnswer {
    /// Its callee is not native code of someone else.
    Quiet,
    /// It stays watched, whatever guards are in force.
    Watch,
    /// The same, on the callee's side: it does not survive an exception in Python code that it calls.
    Fragile,
    /// The host wants it switched off.
    SwitchOff,
}

impl NativeCall<'_, '_> {
    pub fn ask(&self, config: Option<&AuditCfg>) -> PyResult<SiteAnswer> {
        let py = self.caller.py();
        if let Some(config) = config {
            let declared = Declared::known(py).filter(|_| config.is_strict());
            let hooks = declared.map_or(&[][..], |declared| &declared.monitor_hooks);
            for callback in hooks.iter().chain(&config.callbacks.on_call) {
                if let Some(answer) = self.answer_of(callback, config)? {
                    return Ok(answer);
                }
            }
        }
        let _announced = Announced::new(&self.callee.full, &self.callee.native);
        raw::audit(py, c"fastaudit.call", (self.caller, &self.callee.full))?;
        Ok(SiteAnswer::Watch)
    }

    /// `None` if the event is to be raised.
    fn answer_of(&self, on_call: &Callback, config: &AuditCfg) -> PyResult<Option<SiteAnswer>> {
        let py = self.caller.py();
        let (code, offset) = self.site;
        let data = config.data.bind(py);
        let answer = on_call.call_with([
            self.caller.as_any(),
            self.callee.full.as_any(),
            &self.callee.native.function,
            code,
            offset,
            data,
        ])?;
        if let Ok(answer) = answer.cast::<PyBool>() {
            return Ok((!answer.is_true()).then_some(SiteAnswer::Watch));
        }
        if approvals::is_awaitable(&answer) {
            return Err(errors::returned_awaitable("on_call", &answer));
        }
        if !DISABLE.is(&answer) {
            return Ok(None);
        }
        Ok(Some(match config.side == Side::Caller && monitoring::switches_off() {
            true => SiteAnswer::SwitchOff,
            false => SiteAnswer::Watch,
        }))
    }
}

pub fn passes(config: &AuditCfg, native: &Native<'_>) -> PyResult<bool> {
    let py = native.function.py();
    if config.is_strict() && is_declared_safe(py, &native.name) {
        return Ok(true);
    }
    if config.safe_set == 0 {
        return Ok(false);
    }
    let policy = config.policy();
    let packages = &policy.rest().packages;
    let name = native.name.full()?;
    let name = name.to_string_lossy();
    let module = distributions::module_of(native);
    if let Some(module) = &module
        && packages.have(module)
    {
        return Ok(true);
    }
    // A host that is asked about calls is asked about these too.
    if config.is_strict() || config.callbacks.on_call.is_some() {
        return Ok(false);
    }
    let is_named = policy.check(&Os, Operation::CallNative(&name)).is_ok();
    let is_of_package =
        || module.is_some_and(|module| policy.calls_native_of(&module, distributions::installed));
    Ok(is_named || is_of_package())
}

pub fn is_declared_safe(py: Python<'_>, name: &CalleeName<'_>) -> bool {
    let (module, own) = (name.module.to_string_lossy(), name.own.to_string_lossy());
    Declared::known(py).is_some_and(|declared| declared.is_safe(&module, &own))
}

/// Returns whether a callable is an object that its module keeps; always false for functions and
/// classes, for which nobody needs to know.
pub fn is_lasting_object(name: &CalleeName<'_>, callee: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_object =
        layout::method_entry(callee.as_borrowed()) == 0 && !callee.is_instance_of::<PyType>();
    Ok(is_object && named::is_of_its_module(name, callee)?)
}
