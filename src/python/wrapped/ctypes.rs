//! Functions of native libraries that `ctypes` found before a guard began: CPython raises events
//! for finding one, not for calling it. Under a guard a call raises `fastaudit.call` first, like
//! that of a native module.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::frames;
use crate::python::cpython::replace;
use crate::python::guard::scope;
use crate::python::values::caller;

/// The module of the class that they are of.
pub const MODULE: &str = "_ctypes";
const CLASS: &str = "CFuncPtr";

type Call =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;

static ORIGINAL: OnceLock<Call> = OnceLock::new();

/// Routes the calls of such functions here.
pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
    // If the module is not ready yet, it will be looked at again.
    let Some(class) = module.getattr_opt(CLASS)? else {
        return Ok(());
    };
    let class = class.cast_into::<PyType>()?;
    replace_wrapper(&class)?;
    let mut classes = vec![class];
    // Each library has a class of its own, which took over the call when it was made.
    while let Some(class) = classes.pop() {
        replace(&class);
        let subclasses = class.call_method0("__subclasses__")?;
        for subclass in subclasses.try_iter()? {
            classes.push(subclass?.cast_into::<PyType>()?);
        }
    }
    Ok(())
}

/// The same for `__call__` by its name, which classes made later take their call from.
fn replace_wrapper(class: &Bound<'_, PyType>) -> PyResult<()> {
    let wrapper = class.getattr("__call__")?;
    // SAFETY: the layout is read for the type that has it. The replaced slot is the call of the
    // class, which `call` does in turn; the GIL is held.
    unsafe {
        if ffi::Py_TYPE(wrapper.as_ptr()) != &raw mut ffi::PyWrapperDescr_Type {
            return Ok(());
        }
        let descriptor = wrapper.as_ptr().cast::<ffi::PyWrapperDescrObject>();
        let own = (*class.as_type_ptr()).tp_call;
        if own.is_some_and(|own| (*descriptor).d_wrapped == own as *mut std::ffi::c_void) {
            (*descriptor).d_wrapped = call as *mut std::ffi::c_void;
        }
    }
    Ok(())
}

fn replace(class: &Bound<'_, PyType>) {
    // SAFETY: the class is alive, and has this slot; the GIL is held. The two types of functions
    // differ in whether they may be unwound alone.
    unsafe {
        let class = class.as_type_ptr();
        let Some(own) = (*class).tp_call else {
            return;
        };
        let own = std::mem::transmute::<ffi::ternaryfunc, Call>(own);
        let is_ours = std::ptr::fn_addr_eq(own, call as Call);
        // Python code may give a class a call of its own.
        let is_known = is_ours
            || ORIGINAL
                .get()
                .is_none_or(|known| std::ptr::fn_addr_eq(own, *known));
        if is_ours || !is_known {
            return;
        }
        let _ = ORIGINAL.set(own);
        (*class).tp_call = Some(std::mem::transmute::<Call, ffi::ternaryfunc>(call as Call));
        ffi::PyType_Modified(class);
    }
}

/// # Safety
/// Called by CPython as the `tp_call` of a function.
unsafe extern "C-unwind" fn call(
    function: *mut PyObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    let Some(original) = ORIGINAL.get() else {
        return std::ptr::null_mut();
    };
    // SAFETY: as this function's.
    unsafe {
        if scope::may_be_guarded() {
            let asked = replace::ours(|py| raise(&Borrowed::from_ptr(py, function)));
            if asked.is_none() {
                return std::ptr::null_mut();
            }
        }
        original(function, args, kwargs)
    }
}

/// Raises the event: the caller, and `ctypes.` with the function's name.
fn raise(function: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = function.py();
    let name = calling::getattr_opt(function, pyo3::intern!(py, "__name__"))?;
    let name = name.and_then(|name| name.cast_into::<PyString>().ok());
    let name = name.map_or_else(
        || "function".into(),
        |name| name.to_string_lossy().into_owned(),
    );
    let callee = PyString::new(py, &format!("ctypes.{name}"));
    let frame = frames::current_frame(py);
    let caller = match frame.as_ref().and_then(|frame| frame.cast().ok()) {
        Some(frame) => caller::name(&frames::code(frame))?,
        None => PyString::new(py, ""),
    };
    raw::audit(py, c"fastaudit.call", &[caller.as_any(), callee.as_any()])
}
