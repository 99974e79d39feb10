//! Threads of pools. They run nothing but jobs, and each job has the guard of the code that submits
//! it, so that such a thread keeps none itself: it serves others too. The threads of a
//! `ThreadPoolExecutor` are in `executors`.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::frames;
use crate::python::cpython::once::intern;
use crate::python::importing::imports;

/// Pools that hand jobs to their threads in a way that is not seen here, where each job comes with
/// the context of its submitter: anyio's, in which FastAPI runs plain functions, and trio's. The
/// module, the function that starts a thread, and the method that the thread runs.
const POOLS: &[(&str, &str, &str)] = &[
    (
        "anyio._backends._asyncio",
        "run_sync_in_worker_thread",
        "run",
    ),
    ("trio._core._thread_cache", "__init__", "_work"),
];

/// Returns whether the function is that of a thread that such a pool starts.
pub fn is_worker(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = function.py();
    let Some(thread) = calling::getattr_opt(function, intern!(py, "__self__"))? else {
        return Ok(false);
    };
    let class = thread.get_type();
    let module = calling::getattr(&class, intern!(py, "__module__"))?;
    let is_plain = module
        .cast::<PyString>()
        .is_ok_and(|own| own == "threading");
    let runs = match is_plain {
        true => match calling::getattr_opt(&thread, intern!(py, "_target"))? {
            Some(target) => calling::getattr_opt(&target, intern!(py, "__func__"))?,
            None => None,
        },
        false => calling::getattr_opt(&class, intern!(py, "run"))?,
    };
    let Some(runs) = runs else {
        return Ok(false);
    };
    for (module, starts, method) in POOLS {
        if is_function_of(&runs, module, method)? && imports::is_called_by(py, module, starts)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The function of a queue between processes that sends what was put into it.
const FEEDER: (&str, &str) = ("multiprocessing.queues", "_feed");

/// Returns whether the function is that of the thread of a queue between processes, which only
/// sends the queue's items. Without it, whoever waits for an item waits for ever.
pub fn is_feeder(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = function.py();
    let Some(thread) = calling::getattr_opt(function, intern!(py, "__self__"))? else {
        return Ok(false);
    };
    match calling::getattr_opt(&thread, intern!(py, "_target"))? {
        Some(target) => is_function_of(&target, FEEDER.0, FEEDER.1),
        None => Ok(false),
    }
}

fn is_function_of(function: &Bound<'_, PyAny>, module: &str, name: &str) -> PyResult<bool> {
    let Some(globals) = frames::function_globals(function) else {
        return Ok(false);
    };
    let code = frames::function_code(function);
    let own = globals.get_item("__name__")?;
    Ok(
        own.is_some_and(|own| own.cast::<PyString>().is_ok_and(|own| own == module))
            && code.attr(intern!(function.py(), "co_name"))?.equals(name)?
            && imports::is_installed(&code)?,
    )
}
