//! The guards that have calls watched, from the caller's side or the callee's, and the callees that all
//! of them allow.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyModule, PyTuple};

use crate::python::callees::callee_cache as cache;
use crate::python::configuration::config::{AuditCfg, Side};
use crate::python::cpython::native_calls;
use crate::python::cpython::once::{lock, lock_without_gil};
use crate::python::guard::monitoring;
use crate::python::guard::own_events::{FINDS_OBJECTS, while_raising};
use crate::python::importing::loaded;
use crate::python::values::errors;

/// The number of times that native code was loaded, and that number as all of it was looked for last.
static LOADED: AtomicUsize = AtomicUsize::new(1);
static LOOKED_FOR: AtomicUsize = AtomicUsize::new(0);

/// The set of callees that is remembered as safe: that of guards which allow the same set.
static SAFE_SET: AtomicU64 = AtomicU64::new(0);
/// Whoever changes that set, or remembers a callee of it, holds this.
static CHANGING: Mutex<()> = Mutex::new(());
/// The number of guards that have calls watched, and above it that of those which allow exactly this
/// set: one value, so that they are read at once.
static HOLDS: AtomicU64 = AtomicU64::new(0);

const OF_SAFE_SET: u64 = 1 << 32;

/// Keeps calls watched for as long as it lives.
pub struct Hold {
    side: Side,
    retires: bool,
    /// What it adds to `HOLDS`.
    counted: u64,
}

impl Hold {
    pub fn new(py: Python<'_>, config: &AuditCfg) -> PyResult<Self> {
        let (side, retires) = (config.side, config.retire_sites);
        if side == Side::Callee {
            route_callees(py)?;
        } else {
            monitoring::prepare_for(py, retires)?;
        }
        let hold = Self { side, retires, counted: count(config.safe_set) };
        if side == Side::Callee {
            native_calls::watch();
        } else {
            monitoring::hold(py, retires)?;
        }
        Ok(hold)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        HOLDS.fetch_sub(self.counted, Ordering::Relaxed);
        match self.side {
            Side::Caller => monitoring::release(self.retires),
            Side::Callee => native_calls::stop_watching(),
        }
    }
}

/// Has calls come through what is called, also what was made or loaded since the last time.
fn route_callees(py: Python<'_>) -> PyResult<()> {
    let number = LOADED.load(Ordering::Acquire);
    if loaded::foreign() && LOOKED_FOR.load(Ordering::Acquire) < number {
        look_for_code(py)?;
        while_raising(FINDS_OBJECTS, || native_calls::find_all(py))?;
        LOOKED_FOR.fetch_max(number, Ordering::Release);
    }
    match native_calls::has_room() {
        true => Ok(()),
        false => Err(errors::no_room_for_callees()),
    }
}

/// Notes where the code of others is. One thread at a time: what another found before stays no longer.
fn look_for_code(py: Python<'_>) -> PyResult<()> {
    static LOOKING: Mutex<()> = Mutex::new(());
    let looking = lock(&LOOKING);
    let found = loaded::foreign_code(py).map(native_calls::set_foreign_code);
    drop(looking);
    found
}

/// The number of guards that have calls watched.
pub fn holds() -> u64 {
    HOLDS.load(Ordering::Relaxed) % OF_SAFE_SET
}

/// Returns whether all guards in force allow the callees that are remembered as safe.
#[inline]
pub fn all_have_safe_set() -> bool {
    let all = HOLDS.load(Ordering::Relaxed);
    let same = all / OF_SAFE_SET;
    same != 0 && same == all % OF_SAFE_SET
}

/// Counts a guard that allows this set of safe callees. The set becomes the remembered one, and another
/// is forgotten, if no guard in force has that. 0 stands for no set.
fn count(set: u64) -> u64 {
    let changing = lock_without_gil(&CHANGING);
    let is_free = HOLDS.load(Ordering::Relaxed) < OF_SAFE_SET;
    if set != 0 && is_free && !is_remembered(set) {
        cache::forget_safe();
        SAFE_SET.store(set, Ordering::Relaxed);
    }
    let counted = 1 + OF_SAFE_SET * u64::from(is_remembered(set));
    HOLDS.fetch_add(counted, Ordering::Relaxed);
    drop(changing);
    counted
}

/// Remembers a callee as safe, by `remember`, if this is the remembered set.
pub fn remember_in(set: u64, remember: impl FnOnce()) {
    let changing = lock_without_gil(&CHANGING);
    if is_remembered(set) {
        remember();
    }
    drop(changing);
}

pub fn is_remembered(set: u64) -> bool {
    set != 0 && set == SAFE_SET.load(Ordering::Relaxed)
}

/// Begins to watch if the event says that the first native code from outside the standard library
/// loads.
pub fn native_code_loads(event: &[u8], args: &Bound<'_, PyTuple>) -> PyResult<()> {
    let is_first = loaded::take_note(event, args);
    // Another thread, which loaded the first, may not have begun yet.
    match is_first || monitoring::is_late() {
        true => monitoring::native_code_loads(args.py()),
        false => Ok(()),
    }
}

/// Has the calls of a module's native code watched, which was just loaded.
pub fn native_code_loaded(module: &Bound<'_, PyModule>) -> PyResult<()> {
    LOADED.fetch_add(1, Ordering::Release);
    if native_calls::is_watched() {
        look_for_code(module.py())?;
        native_calls::find_in(module);
    }
    Ok(())
}
