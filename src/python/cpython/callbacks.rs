//! Callbacks of `sys.monitoring` (PEP 669), which it calls on each event.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::python::cpython::arguments::positional;
use crate::python::cpython::called::Returned;

/// A call that is about to be made: the code object, the offset, the callee and its first argument.
#[derive(Clone, Copy)]
pub struct CallEvent<'a> {
    pub py: Python<'a>,
    all: &'a [*mut PyObject; 4],
}

impl<'a> CallEvent<'a> {
    /// The callee, to be looked at while the event lasts.
    #[inline(always)]
    pub fn callee(self) -> Borrowed<'a, 'a, PyAny> {
        // SAFETY: it is an object, which lives for the duration of the call.
        unsafe { Borrowed::from_ptr_or_opt(self.py, self.all[2]).unwrap_unchecked() }
    }

    /// The four of them.
    #[inline]
    pub fn all(self) -> [Borrowed<'a, 'a, PyAny>; 4] {
        // SAFETY: they are objects, which live for the duration of the call.
        self.all.map(|object| unsafe { Borrowed::from_ptr(self.py, object) })
    }
}

/// A monitor: a type without values, so that the compiler makes one function of it and CPython's call.
pub trait Monitor: 'static {
    /// Answers to a call that is about to be made. Must not panic.
    fn call(event: CallEvent<'_>) -> Returned;

    /// Answers to a native call that has ended. Must not panic.
    fn ended(py: Python<'_>) -> Returned;
}

pub type NewCallback = for<'py> fn(Python<'py>) -> PyResult<Bound<'py, PyAny>>;

/// The callback for calls that are about to be made.
pub fn of_call<M: Monitor>(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    new_callback(py, call::<M>)
}

/// The callback for native calls that have ended.
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
    // SAFETY: the monitor, and whoever else calls, is attached. The arguments are counted, and live for the
    // duration of the call.
    let (py, all) = unsafe {
        let is_event = positional(nargsf) == 4 && names.is_null();
        let all = is_event.then(|| &*args.cast::<[*mut PyObject; 4]>());
        (Python::assume_attached(), all)
    };
    if let Some(all) = all {
        return M::call(CallEvent { py, all }).into_ptr();
    }
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
        ffi::PyType_Slot { slot: ffi::Py_tp_members, pfunc: members.as_mut_ptr().cast() },
        ffi::PyType_Slot { slot: ffi::Py_tp_call, pfunc: ffi::PyVectorcall_Call as *mut c_void },
        ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
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
