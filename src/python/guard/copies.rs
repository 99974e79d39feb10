//! Copies of the process that guarded code makes, by `os.fork` for example: such a copy ends with
//! its guard. The host's own code after it runs in the first process alone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::{PyGeneratorExit, PySystemExit};
use pyo3::prelude::*;

use crate::python::cpython::called::ours;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::{intern, lock};
use crate::python::cpython::{ffi as raw, process};
use crate::python::guard::scope::{self, Active, Current};

/// The exit status of a copy that reached the end of its guard: `EX_SOFTWARE` of sysexits.h(3).
const STATUS: i32 = 70;

const TOLD: &std::ffi::CStr = c"fastaudit_rs: a copy of the process, made by guarded code, ends here \
     with status 70: its guard ends, and the host's own code that follows runs in the first process \
     alone. End a copy with os._exit()\n";

/// The guard that this process was copied under last, of all processes on the way to it.
static UNDER: Mutex<Option<Py<Active>>> = Mutex::new(None);

/// The number of that copy.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// Notes that this process is a copy that was made just now, under the guard in force.
pub fn note(py: Python<'_>) -> PyResult<()> {
    if let Current::Guarded(active) = scope::own(py)? {
        let before = lock(&UNDER).replace(active.unbind());
        drop(before);
        MADE.store(process::branch(), Ordering::Relaxed);
    }
    Ok(())
}

/// Returns whether this process is a copy of the one in which this guard was entered.
pub fn is_copy_under(active: &Active) -> bool {
    process::branch() > active.branch
}

fn under(py: Python<'_>) -> Option<Py<Active>> {
    lock(&UNDER).as_ref().map(|active| active.clone_ref(py))
}

/// Ends this process if it is a copy that was made under this guard, and leaves it with this error.
pub fn leave(py: Python<'_>, left: &Py<Active>, error: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    if !left.get().is_in_copy() || MADE.load(Ordering::Relaxed) <= left.get().branch {
        return Ok(());
    }
    let is_made_under = under(py).is_some_and(|under| is_under(under.bind(py), left.bind(py)));
    let is_in_force = match scope::own(py)? {
        Current::Guarded(own) => is_under(&own, left.bind(py)),
        Current::Unguarded => false,
        Current::Tampered => true,
    };
    if is_made_under && is_in_force {
        // `None` stands for no error.
        let error = error.filter(|error| !error.is_none());
        end(py, error.map(|error| PyErr::from_value(error.clone())));
    }
    Ok(())
}

/// Ends this process if it is a copy that was made under a guard, in a call that is over now and
/// was made outside that guard: a step of a task, a job or a handler of a signal. `before` is the
/// number of copies before the call, whose exception is set if it raised one.
#[inline]
pub fn call_is_over(py: Python<'_>, before: usize) {
    if process::branch() != before {
        call_is_over_in_copy(py, before);
    }
}

#[cold]
fn call_is_over_in_copy(py: Python<'_>, before: usize) {
    ours(py, |py| match PyErr::take(py) {
        Some(error) => result_of(py, before, Err(error)),
        None => result_of(py, before, Ok(())),
    });
}

/// The same for a call with this result.
pub fn result_of<T>(py: Python<'_>, before: usize, result: PyResult<T>) -> PyResult<T> {
    if MADE.load(Ordering::Relaxed) <= before {
        return result;
    }
    let is_guarded = match (scope::own(py)?, under(py)) {
        (Current::Guarded(own), Some(under)) => is_under(&own, under.bind(py)),
        (current, _) => matches!(current, Current::Tampered),
    };
    match is_guarded {
        true => result,
        false => end(py, result.err()),
    }
}

fn is_under(guard: &Bound<'_, Active>, other: &Bound<'_, Active>) -> bool {
    let beside = guard.get().beside.as_ref();
    Active::is_within(guard, other)
        || beside.is_some_and(|beside| is_under(beside.bind(guard.py()), other))
}

/// Ends this process as a program with this error would, but without the host's functions for it.
#[expect(
    clippy::disallowed_methods,
    reason = "the interpreter of a copy has not ended: this is its end"
)]
fn end(py: Python<'_>, error: Option<PyErr>) -> ! {
    let status = match error {
        Some(error) if error.is_instance_of::<PySystemExit>(py) => exit_status(&error, py),
        Some(error) if !error.is_instance_of::<PyGeneratorExit>(py) => {
            error.display(py);
            1
        }
        _ => {
            process::write_to_stderr(py, TOLD);
            STATUS
        }
    };
    for name in ["stdout", "stderr"] {
        let flushed =
            calling::import(py, "sys").and_then(|sys| sys.attr(name)?.invoke_method0("flush"));
        drop(flushed);
    }
    process::end_at_once(status, false)
}

/// The exit status of an uncaught `SystemExit`, which may have a text to show.
fn exit_status(error: &PyErr, py: Python<'_>) -> i32 {
    let Ok(code) = error.value(py).attr(intern!(py, "code")) else {
        return 1;
    };
    if code.is_none() {
        return 0;
    }
    if let Some(code) = raw::int_value(&code) {
        return (code & 0xff) as i32;
    }
    if let Ok(text) = code.text() {
        let text = format!("{text}\n");
        drop(
            calling::import(py, "sys")
                .and_then(|sys| sys.attr("stderr")?.invoke_method1("write", (text,))),
        );
    }
    1
}
