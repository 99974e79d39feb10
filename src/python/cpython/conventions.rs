//! The calling conventions of native functions.

use std::ffi::c_int;

use pyo3::ffi::{PyObject, PyTypeObject};

/// The C function that calls a function object (PEP 590). Before 3.14 CPython ends a daemon thread
/// that wants to go on when the interpreter has ended by unwinding its stack (pthread_exit(3)):
/// such a call must let that pass, with nothing to drop and nothing that catches it on the way.
pub type Vectorcall = unsafe extern "C-unwind" fn(
    *mut PyObject,
    *const *mut PyObject,
    usize,
    *mut PyObject,
) -> *mut PyObject;

/// `METH_FASTCALL | METH_KEYWORDS`.
pub(super) type Keywords = unsafe extern "C-unwind" fn(
    *mut PyObject,
    *const *mut PyObject,
    isize,
    *mut PyObject,
) -> *mut PyObject;

/// `METH_FASTCALL`.
pub(super) type Fast =
    unsafe extern "C-unwind" fn(*mut PyObject, *const *mut PyObject, isize) -> *mut PyObject;

/// `METH_METHOD | METH_FASTCALL | METH_KEYWORDS`.
pub(super) type OfClass = unsafe extern "C-unwind" fn(
    *mut PyObject,
    *mut PyTypeObject,
    *const *mut PyObject,
    isize,
    *mut PyObject,
) -> *mut PyObject;

/// `METH_O`, `METH_NOARGS` and `METH_VARARGS`.
pub(super) type WithOne =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;

/// `METH_VARARGS | METH_KEYWORDS`, and the slots `tp_call` and `tp_new`.
pub(super) type WithKeywords =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;

/// The slot `tp_init`.
pub(super) type Init =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> c_int;

/// The calling convention of a function, and the function.
#[derive(Clone, Copy)]
pub(super) enum Convention {
    /// A function object by its own vectorcall.
    Vectorcall(Vectorcall),
    /// The C function of a function object, with a tuple alone.
    Tuple(WithOne),
    /// The C function of a function object, with a tuple and a dict.
    TupleAndDict(WithKeywords),
    Keywords(Keywords),
    Fast(Fast),
    OfClass(OfClass),
    One(WithOne),
    Nothing(WithOne),
    /// A method with a tuple that is made of the arguments.
    MethodOfTuple(WithOne),
    /// By `CalledByTuple`.
    Slot(WithKeywords),
    /// By `CalledByTuple`, with `None` for success.
    Init(Init),
}

/// A pointer to a function by the type of the function. It may differ from CPython's in whether the
/// function may be unwound alone.
///
/// # Safety
/// It is the type of a function pointer, and the function is of it.
pub(super) unsafe fn typed<F: Copy>(function: *const ()) -> F {
    const { assert!(size_of::<F>() == size_of::<*const ()>()) };
    // SAFETY: a pointer to a function has this size, and the caller vouches for the type.
    unsafe { std::mem::transmute_copy::<*const (), F>(&function) }
}

/// The vectorcall of a function that was replaced: it passes each call on to the original, and fails where
/// none was kept.
#[derive(Clone, Copy)]
pub(super) struct Route(pub(super) Vectorcall);

impl Route {
    pub(super) fn address(self) -> usize {
        self.0 as usize
    }
}
