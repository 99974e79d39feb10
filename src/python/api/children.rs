//! The processes of a sandbox: one that waits for work, and its children, each used once.

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};
use std::sync::OnceLock;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, set_parent_process_death_signal};

use crate::kernel::{filter, landlock, privileges, reaper};
use crate::policy::written::spec::NetworkUse;
use crate::python::api::installed;
use crate::python::api::policy::PyPolicy;
use crate::python::cpython::{ffi as raw, process};
use crate::python::values::errors;
use crate::python::wrapped::workers;

#[doc = doc!("_Children")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Children")]
pub struct Children {
    children: reaper::ChildProcesses,
    signals: landlock::Signals,
    of_code: OnceLock<filter::Filters>,
}

#[pymethods]
impl Children {
    #[new]
    #[pyo3(signature = (parent=None))]
    fn new(parent: Option<i32>) -> PyResult<Self> {
        let parent = parent.map(number).transpose()?;
        let children = reaper::ChildProcesses::adopt(parent)?;
        // One of several beside each other has a parent: its children reach none of the others'.
        let signals = landlock::signals(parent.is_some())?;
        Ok(Self { children, signals, of_code: OnceLock::new() })
    }

    #[doc = doc!("_Children.confine")]
    fn confine(
        &self,
        policy: &Bound<'_, PyPolicy>,
        memory_files: bool,
        landlock: i32,
        own_network: bool,
    ) -> PyResult<()> {
        let network = &policy.get().spec().network;
        let beside = filter::Beside { memory_files, landlock, own_network };
        let filters = filter::filters(network, beside).map_err(refused)?;
        let of_code = filter::filters_of_code(landlock).map_err(refused)?;
        privileges::drop_all().map_err(errors::of_system)?;
        filter::apply(&filters).map_err(refused)?;
        self.of_code.get_or_init(|| of_code);
        if matches!(network, NetworkUse::All(false)) {
            filter::note_no_network();
        }
        Ok(())
    }

    #[doc = doc!("_Children.resolved")]
    #[expect(clippy::unused_self, reason = "only who made it may")]
    fn resolved(&self, py: Python<'_>, policy: &Bound<'_, PyPolicy>) -> PyResult<PyPolicy> {
        policy.get().resolved(py)
    }

    #[doc = doc!("_Children.fork")]
    fn fork(&self, py: Python<'_>) -> PyResult<i32> {
        raw::audit(py, c"os.fork", ())?;
        Ok(process::fork(py, || {})?)
    }

    #[doc = doc!("_Children.status")]
    fn status(&self, py: Python<'_>, child: i32, host: i32) -> PyResult<i32> {
        let child = number(child)?;
        let waited = py.detach(|| {
            let waited = with_descriptor("host", host, |host| self.children.status(child, host))?;
            if waited == Ok(None) {
                reaper::end_with(&self.children);
            }
            PyResult::Ok(waited)
        })?;
        Ok(waited.map_err(errors::of_system)?.unwrap_or(1))
    }

    #[doc = doc!("_Children.status_or_word")]
    fn status_or_word(&self, py: Python<'_>, child: i32, host: i32) -> PyResult<Option<i32>> {
        let child = number(child)?;
        let waited = py.detach(|| {
            with_descriptor("host", host, |host| {
                let waited = self.children.status(child, host);
                if waited == Ok(None) && reaper::is_over(host) {
                    reaper::end_with(&self.children);
                }
                waited
            })
        });
        waited?.map_err(errors::of_system)
    }

    #[doc = doc!("_Children.end")]
    #[pyo3(signature = (patience, kept=Vec::new()))]
    fn end(&self, py: Python<'_>, patience: f64, kept: Vec<i32>) -> PyResult<bool> {
        let patience = Duration::try_from_secs_f64(patience)
            .map_err(|error| PyValueError::new_err(format!("patience: {error}")))?;
        let kept = kept.into_iter().map(number).collect::<PyResult<Vec<_>>>()?;
        Ok(py.detach(|| self.children.end(patience, &kept)))
    }
}

fn number(child: i32) -> PyResult<Pid> {
    Pid::from_raw(child)
        .filter(|_| child > 0)
        .ok_or_else(|| PyValueError::new_err("child must be the number of a process"))
}

fn with_descriptor<R>(
    name: &str,
    number: i32,
    call: impl FnOnce(BorrowedFd<'_>) -> R,
) -> PyResult<R> {
    process::with_descriptor(number, call)
        .ok_or_else(|| PyValueError::new_err(format!("{name} must be a file descriptor")))
}

/// Copies the process; the copy goes on if that is to be, or ends.
fn copied(py: Python<'_>, channel: i32, goes_on: impl FnOnce() -> bool) -> PyResult<i32> {
    with_descriptor("channel", channel, |_| ())?;
    let copied = process::fork(py, || {
        if !goes_on() {
            process::end_at_once(0, false);
        }
        process::note_in_place();
    });
    Ok(copied?)
}

/// Makes the connection to the host the channel, and waits until something comes from there.
fn goes_on(channel: i32, host: BorrowedFd<'_>) -> bool {
    process::replace_descriptor(channel, host, FdFlags::empty()).is_ok()
        && process::with_descriptor(channel, reaper::wait_to_go_on) == Some(true)
        && set_parent_process_death_signal(Some(Signal::KILL)).is_ok()
}

fn refused(error: seccompiler::Error) -> PyErr {
    PyOSError::new_err(format!("the filter of system calls: {error}"))
}

#[doc = doc!("_Child")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Child")]
pub struct Child {}

#[pymethods]
impl Child {
    #[new]
    fn new(py: Python<'_>, children: &Bound<'_, Children>) -> PyResult<Self> {
        installed::check_none(py)?;
        workers::note_confined();
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(errors::of_system)?;
        let children = children.get();
        landlock::keep_signals_inside(&children.signals)?;
        children.of_code.get().map_or(Ok(()), filter::apply).map_err(refused)?;
        Ok(Self {})
    }

    #[doc = doc!("_Child.copy")]
    #[expect(clippy::unused_self, reason = "only who made it may")]
    fn copy(&self, py: Python<'_>, channel: i32, host: i32) -> PyResult<i32> {
        with_descriptor("host", host, |_| ())?;
        copied(py, channel, || {
            let goes_on = |host: BorrowedFd<'_>| goes_on(channel, host);
            process::with_descriptor(host, goes_on) == Some(true)
        })
    }

    #[doc = doc!("_Child.copy_ahead")]
    #[expect(clippy::unused_self, reason = "only who made it may")]
    fn copy_ahead(&self, py: Python<'_>, channel: i32) -> PyResult<(i32, i32)> {
        let (own, other) = reaper::connection().map_err(errors::of_system)?;
        let mut own = Some(own);
        let copy = copied(py, channel, || {
            // It waits for the end of this one too.
            own = None;
            reaper::received(other.as_fd()).is_some_and(|host| goes_on(channel, host.as_fd()))
        })?;
        Ok((copy, own.map_or(-1, IntoRawFd::into_raw_fd)))
    }

    #[doc = doc!("_Child.hand")]
    #[expect(clippy::unused_self, reason = "only who made it may")]
    fn hand(&self, connection: i32, host: i32) -> PyResult<()> {
        let hand =
            |own: BorrowedFd<'_>| with_descriptor("host", host, |host| reaper::hand(own, host));
        with_descriptor("connection", connection, hand)??.map_err(errors::of_system)
    }

    // Functions that C code has registered (`atexit(3)`) free memory that the kernel frees faster.
    // C streams are flushed.
    #[doc = doc!("_Child.end")]
    #[expect(clippy::unused_self, reason = "only who made it may")]
    fn end(&self, status: i32) {
        process::end_at_once(status, true);
    }
}
