//! Greenlets that are made or started under a guard: each has a context of its own, which its
//! library enters by itself, and which has the guard.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::ffi as raw;
use crate::python::cpython::functions::Method;
use crate::python::cpython::replace;
use crate::python::cpython::slots::Slot;
use crate::python::guard::carry;
use crate::python::guard::scope::{self, Active, Current};
use crate::python::values::errors;

/// Where their class is.
pub const MODULE: &str = "greenlet._greenlet";

type New =
    unsafe extern "C-unwind" fn(*mut PyTypeObject, *mut PyObject, *mut PyObject) -> *mut PyObject;
type WithKeywords =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;
type Positional = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;

static NEW: Slot = Slot::unknown();
static SWITCH: OnceLock<Method> = OnceLock::new();
static THROW: OnceLock<Method> = OnceLock::new();

/// The functions that read and set a greenlet's context, and tell whether it is dead or runs
/// already.
struct Known {
    context: ffi::getter,
    set_context: ffi::setter,
    dead: ffi::getter,
    is_active: ffi::inquiry,
}

static KNOWN: OnceLock<Known> = OnceLock::new();

/// Routes the making and starting of greenlets here, and changes of their contexts.
pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
    // An old version has none, and its greenlets share the context of the thread.
    let Some(class) = module.getattr_opt("greenlet")? else {
        return Ok(());
    };
    let class = class.cast_into::<PyType>()?;
    let (Some(context), Some(dead)) =
        (class.getattr_opt("gr_context")?, class.getattr_opt("dead")?)
    else {
        return Ok(());
    };
    // SAFETY: the layouts are read for the types that have them; the entries live for ever. The
    // functions are of these slots and conventions, and call the original.
    unsafe {
        let number = (*class.as_type_ptr()).tp_as_number;
        let (Some(context), Some(dead)) = (getset(&context), getset(&dead)) else {
            return Ok(());
        };
        if KNOWN.get().is_none() {
            let (Some(get), Some(set), Some(dead)) = (
                (*(*context).d_getset).get,
                (*(*context).d_getset).set,
                (*(*dead).d_getset).get,
            ) else {
                return Ok(());
            };
            let Some(is_active) = number.as_ref().and_then(|number| number.nb_bool) else {
                return Ok(());
            };
            let _ = KNOWN.set(Known {
                context: get,
                set_context: set,
                dead,
                is_active,
            });
        }
        let entry = ffi::PyGetSetDef {
            set: Some(set_context),
            ..*(*context).d_getset
        };
        (*context).d_getset = Box::leak(Box::new(entry));
        let with =
            |known, function: *mut ()| move |convention| (convention == known).then_some(function);
        let keywords = ffi::METH_VARARGS | ffi::METH_KEYWORDS;
        Method::replace(&class, "switch", &SWITCH, with(keywords, switch as *mut ()))?;
        Method::replace(
            &class,
            "throw",
            &THROW,
            with(ffi::METH_VARARGS, throw as *mut ()),
        )?;
        NEW.replace(&class, place, new as *mut c_void)
    }
}

/// An attribute as the descriptor of it.
fn getset(descriptor: &Bound<'_, PyAny>) -> Option<*mut ffi::PyGetSetDescrObject> {
    // SAFETY: only the type is read.
    let is_one = unsafe { ffi::Py_TYPE(descriptor.as_ptr()) == &raw mut ffi::PyGetSetDescr_Type };
    is_one.then(|| descriptor.as_ptr().cast())
}

/// # Safety
/// The class is alive.
unsafe fn place(class: *mut PyTypeObject) -> *mut *mut c_void {
    // SAFETY: as this function's; a function, or null.
    unsafe { (&raw mut (*class).tp_new).cast() }
}

/// The guard in force here.
fn guard(py: Python<'_>) -> PyResult<Option<Bound<'_, Active>>> {
    match scope::own(py)? {
        Current::Guarded(active) => Ok(Some(active)),
        Current::Unguarded => Ok(None),
        Current::Tampered => Err(errors::variable_changed()),
    }
}

/// Gives a greenlet that does not run the guard in force.
///
/// # Safety
/// It is a greenlet.
unsafe fn equip(greenlet: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = greenlet.py();
    let (Some(active), Some(known)) = (guard(py)?, KNOWN.get()) else {
        return Ok(());
    };
    let none = std::ptr::null_mut();
    // SAFETY: as this function's; the functions are those of its class.
    unsafe {
        let context = Bound::from_owned_ptr_or_err(py, (known.context)(greenlet.as_ptr(), none))?;
        let context = (!context.is_none()).then_some(context);
        if let Some(context) = carry::with_guard(context.as_ref(), &active)?
            && (known.set_context)(greenlet.as_ptr(), context.as_ptr(), none) != 0
        {
            return Err(PyErr::fetch(py));
        }
    }
    Ok(())
}

/// The same for one that was not started yet.
///
/// # Safety
/// It is a greenlet.
unsafe fn equip_new(greenlet: &Bound<'_, PyAny>) -> PyResult<()> {
    let Some(known) = KNOWN.get() else {
        return Ok(());
    };
    // SAFETY: as this function's; the functions are those of its class.
    unsafe {
        if (known.is_active)(greenlet.as_ptr()) != 0 {
            return Ok(());
        }
        let dead = (known.dead)(greenlet.as_ptr(), std::ptr::null_mut());
        match Bound::from_owned_ptr_or_err(greenlet.py(), dead)?.is_truthy()? {
            true => Ok(()),
            false => equip(greenlet),
        }
    }
}

/// # Safety
/// Called by CPython as the `tp_new` of greenlets.
unsafe extern "C-unwind" fn new(
    class: *mut PyTypeObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    let original = NEW.original();
    if original.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: as this function's; the original is of this type, and gives a greenlet or null.
    unsafe {
        let original = std::mem::transmute::<*mut c_void, New>(original);
        let greenlet = original(class, args, kwargs);
        if greenlet.is_null() || !scope::may_be_guarded() {
            return greenlet;
        }
        if replace::ours(|py| equip(&Borrowed::from_ptr(py, greenlet))).is_none() {
            raw::with_attachment_counted(|| ffi::Py_DECREF(greenlet));
            return std::ptr::null_mut();
        }
        greenlet
    }
}

/// # Safety
/// Called by CPython as the setter of a greenlet's context.
unsafe extern "C" fn set_context(
    greenlet: *mut PyObject,
    value: *mut PyObject,
    closure: *mut c_void,
) -> c_int {
    let Some(known) = KNOWN.get() else {
        return -1;
    };
    // SAFETY: as this function's.
    unsafe {
        if value.is_null() || !scope::may_be_guarded() {
            return (known.set_context)(greenlet, value, closure);
        }
        let given = replace::ours(|py| {
            let value = Borrowed::from_ptr(py, value);
            let context = (!value.is_none()).then_some(&*value);
            let (Some(active), true) = (
                guard(py)?,
                context.is_none_or(|context| raw::is_context(context)),
            ) else {
                return Ok(None);
            };
            Ok(carry::with_guard(context, &active)?.map(Bound::into_ptr))
        });
        match given {
            None => -1,
            Some(None) => (known.set_context)(greenlet, value, closure),
            Some(Some(context)) => {
                let result = (known.set_context)(greenlet, context, closure);
                raw::with_attachment_counted(|| ffi::Py_DECREF(context));
                result
            }
        }
    }
}

/// # Safety
/// Called by CPython by the convention `METH_VARARGS | METH_KEYWORDS`, with a greenlet.
unsafe extern "C-unwind" fn switch(
    greenlet: *mut PyObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as this function's; the original has the same convention. While it runs, and others
    // do in its place, there is nothing on this stack that anybody else uses.
    unsafe {
        match SWITCH.get() {
            Some(original) if may_start(greenlet) => std::mem::transmute::<*mut (), WithKeywords>(
                original.function(),
            )(greenlet, args, kwargs),
            _ => std::ptr::null_mut(),
        }
    }
}

/// # Safety
/// Called by CPython by the convention `METH_VARARGS`, with a greenlet.
unsafe extern "C-unwind" fn throw(greenlet: *mut PyObject, args: *mut PyObject) -> *mut PyObject {
    // SAFETY: as for `switch`.
    unsafe {
        match THROW.get() {
            Some(original) if may_start(greenlet) => {
                std::mem::transmute::<*mut (), Positional>(original.function())(greenlet, args)
            }
            _ => std::ptr::null_mut(),
        }
    }
}

/// Gives a greenlet the guard if it is about to be started; else the exception is set.
///
/// # Safety
/// The thread is attached; it is a greenlet.
unsafe fn may_start(greenlet: *mut PyObject) -> bool {
    // SAFETY: as this function's.
    unsafe {
        !scope::may_be_guarded()
            || replace::ours(|py| equip_new(&Borrowed::from_ptr(py, greenlet))).is_some()
    }
}
