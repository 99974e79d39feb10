//! The place where a guard was entered, which a denial in another thread or task reports.
//!
//! The frame is kept while the guard is entered, and read only when somebody needs it: when an
//! operation is denied elsewhere, or when the guard is left and goes on in a task.

use std::sync::{Mutex, PoisonError};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::frames;
use crate::python::cpython::once::{Once, intern};
use crate::python::values::stack;

/// The functions of the event loop's native module that tell the current task.
struct Loop {
    running: Py<PyAny>,
    task: Py<PyAny>,
}

static LOOP: Once<Loop> = Once::new();

/// The thread, the task and the functions that entered a guard.
pub struct Origin {
    thread: u64,
    /// The address of the task; 0 outside of tasks.
    task: usize,
    entered: Mutex<Entered>,
}

enum Entered {
    /// In this frame.
    In(Py<PyAny>),
    /// It is not known where.
    Nowhere,
    /// In a thread of this name, by these functions.
    By(String, String),
}

impl Origin {
    /// Here and now.
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
        let frame = match &*self.lock() {
            Entered::In(frame) => frame.clone_ref(py),
            Entered::Nowhere | Entered::By(..) => return Ok(()),
        };
        let chain = stack::chain_to(frame.bind(py))?.join(" -> ");
        let thread = self.thread_name(py)?;
        let before = std::mem::replace(&mut *self.lock(), Entered::By(thread, chain));
        drop(before);
        Ok(())
    }

    /// Returns the note on a denial here and now; `None` in the thread and the task that entered
    /// the guard.
    pub fn note(&self, py: Python<'_>) -> PyResult<Option<String>> {
        if self.thread == raw::thread_ident() && self.task == current_task(py)? {
            return Ok(None);
        }
        self.settle(py)?;
        Ok(match &*self.lock() {
            Entered::By(thread, chain) => Some(format!(
                "Audit context entered in thread {thread} by: {chain}"
            )),
            Entered::In(_) | Entered::Nowhere => None,
        })
    }

    /// Shows the held objects to the garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.entered.try_lock().as_deref() {
            Ok(Entered::In(frame)) => visit.call(frame),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Entered> {
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `repr` of the thread's name.
    fn thread_name(&self, py: Python<'_>) -> PyResult<String> {
        let threading = intern!(py, "threading");
        if let Some(threading) = raw::imported_module(py, threading)? {
            let threads = threading.attr(intern!(py, "_active"))?;
            if let Ok(thread) = threads.item(self.thread) {
                let name = calling::getattr(&thread, intern!(py, "_name"))?;
                return Ok(calling::repr(&name)?.to_string());
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
    Ok(if task.is_none() {
        0
    } else {
        task.as_ptr() as usize
    })
}
