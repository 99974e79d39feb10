//! The thread of a host that does system calls in the place of a sandbox's processes.

use std::path::PathBuf;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

#[doc = doc!("_hold_sockets")]
#[pyfunction]
#[pyo3(name = "_hold_sockets")]
#[cfg(target_os = "linux")]
pub fn hold_sockets(
    py: Python<'_>,
    roots: Vec<PathBuf>,
    directory: PathBuf,
    is_alone: bool,
) -> PyResult<()> {
    use crate::kernel::landlock;
    use crate::python::cpython::ffi as raw;
    use crate::python::cpython::process;

    let named = directory.as_os_str().into_pyobject(py)?;
    raw::audit(py, c"os.chdir", &[named.as_any()])?;
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
    crate::kernel::privileges::drop_all().map_err(std::io::Error::from)?;
    Ok(())
}

#[doc = doc!("_descriptor_of")]
#[pyfunction]
#[pyo3(name = "_descriptor_of")]
#[cfg(target_os = "linux")]
pub fn descriptor_of(thread: i32, descriptor: i32) -> PyResult<i32> {
    use std::os::fd::IntoRawFd;

    let taken = crate::kernel::descriptors::of_thread(thread, descriptor);
    let numbered = |error: rustix::io::Errno| {
        PyOSError::new_err((
            error.raw_os_error(),
            std::io::Error::from(error).to_string(),
        ))
    };
    Ok(taken.map_err(numbered)?.into_raw_fd())
}

#[doc = doc!("_listeners")]
#[pyfunction]
#[pyo3(name = "_listeners")]
#[cfg(target_os = "linux")]
pub fn listeners() -> Vec<i32> {
    crate::kernel::descriptors::listeners()
}

#[doc = doc!("_listeners")]
#[pyfunction]
#[pyo3(name = "_listeners")]
#[cfg(not(target_os = "linux"))]
pub fn listeners() -> Vec<i32> {
    Vec::new()
}

#[doc = doc!("_descriptor_of")]
#[pyfunction]
#[pyo3(name = "_descriptor_of")]
#[cfg(not(target_os = "linux"))]
pub fn descriptor_of(_thread: i32, _descriptor: i32) -> PyResult<i32> {
    Err(PyOSError::new_err("this system has no pidfd_getfd(2)"))
}

#[doc = doc!("_hold_sockets")]
#[pyfunction]
#[pyo3(name = "_hold_sockets")]
#[cfg(not(target_os = "linux"))]
pub fn hold_sockets(_roots: Vec<PathBuf>, _directory: PathBuf, _is_alone: bool) -> PyResult<()> {
    Err(PyOSError::new_err("this system has no Landlock"))
}
