//! Calls of native code of other libraries, seen where it is called: its functions, methods and types
//! are changed so that their calls come through here. The interpreter, which specializes calls and
//! has events for them, is left as it is.
//!
//! A function object keeps its identity, its name and its hash. What changes are its vectorcall
//! (PEP 590) and the flags of its table entry, by which the interpreter would call it directly.

mod finding;
mod foreign;
mod functions;
mod instances;
mod types;

use std::cell::Cell;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::python::cpython::arguments::Vectorcall;
use crate::python::cpython::ffi as raw;

pub use finding::{find_all, find_in};
pub use foreign::set_foreign_code;
pub use instances::has_room;

/// A call that is about to be made.
#[derive(Clone, Copy)]
pub struct NativeCallee<'a> {
    pub callee: Borrowed<'a, 'a, PyAny>,
    /// What the interpreter's own slots are called with first, such as the class by `type.__call__`.
    pub first: Option<Borrowed<'a, 'a, PyAny>>,
}

/// What is to be done about a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NativeAnswer {
    Make,
    /// Make it, and tell when it has ended.
    MakeAndTell,
    /// An exception is set.
    Fail,
}

/// A watcher of calls: a type without values, of which the compiler makes functions for CPython.
pub trait NativeCalls: 'static {
    /// Returns whether the callee was found before to be no native code of others. It takes no
    /// reference and runs nothing.
    fn is_quiet(callee: Borrowed<'_, '_, PyAny>) -> bool;

    /// Answers to a call that Python code is about to make, itself or by native code of the standard
    /// library. Must not panic.
    fn begins(call: NativeCallee<'_>) -> NativeAnswer;

    /// Returns false if an exception is set in the place of the result.
    fn ended(py: Python<'_>) -> bool;
}

/// The number of those who watch.
static WATCHERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The frame of the Python code whose call of native code is being made, with a reference to it.
    /// Calls that native code makes of itself come from the same frame.
    static INSIDE: Cell<*mut PyObject> = const { Cell::new(ptr::null_mut()) };
}

/// Watches for one more.
pub fn watch() {
    WATCHERS.fetch_add(1, Ordering::Relaxed);
}

pub fn stop_watching() {
    WATCHERS.fetch_sub(1, Ordering::Relaxed);
}

#[inline(always)]
pub fn is_watched() -> bool {
    WATCHERS.load(Ordering::Relaxed) != 0
}

/// The functions that the calls are routed to.
struct Hooks {
    function: Vectorcall,
    descriptor: Vectorcall,
    instances: instances::Stubs,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Changes the interpreter's own types, once for the process; `find_all` changes the others.
pub fn install<W: NativeCalls>(py: Python<'_>) -> PyResult<()> {
    if HOOKS.get().is_some() {
        return Ok(());
    }
    types::install::<W>(py)?;
    let _ = HOOKS.set(Hooks {
        function: functions::function::<W>,
        descriptor: functions::descriptor::<W>,
        instances: instances::stubs::<W>(),
    });
    Ok(())
}

/// Makes a call, if whoever watches lets it.
///
/// Before 3.14 CPython ends a daemon thread by unwinding its stack, also where it is in the call: so
/// nothing is to be dropped while that is made. The reference to the frame is lost then.
///
/// # Safety
/// The thread is attached, `callee` is alive, and `first` is alive or null; `make` returns a new
/// reference or null.
#[inline(always)]
unsafe fn around<W: NativeCalls>(
    callee: *mut PyObject,
    first: *mut PyObject,
    make: impl FnOnce() -> *mut PyObject,
) -> *mut PyObject {
    if !is_watched() {
        return make();
    }
    // SAFETY: the thread is attached; the frame is borrowed from the running one, or null.
    let frame = unsafe { ffi::PyEval_GetFrame() }.cast::<PyObject>();
    if frame.is_null() || frame == INSIDE.get() {
        return make();
    }
    // SAFETY: by the caller.
    let (py, answer) = unsafe {
        let py = Python::assume_attached();
        let call = NativeCallee {
            callee: Borrowed::from_ptr(py, callee),
            first: Borrowed::from_ptr_or_opt(py, first),
        };
        (py, W::begins(call))
    };
    if answer == NativeAnswer::Fail {
        return ptr::null_mut();
    }
    // SAFETY: the frame is alive: its code is running. Whatever is put there has a reference, also
    // where another stack (greenlet) has run meanwhile and left its own.
    unsafe {
        ffi::Py_INCREF(frame);
        let before = INSIDE.replace(frame);
        let result = make();
        let ours = INSIDE.replace(before);
        if ours == frame {
            ffi::Py_DECREF(ours);
        } else {
            raw::beside_pending(py, || ffi::Py_XDECREF(ours));
        }
        if answer == NativeAnswer::MakeAndTell && !W::ended(py) {
            ffi::Py_XDECREF(result);
            return ptr::null_mut();
        }
        finding::made(py, result);
        result
    }
}
