//! The server of `multiprocessing` that makes copies of itself for workers: there is one for the
//! whole process, and its copies are guarded as it is.
//!
//! A server that was started under a guard serves that guard alone: for others it is ended, and the
//! library starts another. A server that was started without the guard makes no workers for guarded
//! code.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyString;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::kernel::started::Started;
use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::once::intern;
use crate::python::cpython::{descriptors, ffi as raw};
use crate::python::guard::{scope, tempfile};
use crate::python::importing::imports;
use crate::python::pools::workers;
use crate::python::wrapped::without_event::is_some;

/// The function that starts the server, and the one that checks whether it runs.
const LIBRARY: (&str, &[&str]) = ("multiprocessing.forkserver", &["ensure_running"]);

static SERVERS: LazyLock<Started> = LazyLock::new(Started::default);

static ANY: AtomicBool = AtomicBool::new(false);

pub fn note(pid: Pid) {
    SERVERS.note(pid);
    ANY.store(true, Ordering::Relaxed);
}

/// Makes a call of `os.waitpid`, by which the library looks whether the server runs.
pub fn wait(called: Called<'_>) -> Returned {
    let matters = ANY.load(Ordering::Relaxed) || scope::may_be_guarded();
    if !matters || !scope::is_ours() {
        return called.make();
    }
    called.make_if(|py| match called.arguments.find(py, 0, None) {
        Some(pid) if is_some(&pid) && scope::may_be_guarded() => {
            raw::audit(py, c"os.wait", &[&pid])
        }
        Some(pid) => look(&pid),
        None => Ok(()),
    })
}

/// The time for a server to end by itself, and remove its temporary files, and between looks at it.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

/// The end of the pipe that the server watches: it ends itself when nobody has this open.
fn alive_pipe(py: Python<'_>) -> PyResult<Option<i32>> {
    let module = raw::imported_module(py, intern!(py, LIBRARY.0))?;
    let Some(module) = module else {
        return Ok(None);
    };
    let Some(server) = module.attr_opt(intern!(py, "_forkserver"))? else {
        return Ok(None);
    };
    let pipe = server.attr_opt(intern!(py, "_forkserver_alive_fd"))?;
    let pipe = pipe.and_then(|pipe| raw::i32_value(&pipe));
    Ok(pipe.filter(|pipe| *pipe >= 0))
}

/// Ends a server: by itself, or else by force.
fn end(pid: Pid, alive: Option<i32>) {
    if let Some(alive) = alive {
        let found = descriptors::with(alive, |fd| fstat(fd)).and_then(Result::ok);
        let is_pipe =
            found.is_some_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Fifo);
        if is_pipe && close_in_place(alive).is_ok() {
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE {
                if has_ended(pid, WaitIdOptions::NOHANG) {
                    return;
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
    // It is this process's child, so that its number is no other's before it was waited for.
    let _ = kill_process(pid, Signal::KILL);
    has_ended(pid, WaitIdOptions::empty());
}

/// Closes a file by another in its place: the library closes the number when the server is gone.
fn close_in_place(file: i32) -> rustix::io::Result<()> {
    let nothing = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    descriptors::replace(file, &nothing, FdFlags::CLOEXEC)
}

/// Returns whether a child has ended; it can still be waited for later.
fn has_ended(pid: Pid, how: WaitIdOptions) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | how;
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

/// Ends the server, or denies its use, if it does not belong to the guards in force.
fn look(pid: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = pid.py();
    let pid = raw::i32_value(pid).filter(|pid| *pid > 0);
    let Some(pid) = pid.and_then(Pid::from_raw) else {
        return Ok(());
    };
    if !imports::is_in_function(py, LIBRARY.0, LIBRARY.1)? {
        return Ok(());
    }
    let guards = tempfile::in_force(py)?;
    let is_guarded = SERVERS.has(pid);
    let serves = guards
        .iter()
        .all(|config| config.get().started.has(pid) || workers::may_start_python(config.get()));
    if serves && (!guards.is_empty() || !is_guarded) {
        return Ok(());
    }
    if is_guarded {
        let alive = alive_pipe(py)?;
        py.detach(|| end(pid, alive));
        return Ok(());
    }
    let told = "the server of multiprocessing (forkserver), which was started without this guard";
    let told = PyString::new(py, told).into_any();
    let none = py.None().into_bound(py);
    raw::audit(py, c"_posixsubprocess.fork_exec", &[&told, &none, &none])
}
