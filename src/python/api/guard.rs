//! The class of the objects that `mk_audit` returns, and the context managers that they make.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTypeError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};

use crate::python::acts;
use crate::python::api::{fields, setup, tool, wrong_calls};
use crate::python::configuration::config::{AuditCfg, Side};
use crate::python::configuration::temporary::{self, TemporaryFiles};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::lock;
use crate::python::denials::denial;
use crate::python::guard::monitoring;
use crate::python::guard::scope::{self, Current, Entered};
use crate::python::guard::{copies, tempfile};
use crate::python::importing::imports;
use crate::python::logs::log::Log;
use crate::python::values::{errors, process_start};

#[doc = doc!("AuditPerms")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native")]
pub struct AuditPerms {
    config: Mutex<Py<AuditCfg>>,
}

impl AuditPerms {
    pub fn new(config: Py<AuditCfg>) -> Self {
        Self { config: Mutex::new(config) }
    }

    fn config(&self, py: Python<'_>) -> Py<AuditCfg> {
        lock(&self.config).clone_ref(py)
    }

    fn set_config(&self, py: Python<'_>, config: AuditCfg) -> PyResult<()> {
        let config = Py::new(py, config)?;
        let old = std::mem::replace(&mut *lock(&self.config), config);
        // The lock is free again: this may run code.
        drop(old);
        Ok(())
    }
}

#[pymethods]
impl AuditPerms {
    #[pyo3(signature = (*given, **named))]
    fn __call__(
        slf: &Bound<'_, Self>,
        given: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Guard> {
        setup::restore_classes(slf.py());
        if !given.is_empty() || named.is_some() {
            let call = slf.get().config(slf.py()).get().call();
            wrong_calls::check_bare(call, given, named)?;
        }
        Ok(Guard::new(slf.clone().unbind()))
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let call = self.config(py).get().call();
        Err(wrong_calls::not_called(call, &format!("{call}()")))
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.__enter__(py)
    }

    fn __aenter__(&self, py: Python<'_>) -> PyResult<()> {
        self.__enter__(py)
    }

    #[pyo3(signature = (*_args))]
    fn __aexit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.__enter__(py)
    }

    fn __getattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        let (guards, config) = (slf.py().get_type::<Guard>(), slf.get().config(slf.py()));
        wrong_calls::no_attribute(slf.as_any(), &guards, config.get().call(), name)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<AuditPerms of {}>", fields::shown_of(py, self.config(py).get())?))
    }

    #[doc = doc!("AuditPerms._in_force")]
    #[pyo3(name = "_in_force")]
    fn in_force(&self, py: Python<'_>) -> PyResult<bool> {
        let Current::Guarded(active) = scope::own(py)? else {
            return Ok(false);
        };
        let config = self.config(py);
        let mut next = Some(active.unbind());
        while let Some(active) = next {
            if active.get().has_config(&config) {
                return Ok(true);
            }
            next = active.get().outer(py);
        }
        Ok(false)
    }

    #[doc = doc!("AuditPerms.tool_id")]
    #[getter]
    fn tool_id(&self, py: Python<'_>) -> Option<i32> {
        let config = self.config(py);
        let has_events = config.get().monitor_calls && config.get().side == Side::Caller;
        has_events.then(monitoring::tool_id).flatten()
    }

    #[doc = doc!("AuditPerms.set_data")]
    #[pyo3(signature = (d))]
    fn set_data<'py>(&self, py: Python<'py>, d: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        raw::audit(py, c"audit_perms.set_data", (&d,))?;
        let config = self.config(py).get().with_data(py, d.clone().unbind());
        self.set_config(py, config)?;
        Ok(d)
    }

    #[doc = doc!("AuditPerms._share")]
    #[pyo3(name = "_share")]
    fn share(&self, py: Python<'_>, files: &Bound<'_, TemporaryFiles>) -> PyResult<()> {
        raw::audit(py, c"audit_perms.set_config", (files,))?;
        let directories = Arc::clone(&files.get().directories);
        let config = self.config(py).get().with_directories(py, directories);
        self.set_config(py, config)
    }

    #[doc = doc!("AuditPerms._temporary_directory")]
    fn _temporary_directory<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        let guards = [self.config(py)];
        if tempfile::all_may_use(&guards, &temporary::usual()) {
            return Ok(None);
        }
        let path = tempfile::own_directory(&guards);
        path.map(|path| raw::fs_decode(py, &path)).transpose()
    }

    #[doc = doc!("AuditPerms.add_imports")]
    #[pyo3(signature = (*mods))]
    fn add_imports<'py>(
        &self,
        py: Python<'py>,
        mods: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        raw::audit(py, c"audit_perms.add_imports", mods)?;
        let config = self.config(py);
        if !config.get().is_strict() {
            return Err(errors::no_imports_to_add());
        }
        let config = config.get().with_imports(py, mods)?;
        let packages = PyTuple::new(py, &config.policy().rest().import_allow)?;
        self.set_config(py, config)?;
        Ok(packages)
    }

    #[doc = doc!("AuditPerms.tool")]
    #[pyo3(
        signature = (function=None, /, **options),
        text_signature = "($self, function=None, /, *, name=None, policy=None, raw=False)"
    )]
    fn tool<'py>(
        slf: &Bound<'py, Self>,
        function: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        tool::tool(slf.as_any(), function, options)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.config.try_lock() {
            Ok(config) => visit.call(&*config),
            Err(_) => Ok(()),
        }
    }
}

#[doc = doc!("Guard")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", weakref)]
pub struct Guard {
    perms: Py<AuditPerms>,
    state: Mutex<State>,
    /// True if the log stays when the guard is entered again.
    goes_on: AtomicBool,
}

enum State {
    Entered(Entered),
    /// The log of the last time it was entered, if there is one.
    Left(Option<Arc<Log>>),
}

impl Default for State {
    fn default() -> Self {
        Self::Left(None)
    }
}

impl Guard {
    pub fn new(perms: Py<AuditPerms>) -> Self {
        Self { perms, state: Mutex::default(), goes_on: AtomicBool::new(false) }
    }

    /// Returns the log since the guard was entered last. What native code was refused is told first.
    pub fn log(&self, py: Python<'_>) -> Option<Arc<Log>> {
        let active = match &*lock(&self.state) {
            State::Entered(entered) => entered.active.clone_ref(py),
            State::Left(log) => return log.clone(),
        };
        acts::tell(py, active.get());
        Some(Arc::clone(active.get().log()))
    }

    /// Lets the guard continue when it is entered again: denials, recordings, look-ups and bytes
    /// written add up.
    pub fn go_on(&self) {
        self.goes_on.store(true, Ordering::Relaxed);
    }

    pub fn enter(&self, py: Python<'_>) -> PyResult<()> {
        setup::restore_classes(py);
        let log = match &*lock(&self.state) {
            State::Left(log) if self.goes_on.load(Ordering::Relaxed) => log.clone(),
            State::Left(_) => None,
            State::Entered(_) => {
                return Err(PyRuntimeError::new_err(
                    "this guard is entered already: call audit_perms() anew for each with block",
                ));
            }
        };
        let config = self.perms.get().config(py);
        let mut current = scope::own(py)?;
        if !matches!(&current, Current::Guarded(active) if active.get().config().is_some_and(|own| own.is(&config)))
        {
            raw::audit(py, c"audit_perms.set_config", (&config,))?;
            // A hook may have entered or left a guard meanwhile.
            current = scope::own(py)?;
        }
        let outer = match current {
            Current::Guarded(active) => Some(active),
            Current::Unguarded | Current::Tampered => None,
        };
        tempfile::look(py);
        let entered = scope::enter(py, config, outer, log)?;
        let before = std::mem::replace(&mut *lock(&self.state), State::Entered(entered));
        drop(before);
        Ok(())
    }

    /// Leaves it, because of this error if there is one. A copy of the process that guarded code
    /// made ends here.
    ///
    /// # Errors
    /// `RuntimeError` if it is not entered, or was entered elsewhere.
    pub fn leave(&self, py: Python<'_>, error: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        // Taken out first: the lock must not be held any longer.
        let state = std::mem::take(&mut *lock(&self.state));
        let entered = match state {
            State::Entered(entered) => entered,
            left @ State::Left(_) => {
                *lock(&self.state) = left;
                return Err(PyRuntimeError::new_err("this guard is not entered"));
            }
        };
        match entered.may_be_left_here(py) {
            Ok(true) => {}
            other => {
                *lock(&self.state) = State::Entered(entered);
                return Err(other.err().unwrap_or_else(errors::left_by_what_it_guards));
            }
        }
        if let Err(error) = copies::leave(py, &entered.active, error) {
            *lock(&self.state) = State::Entered(entered);
            return Err(error);
        }
        acts::tell(py, entered.active.get());
        if let (Some(error), Some(log)) = (error, entered.active.get().known_log()) {
            acts::explain(error, &log);
        }
        if let Err(error) = scope::leave(py, &entered) {
            // Still in force where it was entered: it can be left there.
            *lock(&self.state) = State::Entered(entered);
            return Err(errors::left_elsewhere(py, error));
        }
        setup::restore_classes(py);
        // It is left in any case, even if denials elsewhere then lack facts about the guard.
        let _ = entered.settle(py);
        let log = entered.log_after();
        if log.is_some() {
            *lock(&self.state) = State::Left(log);
        }
        process_start::forget();
        imports::forget_allowed();
        Ok(())
    }
}

impl Drop for Guard {
    /// A `with` statement holds its guard until it ends. If it does not end, because an exception
    /// was raised between `__enter__` and its body (a signal handler's, since 3.14), the guard goes
    /// with it.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if matches!(state, State::Left(_)) {
            return;
        }
        let State::Entered(entered) = std::mem::take(state) else {
            return;
        };
        Python::attach(|py| {
            if raw::is_finalizing() {
                return;
            }
            raw::beside_pending(py, || {
                if entered.is_of_with_statement(py) {
                    // Elsewhere it stays in force.
                    let _ = scope::leave(py, &entered);
                }
            });
        });
    }
}

#[pymethods]
impl Guard {
    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.enter(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (exc_type, exc, traceback, /))]
    #[expect(unused_variables, reason = "the context manager protocol passes them")]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.leave(py, exc)
    }

    fn __aenter__(slf: &Bound<'_, Self>) -> PyResult<Ready> {
        slf.get().enter(slf.py())?;
        Ok(Ready::with(slf.as_any()))
    }

    #[pyo3(signature = (exc_type, exc, traceback, /))]
    #[expect(unused_variables, reason = "the context manager protocol passes them")]
    fn __aexit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyAny>>,
        exc: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Ready> {
        self.leave(py, exc)?;
        Ok(Ready::with(py.None().bind(py)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let of = fields::shown_of(py, self.perms.get().config(py).get())?;
        let state = match &*lock(&self.state) {
            State::Entered(_) => "in force",
            State::Left(_) => "not in force",
        };
        let denied = match self.log(py).map_or(0, |log| log.total()) {
            0 => String::new(),
            count => format!(", {count} denied"),
        };
        Ok(format!("<Guard of {of}: {state}{denied}>"))
    }

    #[doc = doc!("Guard._keep")]
    #[pyo3(name = "_keep")]
    fn keep(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf.go_on();
        slf
    }

    #[doc = doc!("Guard.violations")]
    #[getter]
    fn violations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        match self.log(py) {
            Some(log) => {
                let kept = log.kept(py).into_iter();
                let exceptions = kept.map(|denial| denial::exception(denial.cast_exact()?));
                PyList::new(py, exceptions.collect::<PyResult<Vec<_>>>()?)
            }
            None => Ok(PyList::empty(py)),
        }
    }

    #[doc = doc!("Guard.violation_count")]
    #[getter]
    fn violation_count(&self, py: Python<'_>) -> usize {
        self.log(py).map_or(0, |log| log.total())
    }

    /// Decorates a function or coroutine function: each call runs under a guard of its own.
    ///
    /// The wrapper is the standard library's, `contextlib.ContextDecorator` or
    /// `AsyncContextDecorator`, so that no frame of this package is in a traceback.
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        function: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if !function.is_callable() {
            return Err(PyTypeError::new_err(format!(
                "a guard decorates a function, not {}",
                errors::type_name(function)
            )));
        }
        let inspect = calling::import(py, "inspect")?;
        let is = |what: &str| inspect.invoke_method1(what, (function,))?.truth();
        if is("isgeneratorfunction")? || is("isasyncgenfunction")? {
            return Err(PyTypeError::new_err(
                "a guard cannot decorate a generator function, whose body runs after the call: \
                 put `with audit_perms():` into the body",
            ));
        }
        let kind =
            if is("iscoroutinefunction")? { "AsyncContextDecorator" } else { "ContextDecorator" };
        let decorator = calling::import(py, "contextlib")?.attr(kind)?.cast_into::<PyType>()?;
        decorator.invoke_method1("__call__", (slf, function))
    }

    /// A fresh guard for one call of a decorated function, as `contextlib` asks for it.
    fn _recreate_cm(&self, py: Python<'_>) -> Self {
        Self::new(self.perms.clone_ref(py))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.perms)?;
        match self.state.try_lock().as_deref() {
            Ok(State::Entered(entered)) => entered.traverse(visit),
            _ => Ok(()),
        }
    }
}

/// An awaitable that is already done: entering and leaving a guard waits for nothing.
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Ready")]
pub struct Ready {
    result: Py<PyAny>,
}

impl Ready {
    fn with(result: &Bound<'_, PyAny>) -> Self {
        Self { result: result.clone().unbind() }
    }
}

#[pymethods]
impl Ready {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<()> {
        Err(PyStopIteration::new_err((self.result.clone_ref(py),)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.result)
    }
}
