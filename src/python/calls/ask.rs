//! A call of native code of someone else: whether it is declared safe, and the host's answer.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyModule, PyString, PyType};

use crate::policy::Operation;
use crate::policy::files::os::Os;
use crate::python::callees::callee::{CalleeName, Native};
use crate::python::callees::distributions::{self, Announced};
use crate::python::configuration::approvals;
use crate::python::configuration::callbacks::Callback;
use crate::python::configuration::config::AuditCfg;
use crate::python::configuration::declared::Declared;
use crate::python::cpython::callbacks::Forever;
use crate::python::cpython::{ffi as raw, layout};
use crate::python::values::errors;

pub struct NativeCall<'a, 'py> {
    pub caller: &'a Bound<'py, PyString>,
    pub name: &'a Bound<'py, PyString>,
    pub native: &'a Native<'py>,
    /// The code object and the offset.
    pub site: (&'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>),
    pub disable: &'a Forever,
}

pub enum Said {
    Allowed,
    /// So may all others of its call site.
    SwitchOff,
}

impl NativeCall<'_, '_> {
    pub fn ask(&self, config: Option<&AuditCfg>) -> PyResult<Said> {
        let py = self.caller.py();
        if let Some(config) = config {
            let declared = Declared::known(py).filter(|_| config.is_strict());
            let hooks = declared.map_or(&[][..], |declared| &declared.monitor_hooks);
            for callback in hooks.iter().chain(&config.callbacks.on_call) {
                if let Some(said) = self.answer_of(callback, config)? {
                    return Ok(said);
                }
            }
        }
        let _announced = Announced::new(self.name, self.native);
        raw::audit(py, c"fastaudit.call", &[self.caller, self.name])?;
        Ok(Said::Allowed)
    }

    /// `None` if the event is to be raised.
    fn answer_of(&self, on_call: &Callback, config: &AuditCfg) -> PyResult<Option<Said>> {
        let py = self.caller.py();
        let (code, offset) = self.site;
        let data = config.data.bind(py);
        let answer = on_call.call_with([
            self.caller.as_any(),
            self.name.as_any(),
            &self.native.function,
            code,
            offset,
            data,
        ])?;
        if let Ok(answer) = answer.cast::<PyBool>() {
            return Ok((!answer.is_true()).then_some(Said::Allowed));
        }
        if approvals::is_awaitable(&answer) {
            return Err(errors::returned_awaitable("on_call", &answer));
        }
        let switches_off = self.disable.is(&answer);
        Ok(switches_off.then_some(Said::SwitchOff))
    }
}

/// Returns whether a call may be made because the guard allows its callee.
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
    let is_named = policy.check(&Os, Operation::CallNative(&name)).allows();
    let is_of_package =
        || module.is_some_and(|module| policy.calls_native_of(&module, distributions::installed));
    Ok(is_named || is_of_package())
}

/// Returns whether installed packages declare native code of this name safe to call.
pub fn is_declared_safe(py: Python<'_>, name: &CalleeName<'_>) -> bool {
    let (module, own) = (name.module.to_string_lossy(), name.own.to_string_lossy());
    Declared::known(py).is_some_and(|declared| declared.is_safe(&module, &own))
}

/// Returns whether a callable is the object that its module has by its name, and so never goes
/// away; always false for functions and classes, for which nobody needs to know.
pub fn is_of_its_module(name: &CalleeName<'_>, callee: &Bound<'_, PyAny>) -> PyResult<bool> {
    if layout::method_entry(callee.as_borrowed()) != 0 || callee.is_instance_of::<PyType>() {
        return Ok(false);
    }
    let Some(module) = raw::imported_module(callee.py(), &name.module)? else {
        return Ok(false);
    };
    let Ok(module) = module.cast::<PyModule>() else {
        return Ok(false);
    };
    let own = module.dict().get_item(&name.own)?;
    Ok(own.is_some_and(|own| own.is(callee)))
}
