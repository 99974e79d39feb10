//! Callbacks of `sys.monitoring` (PEP 669), which it calls on each event.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::python::cpython::arguments::Arguments;
use crate::python::cpython::called::Returned;

/// A call that is about to be made: the code object, the offset, the callee and its first argument.
#[derive(Clone, Copy)]
pub struct CallEvent<'a> {
    args: *const *mut PyObject,
    call: PhantomData<&'a PyObject>,
}

impl<'a> CallEvent<'a> {
    /// The callee, to be looked at while the event lasts.
    #[inline(always)]
    pub fn callee(self) -> *mut PyObject {
        // SAFETY: there are four arguments, which live for the duration of the call.
        unsafe { *self.args.add(2) }
    }

    /// The four, and the thread that is attached.
    #[inline]
    pub fn all(self) -> (Python<'a>, [Borrowed<'a, 'a, PyAny>; 4]) {
        // SAFETY: the monitor, and whoever else calls, is attached; there are four arguments, which live
        // for the duration of the call.
        unsafe {
            let py = Python::assume_attached();
            let at = |index: usize| Borrowed::from_ptr(py, *self.args.add(index));
            (py, [at(0), at(1), at(2), at(3)])
        }
    }
}

/// A monitor: a type without values, so that the compiler makes one function of it and CPython's call.
pub trait Monitor: 'static {
    /// Answers to a call that is about to be made. Must not panic.
    fn call(event: CallEvent<'_>) -> Returned;

    /// Answers to a native call that has ended. Must not panic.
    fn ended(py: Python<'_>) -> Returned;
}

/// Makes a callback.
pub type NewCallback = for<'py> fn(Python<'py>) -> PyResult<Bound<'py, PyAny>>;

/// The callback for calls that are about to be made.
///
/// # Errors
/// `MemoryError`.
pub fn of_call<M: Monitor>(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    new_callback(py, call::<M>)
}

/// The callback for native calls that have ended.
///
/// # Errors
/// `MemoryError`.
pub fn of_end<M: Monitor>(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    new_callback(py, ended::<M>)
}

/// # Safety
/// Called by CPython by the vectorcall convention, and by anyone with any arguments.
unsafe extern "C" fn call<M: Monitor>(
    _slf: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the arguments are those of a vectorcall; they are counted.
    if unsafe { Arguments::new(args, nargsf, names) }.positional() == 4 && names.is_null() {
        let event = CallEvent {
            args,
            call: PhantomData,
        };
        return M::call(event).into_ptr();
    }
    // SAFETY: whoever calls is attached.
    let py = unsafe { Python::assume_attached() };
    PyRuntimeError::new_err("called by sys.monitoring only").restore(py);
    ptr::null_mut()
}

/// # Safety
/// Called by CPython by the vectorcall convention, and by anyone with any arguments.
unsafe extern "C" fn ended<M: Monitor>(
    _slf: *mut PyObject,
    _args: *const *mut PyObject,
    _nargsf: usize,
    _names: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the monitor, and whoever else calls, is attached.
    M::ended(unsafe { Python::assume_attached() }).into_ptr()
}

/// An object that lives for ever once it is set, and that callbacks return.
pub struct Forever(AtomicPtr<PyObject>);

impl Forever {
    /// An object that is not known yet.
    pub const fn unknown() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Sets it, once for the process.
    pub fn set(&self, object: &Bound<'_, PyAny>) {
        if self.0.load(Ordering::Relaxed).is_null() {
            self.0.store(object.clone().into_ptr(), Ordering::Relaxed);
        }
    }

    /// Returns whether an object is this one.
    pub fn is(&self, object: &Bound<'_, PyAny>) -> bool {
        ptr::eq(self.0.load(Ordering::Relaxed), object.as_ptr())
    }

    /// A reference to it; `None` before it was set.
    #[inline]
    pub fn give(&self) -> Returned {
        let object = self.0.load(Ordering::Relaxed);
        match object.is_null() {
            true => Returned::none(),
            // SAFETY: a reference to it is never given up, and this is another.
            false => unsafe { Returned::new(ffi::Py_NewRef(object)) },
        }
    }
}

/// An object that is nothing but a vectorcall.
#[repr(C)]
struct Callback {
    base: PyObject,
    vectorcall: ffi::vectorcallfunc,
}

/// Makes an object that, when called, calls the function directly: a native function object would
/// have CPython check the arguments and the recursion depth before.
fn new_callback(py: Python<'_>, vectorcall: ffi::vectorcallfunc) -> PyResult<Bound<'_, PyAny>> {
    // Both are read while the type is made, and the members by the type for ever.
    let members = Box::leak(Box::new([
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: std::mem::offset_of!(Callback, vectorcall) as ffi::Py_ssize_t,
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ]));
    let mut slots = [
        ffi::PyType_Slot {
            slot: ffi::Py_tp_members,
            pfunc: members.as_mut_ptr().cast(),
        },
        ffi::PyType_Slot {
            slot: ffi::Py_tp_call,
            pfunc: ffi::PyVectorcall_Call as *mut c_void,
        },
        ffi::PyType_Slot {
            slot: 0,
            pfunc: ptr::null_mut(),
        },
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT
        | ffi::Py_TPFLAGS_HAVE_VECTORCALL
        | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION
        | ffi::Py_TPFLAGS_IMMUTABLETYPE;
    let mut spec = ffi::PyType_Spec {
        name: c"fastaudit_rs._native._Callback".as_ptr(),
        basicsize: size_of::<Callback>() as c_int,
        itemsize: 0,
        flags: flags as _,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the spec is complete and its slots end with 0. The type allocates objects of the
    // layout given; without a vectorcall no object is seen by anyone.
    unsafe {
        let ty = Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))?;
        let object = ffi::PyType_GenericAlloc(ty.as_ptr().cast(), 0);
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        (*object.as_ptr().cast::<Callback>()).vectorcall = vectorcall;
        Ok(object)
    }
}
