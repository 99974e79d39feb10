//! Which guard is active: the `ContextVar` and what it holds.
//!
//! Its value is an opaque object of ours that cannot be made or changed from Python. A task that
//! is created under a guard copies the context and so stays guarded, also after the `with` block
//! that it was created in has ended.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::PyTraverseError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::config::AuditCfg;
use super::errors;
use super::ffi as raw;
use super::forks;
use super::monitor;
use super::origin::Origin;
use super::violations::Log;
use super::with_statement::Place;
use crate::policy::fs::{FileSystem, Os, PathBuf};

/// How many guards are in force anywhere in the process. While there is none, the hook returns at
/// once, whatever the context holds.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// How many of them restrict more than fastaudit 0.1 does, or are installed.
static RESTRICTING: AtomicUsize = AtomicUsize::new(0);

/// The guards that are in force in the whole process for good, the last one first. What this points
/// to is never freed: another thread may read it.
static INSTALLED: AtomicPtr<Installed> = AtomicPtr::new(std::ptr::null_mut());

/// A guard that is in force in the whole process for good.
pub struct Installed {
    /// The guard.
    pub active: Py<Active>,
    /// The policy that it was made from.
    pub policy: Py<PyAny>,
    /// The one that was installed before, which holds as well.
    before: Option<&'static Installed>,
}

/// The interpreter that the context variable belongs to.
static OWNER: AtomicPtr<ffi::PyInterpreterState> = AtomicPtr::new(std::ptr::null_mut());

static VAR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A guard in force: what a `with` block puts into the context.
#[pyclass(frozen, module = "fastaudit_rs._native", name = "_Active")]
pub struct Active {
    /// `None` marks a context that all guards have left.
    config: Option<Py<AuditCfg>>,
    /// The guard that is in force again when this one is left.
    outer: Mutex<Option<Py<Active>>>,
    /// Whether `outer` is another than the one that was in force on entry.
    outer_changed: AtomicBool,
    first_dir: OnceLock<Option<PathBuf>>,
    /// What was denied, once there is something or somebody asks.
    log: OnceLock<Arc<Log>>,
    /// Where it was entered, where denials elsewhere tell that.
    origin: Option<Box<Origin>>,
    /// Whether it was left.
    is_left: AtomicBool,
    /// The process that it was entered in.
    generation: usize,
    /// A guard that is in force as well, though the context is not its own.
    beside: Option<Py<Active>>,
    /// Keeps CALL monitoring on for as long as any context can see this guard.
    _monitoring: Option<monitor::Hold>,
}

impl Active {
    /// The guard's configuration; `None` in a context that all guards have left.
    pub fn config(&self) -> Option<&Py<AuditCfg>> {
        self.config.as_ref()
    }

    /// Whether its rules are those of fastaudit 0.2.
    #[inline]
    pub fn is_strict(&self) -> bool {
        let config = self.config.as_ref();
        config.is_some_and(|config| config.get().is_strict())
    }

    /// The directory that was current when the guarded code first asked to change it.
    pub fn first_dir(&self) -> Option<&[u8]> {
        self.first_dir.get_or_init(|| Os.current_dir()).as_deref()
    }

    /// The denials under this guard.
    pub fn log(&self) -> &Arc<Log> {
        self.log.get_or_init(Arc::default)
    }

    /// Whether it is in force in the whole process for good.
    pub fn is_installed(&self) -> bool {
        installed().any(|installed| std::ptr::eq(installed.active.get(), self))
    }

    /// Where it was entered, where denials elsewhere tell that.
    pub fn origin(&self) -> Option<&Origin> {
        self.origin.as_deref()
    }

    /// One that is in force nowhere.
    pub fn detached() -> Self {
        Self::new(None, None, None, None)
    }

    fn new(
        config: Option<Py<AuditCfg>>,
        outer: Option<Py<Self>>,
        monitoring: Option<monitor::Hold>,
        origin: Option<Box<Origin>>,
    ) -> Self {
        if let Some(config) = &config {
            LIVE.fetch_add(1, Ordering::Relaxed);
            if config.get().restricts_more() {
                RESTRICTING.fetch_add(1, Ordering::Relaxed);
            }
        }
        Self {
            config,
            outer: Mutex::new(outer),
            outer_changed: AtomicBool::new(false),
            first_dir: OnceLock::new(),
            log: OnceLock::new(),
            origin,
            is_left: AtomicBool::new(false),
            generation: forks::generation(),
            beside: None,
            _monitoring: monitoring,
        }
    }

    /// A guard in force for which another is in force too: events are judged by both.
    fn beside(
        py: Python<'_>,
        own: &Bound<'_, Self>,
        other: &Bound<'_, Self>,
    ) -> PyResult<Py<Self>> {
        let other = match &own.get().beside {
            Some(beside) => Self::beside(py, beside.bind(py), other)?,
            None => other.clone().unbind(),
        };
        let config = own.get().config.as_ref();
        let config = config.map(|config| config.clone_ref(py));
        let mut active = Self::new(config, Some(own.clone().unbind()), None, None);
        active.log = OnceLock::from(Arc::clone(own.get().log()));
        active.beside = Some(other);
        // That events are judged by all guards in force is asked for by those that restrict more.
        RESTRICTING.fetch_add(1, Ordering::Relaxed);
        Py::new(py, active)
    }

    /// The guard that is in force beside this one.
    #[inline]
    pub fn other(&self) -> Option<&Self> {
        self.beside.as_ref().map(Py::get)
    }

    /// Whether it wants to see calls.
    pub fn watches(&self) -> bool {
        let config = self.config.as_ref();
        config.is_some_and(|config| config.get().monitor_calls())
    }

    /// The first of this guard and those beside it that wants to see calls.
    pub fn watching(&self) -> Option<&Self> {
        std::iter::successors(Some(self), |active| active.other()).find(|active| active.watches())
    }

    /// Whether this process is a copy of the one that it was entered in.
    pub fn is_in_copy(&self) -> bool {
        self.generation != forks::generation()
    }

    /// Whether it was entered under that guard, or is it.
    fn is_within(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) -> bool {
        let py = slf.py();
        let mut link = Some(slf.clone().unbind());
        while let Some(active) = link {
            if active.is(other) {
                return true;
            }
            link = active.get().outer(py);
        }
        false
    }

    fn outer(&self, py: Python<'_>) -> Option<Py<Self>> {
        let outer = self.outer.lock().unwrap_or_else(PoisonError::into_inner);
        outer.as_ref().map(|active| active.clone_ref(py))
    }

    fn set_outer(&self, outer: Option<Py<Self>>) {
        let old = std::mem::replace(
            &mut *self.outer.lock().unwrap_or_else(PoisonError::into_inner),
            outer,
        );
        self.outer_changed.store(true, Ordering::Relaxed);
        drop(old);
    }
}

#[pymethods]
impl Active {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.config)?;
        visit.call(&self.beside)?;
        if let Some(origin) = &self.origin {
            origin.traverse(&visit)?;
        }
        match self.outer.try_lock() {
            Ok(outer) => visit.call(&*outer),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if let Some(config) = &self.config {
            LIVE.fetch_sub(1, Ordering::Relaxed);
            if config.get().restricts_more() {
                RESTRICTING.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if self.beside.is_some() {
            RESTRICTING.fetch_sub(1, Ordering::Relaxed);
        }
        // Guards nested a thousand deep are freed one by one, not by recursion.
        let mut next = self
            .outer
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        while let Some(active) = next {
            next = if raw::is_only_reference(&active) {
                active
                    .get()
                    .outer
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take()
            } else {
                None
            };
            drop(active);
        }
    }
}

/// What the current context says.
pub enum Current<'py> {
    /// No guard.
    Unguarded,
    /// This guard.
    Guarded(Bound<'py, Active>),
    /// The variable was set to something that is no guard: nothing may pass.
    Tampered,
}

/// Whether some guard is in force somewhere in the process.
#[inline]
pub fn any_guard() -> bool {
    LIVE.load(Ordering::Relaxed) != 0
}

/// Whether some guard in force restricts more than fastaudit 0.1 does.
#[inline]
pub fn any_guard_restricts_more() -> bool {
    RESTRICTING.load(Ordering::Relaxed) != 0
}

/// Whether the hook has anything to look at: some guard is in force, in this interpreter.
#[inline]
pub fn may_be_guarded() -> bool {
    any_guard() && is_ours()
}

/// Whether this thread runs the interpreter that the guards are in.
#[inline]
pub fn is_ours() -> bool {
    std::ptr::eq(raw::current_interpreter(), OWNER.load(Ordering::Relaxed))
        && !OWNER.load(Ordering::Relaxed).is_null()
}

/// Makes the context variable, for this interpreter.
pub fn install(py: Python<'_>) -> PyResult<()> {
    VAR.get_or_try_init(py, || {
        OWNER.store(raw::current_interpreter(), Ordering::Relaxed);
        raw::new_context_var(py, c"fastaudit_rs_guard").map(Bound::unbind)
    })
    .map(|_| ())
}

fn var(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    VAR.get(py)
        .map(|var| var.bind(py))
        .ok_or_else(|| PyRuntimeError::new_err("fastaudit_rs: the audit hook is not installed"))
}

/// The guard in force in the current context: its own, or else one that is installed.
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

/// The guards that are installed, the last one first.
#[inline]
pub fn installed() -> impl Iterator<Item = &'static Installed> {
    let last = INSTALLED.load(Ordering::Acquire);
    // SAFETY: it is null, or was made by `install` and is never freed.
    let last: Option<&'static Installed> = unsafe { last.as_ref() };
    std::iter::successors(last, |installed| installed.before)
}

/// All guards in force in the current context: its own, and those that are installed.
pub fn in_force(py: Python<'_>) -> PyResult<Vec<Bound<'_, Active>>> {
    let mut all = Vec::new();
    if let Current::Guarded(active) = own(py)? {
        let mut next = Some(active);
        while let Some(active) = next {
            let beside = active.get().beside.as_ref();
            next = beside.map(|beside| beside.bind(py).clone());
            all.push(active);
        }
    }
    all.extend(installed().map(|installed| installed.active.bind(py).clone()));
    all.dedup_by(|one, other| one.is(&*other));
    Ok(all)
}

/// Puts a guard in force in the whole process for good, beside those that are.
pub fn install_for_good(py: Python<'_>, config: Py<AuditCfg>, policy: Py<PyAny>) -> PyResult<()> {
    let monitoring = hold(py, &config)?;
    let active = Active::new(Some(config), None, monitoring, None);
    // It is never dropped.
    RESTRICTING.fetch_add(1, Ordering::Relaxed);
    let installed = Installed {
        active: Py::new(py, active)?,
        policy,
        before: installed().next(),
    };
    INSTALLED.store(Box::leak(Box::new(installed)), Ordering::Release);
    Ok(())
}

/// The guard that was entered in the current context.
#[inline]
pub fn own(py: Python<'_>) -> PyResult<Current<'_>> {
    let Some(value) = raw::context_var_get(py, var(py)?)? else {
        return Ok(Current::Unguarded);
    };
    Ok(match value.cast_into_exact::<Active>() {
        Ok(active) if active.get().config.is_none() => Current::Unguarded,
        Ok(active) => Current::Guarded(active),
        Err(_) => Current::Tampered,
    })
}

/// A guard that was entered: what it takes to leave it.
pub struct Entered {
    active: Py<Active>,
    token: Py<PyAny>,
    place: Option<Place>,
}

impl Entered {
    /// Whether the code that runs is the one that may leave it: of a `with` statement the frame that
    /// it is in, and not what it guards.
    ///
    /// # Errors
    /// What reading the code of the frame raises.
    pub fn may_be_left_here(&self, py: Python<'_>) -> PyResult<bool> {
        match &self.place {
            Some(place) if !place.is_current_frame(py) => Ok(!place.is_with_statement(py)?),
            _ => Ok(true),
        }
    }

    /// The denials under the guard.
    pub fn log(&self) -> &Arc<Log> {
        self.active.get().log()
    }

    /// The denials under a guard that was left, if there are any or may be some yet, in a task that
    /// goes on under it.
    pub fn log_after(&self) -> Option<Arc<Log>> {
        let active = self.active.get();
        if raw::is_only_reference(&self.active) {
            return active.log.get().cloned();
        }
        Some(Arc::clone(active.log()))
    }

    /// Keeps what denials tell of where it was entered, if it goes on elsewhere when it is left.
    ///
    /// # Errors
    /// What reading frames raised.
    pub fn settle(&self, py: Python<'_>) -> PyResult<()> {
        match self.active.get().origin() {
            Some(origin) if !raw::is_only_reference(&self.active) => origin.settle(py),
            _ => Ok(()),
        }
    }

    /// Shows the garbage collector what is held.
    pub fn traverse(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.active)?;
        if let Some(place) = &self.place {
            place.traverse(&visit)?;
        }
        visit.call(&self.token)
    }
}

/// Switches CALL monitoring on where a guard watches calls.
#[inline]
fn hold(py: Python<'_>, config: &Py<AuditCfg>) -> PyResult<Option<monitor::Hold>> {
    let config = config.get();
    if config.monitor_calls() {
        return monitor::Hold::new(py, config).map(Some);
    }
    Ok(None)
}

/// Puts a guard in force in the current context.
pub fn enter(
    py: Python<'_>,
    config: Py<AuditCfg>,
    outer: Option<Bound<'_, Active>>,
) -> PyResult<Entered> {
    let monitoring = hold(py, &config)?;
    let origin = match config.get().is_strict() {
        true => Some(Box::new(Origin::here(py)?)),
        false => None,
    };
    let active = Active::new(Some(config), outer.map(Bound::unbind), monitoring, origin);
    let active = Bound::new(py, active)?;
    let token = raw::context_var_set(var(py)?, active.as_any())?;
    Ok(Entered {
        active: active.unbind(),
        token: token.unbind(),
        place: Place::here(py),
    })
}

/// Puts a guard that is in force elsewhere in force in the current context as well, for good.
pub fn carry(py: Python<'_>, active: &Py<Active>) -> PyResult<()> {
    raw::context_var_set(var(py)?, active.bind(py).as_any()).map(|_| ())
}

/// The same in another context; does nothing for what is none.
///
/// # Errors
/// `RuntimeError` where the context is entered.
pub fn carry_into(context: &Bound<'_, PyAny>, active: &Bound<'_, Active>) -> PyResult<()> {
    let py = context.py();
    let Some(_entered) = raw::EnteredContext::new(context)? else {
        return Ok(());
    };
    raw::context_var_set(var(py)?, active.as_any()).map(|_| ())
}

/// Takes a guard out of force. Guards that were entered later and are still entered stay in force,
/// and when they are left in turn the context goes back past this one.
///
/// # Errors
/// `ValueError`, and the guard stays in force, in another context than it was entered in.
pub fn leave(py: Python<'_>, entered: &Entered) -> PyResult<()> {
    let var = var(py)?;
    let before = raw::context_var_get(py, var)?;
    raw::context_var_reset(var, entered.token.bind(py))?;
    let active = entered.active.get();
    active.is_left.store(true, Ordering::Relaxed);
    // What is no guard was put there by the code that is left now, and goes with it.
    let before = before.and_then(|before| before.cast_into_exact::<Active>().ok());
    match before {
        Some(inner) if !inner.is(&entered.active) => {
            raw::context_var_set(var, inner.as_any())?;
            unlink(py, inner.unbind(), &entered.active);
        }
        _ if active.outer_changed.load(Ordering::Relaxed) => {
            let outer = match active.outer(py) {
                Some(outer) => outer,
                None => Py::new(py, Active::detached())?,
            };
            raw::context_var_set(var, outer.bind(py).as_any())?;
        }
        _ => {}
    }
    Ok(())
}

/// A guard that was put in force in a context for as long as it is entered.
pub struct Lent {
    active: Py<Active>,
    token: Py<PyAny>,
    before: Option<Py<Active>>,
}

/// Puts the guard in force here in force in a context that is about to be entered, where it is not.
///
/// # Errors
/// What setting a context variable raises.
pub fn lend(py: Python<'_>, context: &Bound<'_, PyAny>) -> PyResult<Option<Lent>> {
    let active = match own(py)? {
        Current::Guarded(active) => active,
        Current::Unguarded => return Ok(None),
        Current::Tampered => return Err(errors::variable_changed()),
    };
    // One that is entered already cannot be entered: CPython says so.
    let Ok(Some(_entered)) = raw::EnteredContext::new(context) else {
        return Ok(None);
    };
    let (lent, before) = match own(py)? {
        Current::Tampered => return Ok(None),
        Current::Unguarded => (active.clone().unbind(), None),
        Current::Guarded(before) if Active::is_within(&before, &active) => return Ok(None),
        Current::Guarded(before) => {
            let both = Active::beside(py, &before, &active)?;
            (both, Some(before.unbind()))
        }
    };
    let token = raw::context_var_set(var(py)?, lent.bind(py).as_any())?;
    Ok(Some(Lent {
        active: lent,
        token: token.unbind(),
        before,
    }))
}

/// Undoes `lend`.
///
/// # Errors
/// `RuntimeError` where the context is entered: the guard then stays in force in it.
pub fn take_back(context: &Bound<'_, PyAny>, lent: Lent) -> PyResult<()> {
    let py = context.py();
    let Some(_entered) = raw::EnteredContext::new(context)? else {
        return Ok(());
    };
    let Lent {
        active,
        token,
        before,
    } = lent;
    // Where it was left meanwhile, another link took its place.
    let was_left = active.get().outer_changed.load(Ordering::Relaxed);
    let old = before.as_ref().and_then(|_| active.get().outer(py));
    match raw::context_var_get(py, var(py)?)? {
        Some(now) if !now.is(&active) => {
            // A guard that was entered and not left: it goes on without this one.
            if let Ok(inner) = now.cast_into_exact::<Active>() {
                relink(py, inner.unbind(), &active, old);
            }
        }
        _ if before.is_some() && was_left => {
            let old = old.map_or_else(|| Py::new(py, Active::detached()), Ok)?;
            raw::context_var_set(var(py)?, old.bind(py).as_any())?;
        }
        _ => raw::context_var_reset(var(py)?, token.bind(py))?,
    }
    Ok(())
}

/// Whether the object is the guards' context variable.
pub fn is_var(object: &Bound<'_, PyAny>) -> bool {
    VAR.get(object.py()).is_some_and(|var| object.is(var))
}

/// Whether code in the current context may give the variable a value: not that of another guard.
///
/// # Errors
/// What reading the variable raises.
pub fn may_set(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_guard = value.cast_exact::<Active>().is_ok();
    Ok(!is_guard || matches!(own(value.py())?, Current::Unguarded))
}

/// Whether it may have back what it had before, where that is what the guard in force put there.
///
/// # Errors
/// What reading the variable, or the token, raises.
pub fn may_reset(token: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = token.py();
    Ok(match own(py)? {
        Current::Unguarded => true,
        Current::Guarded(_) => false,
        Current::Tampered => match token.getattr_opt(pyo3::intern!(py, "old_value"))? {
            Some(old) => old.cast_into_exact::<Active>().is_ok_and(|old| {
                let old = old.get();
                old.config.is_some() && !old.is_left.load(Ordering::Relaxed)
            }),
            None => false,
        },
    })
}

/// Takes a guard that was left early out of the chain that begins at `inner`. All links before it
/// were entered in the same context: what a context holds is replaced only by entering in it.
fn unlink(py: Python<'_>, inner: Py<Active>, left: &Py<Active>) {
    relink(py, inner, left, left.get().outer(py));
}

/// Puts another guard, or none, in the place of one in the chain that begins at `inner`.
fn relink(py: Python<'_>, inner: Py<Active>, left: &Py<Active>, by: Option<Py<Active>>) {
    let mut link = Some(inner);
    while let Some(active) = link {
        let outer = active.get().outer(py);
        if outer.as_ref().is_some_and(|outer| outer.is(left)) {
            active.get().set_outer(by);
            return;
        }
        link = outer;
    }
}
