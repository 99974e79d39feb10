//! Sockets whose audit events do not say enough: whether one is made anew or from a descriptor that
//! is open already, and that one listens, for which CPython raises no event.
//!
//! A socket that listens without an address is given one by the system: a port at all addresses.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::functions::{Method, MethodDescriptor};
use crate::python::cpython::replace;
use crate::python::guard::scope;
use crate::python::values::errors;

/// The module of the class.
pub const MODULE: &str = "_socket";
const CLASS: &str = "socket";

/// The position and the name of the descriptor among the arguments that a socket is made with.
const DESCRIPTOR: (isize, &std::ffi::CStr) = (3, c"fileno");

/// The C function of a socket's method without arguments.
type Told = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
type One = Told;
type Fast =
    unsafe extern "C-unwind" fn(*mut PyObject, *const *mut PyObject, isize) -> *mut PyObject;
type Init = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> c_int;

static LISTEN: OnceLock<Method> = OnceLock::new();
static INIT: OnceLock<Init> = OnceLock::new();
/// The methods that tell the address and the descriptor of a socket, whatever a subclass has.
static ADDRESS: OnceLock<Told> = OnceLock::new();
static FILENO: OnceLock<Told> = OnceLock::new();

thread_local! {
    /// True if the socket that is being made is of a descriptor that is open already.
    static WRAPS: Cell<bool> = const { Cell::new(false) };
}

/// Routes the making of the module's sockets, and their listening, here.
///
/// # Errors
/// `RuntimeError` if a method is called by a convention that is not known here.
pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
    // If the module is not ready yet, it will be looked at again.
    let Some(class) = module.getattr_opt(CLASS)? else {
        return Ok(());
    };
    let class = class.cast_into::<PyType>()?;
    for (name, told) in [("getsockname", &ADDRESS), ("fileno", &FILENO)] {
        let method = class.getattr(name)?;
        let method = MethodDescriptor::cast(&method);
        let method = method.filter(|method| method.convention() == ffi::METH_NOARGS);
        let method = method.ok_or_else(|| errors::unknown_method(CLASS, name))?;
        // SAFETY: a function of this convention.
        told.get_or_init(|| unsafe { std::mem::transmute::<*mut (), Told>(method.function()) });
    }
    let by = |convention| match convention {
        ffi::METH_VARARGS | ffi::METH_O => Some(listen_one as *mut ()),
        ffi::METH_FASTCALL => Some(listen_fast as *mut ()),
        _ => None,
    };
    // SAFETY: the functions have the conventions that they are given for.
    if !unsafe { Method::replace(&class, "listen", &LISTEN, by)? } {
        return Err(errors::unknown_method(CLASS, "listen"));
    }
    replace_wrapper(&class)?;
    let mut classes = vec![class];
    // A class that has no `__init__` of its own took over this one when it was made.
    while let Some(class) = classes.pop() {
        replace_init(&class);
        for subclass in class.call_method0("__subclasses__")?.try_iter()? {
            classes.push(subclass?.cast_into::<PyType>()?);
        }
    }
    Ok(())
}

/// Routes `__init__`, by its name, here: classes call it so, and those made later take it over.
fn replace_wrapper(class: &Bound<'_, PyType>) -> PyResult<()> {
    let wrapper = class.getattr("__init__")?;
    // SAFETY: the layout is read for the type that has it. The slot that is replaced is the one
    // that `init` calls in turn; the GIL is held.
    unsafe {
        if ffi::Py_TYPE(wrapper.as_ptr()) != &raw mut ffi::PyWrapperDescr_Type {
            return Ok(());
        }
        let descriptor = wrapper.as_ptr().cast::<ffi::PyWrapperDescrObject>();
        let own = (*class.as_type_ptr()).tp_init;
        if own.is_some_and(|own| (*descriptor).d_wrapped == own as *mut std::ffi::c_void) {
            (*descriptor).d_wrapped = init as *mut std::ffi::c_void;
        }
    }
    Ok(())
}

fn replace_init(class: &Bound<'_, PyType>) {
    // SAFETY: the class is alive, and has this slot; the GIL is held. The two types of functions
    // differ in whether they may be unwound alone.
    unsafe {
        let class = class.as_type_ptr();
        let Some(own) = (*class).tp_init else {
            return;
        };
        let own = std::mem::transmute::<ffi::initproc, Init>(own);
        let is_ours = std::ptr::fn_addr_eq(own, init as Init);
        // Python code may give a class its own.
        if !is_ours && std::ptr::fn_addr_eq(own, *INIT.get_or_init(|| own)) {
            (*class).tp_init = Some(std::mem::transmute::<Init, ffi::initproc>(init as Init));
            ffi::PyType_Modified(class);
        }
    }
}

/// # Safety
/// Called by CPython as the `tp_init` of a socket.
unsafe extern "C-unwind" fn init(
    socket: *mut PyObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> c_int {
    let Some(original) = INIT.get() else {
        return -1;
    };
    // SAFETY: as this function's: the arguments are a tuple, and a dict or null. In place for this
    // call alone: a hook may make sockets itself.
    unsafe {
        let before = WRAPS.replace(has_descriptor(args, kwargs));
        let result = original(socket, args, kwargs);
        WRAPS.set(before);
        result
    }
}

/// Returns whether a descriptor is among the arguments.
///
/// # Safety
/// They are a tuple, and a dict or null.
unsafe fn has_descriptor(args: *mut PyObject, kwargs: *mut PyObject) -> bool {
    let (index, name) = DESCRIPTOR;
    // SAFETY: as this function's; borrowed references or null, and no exception stays set.
    unsafe {
        let given = if ffi::PyTuple_GET_SIZE(args) > index {
            ffi::PyTuple_GET_ITEM(args, index)
        } else if kwargs.is_null() {
            std::ptr::null_mut()
        } else {
            ffi::PyDict_GetItemString(kwargs, name.as_ptr())
        };
        !given.is_null() && given != ffi::Py_None()
    }
}

/// Returns whether the socket which is being made is one of a descriptor that is open already.
pub fn wraps() -> bool {
    WRAPS.get()
}

/// # Safety
/// Called by CPython by the convention `METH_VARARGS` or `METH_O`.
unsafe extern "C-unwind" fn listen_one(
    socket: *mut PyObject,
    given: *mut PyObject,
) -> *mut PyObject {
    let Some(original) = LISTEN.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: as this function's; the original has the same convention.
    unsafe {
        if !may_listen(socket) {
            return std::ptr::null_mut();
        }
        std::mem::transmute::<*mut (), One>(original.function())(socket, given)
    }
}

/// # Safety
/// Called by CPython by the convention `METH_FASTCALL`.
unsafe extern "C-unwind" fn listen_fast(
    socket: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
) -> *mut PyObject {
    let Some(original) = LISTEN.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: as this function's; the original has the same convention.
    unsafe {
        if !may_listen(socket) {
            return std::ptr::null_mut();
        }
        std::mem::transmute::<*mut (), Fast>(original.function())(socket, args, count)
    }
}

/// Raises the event of a socket that is going to listen and has no address: the system gives it a
/// port at all addresses. One that has an address was judged as it was bound, or is the host's.
/// Returns whether it may listen; else the exception is set.
///
/// # Safety
/// The thread is attached; it is a socket, which lives for the call.
unsafe fn may_listen(socket: *mut PyObject) -> bool {
    if !scope::may_be_guarded() {
        return true;
    }
    // SAFETY: as this function's.
    let raised = unsafe {
        replace::ours(|py| {
            let socket = Borrowed::from_ptr(py, socket);
            let told = |method: &OnceLock<Told>| {
                let method = *method.get()?;
                let told = calling::held(|| method(socket.as_ptr(), std::ptr::null_mut()));
                Bound::from_owned_ptr_or_err(py, told).ok()
            };
            // Listening on a closed socket fails by itself.
            match (told(&FILENO), told(&ADDRESS)) {
                (Some(descriptor), Some(address))
                    if !is_bound(&address) && !listens(&descriptor) =>
                {
                    raw::audit(py, c"socket.listen", &[&socket, &address])
                }
                _ => Ok(()),
            }
        })
    };
    raised.is_some()
}

/// Returns whether an address of the internet has a port; addresses of others are given by binding
/// alone.
fn is_bound(address: &Bound<'_, PyAny>) -> bool {
    let Ok(address) = address.cast::<PyTuple>() else {
        return true;
    };
    address
        .get_item(1)
        .is_ok_and(|port| raw::int_value(&port) != Some(0))
}

/// Returns whether the socket listens already: then only the length of its queue is new.
#[cfg(unix)]
fn listens(descriptor: &Bound<'_, PyAny>) -> bool {
    let number = raw::int_value(descriptor).and_then(|number| i32::try_from(number).ok());
    let socket = number.and_then(crate::python::cpython::descriptors::borrow);
    socket.is_some_and(|socket| rustix::net::sockopt::socket_acceptconn(socket).unwrap_or(false))
}

#[cfg(not(unix))]
fn listens(_descriptor: &Bound<'_, PyAny>) -> bool {
    false
}
