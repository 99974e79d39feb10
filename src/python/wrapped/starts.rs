//! Processes that are started under a guard, and the server that starts some for a pool.

use std::ffi::CStr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::kernel::started::Started;
use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::cpython::{ffi as raw, process};
use crate::python::guard::{copies, scope, tempfile};
use crate::python::importing::imports;
use crate::python::wrapped::without_event::{self, Silent, is_some};
use crate::python::wrapped::{executors, workers};

// The native functions that start processes: the processes that they start under a guard are
// noted, so that it may signal them. The files that the system opens for such a program,
// `file_actions` of `os.posix_spawn`, raise `open` first, as those that Python opens do.

/// Makes a call of `fork_exec`, for a worker of a pool with other arguments than it was given.
pub fn call_program(called: Called<'_>, silent: &Silent) -> Returned {
    if !scope::may_be_guarded() {
        return called.make();
    }
    // CPython raises its event since 3.14.
    let silent = (!cfg!(Py_3_14)).then_some(silent);
    let given = called.arguments;
    if given.positional() < 2 {
        // It says itself what it takes.
        return begin(called, silent, false);
    }
    let start = called.ours(|py| {
        let environment = given.find(py, 5, None);
        let start = workers::read(&given.at(py, 0), &given.at(py, 1), environment.as_ref())?;
        let before = start.begin();
        Ok((start.arguments, start.places, before, start.is_server))
    });
    let Some((arguments, places, before, is_server)) = start else {
        return Returned::failed();
    };
    let result = called.replacing(0, arguments.into_any(), |called| {
        called.replacing(1, places.into_any(), |called| begin(called, silent, false))
    });
    workers::end(before);
    if is_server && let Some(pid) = result.object(called.py).and_then(|pid| process(&pid)) {
        SERVERS.note(pid);
        ANY.store(true, Ordering::Relaxed);
    }
    result
}

pub fn call(called: Called<'_>) -> Returned {
    begin(called, None, called.arguments.positional() == 0)
}

/// The same for a function without an event, or one that copies the process.
fn begin(called: Called<'_>, silent: Option<&Silent>, is_copy: bool) -> Returned {
    if !scope::may_be_guarded() {
        return called.make();
    }
    if called.ours(|py| executors::check_process(py, is_copy)).is_none() {
        return Returned::failed();
    }
    let before = process::branch();
    let result = match silent {
        Some(silent) => without_event::call(called, silent),
        None => called.make(),
    };
    if let Some(told) = result.object(called.py) {
        // The process exists already: an error while noting it would hide it.
        called.ours(|py| {
            let _ = match process::branch() == before {
                true => note(&told),
                false => {
                    process::note_python();
                    copies::note(py)
                }
            };
            Ok(())
        });
    }
    result
}

/// Notes a process for all guards in force, and those that they were entered under.
fn note(result: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = result.py();
    // `os.forkpty` returns the descriptor of the terminal as well.
    let pid = match result.cast::<PyTuple>() {
        Ok(both) => both.get_item(0)?,
        Err(_) => result.clone(),
    };
    let Some(pid) = process(&pid) else {
        return Ok(());
    };
    for active in scope::in_force(py)? {
        let chain = std::iter::successors(Some(active.unbind()), |active| active.get().outer(py));
        for active in chain {
            if let Some(config) = active.get().config() {
                config.get().started.note(pid);
            }
        }
    }
    Ok(())
}

/// The process of this number; `None` for 0, which a copy gets.
fn process(pid: &Bound<'_, PyAny>) -> Option<Pid> {
    let pid = raw::i32_value(pid).filter(|pid| *pid > 0);
    pid.and_then(Pid::from_raw)
}

/// The argument, which is given by name alone.
const FILE_ACTIONS: &CStr = c"file_actions";

/// The kind, a descriptor, the path, the flags and the mode: only an action that opens has so many.
const OPENING: usize = 5;
const PATH: usize = 2;
const FLAGS: usize = 3;

pub fn call_spawn(called: Called<'_>) -> Returned {
    let given = called.arguments;
    let position = given.position(usize::MAX, Some(FILE_ACTIONS));
    let Some(position) = position.filter(|_| scope::may_be_guarded()) else {
        return call(called);
    };
    let judged = |py| {
        let actions = given.at(py, position);
        match actions.is_none() {
            true => Ok(None),
            false => Ok(Some(judge(&actions)?.into_any())),
        }
    };
    called.replacing_with(position, judged, call)
}

/// Raises an event for each file that is opened. The judged actions are used, asked once.
fn judge<'py>(actions: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = actions.py();
    let all = PyTuple::new(py, [actions])?;
    let all = calling::call(py.get_type::<PyTuple>().as_any(), &all, None)?;
    let all = all.cast_into::<PyTuple>()?;
    let judged = all.iter().map(|action| match action.cast::<PyTuple>() {
        Ok(action) if action.len() == OPENING => Ok(opening(action)?.into_any()),
        _ => Ok(action),
    });
    PyTuple::new(py, judged.collect::<PyResult<Vec<_>>>()?)
}

/// The action with a path that is a plain text, judged.
fn opening<'py>(action: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    let py = action.py();
    let mut items: Vec<_> = action.iter().collect();
    items[PATH] = calling::fs_path(&items[PATH])?;
    raw::audit(py, c"open", (&items[PATH], py.None(), &items[FLAGS]))?;
    PyTuple::new(py, items)
}

// The server of `multiprocessing` that makes copies of itself for workers: there is one for the
// whole process, and its copies are guarded as it is.
//
// A server that was started under a guard serves that guard alone: for others it is ended, and the
// library starts another. A server that was started without the guard makes no workers for guarded
// code.

/// The function that starts the server, and the one that checks whether it runs.
const LIBRARY: (&str, &[&str]) = ("multiprocessing.forkserver", &["ensure_running"]);

static SERVERS: LazyLock<Started> = LazyLock::new(Started::default);

static ANY: AtomicBool = AtomicBool::new(false);

/// Makes a call of `os.waitpid`, by which the library looks whether the server runs.
pub fn wait(called: Called<'_>) -> Returned {
    let matters = ANY.load(Ordering::Relaxed) || scope::may_be_guarded();
    called.make_if(matters && scope::is_ours(), |py| match called.arguments.find(py, 0, None) {
        Some(pid) if is_some(&pid) && scope::may_be_guarded() => {
            raw::audit(py, c"os.wait", (&pid,))
        }
        Some(pid) => look(&pid),
        None => Ok(()),
    })
}

/// The time for a server to end by itself, and remove its temporary files, and between looks at it.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(5);

/// The end of the pipe that the server watches: it ends itself when nobody has this open.
fn alive_pipe(py: Python<'_>) -> PyResult<Option<i32>> {
    if let Some(module) = raw::imported_module(py, intern!(py, LIBRARY.0))?
        && let Some(server) = module.attr_opt(intern!(py, "_forkserver"))?
        && let Some(pipe) = server.attr_opt(intern!(py, "_forkserver_alive_fd"))?
    {
        return Ok(raw::i32_value(&pipe).filter(|pipe| *pipe >= 0));
    }
    Ok(None)
}

/// Ends a server: by itself, or else by force.
fn end_server(pid: Pid, alive: Option<i32>) {
    if let Some(alive) = alive {
        let found = process::with_descriptor(alive, |fd| fstat(fd)).and_then(Result::ok);
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
    process::replace_descriptor(file, &nothing, FdFlags::CLOEXEC)
}

/// Returns whether a child has ended; it can still be waited for later.
fn has_ended(pid: Pid, how: WaitIdOptions) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | how;
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

/// Ends the server, or denies its use, if it does not belong to the guards in force.
fn look(pid: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = pid.py();
    let Some(pid) = process(pid) else {
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
        py.detach(|| end_server(pid, alive));
        return Ok(());
    }
    let told = "the server of multiprocessing (forkserver), which was started without this guard";
    raw::audit(py, c"_posixsubprocess.fork_exec", (told, py.None(), py.None()))
}
