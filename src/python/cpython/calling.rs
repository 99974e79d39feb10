//! Calls of Python code from our functions that catch panics.
//!
//! Before 3.14 CPython ends a daemon thread that wants to go on when the interpreter has ended by
//! unwinding its stack (pthread_exit(3)). This may happen wherever Python code runs, and a function
//! that catches panics turns it into an abort. So the thread is held here, for good, as CPython
//! itself does from 3.14 on.

use std::ffi::c_int;

use pyo3::exceptions::PyAttributeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PyString, PyTuple};

#[cfg(Py_3_12)]
use crate::python::cpython::conventions::Vectorcall;
use crate::python::cpython::conventions::typed;
use crate::python::cpython::text::plain_str;

type Call =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;
type Convert = unsafe extern "C-unwind" fn(*mut PyObject) -> *mut PyObject;
type Test = unsafe extern "C-unwind" fn(*mut PyObject) -> c_int;
type Attribute = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
type Compare = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, c_int) -> *mut PyObject;
type Hash = unsafe extern "C-unwind" fn(*mut PyObject) -> ffi::Py_hash_t;

/// Re-types a CPython function as one that may be unwound (`extern "C-unwind"`). `black_box` hides
/// which one it is: the compiler would use its `nounwind` declaration and drop the cleanup.
///
/// # Safety
/// `F` is the type of the function, but for that.
unsafe fn unwinding<F: Copy>(function: *const ()) -> F {
    // SAFETY: the caller vouches for the type.
    unsafe { typed(std::hint::black_box(function)) }
}

/// `PyObject_Call`, which may be unwound.
pub(super) fn object_call() -> Call {
    // SAFETY: it takes the object, a tuple, and a dict or null.
    unsafe { unwinding(ffi::PyObject_Call as *const ()) }
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

/// Runs a call that may be unwound.
pub fn held<R>(work: impl FnOnce() -> R) -> R {
    let hold = Hold;
    let result = work();
    std::mem::forget(hold);
    result
}

/// Calls an object.
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

/// Calls an object with arguments without making a tuple of them.
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
        let call: Vectorcall = unwinding(ffi::PyObject_Vectorcall as *const ());
        let result = held(|| call(callable.as_ptr(), args.as_ptr(), COUNT, names));
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// Functions of CPython that make one object of another.
enum Conversion {
    Repr,
    Str,
    FsPath,
    Index,
    List,
}

fn converted<'py>(
    object: &Bound<'py, PyAny>,
    conversion: Conversion,
) -> PyResult<Bound<'py, PyAny>> {
    let function = match conversion {
        Conversion::Repr => ffi::PyObject_Repr as *const (),
        Conversion::Str => ffi::PyObject_Str as *const (),
        Conversion::FsPath => ffi::PyOS_FSPath as *const (),
        Conversion::Index => ffi::PyNumber_Index as *const (),
        Conversion::List => ffi::PySequence_List as *const (),
    };
    // SAFETY: each of them takes any object, and gives a new reference or null.
    unsafe {
        let convert: Convert = unwinding(function);
        let result = held(|| convert(object.as_ptr()));
        Bound::from_owned_ptr_or_err(object.py(), result)
    }
}

/// `repr(object)`, as a plain str: `__repr__` may return one of a subclass, which would be asked
/// for its text again where it is shown.
pub fn repr<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    plain_str(converted(object, Conversion::Repr)?.cast_into()?)
}

/// `str(object)`.
pub fn str<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    plain_str(converted(object, Conversion::Str)?.cast_into()?)
}

/// `os.fspath(object)`.
pub fn fs_path<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    converted(object, Conversion::FsPath)
}

/// `operator.index(object)`.
pub fn index<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    converted(object, Conversion::Index)
}

/// `list(object)`.
pub fn list<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    converted(object, Conversion::List)
}

/// Returns whether an object is true.
pub fn is_true(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: it takes any object, on an attached thread.
    let answer = held(|| unsafe {
        let is_true: Test = unwinding(ffi::PyObject_IsTrue as *const ());
        is_true(object.as_ptr())
    });
    match answer {
        -1 => Err(PyErr::fetch(object.py())),
        answer => Ok(answer != 0),
    }
}

/// An attribute.
pub fn getattr<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    paired(object, name, None)
}

/// Returns an attribute; `None` if it does not exist.
pub fn getattr_opt<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match getattr(object, name) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyAttributeError>(object.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The result of comparing two objects.
pub fn compare<'py>(
    one: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
    how: CompareOp,
) -> PyResult<Bound<'py, PyAny>> {
    paired(one, other, Some(how))
}

/// The attribute of an object by its name, or the result of comparing two objects.
fn paired<'py>(
    one: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
    compares: Option<CompareOp>,
) -> PyResult<Bound<'py, PyAny>> {
    let (one_ptr, other_ptr) = (one.as_ptr(), other.as_ptr());
    // SAFETY: both functions take two objects, the other one a number as well; they give a new reference
    // or null.
    unsafe {
        let getattr: Attribute = unwinding(ffi::PyObject_GetAttr as *const ());
        let compare: Compare = unwinding(ffi::PyObject_RichCompare as *const ());
        let result = held(|| match compares {
            None => getattr(one_ptr, other_ptr),
            Some(how) => compare(one_ptr, other_ptr, how as c_int),
        });
        Bound::from_owned_ptr_or_err(one.py(), result)
    }
}

/// `hash(object)`.
pub fn hash(object: &Bound<'_, PyAny>) -> PyResult<isize> {
    // SAFETY: it takes any object, on an attached thread.
    let answer = held(|| unsafe {
        let hash: Hash = unwinding(ffi::PyObject_Hash as *const ());
        hash(object.as_ptr())
    });
    match answer {
        -1 => Err(PyErr::fetch(object.py())),
        hash => Ok(hash),
    }
}

/// A text in the bytes of an encoding, which may be Python code.
pub fn encode<'py>(text: &Bound<'py, PyString>, encoding: &str) -> PyResult<Bound<'py, PyAny>> {
    let encode = text.getattr("encode")?;
    call(&encode, &PyTuple::new(text.py(), [encoding])?, None)
}
