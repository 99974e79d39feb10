//! The host's part of sandboxes and sessions: threads of theirs, and what it reads of them.

use std::cell::RefCell;
use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::exceptions::{PyFileNotFoundError, PyKeyboardInterrupt, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use rustix::io::Errno;
use rustix::net::connect_unspec;

use crate::kernel::{descriptors, landlock, privileges};
use crate::policy::files::current;
use crate::policy::files::os::Os;
use crate::python::cpython::once::lock;
use crate::python::cpython::{ffi as raw, process};
use crate::python::values::errors;

#[doc = doc!("_hold_sockets")]
#[pyfunction]
#[pyo3(name = "_hold_sockets")]
pub fn hold_sockets(
    py: Python<'_>,
    roots: Vec<PathBuf>,
    directory: PathBuf,
    is_alone: bool,
) -> PyResult<()> {
    raw::audit(py, c"os.chdir", (directory.as_os_str(),))?;
    landlock::keep_sockets_below(&roots).map_err(|error| PyOSError::new_err(error.to_string()))?;
    // Without a directory of its own the thread has the host's: the rules hold there too.
    if process::own_directory().is_ok() {
        std::env::set_current_dir(directory)?;
    }
    if is_alone {
        // Without the privilege the filter of system calls holds alone. The kernel makes a network
        // while other threads run.
        let _ = py.detach(process::own_network);
    }
    // Files of other owners are as closed to it as to the processes that it acts for.
    privileges::drop_all().map_err(std::io::Error::from)?;
    Ok(())
}

#[doc = doc!("_descriptor_of")]
#[pyfunction]
#[pyo3(name = "_descriptor_of")]
pub fn descriptor_of(thread: i32, descriptor: i32) -> PyResult<i32> {
    let taken = descriptors::of_thread(thread, descriptor);
    Ok(taken.map_err(errors::of_system)?.into_raw_fd())
}

#[doc = doc!("_disconnect")]
#[pyfunction]
#[pyo3(name = "_disconnect")]
pub fn disconnect(descriptor: i32) -> PyResult<()> {
    let done = process::with_descriptor(descriptor, |socket| connect_unspec(socket));
    done.unwrap_or(Err(Errno::BADF)).map_err(errors::of_system)
}

#[doc = doc!("_landlock_version")]
#[pyfunction]
#[pyo3(name = "_landlock_version")]
pub fn landlock_version() -> i64 {
    process::landlock_version()
}

#[doc = doc!("_listeners")]
#[pyfunction]
#[pyo3(name = "_listeners")]
pub fn listeners() -> Vec<i32> {
    descriptors::listeners()
}

// A session in this process: its thread can be interrupted, and has a directory of its own.

#[doc = doc!("_Interrupts")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Interrupts")]
pub struct Interrupts(Mutex<State>);

#[derive(Default)]
struct State {
    thread: Option<u64>,
    /// The number of functions of the host that it is in.
    held: usize,
    /// True if an interrupt waits for their end.
    waits: bool,
    /// True if one was put into the thread.
    was_put: bool,
}

thread_local! {
    /// The interrupts of the step that this thread runs.
    static HERE: RefCell<Option<Py<Interrupts>>> = const { RefCell::new(None) };
}

/// A function of the host that no interrupt breaks off.
pub struct Held(Py<Interrupts>);

impl Held {
    /// Begins one, if this thread runs a step.
    pub fn here(py: Python<'_>) -> Option<Self> {
        let here = HERE.with_borrow(|here| here.as_ref().map(|here| here.clone_ref(py)))?;
        here.get().hold();
        Some(Self(here))
    }

    /// Ends it: an interrupt that waits for that comes now.
    pub fn release(self, py: Python<'_>) {
        self.0.get().release(py);
    }
}

#[pymethods]
impl Interrupts {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    #[doc = doc!("_Interrupts.begin")]
    fn begin(slf: &Bound<'_, Self>) {
        HERE.set(Some(slf.clone().unbind()));
        *lock(&slf.get().0) = State { thread: Some(raw::thread_ident()), ..State::default() };
    }

    #[doc = doc!("_Interrupts.end")]
    fn end(&self, py: Python<'_>) -> bool {
        HERE.take();
        let state = std::mem::take(&mut *lock(&self.0));
        let own = raw::thread_ident();
        state.was_put && state.thread == Some(own) && put(py, own)
    }

    #[doc = doc!("_Interrupts.interrupt")]
    fn interrupt(&self, py: Python<'_>) -> bool {
        let thread = {
            let mut state = lock(&self.0);
            state.waits = state.held > 0;
            state.thread.filter(|_| !state.waits)
        };
        let is_put = thread.is_some_and(|thread| put(py, thread));
        lock(&self.0).was_put |= is_put;
        is_put
    }

    #[doc = doc!("_Interrupts.hold")]
    fn hold(&self) {
        let mut state = lock(&self.0);
        if state.thread == Some(raw::thread_ident()) {
            state.held += 1;
        }
    }

    #[doc = doc!("_Interrupts.release")]
    fn release(&self, py: Python<'_>) {
        let waits = {
            let mut state = lock(&self.0);
            if state.thread != Some(raw::thread_ident()) {
                return;
            }
            state.held = state.held.saturating_sub(1);
            state.waits && state.held == 0
        };
        if waits {
            self.interrupt(py);
        }
    }
}

/// Returns whether there is such a thread.
fn put(py: Python<'_>, thread: u64) -> bool {
    let error = py.get_type::<PyKeyboardInterrupt>();
    raw::raise_in_thread(py, thread, error.as_any())
}

#[doc = doc!("_own_directory")]
#[pyfunction]
#[pyo3(name = "_own_directory")]
pub fn own_directory() -> bool {
    process::own_directory().is_ok()
}

#[doc = doc!("_directory")]
#[pyfunction]
#[pyo3(name = "_directory")]
pub fn directory(py: Python<'_>) -> PyResult<Bound<'_, PyString>> {
    match current::directory(&Os) {
        Some(directory) => raw::fs_decode(py, &directory),
        None => Err(PyFileNotFoundError::new_err("the current directory was removed")),
    }
}

// The extent of a report that somebody made who is not trusted, before it is read.

#[doc = doc!("_json_extent")]
#[pyfunction]
#[pyo3(name = "_json_extent")]
pub fn json_extent(data: &[u8]) -> (usize, usize) {
    let (mut values, mut depth, mut deepest) = (1, 0usize, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in data {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'[' | b'{' => {
                values += 1;
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
    }
    (values, deepest)
}

#[cfg(test)]
mod tests {
    use super::json_extent;

    #[test]
    fn texts_and_brackets() {
        assert_eq!(json_extent(b"1"), (1, 0));
        assert_eq!(json_extent(br#"{"a": [1, 2, [3]]}"#), (6, 3));
        assert_eq!(json_extent(br#""[[[,,,\"[[[,,,""#), (1, 0));
        assert_eq!(json_extent(b"]]]["), (2, 1));
    }
}
