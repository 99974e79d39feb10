//! The place where a guard was entered, which a denial in another thread or task reports.
//!
//! The frame is kept while the guard is entered, and read only when somebody needs it: when an
//! operation is denied elsewhere, or when the guard is left and goes on in a task.

use std::ffi::c_int;
use std::sync::Mutex;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyFrame, PyString};

use crate::policy::distributions::SITES;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::objects::plain_str;
use crate::python::cpython::once::{Once, intern, lock};
use crate::python::cpython::{ffi as raw, frames};
use crate::python::frames::stack;
use crate::python::importing::{imports, stdlib};

/// The functions of the event loop's native module that tell the current task.
struct Loop {
    running: Py<PyAny>,
    task: Py<PyAny>,
}

static LOOP: Once<Loop> = Once::new();

pub struct Origin {
    thread: u64,
    /// The address of the task; 0 outside of tasks.
    task: usize,
    entered: Mutex<Entered>,
}

enum Entered {
    In(Py<PyFrame>),
    Nowhere,
    /// In a thread of this name, by these functions.
    By(String, String),
}

impl Origin {
    pub fn here(py: Python<'_>) -> PyResult<Self> {
        let frame = frames::current_frame(py);
        Ok(Self {
            thread: raw::thread_ident(),
            task: current_task(py)?,
            entered: Mutex::new(
                frame.map_or(Entered::Nowhere, |frame| Entered::In(frame.unbind())),
            ),
        })
    }

    /// Reads the facts, as the frame will soon be gone.
    pub fn settle(&self, py: Python<'_>) -> PyResult<()> {
        let frame = match &*lock(&self.entered) {
            Entered::In(frame) => frame.clone_ref(py),
            Entered::Nowhere | Entered::By(..) => return Ok(()),
        };
        let chain = stack::chain_to(frame.bind(py))?.join(" -> ");
        let thread = self.thread_name(py)?;
        let before = std::mem::replace(&mut *lock(&self.entered), Entered::By(thread, chain));
        drop(before);
        Ok(())
    }

    /// The note on a denial here; `None` in the thread and the task that entered the guard.
    pub fn note(&self, py: Python<'_>) -> PyResult<Option<String>> {
        if self.thread == raw::thread_ident() && self.task == current_task(py)? {
            return Ok(None);
        }
        self.settle(py)?;
        Ok(match &*lock(&self.entered) {
            Entered::By(thread, chain) => {
                Some(format!("Audit context entered in thread {thread} by: {chain}"))
            }
            Entered::In(_) | Entered::Nowhere => None,
        })
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.entered.try_lock().as_deref() {
            Ok(Entered::In(frame)) => visit.call(frame),
            _ => Ok(()),
        }
    }

    /// The `repr` of the thread's name.
    fn thread_name(&self, py: Python<'_>) -> PyResult<String> {
        let threading = intern!(py, "threading");
        if let Some(threading) = raw::imported_module(py, threading)? {
            let threads = threading.attr(intern!(py, "_active"))?;
            if let Ok(thread) = threads.item(self.thread) {
                let name = thread.attr(intern!(py, "_name"))?;
                return Ok(name.shown()?.to_string());
            }
        }
        // `threading` makes such a name for an unknown thread once it is asked.
        Ok("'Dummy'".to_owned())
    }
}

/// The address of the running task; 0 if there is none.
fn current_task(py: Python<'_>) -> PyResult<usize> {
    let functions = match LOOP.get(py) {
        Some(functions) => functions,
        None => {
            let Some(module) = raw::imported_module(py, intern!(py, "_asyncio"))? else {
                return Ok(0);
            };
            let running = module.attr("_get_running_loop")?.unbind();
            // It came to the native module with 3.12.
            let task = match module.attr("current_task") {
                Ok(task) => task,
                Err(_) => module.attr("_current_tasks")?.attr("get")?,
            };
            let task = task.unbind();
            LOOP.get_or_init(py, || Loop { running, task })
        }
    };
    let running = functions.running.bind(py).invoke0()?;
    if running.is_none() {
        return Ok(0);
    }
    let task = functions.task.bind(py).invoke1((running,))?;
    Ok(if task.is_none() { 0 } else { task.as_ptr() as usize })
}

// The place in the user's own files where a denied operation was asked for.
//
// A library often swallows a denial, and its traceback with it, so the place is noted when the
// denial is made. It keeps nothing of the code.

pub enum SourcePlace {
    At(Py<PyString>, c_int),
    /// As another process reported it.
    Told(String),
}

/// The innermost running code that is not a library's; `None` if all of it is.
pub fn here(py: Python<'_>) -> PyResult<Option<SourcePlace>> {
    for frame in stack::frames(py) {
        let code = frames::code(&frame);
        if is_of_user(&code, &frame)? {
            let line = frames::line(&code, frames::last_instruction(&frame));
            return Ok(Some(SourcePlace::At(file_of(&code)?.unbind(), line)));
        }
    }
    Ok(None)
}

/// The notes on code that was looked at.
const OF_USER: usize = 1;
const OF_OTHERS: usize = 2;

/// Returns whether the code of a frame is the user's. It is looked at once: neither its file nor
/// the module that it is of changes.
fn is_of_user(code: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    match frames::get(code, frames::ORIGIN) {
        OF_USER => Ok(true),
        OF_OTHERS => Ok(false),
        _ => {
            let is_of_user = !is_of_library(code)? && !stack::is_of_this_package(frame)?;
            let note = if is_of_user { OF_USER } else { OF_OTHERS };
            frames::set(code, frames::ORIGIN, note);
            Ok(is_of_user)
        }
    }
}

/// True for code of the standard library or an installed package, by the name of its file.
pub fn is_of_library(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    if stdlib::is_standard_library(code)? || imports::is_installed(code)? {
        return Ok(true);
    }
    let file = file_of(code)?;
    let file = file.to_string_lossy();
    let mut parts = file.split(['/', '\\']);
    Ok(parts.any(|part| SITES.contains(&part)))
}

pub fn file_of<'py>(code: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    plain_str(stack::code_file(code)?)
}

impl SourcePlace {
    pub fn text(&self, py: Python<'_>) -> String {
        match self {
            Self::At(file, line) => format!("{}:{line}", file.bind(py).to_string_lossy()),
            Self::Told(text) => text.clone(),
        }
    }
}
