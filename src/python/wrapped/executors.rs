//! Pools of threads and processes under a guard, and the jobs of a `ThreadPoolExecutor`.

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::policy::written::values::Switch;
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::called::{Called, CalledByTuple, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::{Once, intern};
use crate::python::cpython::replace::{self, OwnMethod};
use crate::python::cpython::slots::Slot;
use crate::python::cpython::{ffi as raw, frames, process};
use crate::python::frames::stack;
use crate::python::guard::carry::{self, Lent};
use crate::python::guard::copies;
use crate::python::guard::scope::{self, Active, Current};
use crate::python::importing::imports;
use crate::python::wrapped::threads;

// Jobs for the threads of a `ThreadPoolExecutor`: each has the guard of the code that submits it,
// and no other.
//
// The threads often run already, or are used by others too, so that the guard of a thread says
// nothing of its jobs. An executor passes them on in a `SimpleQueue`, where an object of ours
// replaces each job. It runs the job under the guard that was in force as it was put there, or
// under none, also if the thread was started under another guard.

/// The module of executors, its class of jobs, and the function of its threads.
const EXECUTORS: (&str, &str, &str) = ("concurrent.futures.thread", "_WorkItem", "_worker");

/// The class of jobs, as it was when it was first needed: its name may stand for another one later.
static JOBS: Once<Py<PyType>> = Once::new();

pub fn install(module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    replace::wrap_method!(class, "put", put)?;
    replace::wrap_method!(class, "put_nowait", put)?;
    jobs(module.py()).map(|_| ())
}

fn jobs(py: Python<'_>) -> PyResult<Option<&Bound<'_, PyType>>> {
    if JOBS.get(py).is_none()
        && let Some(module) = raw::imported_module(py, intern!(py, EXECUTORS.0))?
        && let Some(class) = calling::getattr_opt(&module, intern!(py, EXECUTORS.1))?
        && let Ok(class) = class.cast_into::<PyType>()
    {
        let _ = JOBS.set(py, class.unbind());
    }
    Ok(JOBS.get(py).map(|class| class.bind(py)))
}

fn put(called: Called<'_>) -> Returned {
    let at = called.arguments.position(0, Some(c"item"));
    let Some(at) = at.filter(|_| scope::may_be_guarded()) else {
        return called.make();
    };
    let job = |py| Job::of(&called.arguments.at(py, at));
    called.replacing_with(at, job, |called| called.make())
}

#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Job")]
pub struct Job {
    job: Py<PyAny>,
    active: Option<Py<Active>>,
}

#[pymethods]
impl Job {
    #[getter]
    fn run<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        RUN.bind(slf.as_any())
    }

    fn __getattr__<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.job.bind(py).attr(name)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.job)?;
        visit.call(&self.active)
    }
}

impl Job {
    /// An object of ours, if the item is a job that needs it.
    fn of<'py>(item: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = item.py();
        if !jobs(py)?.is_some_and(|class| raw::is_subtype(&item.get_type(), class)) {
            return Ok(None);
        }
        let active = match scope::tool_in_force(py)? {
            Some(tool) => Some(tool),
            None => scope::guard(py)?,
        };
        if active.is_none() && !threads::any_began_under_a_guard() {
            return Ok(None);
        }
        let (job, active) = (item.clone().unbind(), active.map(Bound::unbind));
        Ok(Some(Bound::new(py, Self { job, active })?.into_any()))
    }

    /// Puts the guard of the job in force, if the pool's thread asks for it and is in no other job.
    fn begin(&self, py: Python<'_>) -> PyResult<Option<Lent>> {
        if matches!(scope::own(py)?, Current::Tampered) {
            return Ok(None);
        }
        let began = threads::is_under_its_first(py)? && is_called_by_pool(py)?;
        match (&self.active, began) {
            (Some(active), true) => carry::replace_here(active.bind(py)).map(Some),
            (None, true) => carry::replace_here(&Bound::new(py, Active::detached())?).map(Some),
            (Some(active), false) => carry::lend_here(active.bind(py)),
            (None, false) => Ok(None),
        }
    }
}

fn is_called_by_pool(py: Python<'_>) -> PyResult<bool> {
    let Some(frame) = frames::current_frame(py) else {
        return Ok(false);
    };
    let code = frames::code(&frame);
    Ok(stack::code_name(&code)? == EXECUTORS.2 && imports::is_installed(&code)?)
}

static RUN: OwnMethod = OwnMethod::new::<Run>(c"run");

replace::wrapped! {
    Run: WrappedByTuple(CalledByTuple) => run;
}

fn run(called: CalledByTuple<'_>) -> Returned {
    let begun = called.ours(|py| {
        let job = called.receiver();
        let job = job.cast::<Job>()?.get();
        let run = job.job.bind(py).attr(intern!(py, "run"))?;
        Ok((job.begin(py)?, run))
    });
    let Some((lent, function)) = begun else {
        return Returned::failed();
    };
    let copies = process::branch();
    let make = || called.make_of(function);
    let result = carry::during(called.py, lent, make, carry::take_back_here);
    copies::call_is_over(called.py, copies);
    result
}

// Pools with threads of their own, under a guard that lets none start: they are denied as they are
// made.
//
// Later it would be too late: their processes run then, which nobody ends, and the error of a
// thread that was never started hides the denial. Each of them first makes a lock that its
// processes share.

/// The modules of pools, and the names of the pools.
const POOLS: &[(&str, &str)] = &[
    ("concurrent.futures.process", "ProcessPoolExecutor"),
    ("multiprocessing.pool", "multiprocessing.Pool"),
    ("loky.process_executor", "ProcessPoolExecutor of loky"),
    ("joblib.externals.loky.process_executor", "ProcessPoolExecutor of loky"),
];

/// The function that starts the server of a manager, and its name in messages.
const MANAGER: (&str, &str, &str) =
    ("multiprocessing.managers", "start", "multiprocessing.Manager");

pub fn install_pools(_module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    replace::wrap_slot!(class, Slot::New, new)
}

fn new(called: CalledByTuple<'_>) -> Returned {
    called.make_if(scope::may_be_guarded(), |py| check(py, &["__init__"]))
}

/// Raises the event of a thread if one of these functions of a pool that is going to start some calls.
fn check(py: Python<'_>, functions: &[&str]) -> PyResult<()> {
    if !are_threads_denied(py)? {
        return Ok(());
    }
    for (module, name) in POOLS {
        if imports::is_called_by(py, module, functions)? {
            return deny(py, name);
        }
    }
    Ok(())
}

/// The same for a process that is about to be started: for a pool that was made before the guard
/// and has no threads yet, and, if it is a copy of this one, for a manager, whose server is under
/// the guard and starts one thread for each client.
pub fn check_process(py: Python<'_>, is_copy: bool) -> PyResult<()> {
    check(py, &["_start_executor_manager_thread", "_adjust_process_count"])?;
    let (module, function, name) = MANAGER;
    match is_copy && imports::is_called_by(py, module, &[function])? && are_threads_denied(py)? {
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
