//! Workers of pools that are started anew, not copied: they may start if threads may, and run under
//! the same policy from their first line on.
//!
//! The command line is one that `multiprocessing` or `loky` makes for itself. It gets code that
//! comes first and installs the policy: if that fails nothing else runs. The worker runs its jobs
//! as the guarded code would.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyList, PyString, PyTuple};

use crate::policy::commands::{PACKAGES, STARTERS, Worker};
use crate::policy::environment::is_dangerous;
use crate::policy::files::os::Os;
use crate::policy::written::spec::{OnViolation, Spec};
use crate::policy::written::values::{Switch, Where, is_in, is_within_module};
use crate::policy::written::wording::{HintStyle, Words};
use crate::python::configuration::config::AuditCfg;
use crate::python::configuration::temporary;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::cpython::{ffi as raw, frames};
use crate::python::frames::stack;
use crate::python::guard::event::Event;
use crate::python::guard::{scope, tempfile};
use crate::python::importing::imports;
use crate::python::values::{decode, simple};

/// The interpreter as it is started, the file of this package, and that of the program, if it has
/// one: a worker that is spawned imports it.
struct Place {
    interpreter: Vec<u8>,
    package: String,
    program: Option<String>,
}

static PLACE: OnceLock<Place> = OnceLock::new();

/// True if the kernel confined some thread of this process, which then may not start programs.
static CONFINED: AtomicBool = AtomicBool::new(false);

static IS_WORKER: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The arguments of the worker that is being started.
    static STARTING: Cell<usize> = const { Cell::new(0) };
}

/// Reads the data for starting workers, before guarded code can change it; none starts without.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    let interpreter = calling::import(py, "sys")?.attr("executable")?;
    if let Some(package) = raw::imported_module(py, intern!(py, "fastaudit_rs"))?
        && let Ok(package) = package.attr("__file__")?.extract()
        && let Ok(interpreter) = decode::root_name(&interpreter)
    {
        let program = match raw::imported_module(py, intern!(py, "__main__"))? {
            Some(main) => main.attr_opt(intern!(py, "__file__"))?,
            None => None,
        };
        let program = program.and_then(|file| file.extract::<String>().ok());
        let program = program.and_then(|file| std::fs::canonicalize(file).ok());
        let program = program.and_then(|file| file.into_os_string().into_string().ok());
        let _ = PLACE.set(Place { interpreter: interpreter.to_vec(), package, program });
    }
    Ok(())
}

pub fn note_confined() {
    CONFINED.store(true, Ordering::Relaxed);
}

pub fn is_worker() -> bool {
    IS_WORKER.load(Ordering::Relaxed)
}

pub fn note_worker() {
    IS_WORKER.store(true, Ordering::Relaxed);
}

/// Returns whether workers may start under a guard: guarded ones, or Python itself.
pub fn may_start(config: &AuditCfg) -> bool {
    config.policy().has(Switch::Threads) || may_start_python(config)
}

/// Returns whether Python may be started under a guard, which is not guarded then.
pub fn may_start_python(config: &AuditCfg) -> bool {
    let interpreter = PLACE.get().map(|place| &place.interpreter[..]);
    interpreter.is_some_and(|interpreter| config.policy().commands().allow(&Os, interpreter))
}

/// The arguments of a call of `fork_exec`, and the places of the program, ready to be used.
pub struct Start<'py> {
    pub arguments: Bound<'py, PyAny>,
    pub places: Bound<'py, PyAny>,
    is_worker: bool,
    /// True if it is the server that makes copies of itself for others.
    pub is_server: bool,
}

impl Start<'_> {
    /// Marks on this thread that this is being started, as its event is raised; the earlier mark.
    pub fn begin(&self) -> usize {
        let arguments = self.is_worker.then_some(self.arguments.as_ptr() as usize);
        STARTING.replace(arguments.unwrap_or(0))
    }
}

pub fn end(before: usize) {
    STARTING.set(before);
}

/// Returns whether the event is the start of a worker that is going to enter the policy first.
pub fn is_starting(event: &Event<'_, '_>) -> bool {
    let arguments = event.args.get_item(1);
    arguments.is_ok_and(|arguments| arguments.as_ptr() as usize == STARTING.get())
}

/// Returns whether `multiprocessing` copies the process for a worker, while threads may start:
/// other running threads, such as those of the pool itself, do not stop it there.
pub fn is_copied(event: &Event<'_, '_>) -> PyResult<bool> {
    Ok(event.config.policy().has(Switch::Threads)
        && imports::is_innermost(event.args.py(), "multiprocessing.popen_fork")?)
}

/// Returns the start that a call of `fork_exec` asks for: a worker that is guarded, or the given
/// program, where a list that could be changed meanwhile becomes a tuple.
pub fn read<'py>(
    arguments: &Bound<'py, PyAny>,
    places: &Bound<'py, PyAny>,
    environment: Option<&Bound<'py, PyAny>>,
) -> PyResult<Start<'py>> {
    if let Some(start) = guarded(arguments, places, environment)? {
        return Ok(start);
    }
    let fixed = |given: &Bound<'py, PyAny>| match given.cast::<PyList>() {
        Ok(list) => list.to_tuple().into_any(),
        Err(_) => given.clone(),
    };
    Ok(Start {
        arguments: fixed(arguments),
        places: fixed(places),
        is_worker: false,
        is_server: false,
    })
}

/// Returns whether the event is the start of a worker, whatever guards are in force.
pub fn starts_worker(event: &Event<'_, '_>) -> PyResult<bool> {
    let (places, arguments) = (event.args.get_item(0)?, event.args.get_item(1)?);
    let environment = event.args.get_item(2).ok();
    let Some(words) = words(&arguments, &places)? else {
        return Ok(false);
    };
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    Ok(Worker::of(&words).is_some() && keeps_environment(environment.as_ref()))
}

/// The command line of Python itself, if a library of pools starts it.
fn words(arguments: &Bound<'_, PyAny>, places: &Bound<'_, PyAny>) -> PyResult<Option<Vec<String>>> {
    let (Some(place), Some(words), Some(programs)) =
        (PLACE.get(), simple::items(arguments), simple::items(places))
    else {
        return Ok(None);
    };
    let is_interpreter = |word: &Bound<'_, PyAny>| {
        decode::root_name(word).is_ok_and(|word| word[..] == place.interpreter)
    };
    if programs.len() != 1
        || !programs.iter().all(is_interpreter)
        || !words.first().is_some_and(is_interpreter)
        || !is_started_by_pool(arguments.py())?
    {
        return Ok(None);
    }
    Ok(words.iter().map(text).collect())
}

/// The command line of a worker that enters the policy of the guards in force, and its program.
fn guarded<'py>(
    arguments: &Bound<'py, PyAny>,
    places: &Bound<'py, PyAny>,
    environment: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<Start<'py>>> {
    let py = arguments.py();
    let (Some(place), Some(words)) = (PLACE.get(), words(arguments, places)?) else {
        return Ok(None);
    };
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let Some(worker) = Worker::of(&words) else {
        return Ok(None);
    };
    if !keeps_environment(environment) || is_confined() {
        return Ok(None);
    }
    let Some((config, spec, told)) = policy(py, place)? else {
        return Ok(None);
    };
    let Some(text) = spec.to_toml() else {
        return Ok(None);
    };
    let paths = config.get().policy().governing().paths();
    let governing = PyList::new(py, paths.map(|path| PyBytes::new(py, path)))?;
    let shown = |text: &str| PyString::new(py, text).shown();
    // The current directory, where anything may lie, is no place to import from yet: this very
    // package has to guard it.
    let first = format!(
        "import sys; _path = sys.path[:]; sys.path[:] = filter(None, _path)\n\
         import importlib.util as _util\n\
         _spec = _util.spec_from_file_location('fastaudit_rs', {})\n\
         sys.modules['fastaudit_rs'] = _module = _util.module_from_spec(_spec)\n\
         _spec.loader.exec_module(_module)\n\
         from fastaudit_rs.workers import enter; enter({}, {}, {}, {}, {}, {})\n\
         sys.path[:] = _path; del sys, _path, _util, _spec, _module, enter",
        shown(&place.package)?,
        shown(&text)?,
        told.parts().into_pyobject(py)?.shown()?,
        match config.bind(py).get() {
            config if config.monitor_calls => format!("'{}'", config.side.name()),
            _ => "None".to_owned(),
        },
        shown(worker.module())?,
        governing.shown()?,
        shown(temporary::told_mark())?,
    );
    let words = worker.after(&first);
    let words = words.iter().skip(1).map(|word| PyBytes::new(py, word.as_bytes()));
    let interpreter = PyBytes::new(py, &place.interpreter);
    let words: Vec<_> = std::iter::once(interpreter.clone()).chain(words).collect();
    mark_reused(py)?;
    Ok(Some(Start {
        arguments: PyTuple::new(py, words)?.into_any(),
        places: PyTuple::new(py, [interpreter])?.into_any(),
        is_worker: true,
        is_server: worker.module() == "multiprocessing.forkserver",
    }))
}

fn text(word: &Bound<'_, PyAny>) -> Option<String> {
    Some(simple::text(word).ok()??.to_str().ok()?.to_owned())
}

/// True if a library of pools calls `fork_exec`, by a function of its own for workers.
fn is_started_by_pool(py: Python<'_>) -> PyResult<bool> {
    let mut frames = stack::frames(py);
    let (Some(frame), Some(caller)) = (frames.next(), frames.next()) else {
        return Ok(false);
    };
    let code = frames::code(&frame);
    let name = stack::code_name(&code)?;
    let (Some(module), Some(of)) = (imports::module_of(&frame)?, imports::module_of(&caller)?)
    else {
        return Ok(false);
    };
    let of = of.to_string_lossy();
    Ok(STARTERS.iter().any(|(own, function)| module == *own && name == *function)
        && imports::is_installed(&code)?
        && PACKAGES.iter().any(|package| is_within_module(&of, package))
        && imports::is_installed(&frames::code(&caller))?)
}

/// True if the variables that decide which code the interpreter runs are this process's.
fn keeps_environment(environment: Option<&Bound<'_, PyAny>>) -> bool {
    let Some(environment) = environment.filter(|environment| !environment.is_none()) else {
        return true;
    };
    let Some(variables) = simple::items(environment) else {
        return false;
    };
    variables.iter().all(|variable| {
        let Ok(variable) = variable.cast_exact::<PyBytes>() else {
            return false;
        };
        let mut parts = variable.as_bytes().splitn(2, |byte| *byte == b'=');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next());
        let own = || std::env::var_os(OsStr::from_bytes(name));
        !is_dangerous(name) || own().as_deref().map(OsStr::as_bytes) == value
    })
}

/// Returns whether the kernel may keep this thread from starting programs.
fn is_confined() -> bool {
    CONFINED.load(Ordering::Relaxed) && rustix::thread::no_new_privs().unwrap_or(true)
}

/// The policy that a worker has to enter, a guard of it, and its words: the policy of those guards in
/// force that let threads start, but no programs; where all let programs start, theirs. `None` if
/// there is no such policy, or more than one.
fn policy(py: Python<'_>, place: &Place) -> PyResult<Option<(Py<AuditCfg>, Spec, HintStyle)>> {
    let mut found: Option<(Py<AuditCfg>, Spec)> = None;
    let mut is_bound = false;
    for active in scope::in_force(py)? {
        let Some(config) = active.get().config() else {
            continue;
        };
        let own = config.get();
        let is_free = own.policy().commands().allow(&Os, &place.interpreter);
        match is_free {
            true if is_bound => continue,
            false if !is_bound => (is_bound, found) = (true, None),
            _ => {}
        }
        let Some(spec) = own.spec() else {
            return Ok(None);
        };
        if !own.policy().has(Switch::Threads) || own.records().is_some() {
            return Ok(None);
        }
        match &found {
            Some((_, before)) if before != spec => return Ok(None),
            Some((before, _)) if before.get().monitor_calls => {}
            _ => found = Some((config.clone_ref(py), spec.clone())),
        }
    }
    let Some((config, mut spec)) = found else {
        return Ok(None);
    };
    if spec.on_violation == OnViolation::Call {
        // The function does not exist there.
        spec.on_violation = OnViolation::Raise;
    }
    let mut told = match config.get().told() {
        Some(told) => HintStyle::clone(told),
        None => HintStyle::new(Words::Policy, spec.clone()),
    };
    told.spec.on_violation = spec.on_violation;
    // It finds files of the guarded code there, and cleans up.
    let directory = tempfile::own_directory(&tempfile::in_force(py)?);
    if let (Where::Below(roots), Some(directory)) = (&mut spec.write, directory)
        && let Ok(directory) = String::from_utf8(directory.to_vec())
    {
        told.unnamed.push(directory.clone());
        roots.push(directory);
    }
    // Inside the roots it can be read, and guarded code may have made it a link to another file.
    if let (Where::Below(roots), Some(program)) = (&mut spec.read, &place.program)
        && !roots.iter().chain(spec.write.names()).any(|root| is_in(program, root))
    {
        told.unnamed.push(program.clone());
        roots.push(program.clone());
    }
    Ok(Some((config, spec, told)))
}

// The executor of loky that is used again: one for the whole process. With workers that were started
// under a guard it serves that guard alone: others find it shut down, and the library makes another.

const REUSING: &[&str] = &["joblib.externals.loky.reusable_executor", "loky.reusable_executor"];

/// An executor's flag for being shut down: true except under these guards.
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_ShutDown")]
pub struct ShutDown {
    guards: Vec<Py<AuditCfg>>,
}

#[pymethods]
impl ShutDown {
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let now = tempfile::in_force(py)?;
        let are_the_same = now.len() == self.guards.len()
            && now.iter().zip(&self.guards).all(|(now, own)| now.is(own));
        Ok(!are_the_same)
    }
}

/// Marks the existing executors, as their workers will be started under the guards in force.
fn mark_reused(py: Python<'_>) -> PyResult<()> {
    for module in REUSING {
        if let Some(module) = raw::imported_module(py, &PyString::new(py, module))?
            && let Some(executor) = module.attr_opt(intern!(py, "_executor"))?
            && let Some(flags) = executor.attr_opt(intern!(py, "_flags"))?
            && let Some(now) = flags.attr_opt(intern!(py, "shutdown"))?
            && now.cast_exact::<PyBool>().is_ok_and(|now| !now.is_true())
        {
            let guards = tempfile::in_force(py)?;
            flags.set_attr(intern!(py, "shutdown"), Bound::new(py, ShutDown { guards })?)?;
        }
    }
    Ok(())
}
