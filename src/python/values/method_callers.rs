//! The method that an `operator.methodcaller` calls: CALL events do not show calls that native code
//! makes.

use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString, PyTuple, PyType};

use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::intern;

/// The method of an object that a method caller calls, read without running code of the object's.
pub fn method_of<'py>(
    caller: &Bound<'py, PyAny>,
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(name) = name(caller)? else {
        return Ok(None);
    };
    if let Ok(module) = object.cast::<PyModule>() {
        return module.dict().get_item(name);
    }
    let of_class = object.cast::<PyType>().ok();
    let found = of_class.and_then(|class| raw::type_lookup(class, &name));
    Ok(found.or_else(|| raw::type_lookup(&object.get_type(), &name)))
}

/// Returns the name of the method. Only its pickled form has it: the class with the name and the
/// other arguments, or a `partial` of the class if there are arguments by name.
fn name<'py>(caller: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyString>>> {
    let told = caller.invoke_method0(intern!(caller.py(), "__reduce__"))?;
    let told = told.cast_into::<PyTuple>()?;
    let arguments = match told.get_item(0)?.is_instance_of::<PyType>() {
        true => told.get_item(1)?,
        false => told.get_item(0)?.attr(intern!(caller.py(), "args"))?,
    };
    let arguments = arguments.cast_into::<PyTuple>()?;
    Ok(arguments.get_item(0)?.cast_into().ok())
}
