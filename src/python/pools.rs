//! Threads of pools. They run nothing but jobs, and each job has the guard of the code that submits
//! it, so that such a thread keeps none itself: it serves others too.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::{importing, raw_frames};

/// Where the standard library's pool is, and what its threads run.
const EXECUTORS: &str = "concurrent.futures.thread";
const WORKER: &str = "_worker";

/// The class of the threads of anyio's pool, in which FastAPI runs plain functions. A job comes with
/// the context of who submits it.
const ANYIO: (&str, &str) = ("anyio._backends._asyncio", "WorkerThread");

/// Whether the function is that of a thread that a pool starts.
///
/// # Errors
/// What reading the thread raised.
pub fn is_worker(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = function.py();
    let Some(thread) = function.getattr_opt(pyo3::intern!(py, "__self__"))? else {
        return Ok(false);
    };
    let class = thread.get_type();
    let module = class.getattr(pyo3::intern!(py, "__module__"))?;
    let name = class.name()?;
    let is_of = |of: &str, called: &str| {
        name == called && module.cast::<PyString>().is_ok_and(|module| module == of)
    };
    if is_of(ANYIO.0, ANYIO.1) {
        let Some(run) = class.getattr_opt(pyo3::intern!(py, "run"))? else {
            return Ok(false);
        };
        return is_function_of(&run, ANYIO.0, "run");
    }
    Ok(is_of("threading", "Thread")
        && match thread.getattr_opt(pyo3::intern!(py, "_target"))? {
            Some(target) => is_function_of(&target, EXECUTORS, WORKER)?,
            None => false,
        }
        && !has_initializer(&thread)?)
}

/// The function of a queue between processes that sends what was put into it.
const FEEDER: (&str, &str) = ("multiprocessing.queues", "_feed");

/// Whether the function is that of the thread of a queue between processes, which only sends what was
/// put into the queue. Without it who waits for that waits for ever.
///
/// # Errors
/// What reading the thread raised.
pub fn is_feeder(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = function.py();
    let Some(thread) = function.getattr_opt(pyo3::intern!(py, "__self__"))? else {
        return Ok(false);
    };
    match thread.getattr_opt(pyo3::intern!(py, "_target"))? {
        Some(target) => is_function_of(&target, FEEDER.0, FEEDER.1),
        None => Ok(false),
    }
}

/// Whether it is the function of this name in an installed module.
fn is_function_of(function: &Bound<'_, PyAny>, module: &str, name: &str) -> PyResult<bool> {
    let Some(globals) = raw_frames::function_globals(function) else {
        return Ok(false);
    };
    let code = raw_frames::function_code(function);
    let own = globals.get_item("__name__")?;
    Ok(
        own.is_some_and(|own| own.cast::<PyString>().is_ok_and(|own| own == module))
            && code
                .getattr(pyo3::intern!(function.py(), "co_name"))?
                .eq(name)?
            && importing::is_installed(&code)?,
    )
}

/// Whether the thread runs a function of its pool's maker before the jobs.
fn has_initializer(thread: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = thread.py();
    let args = thread.getattr(pyo3::intern!(py, "_args"))?;
    let Ok(args) = args.cast_exact::<PyTuple>() else {
        return Ok(true);
    };
    match args.len() {
        4 => Ok(!args.get_item(2)?.is_none()),
        // Since 3.14 a context of the worker has it; what has none is that of an interpreter.
        3 => {
            let initializer = pyo3::intern!(py, "initializer");
            let found = args.get_item(1)?.getattr_opt(initializer)?;
            Ok(found.is_none_or(|initializer| !initializer.is_none()))
        }
        _ => Ok(true),
    }
}
