//! Harmless signals: to processes that were started under the guard, and those without effect; and
//! waiting for such processes.

use pyo3::prelude::*;
use rustix::io::Errno;
use rustix::process::{Pid, getpgrp, test_kill_process};

use crate::python::guard::event::Event;
use crate::python::importing::imports;

/// A signal may be sent that only asks, or goes to a process that was started under the guard.
pub fn passes(event: &Event<'_, '_>) -> bool {
    // The arguments are `int`s: of another object the event has the number that is used.
    let (Some(target), Some(signal)) = (event.number(0), event.number(1)) else {
        return false;
    };
    if signal == 0 {
        return true;
    }
    match event.name.to_bytes() {
        b"os.kill" if target > 0 => is_started(event, target),
        b"os.kill" if target < -1 => leads_group(event, target.checked_neg()),
        b"os.killpg" => leads_group(event, Some(target)),
        #[cfg(target_os = "linux")]
        b"signal.pidfd_send_signal" => crate::kernel::started::process_of(target)
            .is_some_and(|pid| event.config.started.started(pid)),
        _ => false,
    }
}

/// Returns whether each child of this process was started under the guard, so that the status of no
/// other child is taken from whoever waits for it. If the system does not tell, returns true except
/// on Linux.
pub fn waits_for_own(event: &Event<'_, '_>) -> bool {
    match crate::kernel::started::children() {
        Some(children) => children
            .into_iter()
            .all(|child| event.config.started.has(child)),
        None => cfg!(not(target_os = "linux")),
    }
}

fn is_started(event: &Event<'_, '_>, pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| {
        event.config.started.started(pid) || is_ended_worker(event.args.py(), pid)
    })
}

/// Returns whether `multiprocessing` signals a worker of its own that has ended: once the server
/// that started it has waited for it, nothing tells whose it was, and nothing can get the signal.
fn is_ended_worker(py: Python<'_>, pid: Pid) -> bool {
    test_kill_process(pid) == Err(Errno::SRCH)
        && imports::is_called_by(py, "multiprocessing.popen_fork", "_send_signal").unwrap_or(false)
}

/// True for the group of a process that was started under the guard, but for this one's.
fn leads_group(event: &Event<'_, '_>, group: Option<i32>) -> bool {
    let group = group.filter(|group| *group > 0).and_then(Pid::from_raw);
    group.is_some_and(|group| group != getpgrp() && event.config.started.has(group))
}
