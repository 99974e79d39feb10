//! The guard that is active: the `ContextVar` and its values.
//!
//! Its value is an opaque object of ours that cannot be made or changed from Python. A task that
//! is created under a guard copies the context and so stays guarded, also after the `with` block
//! that it was created in has ended.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, ffi};

use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::{Once, Published, lock};
use crate::python::frames::with_statement::WithPlace;
use crate::python::guard::active::{relink, restrict_more};
use crate::python::guard::entered_at::Origin;
use crate::python::guard::holds::Hold;
use crate::python::guard::{environment, tool_rights};
use crate::python::logs::log::Log;
use crate::python::values::errors;

pub use crate::python::guard::active::{Active, any_guard, any_guard_restricts_more};

/// The guards that are in force in the whole process for good, the last one first.
static INSTALLED: Published<InstalledGuard> = Published::nothing();

/// Whoever adds to them holds this.
static INSTALLING: Mutex<()> = Mutex::new(());

pub struct InstalledGuard {
    pub active: Py<Active>,
    /// The policy that it was made from.
    pub policy: Py<PyAny>,
    /// The guard that was installed before, which holds as well.
    before: Option<&'static InstalledGuard>,
}

/// The interpreter that the context variable belongs to.
static OWNER: AtomicPtr<ffi::PyInterpreterState> = AtomicPtr::new(std::ptr::null_mut());

static VAR: Once<Py<PyAny>> = Once::new();

pub enum Current<'py> {
    Unguarded,
    Guarded(Bound<'py, Active>),
    /// The variable was set to something that is not a guard: nothing may pass.
    Tampered,
}

/// Returns whether the hook has anything to look at: some guard is in force, in this interpreter.
#[inline]
pub fn may_be_guarded() -> bool {
    any_guard() && is_ours()
}

/// Returns whether this thread runs the interpreter that the guards are in.
#[inline]
pub fn is_ours() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    !owner.is_null() && std::ptr::eq(raw::current_interpreter(), owner)
}

pub fn install(py: Python<'_>) -> PyResult<()> {
    VAR.get_or_try_init(py, || {
        OWNER.store(raw::current_interpreter(), Ordering::Relaxed);
        raw::new_context_var(py, "fastaudit_rs_guard").map(Bound::unbind)
    })
    .map(|_| ())
}

pub fn var(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    VAR.get(py)
        .map(|var| var.bind(py))
        .ok_or_else(|| PyRuntimeError::new_err("fastaudit_rs: the audit hook is not installed"))
}

/// The value of the variable in the current context; none before the first guard.
#[inline(always)]
fn value<'py>(py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    match VAR.get(py) {
        Some(var) => raw::context_var_get(py, var.bind(py)),
        None => Ok(None),
    }
}

/// The guard in force in the current context: its own, or else an installed one.
#[inline]
pub fn current(py: Python<'_>) -> PyResult<Current<'_>> {
    match own(py)? {
        Current::Unguarded => Ok(match installed().next() {
            Some(installed) => Current::Guarded(installed.active.bind(py).clone()),
            None => Current::Unguarded,
        }),
        own => Ok(own),
    }
}

#[inline]
pub fn installed() -> impl Iterator<Item = &'static InstalledGuard> {
    std::iter::successors(INSTALLED.get(), |installed| installed.before)
}

pub fn is_installed(active: &Active) -> bool {
    installed().any(|installed| std::ptr::eq(installed.active.get(), active))
}

/// The guard, those beside it, and those that are installed.
pub fn judging(active: &Active) -> impl Iterator<Item = &Active> {
    let installed = installed().map(|installed| installed.active.get());
    active.each().chain(installed.filter(move |installed| !std::ptr::eq(*installed, active)))
}

/// All guards in force in the current context: its own, and those that are installed.
///
/// # Errors
/// `PermissionError` if the context variable was changed.
pub fn in_force(py: Python<'_>) -> PyResult<Vec<Bound<'_, Active>>> {
    let mut all = Vec::new();
    if let Some(active) = guard(py)? {
        all.extend(std::iter::successors(Some(active), |active| {
            let beside = active.get().beside.as_ref();
            beside.map(|beside| beside.bind(py).clone())
        }));
    }
    all.extend(installed().map(|installed| installed.active.bind(py).clone()));
    all.dedup_by(|one, other| one.is(&*other));
    Ok(all)
}

/// Puts a guard in force in the whole process for good, beside those already installed.
pub fn install_for_good(py: Python<'_>, config: Py<AuditCfg>, policy: Py<PyAny>) -> PyResult<()> {
    let monitoring = hold(py, &config)?;
    config.get().live().is_installed.store(true, Ordering::Relaxed);
    let active = Active::new(Some(config), None, monitoring, None);
    // It is never dropped.
    restrict_more();
    let active = Py::new(py, active)?;
    let installing = lock(&INSTALLING);
    INSTALLED.set(Box::new(InstalledGuard { active, policy, before: installed().next() }));
    drop(installing);
    Ok(())
}

/// The guard that was entered in the current context.
#[inline]
pub fn own(py: Python<'_>) -> PyResult<Current<'_>> {
    let Some(value) = value(py)? else {
        return Ok(Current::Unguarded);
    };
    Ok(match value.cast_into_exact::<Active>() {
        Ok(active) if active.get().looks_further => match tool_rights::in_force(active) {
            Some(active) => Current::Guarded(active),
            None => Current::Unguarded,
        },
        Ok(active) => Current::Guarded(active),
        Err(_) => Current::Tampered,
    })
}

/// The guard that was entered in the current context, if any.
///
/// # Errors
/// `PermissionError` if the context variable was changed.
pub fn guard(py: Python<'_>) -> PyResult<Option<Bound<'_, Active>>> {
    match own(py)? {
        Current::Guarded(active) => Ok(Some(active)),
        Current::Unguarded => Ok(None),
        Current::Tampered => Err(errors::variable_changed()),
    }
}

/// The rights of a tool, if it is the tool that runs, and not code of the guest in the course of it.
pub fn tool_in_force(py: Python<'_>) -> PyResult<Option<Bound<'_, Active>>> {
    let value = value(py)?.and_then(|value| value.cast_into_exact::<Active>().ok());
    let Some(value) = value.filter(|value| value.get().tool().is_some()) else {
        return Ok(None);
    };
    let is_it = match tool_rights::in_force(value.clone()) {
        Some(active) => active.is(&value),
        None => !value.get().tool().is_some_and(|(call, _)| call.is_over()),
    };
    Ok(is_it.then_some(value))
}

/// The name of the tool in whose course the running code runs, its own or code of the guest.
pub fn tool_running(py: Python<'_>) -> PyResult<Option<String>> {
    if !tool_rights::any_tool() {
        return Ok(None);
    }
    let value = value(py)?;
    let value = value.and_then(|value| value.cast_into_exact::<Active>().ok());
    Ok(value.and_then(|value| {
        let (call, _) = value.get().tool().filter(|(call, _)| !call.is_over())?;
        Some(call.name.bind(py).to_string_lossy().into_owned())
    }))
}

pub struct Entered {
    pub active: Py<Active>,
    token: Py<PyAny>,
    place: Option<WithPlace>,
}

impl Entered {
    /// A `with` statement's guard may be left by its end, and not by its body.
    pub fn may_be_left_here(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.place {
            Some(place) => place.may_be_left_here(py),
            None => Ok(true),
        }
    }

    /// Returns whether a `with` statement entered it.
    pub fn is_of_with_statement(&self, py: Python<'_>) -> bool {
        let place = self.place.as_ref();
        place.is_some_and(|place| place.is_with_statement(py).unwrap_or(false))
    }

    /// The denials of a guard that was left, if there are or may be some, in a task that goes on.
    pub fn log_after(&self) -> Option<Arc<Log>> {
        let active = self.active.get();
        if raw::is_only_reference(&self.active) {
            return active.known_log();
        }
        Some(Arc::clone(active.log()))
    }

    /// Keeps the facts of its entry for denials, if it goes on elsewhere when it is left.
    pub fn settle(&self, py: Python<'_>) -> PyResult<()> {
        match &self.active.get().origin {
            Some(origin) if !raw::is_only_reference(&self.active) => origin.settle(py),
            _ => Ok(()),
        }
    }

    pub fn traverse(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.active)?;
        if let Some(place) = &self.place {
            place.traverse(&visit)?;
        }
        visit.call(&self.token)
    }
}

#[inline]
pub(super) fn hold(py: Python<'_>, config: &Py<AuditCfg>) -> PyResult<Option<Hold>> {
    let config = config.get();
    if config.monitor_calls {
        return Hold::new(py, config).map(Some);
    }
    Ok(None)
}

/// Enters a guard in the current context. `log` continues the log of an earlier entry.
pub fn enter(
    py: Python<'_>,
    config: Py<AuditCfg>,
    outer: Option<Bound<'_, Active>>,
    log: Option<Arc<Log>>,
) -> PyResult<Entered> {
    let monitoring = hold(py, &config)?;
    let origin = match config.get().is_strict() {
        true => Some(Box::new(Origin::here(py)?)),
        false => None,
    };
    let active = Active::new(Some(config), outer.map(Bound::unbind), monitoring, origin);
    let mut active = active.going_on(log);
    if tool_rights::any_tool() {
        active = active.within(tool_in_force(py)?);
    }
    let active = Bound::new(py, active)?;
    let place = WithPlace::here(py);
    // Last: any error before leaves no guard in force.
    let token = match raw::context_var_set(var(py)?, active.as_any()) {
        Ok(token) => token,
        Err(error) => {
            undo(py, &active)?;
            return Err(error);
        }
    };
    Ok(Entered { active: active.unbind(), token: token.unbind(), place })
}

/// Removes a guard that could not be entered: without memory CPython sets the variable anyway.
#[cold]
fn undo(py: Python<'_>, active: &Bound<'_, Active>) -> PyResult<()> {
    let is_set = matches!(own(py)?, Current::Guarded(own) if own.is(active));
    if is_set {
        put_back(py, active.get().outer(py))?;
    }
    Ok(())
}

/// Puts the guard in force that another was entered under; none if there is none.
pub fn put_back(py: Python<'_>, outer: Option<Py<Active>>) -> PyResult<()> {
    let outer = outer.map_or_else(|| Py::new(py, Active::detached()), Ok)?;
    carry(py, &outer)
}

/// Puts a guard in force in the current context, for good.
pub fn carry(py: Python<'_>, active: &Py<Active>) -> PyResult<()> {
    raw::context_var_set(var(py)?, active.bind(py).as_any()).map(|_| ())
}

/// Puts a guard in force in another context, which nobody may be in; does nothing if it is none.
pub fn carry_into(context: &Bound<'_, PyAny>, active: &Bound<'_, Active>) -> PyResult<()> {
    let py = context.py();
    let Some(_entered) = raw::EnteredContext::new(context)? else {
        return Ok(());
    };
    raw::context_var_set(var(py)?, active.as_any()).map(|_| ())
}

/// Leaves a guard. Guards that were entered later and are still entered stay in force, and when
/// they are left in turn the context goes back past this one. In another context than it was
/// entered in, the guard stays in force: `ValueError`.
pub fn leave(py: Python<'_>, entered: &Entered) -> PyResult<()> {
    let var = var(py)?;
    let before = raw::context_var_get(py, var)?;
    raw::context_var_reset(var, entered.token.bind(py))?;
    let active = entered.active.get();
    active.note_left();
    if let (Some(before), Some(config)) = (active.environment.get(), active.config()) {
        environment::put_back(py, config.get(), before);
    }
    if let Some(log) = active.config().and_then(|config| config.get().log()) {
        log.sink.flush();
    }
    // An object that is not a guard was put there by the code that is left now, and goes with it.
    let before = before.and_then(|before| before.cast_into_exact::<Active>().ok());
    match before {
        Some(inner) if !inner.is(&entered.active) => {
            raw::context_var_set(var, inner.as_any())?;
            // All links before it were entered in the same context: the value in a context is
            // replaced only by entering in it.
            relink(py, inner.unbind(), &entered.active, active.outer(py));
        }
        _ if active.has_another_outer() => put_back(py, active.outer(py))?,
        _ => {}
    }
    Ok(())
}
