//! Types of the interpreter, by which classes, methods of classes, slots and bound methods are called:
//! a function of each, which all their objects share.

use std::ptr;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::functions::route_bound;
use super::{NativeCalls, around, is_watched};
use crate::python::cpython::arguments::{WithKeywords, typed};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;

/// The slot `tp_descr_get`.
type Get =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;

/// The functions as they were.
struct Own {
    class_call: WithKeywords,
    slot_call: WithKeywords,
    bound_slot_call: WithKeywords,
    class_method_call: WithKeywords,
    method_get: Get,
    class_method_get: Get,
}

static OWN: OnceLock<Own> = OnceLock::new();

const CALL: usize = std::mem::offset_of!(PyTypeObject, tp_call);
const GET: usize = std::mem::offset_of!(PyTypeObject, tp_descr_get);

pub(super) fn install<W: NativeCalls>(py: Python<'_>) -> PyResult<()> {
    let bound_slot = calling::import(py, "types")?.attr("MethodWrapperType")?;
    let (class, slot) = (&raw mut ffi::PyType_Type, &raw mut ffi::PyWrapperDescr_Type);
    let bound_slot = bound_slot.as_ptr().cast::<PyTypeObject>();
    let (method, of_class) =
        (&raw mut ffi::PyMethodDescr_Type, &raw mut ffi::PyClassMethodDescr_Type);
    let wrapper = |class: *mut PyTypeObject, name: &str| {
        // SAFETY: it is a type of the interpreter, which lives for ever.
        let class: Bound<'_, PyType> =
            unsafe { Bound::from_borrowed_ptr(py, class.cast()).cast_into_unchecked() };
        raw::type_lookup(&class, &PyString::new(py, name))
    };
    let wrappers = [
        (wrapper(class, "__call__"), class_call::<W> as *mut ()),
        (wrapper(method, "__get__"), method_get as *mut ()),
        (wrapper(of_class, "__get__"), class_method_get as *mut ()),
    ];
    // SAFETY: the types are those of the interpreter, which have these slots. Each is written with a
    // function of its type, which calls the original. The wrappers, from which Python code and classes
    // that are made later take the slots, have the layout that is read, if they are of that type.
    unsafe {
        let own = |class: *mut PyTypeObject, slot: usize| *class.byte_add(slot).cast::<*const ()>();
        let put = |class: *mut PyTypeObject, slot: usize, ours: *const ()| {
            *class.byte_add(slot).cast::<*const ()>() = ours;
        };
        let _ = OWN.set(Own {
            class_call: typed(own(class, CALL)),
            slot_call: typed(own(slot, CALL)),
            bound_slot_call: typed(own(bound_slot, CALL)),
            class_method_call: typed(own(of_class, CALL)),
            method_get: typed(own(method, GET)),
            class_method_get: typed(own(of_class, GET)),
        });
        put(class, CALL, class_call::<W> as *const ());
        put(slot, CALL, slot_call::<W> as *const ());
        put(bound_slot, CALL, bound_slot_call::<W> as *const ());
        put(of_class, CALL, class_method_call::<W> as *const ());
        put(method, GET, method_get as *const ());
        put(of_class, GET, class_method_get as *const ());
        for (wrapper, ours) in wrappers {
            if let Some(wrapper) = wrapper.filter(|wrapper| wrapper.get_type_ptr() == slot) {
                (*wrapper.as_ptr().cast::<ffi::PyWrapperDescrObject>()).d_wrapped = ours.cast();
            }
        }
    }
    Ok(())
}

/// Has a metaclass that took `type.__call__` over when it was made call ours.
///
/// # Safety
/// It is a type, and is alive.
pub(super) unsafe fn route_metaclass(metaclass: *mut PyTypeObject) {
    // SAFETY: by the caller; the slots are of one type.
    unsafe {
        if OWN.get().is_some_and(|own| {
            (*metaclass).tp_call.is_some_and(|call| call as usize == own.class_call as usize)
        }) {
            (*metaclass).tp_call = ffi::PyType_Type.tp_call;
        }
    }
}

/// Declares slots by which something is called.
macro_rules! called {
    ($($name:ident)*) => {
        $(
            /// # Safety
            /// Called by CPython as `tp_call`.
            unsafe extern "C-unwind" fn $name<W: NativeCalls>(
                callable: *mut PyObject,
                args: *mut PyObject,
                kwargs: *mut PyObject,
            ) -> *mut PyObject {
                let Some(own) = OWN.get() else {
                    // It was set before this function was made reachable.
                    return ptr::null_mut();
                };
                // SAFETY: CPython calls on an attached thread, with a tuple, and a dict or null, which
                // live for the call.
                unsafe {
                    let make = || (own.$name)(callable, args, kwargs);
                    if !is_watched()
                        || W::is_quiet(Borrowed::from_ptr(Python::assume_attached(), callable))
                    {
                        return make();
                    }
                    around::<W>(callable, first(args), make)
                }
            }
        )*
    };
}

called! { class_call slot_call bound_slot_call class_method_call }

/// The first of the arguments; null without any.
///
/// # Safety
/// It is a tuple, and is alive.
unsafe fn first(args: *mut PyObject) -> *mut PyObject {
    // SAFETY: by the caller; the item is borrowed from the tuple.
    unsafe {
        match ffi::PyTuple_GET_SIZE(args) {
            0 => ptr::null_mut(),
            _ => ffi::PyTuple_GET_ITEM(args, 0),
        }
    }
}

/// Declares slots by which something is bound.
macro_rules! bound {
    ($($name:ident)*) => {
        $(
            /// # Safety
            /// Called by CPython as `tp_descr_get`.
            unsafe extern "C-unwind" fn $name(
                method: *mut PyObject,
                object: *mut PyObject,
                class: *mut PyObject,
            ) -> *mut PyObject {
                let Some(own) = OWN.get() else {
                    return ptr::null_mut();
                };
                // SAFETY: CPython calls on an attached thread, with a method of this kind.
                unsafe {
                    let bound = (own.$name)(method, object, class);
                    route_bound(method, bound);
                    bound
                }
            }
        )*
    };
}

bound! { method_get class_method_get }
