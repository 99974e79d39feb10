//! Copies of the process (fork(2)): the number of copies from the first process to this one.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::Once;

static FORKS: AtomicUsize = AtomicUsize::new(0);

/// The same, of the last copy that Python code made.
static OF_PYTHON: AtomicUsize = AtomicUsize::new(0);

/// `_thread._count`, as it was.
static COUNT: Once<Py<PyAny>> = Once::new();

/// Returns how often the process was copied: a copy has another number than its original.
#[inline]
pub fn generation() -> usize {
    FORKS.load(Ordering::Relaxed)
}

/// Notes that Python code made this copy.
pub fn note_python() {
    OF_PYTHON.store(generation(), Ordering::Relaxed);
}

/// Returns whether native code made this copy. No Python code may run in it: other threads had locks
/// that nobody unlocks here.
pub fn is_of_native_code() -> bool {
    OF_PYTHON.load(Ordering::Relaxed) != generation()
}

#[cfg(unix)]
extern "C" fn is_copy() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Begins to count.
pub fn install(py: Python<'_>) -> PyResult<()> {
    COUNT.get_or_try_init(py, || {
        // SAFETY: the function does nothing that is not allowed in a copy (pthread_atfork(3)).
        #[cfg(unix)]
        unsafe {
            libc::pthread_atfork(None, None, Some(is_copy));
        }
        calling::import(py, "_thread")?
            .attr("_count")
            .map(Bound::unbind)
    })?;
    Ok(())
}

/// Returns whether Python runs other threads than this one.
pub fn has_other_threads(py: Python<'_>) -> PyResult<bool> {
    let Some(count) = COUNT.get(py) else {
        return Ok(true);
    };
    // All but the main thread, the one that runs this among them.
    let count = count.bind(py).invoke0()?;
    Ok(raw::int_value(&count) != Some(0))
}
