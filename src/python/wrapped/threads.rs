//! A guard that is carried into the threads that start under it.
//!
//! CPython starts a thread with an empty context. Under a policy whose `threads` are `"inherit"`
//! the function of the new thread is wrapped in an object of ours, which enters the guard first.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::written::values::Switch;
use crate::python::callees::callee;
use crate::python::cpython::called::{Called, CalledByTuple, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::functions::Builtin;
use crate::python::cpython::once::intern;
use crate::python::cpython::replace::{self, OwnMethod};
use crate::python::cpython::{ffi as raw, frames};
use crate::python::frames::stack;
use crate::python::guard::scope::{self, Active, Current};
use crate::python::importing::imports;

thread_local! {
    /// The guard that this thread was started under, which its context keeps alive.
    static BEGAN_UNDER: Cell<usize> = const { Cell::new(0) };
}

static ANY_CARRIED: AtomicBool = AtomicBool::new(false);

/// The function that a new thread calls, and its guard; no guard in a thread of a pool.
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Carried")]
pub struct Carried {
    #[pyo3(get)]
    function: Py<PyAny>,
    active: Option<Py<Active>>,
    is_started: AtomicBool,
    /// True if it feeds a queue between processes.
    is_feeder: bool,
}

#[pymethods]
impl Carried {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.active)
    }
}

impl Carried {
    /// Puts the guard in force, once: later calls only call the function.
    fn enter(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_started.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let Some(active) = &self.active else {
            return Ok(());
        };
        BEGAN_UNDER.set(active.as_ptr() as usize);
        scope::carry(py, active)
    }
}

/// True if the context has the guard, or a tool's rights, that this thread was started under.
pub fn is_under_its_first(py: Python<'_>) -> PyResult<bool> {
    let began = BEGAN_UNDER.get();
    let value = raw::context_var_get(py, scope::var(py)?)?;
    Ok(began != 0 && value.is_some_and(|value| value.as_ptr() as usize == began))
}

#[inline]
pub fn any_began_under_a_guard() -> bool {
    ANY_CARRIED.load(Ordering::Relaxed)
}

static RUN: OwnMethod = OwnMethod::new::<Run>(c"run");

replace::wrapped! {
    Run: WrappedByTuple(CalledByTuple) => run;
}

fn run(called: CalledByTuple<'_>) -> Returned {
    let function = called.ours(|py| {
        let carried = called.receiver();
        let carried = carried.cast::<Carried>()?.get();
        carried.enter(py)?;
        Ok(carried.function.bind(py).clone())
    });
    match function {
        Some(function) => called.make_of(function),
        None => Returned::failed(),
    }
}

pub fn is_carried(function: &Bound<'_, PyAny>) -> bool {
    Builtin::cast(function).is_some_and(|function| RUN.is_method_of(&function))
}

fn carried_by<'py>(function: &Bound<'py, PyAny>) -> Option<Bound<'py, Carried>> {
    let function = Some(function).filter(|function| is_carried(function));
    let carried = function.map(|function| function.attr(intern!(function.py(), "__self__")));
    carried.and_then(|carried| carried.ok()?.cast_into_exact::<Carried>().ok())
}

/// The arguments of a thread's start, as its event has them where the thread gets the guard.
pub fn inheriting<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    let Ok(function) = args.get_item(0) else {
        return Ok(args.clone());
    };
    let carried = entering(&function, None, false)?;
    let rest = args.iter().skip(1);
    PyTuple::new(args.py(), std::iter::once(carried).chain(rest).collect::<Vec<_>>())
}

/// True if a thread is started, under its guard, that sends the items of a queue between processes.
pub fn is_feeder(args: &Bound<'_, PyTuple>) -> bool {
    let carried = args.get_item(0).ok().as_ref().and_then(carried_by);
    carried.is_some_and(|carried| carried.get().is_feeder)
}

/// The arguments of a thread's start, with the name of what it runs in place of its function.
pub fn named<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
    let py = args.py();
    // Anyone may raise the event without arguments.
    let Ok(function) = args.get_item(0) else {
        return Ok(args.clone());
    };
    let carried = carried_by(&function);
    let function = carried.map_or(function, |carried| carried.get().function.bind(py).clone());
    // What has no name that can be read starts all the same.
    let target = of_thread(&function, intern!(py, "_target"));
    let target = target.filter(|target| !target.is_none()).unwrap_or(function);
    let Ok(Some(name)) = callee::qualified_name(&target) else {
        return Ok(args.clone());
    };
    let rest = args.iter().skip(1);
    PyTuple::new(py, std::iter::once(name.full()?.into_any()).chain(rest).collect::<Vec<_>>())
}

/// An attribute of the thread whose method the function is. It may be a method of anything else, which
/// has none, or whose own code raises an error for it.
fn of_thread<'py>(
    function: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    let thread = calling::getattr_opt(function, intern!(function.py(), "__self__"));
    calling::getattr_opt(&thread.ok()??, name).ok()?
}

const OF_EVENT_LOOP: &str = "asyncio_";

const EVENT_LOOPS: &str = "asyncio.base_events";

/// Returns whether the function is that of a thread that an event loop starts for its own executor,
/// which its look-ups of hosts and `asyncio.to_thread` need, or of one that ends it.
pub fn is_of_event_loop(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = function.py();
    let Some(name) = of_thread(function, intern!(py, "_name")) else {
        return Ok(false);
    };
    let name = name.cast::<PyString>();
    let is_worker = name.is_ok_and(|name| name.to_string_lossy().starts_with(OF_EVENT_LOOP));
    Ok((is_worker && imports::is_called_by(py, EVENT_LOOPS, &["run_in_executor"])?)
        || imports::is_called_by(py, EVENT_LOOPS, &["shutdown_default_executor"])?)
}

pub fn install(py: Python<'_>) -> PyResult<()> {
    replace::wrap_function!(py, "_thread", "start_new_thread", start)?;
    replace::wrap_function!(py, "_thread", "start_new", start)?;
    replace::wrap_function!(py, "_thread", "start_joinable_thread", start)
}

fn start(called: Called<'_>) -> Returned {
    // Without a function CPython raises the error.
    let at = called.arguments.position(0, Some(c"function"));
    let Some(at) = at.filter(|_| scope::may_be_guarded()) else {
        return called.make();
    };
    let carried = |py| carried(&called.arguments.at(py, at));
    called.replacing_with(at, carried, |called| called.make())
}

/// Puts a guard, or none, into the context of a `threading.Thread`, its own since 3.14.
fn enter_context_of_thread(
    function: &Bound<'_, PyAny>,
    active: Option<&Bound<'_, Active>>,
) -> PyResult<()> {
    let py = function.py();
    if !cfg!(Py_3_14) {
        return Ok(());
    }
    let Some(context) = of_thread(function, intern!(py, "_context")) else {
        return Ok(());
    };
    match active {
        Some(active) => scope::carry_into(&context, active),
        None => scope::carry_into(&context, &Bound::new(py, Active::detached())?),
    }
}

/// The function, which enters the guard first.
fn entering<'py>(
    function: &Bound<'py, PyAny>,
    active: Option<&Bound<'py, Active>>,
    is_feeder: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let carried = Carried {
        function: function.clone().unbind(),
        active: active.map(|active| active.clone().unbind()),
        is_started: AtomicBool::new(false),
        is_feeder,
    };
    RUN.bind(Bound::new(function.py(), carried)?.as_any())
}

pub fn announce(function: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = function.py();
    raw::audit(py, c"_thread.start_new_thread", (function, PyTuple::empty(py), py.None()))
}

/// The function with the rights of a tool, which end when the tool returns.
fn in_tool<'py>(
    function: &Bound<'py, PyAny>,
    tool: &Bound<'py, Active>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !function.is_callable() {
        return Ok(None);
    }
    // Jobs of a pool bring their own.
    let active = (!is_worker(function)?).then_some(tool);
    enter_context_of_thread(function, active)?;
    if active.is_none() {
        return Ok(None);
    }
    ANY_CARRIED.store(true, Ordering::Relaxed);
    let carried = entering(function, active, false)?;
    if !cfg!(Py_3_12) {
        announce(&carried)?;
    }
    Ok(Some(carried))
}

/// The function with the guard in force, if its policy lets threads start. Before 3.12, which raises
/// no event for a thread, ours is raised here.
fn carried<'py>(function: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = function.py();
    if let Some(tool) = scope::tool_in_force(py)?
        && tool.get().config().is_none()
    {
        return in_tool(function, &tool);
    }
    let active = match scope::current(py)? {
        Current::Guarded(active) => active,
        Current::Unguarded => return Ok(None),
        Current::Tampered => {
            // It is denied as every other event then.
            raw::audit(py, c"_thread.start_new_thread", (function,))?;
            return Ok(None);
        }
    };
    let config = active.get().config().map(Py::get);
    let carries = config.is_some_and(|config| {
        let policy = config.policy();
        // The host may answer that it starts.
        let is_asked = config.approvals().is_some() && config.is_of_policy();
        let may_import = !policy.rest().import_allow.is_empty();
        policy.has(Switch::Threads) || is_asked || may_import || config.records().is_some()
    });
    let may_carry =
        config.is_some_and(|config| config.is_of_policy() || config.policy().has(Switch::Threads));
    if !function.is_callable() {
        return Ok(None);
    }
    let is_feeder = !(carries && may_carry) && is_feeder_of_queue(function)?;
    if !may_carry && !is_feeder {
        return Ok(None);
    }
    let carries = carries || is_feeder;
    let active = (!is_worker(function)?).then_some(&active);
    if carries {
        enter_context_of_thread(function, active)?;
    }
    ANY_CARRIED.fetch_or(active.is_some() && carries, Ordering::Relaxed);
    let carried = entering(function, active, is_feeder)?;
    if !cfg!(Py_3_12) {
        announce(if carries { &carried } else { function })?;
    }
    Ok(carries.then_some(carried))
}

// Threads of pools. They run nothing but jobs, and each job has the guard of the code that submits
// it, so that such a thread keeps none itself: it serves others too. The threads of a
// `ThreadPoolExecutor` are in `executors`.

/// Pools that hand jobs to their threads in a way that is not seen here, where each job comes with
/// the context of its submitter: anyio's, in which FastAPI runs plain functions, and trio's. The
/// module, the function that starts a thread, and the method that the thread runs.
const POOLS: &[(&str, &str, &str)] = &[
    ("anyio._backends._asyncio", "run_sync_in_worker_thread", "run"),
    ("trio._core._thread_cache", "__init__", "_work"),
];

/// Returns whether the function is that of a thread that such a pool starts.
fn is_worker(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = function.py();
    let Some(thread) = calling::getattr_opt(function, intern!(py, "__self__"))? else {
        return Ok(false);
    };
    let class = thread.get_type();
    let module = class.attr(intern!(py, "__module__"))?;
    let is_plain = module.cast::<PyString>().is_ok_and(|own| own == "threading");
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
        if is_function_of(&runs, module, method)? && imports::is_called_by(py, module, &[starts])? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The function of a queue between processes that sends what was put into it.
const FEEDER: (&str, &str) = ("multiprocessing.queues", "_feed");

/// Returns whether the function is that of the thread of a queue between processes, which only
/// sends the queue's items. Without it, whoever waits for an item waits for ever.
fn is_feeder_of_queue(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    match of_thread(function, intern!(function.py(), "_target")) {
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
    Ok(own.is_some_and(|own| own.cast::<PyString>().is_ok_and(|own| own == module))
        && stack::code_name(&code)? == name
        && imports::is_installed(&code)?)
}
