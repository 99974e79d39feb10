//! Calls of Python code while a function of ours that catches panics is on the stack.
//!
//! Before 3.14 CPython ends a daemon thread that wants to go on when the interpreter has ended by
//! unwinding its stack (pthread_exit(3)). That may happen wherever Python code runs, and a function
//! that catches panics turns it into an abort. So the thread is held here, for good: that is what
//! CPython itself does from 3.14 on.
#![allow(unsafe_code)]

use std::ffi::c_int;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::ffi as raw;
#[cfg(Py_3_12)]
use super::methods::Vectorcall;

type Call =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;
type Convert = unsafe extern "C-unwind" fn(*mut PyObject) -> *mut PyObject;
type Test = unsafe extern "C-unwind" fn(*mut PyObject) -> c_int;

/// A function of CPython as one that may be unwound. Where the compiler sees which it is, it knows
/// it as one that may not be, and leaves out what happens then.
fn function(address: *const ()) -> *const () {
    std::hint::black_box(address)
}

/// `PyObject_Call`, which may be unwound.
pub fn object_call() -> Call {
    // SAFETY: the same function, with the same arguments.
    unsafe { std::mem::transmute(function(ffi::PyObject_Call as *const ())) }
}

#[cfg(Py_3_12)]
fn object_vectorcall() -> Vectorcall {
    // SAFETY: as above.
    unsafe { std::mem::transmute(function(ffi::PyObject_Vectorcall as *const ())) }
}

fn object_repr() -> Convert {
    // SAFETY: as above.
    unsafe { std::mem::transmute(function(ffi::PyObject_Repr as *const ())) }
}

fn os_fs_path() -> Convert {
    // SAFETY: as above.
    unsafe { std::mem::transmute(function(ffi::PyOS_FSPath as *const ())) }
}

fn object_is_true() -> Test {
    // SAFETY: as above.
    unsafe { std::mem::transmute(function(ffi::PyObject_IsTrue as *const ())) }
}

/// Holds a thread that is being unwound, not by a panic.
struct Hold;

impl Drop for Hold {
    fn drop(&mut self) {
        while !std::thread::panicking() {
            std::thread::park();
        }
    }
}

/// Runs what may be unwound.
pub fn held<R>(work: impl FnOnce() -> R) -> R {
    let hold = Hold;
    let result = work();
    std::mem::forget(hold);
    result
}

/// Calls an object.
///
/// # Errors
/// What it raised.
pub fn call<'py>(
    callable: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let kwargs = kwargs.map_or(std::ptr::null_mut(), |kwargs| kwargs.as_ptr());
    // SAFETY: the arguments are a tuple and a dict, or null; a new reference or an error.
    unsafe {
        let result = held(|| object_call()(callable.as_ptr(), args.as_ptr(), kwargs));
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// Calls an object with arguments that are in no tuple.
///
/// # Errors
/// What it raised.
#[cfg(Py_3_12)]
pub fn call_with<'py, const COUNT: usize>(
    callable: &Bound<'py, PyAny>,
    args: [&Bound<'py, PyAny>; COUNT],
) -> PyResult<Bound<'py, PyAny>> {
    let args = args.map(|argument| argument.as_ptr());
    let names = std::ptr::null_mut();
    // SAFETY: the arguments are so many objects, which their borrowers keep alive; a new reference
    // or an error.
    unsafe {
        let call = object_vectorcall();
        let result = held(|| call(callable.as_ptr(), args.as_ptr(), COUNT, names));
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// `repr(object)`, as a plain str: `__repr__` may return one of a subclass, which would be asked for
/// its text again where it is shown.
///
/// # Errors
/// What it raised.
pub fn repr<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    // SAFETY: a new reference to a str or an error.
    unsafe {
        let result = held(|| object_repr()(object.as_ptr()));
        let text = Bound::from_owned_ptr_or_err(object.py(), result)?;
        raw::plain_str(text.cast_into_unchecked())
    }
}

/// `os.fspath(object)`.
///
/// # Errors
/// What it raised.
pub fn fs_path<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: a new reference or an error.
    unsafe {
        let result = held(|| os_fs_path()(object.as_ptr()));
        Bound::from_owned_ptr_or_err(object.py(), result)
    }
}

/// Whether an object is true.
///
/// # Errors
/// What asking it raised.
pub fn is_true(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: an object of an attached thread.
    match held(|| unsafe { object_is_true()(object.as_ptr()) }) {
        -1 => Err(PyErr::fetch(object.py())),
        answer => Ok(answer != 0),
    }
}
