//! Functions of native libraries that `ctypes` found before a guard began: CPython raises events
//! for finding one, not for calling it. Under a guard a call raises `fastaudit.call` first, like
//! that of a native module.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::python::callees::caller;
use crate::python::cpython::called::{CalledByTuple, Returned};
use crate::python::cpython::calling;
use crate::python::cpython::once::intern;
use crate::python::cpython::replace;
use crate::python::cpython::slots::Slot;
use crate::python::cpython::{ffi as raw, frames};
use crate::python::guard::scope;

pub fn install(_module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    // Each library has a class of its own, which took over the call when it was made.
    replace::wrap_slot!(class, Slot::Call, call)
}

fn call(called: CalledByTuple<'_>) -> Returned {
    match scope::may_be_guarded() {
        true => called.make_if(|_| raise(&called.receiver())),
        false => called.make(),
    }
}

/// Raises the event: the caller, and `ctypes.` with the function's name.
fn raise(function: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = function.py();
    let name = calling::getattr_opt(function, intern!(py, "__name__"))?;
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
