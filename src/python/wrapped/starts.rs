//! The native functions that start processes: the processes that they start under a guard are
//! noted, so that it may signal them. The files that the system opens for such a program,
//! `file_actions` of `os.posix_spawn`, raise `open` first, as those that Python opens do.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use rustix::process::Pid;

use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::{calling, ffi as raw, process};
use crate::python::guard::{copies, scope};
use crate::python::pools::workers;
use crate::python::wrapped::kinds::{Silent, What};
use crate::python::wrapped::{pool_starts, servers, without_event};

/// The functions of `posix`, but for those without an event.
pub const FUNCTIONS: &[(&str, What)] = &[
    ("fork", What::Starts),
    ("forkpty", What::Starts),
    ("posix_spawn", What::Spawns),
    ("posix_spawnp", What::Spawns),
    ("waitpid", What::Waits),
];

/// Makes a call of `fork_exec`, for a worker of a pool with other arguments than it was given.
pub fn call_program(called: Called<'_>, silent: Option<&Silent>) -> Returned {
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
    if is_server && let Some(pid) = result.object(called.py) {
        called.ours(|_| {
            if let Some(pid) = process(&pid) {
                servers::note(pid);
            }
            Ok(())
        });
    }
    result
}

pub fn call(called: Called<'_>) -> Returned {
    begin(called, None, called.arguments.positional() == 0)
}

/// The same for a function without an event, or one that copies the process.
fn begin(called: Called<'_>, silent: Option<&Silent>, is_copy: bool) -> Returned {
    if called
        .ours(|py| pool_starts::check_process(py, is_copy))
        .is_none()
    {
        return Returned::failed();
    }
    let before = process::generation();
    let result = match silent {
        Some(silent) => without_event::call(called, silent),
        None => called.make(),
    };
    if let Some(told) = result.object(called.py) {
        // The process exists already: an error while noting it would hide it.
        called.ours(|py| {
            let _ = match process::generation() == before {
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
    for config in configurations(py)? {
        config.bind(py).get().started.note(pid);
    }
    Ok(())
}

/// The process of this number; `None` for 0, which a copy gets.
fn process(pid: &Bound<'_, PyAny>) -> Option<Pid> {
    let pid = raw::i32_value(pid).filter(|pid| *pid > 0);
    pid.and_then(Pid::from_raw)
}

fn configurations(py: Python<'_>) -> PyResult<Vec<Py<AuditCfg>>> {
    let mut all: Vec<Py<AuditCfg>> = Vec::new();
    for active in scope::in_force(py)? {
        let chain = std::iter::successors(Some(active.unbind()), |active| active.get().outer(py));
        for active in chain {
            let config = active.get().config();
            if let Some(config) = config.filter(|config| all.iter().all(|known| !known.is(*config)))
            {
                all.push(config.clone_ref(py));
            }
        }
    }
    Ok(all)
}

/// The argument, which is given by name alone.
const FILE_ACTIONS: &CStr = c"file_actions";

/// The kind, a descriptor, the path, the flags and the mode: only an action that opens has so many.
const OPENING: usize = 5;
const PATH: usize = 2;
const FLAGS: usize = 3;

pub fn call_spawn(called: Called<'_>) -> Returned {
    let given = called.arguments;
    let Some(position) = given.position(usize::MAX, Some(FILE_ACTIONS)) else {
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
    let path = &items[PATH];
    if !path.is_instance_of::<PyString>() && !path.is_instance_of::<PyBytes>() {
        items[PATH] = calling::fs_path(path)?;
    }
    let none = py.None().into_bound(py);
    raw::audit(py, c"open", &[&items[PATH], &none, &items[FLAGS]])?;
    PyTuple::new(py, items)
}
