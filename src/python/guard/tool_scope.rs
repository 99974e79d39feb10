//! A tool's rights, put in force for its call.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::{ffi as raw, frames};
use crate::python::guard::active::{Active, ToolCall};
use crate::python::guard::scope;
use crate::python::guard::tool_rights;

pub struct Rights {
    active: Py<Active>,
    /// The value of the context when the call was last suspended.
    suspended: Option<Py<PyAny>>,
    token: Option<Py<PyAny>>,
}

impl Rights {
    /// The rights of a call that begins; `None` if it has them already, as no guard is in force.
    pub fn new(
        py: Python<'_>,
        name: &Py<PyString>,
        config: Option<&Py<AuditCfg>>,
    ) -> PyResult<Option<Self>> {
        if config.is_none() && !scope::may_be_guarded() {
            return Ok(None);
        }
        let guest = match (scope::guard(py)?, config) {
            (Some(guest), _) => guest,
            (None, None) => return Ok(None),
            (None, Some(_)) => Bound::new(py, Active::detached())?,
        };
        let hold = config.map(|config| scope::hold(py, config)).transpose()?.flatten();
        let call = ToolCall::new(name.clone_ref(py), tool_rights::depth_below(guest.get()));
        let config = config.map(|config| config.clone_ref(py));
        let active = Active::of_tool(config, hold, call, guest.unbind());
        Ok(Some(Self { active: Py::new(py, active)?, suspended: None, token: None }))
    }

    pub fn begin(&mut self, py: Python<'_>) -> PyResult<()> {
        let value = match &self.suspended {
            Some(value) => value.bind(py),
            None => self.active.bind(py).as_any(),
        };
        let token = raw::context_var_set(scope::var(py)?, value)?;
        self.token = Some(token.unbind());
        let caller = frames::current_frame(py);
        self.set_caller(caller.map_or(0, |frame| frame.as_ptr() as usize));
        Ok(())
    }

    /// Puts the guest's guard back in force, until they begin again. In another context than they
    /// began in they are over then: `ValueError`.
    pub fn suspend(&mut self, py: Python<'_>) -> PyResult<()> {
        self.set_caller(0);
        let var = scope::var(py)?;
        self.suspended = raw::context_var_get(py, var)?.map(Bound::unbind);
        let Some(token) = self.token.take() else {
            return Ok(());
        };
        raw::context_var_reset(var, token.bind(py)).inspect_err(|_| self.end())
    }

    /// Ends them for good, wherever they were carried, and puts the guest's guard back in force.
    pub fn finish(&mut self, py: Python<'_>) {
        self.end();
        self.set_caller(0);
        if let (Some(token), Ok(var)) = (self.token.take(), scope::var(py)) {
            // Where they cannot be taken out, they lead to the guest's guard.
            let _ = raw::context_var_reset(var, token.bind(py));
        }
    }

    fn end(&self) {
        if let Some((call, _)) = self.active.get().tool() {
            call.end();
        }
    }

    fn set_caller(&self, frame: usize) {
        if let Some((call, _)) = self.active.get().tool() {
            call.set_caller(frame);
        }
    }
}
