//! Pools with threads of their own, under a guard that lets none start: they are denied as they are
//! made.
//!
//! Later it would be too late: their processes run then, which nobody ends, and the error of a
//! thread that was never started hides the denial. Each of them first makes a lock that its
//! processes share.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::policy::written::values::Switch;
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::called::{CalledByTuple, Returned};
use crate::python::cpython::replace;
use crate::python::cpython::slots::Slot;
use crate::python::guard::scope;
use crate::python::importing::imports;
use crate::python::wrapped::threads;

/// The modules of pools, and the names of the pools.
const POOLS: &[(&str, &str)] = &[
    ("concurrent.futures.process", "ProcessPoolExecutor"),
    ("multiprocessing.pool", "multiprocessing.Pool"),
    ("loky.process_executor", "ProcessPoolExecutor of loky"),
    (
        "joblib.externals.loky.process_executor",
        "ProcessPoolExecutor of loky",
    ),
];

/// The function that starts the server of a manager, and its name in messages.
const MANAGER: (&str, &str, &str) = (
    "multiprocessing.managers",
    "start",
    "multiprocessing.Manager",
);

pub fn install(_module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    replace::wrap_slot!(class, Slot::New, new)
}

fn new(called: CalledByTuple<'_>) -> Returned {
    match scope::may_be_guarded() {
        true => called.make_if(check),
        false => called.make(),
    }
}

/// Raises the event of a thread if a pool is being made that is going to start some.
fn check(py: Python<'_>) -> PyResult<()> {
    if !are_threads_denied(py)? {
        return Ok(());
    }
    for (module, name) in POOLS {
        if imports::is_called_by(py, module, "__init__")? {
            return deny(py, name);
        }
    }
    Ok(())
}

/// The same for a process that is about to be started: for a pool that was made before the guard
/// and has no threads yet, and, if it is a copy of this one, for a manager, whose server is under
/// the guard and starts one thread for each client.
pub fn check_process(py: Python<'_>, is_copy: bool) -> PyResult<()> {
    if !are_threads_denied(py)? {
        return Ok(());
    }
    for (module, name) in POOLS {
        if imports::is_called_by(py, module, "_start_executor_manager_thread")?
            || imports::is_called_by(py, module, "_adjust_process_count")?
        {
            return deny(py, name);
        }
    }
    let (module, function, name) = MANAGER;
    match is_copy && imports::is_called_by(py, module, function)? {
        true => deny(py, name),
        false => Ok(()),
    }
}

fn are_threads_denied(py: Python<'_>) -> PyResult<bool> {
    let denies = |config: &AuditCfg| {
        // Before 3.12 guards that are of no policy see no thread start.
        let sees = cfg!(Py_3_12) || config.is_of_policy();
        sees && !config.policy().has(Switch::Threads)
    };
    let guards = scope::in_force(py)?;
    let configs = guards.iter().filter_map(|active| active.get().config());
    Ok(configs.map(Py::get).any(denies))
}

fn deny(py: Python<'_>, name: &str) -> PyResult<()> {
    let told = PyString::new(py, &format!("{name} starts threads of its own"));
    threads::announce(told.as_any())
}
