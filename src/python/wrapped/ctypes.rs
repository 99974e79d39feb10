//! Functions of native libraries that `ctypes` found before a guard began: CPython raises events
//! for finding one, not for calling it. Under a guard a call raises `fastaudit.call` first, like
//! that of a native module.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::python::callees::caller;
use crate::python::cpython::called::{CalledByTuple, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::cpython::replace::{self, wrapped};
use crate::python::cpython::slots::Slot;
use crate::python::cpython::{ffi as raw, frames};
use crate::python::guard::scope;

pub const MODULE: &str = "_ctypes";
const CLASS: &str = "CFuncPtr";

wrapped! {
    Call: WrappedByTuple(CalledByTuple) => call;
}

pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
    // If the module is not ready yet, it will be looked at again.
    let Some(class) = module.attr_opt(CLASS)? else {
        return Ok(());
    };
    let class = class.cast_into::<PyType>()?;
    // Each library has a class of its own, which took over the call when it was made.
    replace::slot::<Call>(&class, Slot::Call)
}

fn call(called: CalledByTuple<'_>) -> Returned {
    match !scope::may_be_guarded() || called.ours(|_| raise(&called.receiver())).is_some() {
        true => called.make(),
        false => Returned::failed(),
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
