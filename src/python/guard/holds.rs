//! The guards that have calls watched, from the caller's side or the callee's, and the callees that all
//! of them allow.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyModule, PyTuple};

use crate::python::callees::callee_cache as cache;
use crate::python::configuration::config::{AuditCfg, Side};
use crate::python::cpython::native_calls;
use crate::python::guard::monitoring;
use crate::python::guard::own_events::{FINDS_OBJECTS, while_raising};
use crate::python::importing::loaded;
use crate::python::values::errors;

/// The number of guards that watch by what is called.
static OF_CALLEES: AtomicUsize = AtomicUsize::new(0);
/// True if native code was loaded since all of it was looked for.
static NEW_CODE: AtomicBool = AtomicBool::new(true);

/// The set of callees that is remembered as safe: that of guards which allow the same set.
static SAFE_SET: AtomicU64 = AtomicU64::new(0);
/// The number of guards that watch calls and allow exactly this set.
static OF_SAFE_SET: AtomicUsize = AtomicUsize::new(0);

/// Keeps calls watched for as long as it lives.
pub struct Hold {
    side: Side,
    retires: bool,
    is_of_safe_set: bool,
}

impl Hold {
    pub fn new(py: Python<'_>, config: &AuditCfg) -> PyResult<Self> {
        let (side, retires) = (config.side, config.retire_sites);
        if side == Side::Callee {
            route_callees(py)?;
        } else {
            monitoring::prepare_for(py, retires)?;
        }
        let is_of_safe_set = has_safe_set(config.safe_set);
        OF_SAFE_SET.fetch_add(is_of_safe_set.into(), Ordering::Relaxed);
        let hold = Self { side, retires, is_of_safe_set };
        if side == Side::Callee {
            OF_CALLEES.fetch_add(1, Ordering::Relaxed);
            native_calls::watch(true);
        } else {
            monitoring::hold(py, retires)?;
        }
        Ok(hold)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        OF_SAFE_SET.fetch_sub(self.is_of_safe_set.into(), Ordering::Relaxed);
        match self.side {
            Side::Caller => monitoring::release(self.retires),
            Side::Callee => {
                if OF_CALLEES.fetch_sub(1, Ordering::Relaxed) == 1 {
                    native_calls::watch(false);
                }
            }
        }
    }
}

/// Has calls come through what is called, also what was made or loaded since the last time.
fn route_callees(py: Python<'_>) -> PyResult<()> {
    if loaded::foreign() && NEW_CODE.swap(false, Ordering::Relaxed) {
        let found = loaded::foreign_code(py).and_then(|code| {
            native_calls::set_foreign_code(code);
            while_raising(FINDS_OBJECTS, || native_calls::find_all(py))
        });
        found.inspect_err(|_| NEW_CODE.store(true, Ordering::Relaxed))?;
    }
    match native_calls::has_room() {
        true => Ok(()),
        false => Err(errors::no_room_for_callees()),
    }
}

/// The number of guards that have calls watched.
pub fn holds() -> usize {
    monitoring::holds() + OF_CALLEES.load(Ordering::Relaxed)
}

/// Returns whether all guards in force allow the callees that are remembered as safe.
#[inline]
pub fn all_have_safe_set() -> bool {
    let same = OF_SAFE_SET.load(Ordering::Relaxed);
    same != 0 && same == holds()
}

/// Returns whether a set of safe callees is the remembered one, or has become it: another set
/// is forgotten if no guard in force has it. 0 stands for no set.
fn has_safe_set(set: u64) -> bool {
    if set != 0
        && set != SAFE_SET.load(Ordering::Relaxed)
        && OF_SAFE_SET.load(Ordering::Relaxed) == 0
    {
        cache::forget_safe();
        SAFE_SET.store(set, Ordering::Relaxed);
    }
    is_remembered(set)
}

pub fn is_remembered(set: u64) -> bool {
    set != 0 && set == SAFE_SET.load(Ordering::Relaxed)
}

/// Begins to watch if the event says that the first native code from outside the standard library
/// loads.
pub fn native_code_loads(event: &[u8], args: &Bound<'_, PyTuple>) -> PyResult<()> {
    match loaded::take_note(event, args) {
        true => monitoring::native_code_loads(args.py()),
        false => Ok(()),
    }
}

/// Has the calls of a module's native code watched, which was just loaded.
pub fn native_code_loaded(module: &Bound<'_, PyModule>) -> PyResult<()> {
    NEW_CODE.store(true, Ordering::Relaxed);
    if OF_CALLEES.load(Ordering::Relaxed) != 0 {
        native_calls::set_foreign_code(loaded::foreign_code(module.py())?);
        native_calls::find_in(module);
    }
    Ok(())
}
