//! The server of `multiprocessing` that makes copies of itself for workers: there is one for the whole
//! process, and its copies are guarded as it is.
//!
//! One that was started under a guard serves that guard alone: for others it is ended, and the library
//! starts another. One that was started without the guard makes no workers for guarded code.
#![allow(unsafe_code)]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyString;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::natives::Called;
use super::{context, ffi as raw, importing, intercept, temporary, workers};
use crate::started::Started;

/// Where the server is started, and the function that looks whether it runs.
const LIBRARY: (&str, &[&str]) = ("multiprocessing.forkserver", &["ensure_running"]);

/// The servers that were started under a guard.
static SERVERS: LazyLock<Started> = LazyLock::new(Started::default);

/// Whether there are any.
static ANY: AtomicBool = AtomicBool::new(false);

/// Notes one.
pub fn note(pid: Pid) {
    SERVERS.note(pid);
    ANY.store(true, Ordering::Relaxed);
}

/// Makes a call of `os.waitpid`, by which the library looks whether the server runs.
///
/// # Safety
/// The thread is attached, and the arguments are those of a vectorcall.
pub unsafe fn wait(call: Called) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe {
        let matters = ANY.load(Ordering::Relaxed) || context::may_be_guarded();
        if matters && context::is_ours() {
            let looked = intercept::ours(|py| match call.arguments.find(py, 0, None) {
                Some(pid) => look(&pid),
                None => Ok(()),
            });
            if looked.is_none() {
                return std::ptr::null_mut();
            }
        }
        call.make(call.arguments)
    }
}

/// Ends the server, or denies its use, where it is not that of the guards in force.
fn look(pid: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = pid.py();
    let pid = raw::int_value(pid).and_then(|pid| i32::try_from(pid).ok());
    let Some(pid) = pid.filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
        return Ok(());
    };
    if !importing::is_in_function(py, LIBRARY.0, LIBRARY.1)? {
        return Ok(());
    }
    let guards = temporary::in_force(py)?;
    let is_guarded = SERVERS.has(pid);
    let serves = guards
        .iter()
        .all(|config| config.get().started().has(pid) || workers::may_start_python(config.get()));
    if serves && (!guards.is_empty() || !is_guarded) {
        return Ok(());
    }
    if is_guarded {
        // It is this process's child, so that its number is no other's before it was waited for.
        let _ = kill_process(pid, Signal::KILL);
        let _ = waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        );
        return Ok(());
    }
    let told = "the server of multiprocessing (forkserver), which was started without this guard";
    let told = PyString::new(py, told).into_any();
    let none = py.None().into_bound(py);
    raw::audit(py, c"_posixsubprocess.fork_exec", &[&told, &none, &none])
}
