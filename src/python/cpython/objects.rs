//! Lists, dictionaries, buffers and code, read or made without code of their classes.

use std::ffi::CStr;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

/// The length of a list, and its last item as an address to compare.
#[inline]
pub fn length_and_last(list: &Bound<'_, PyList>) -> (usize, usize) {
    let last = list.len().checked_sub(1);
    let last = last.and_then(|last| list.get_item(last).ok());
    (list.len(), last.map_or(0, |last| last.as_ptr() as usize))
}

/// The attributes that are an object's own, read without code of its class.
pub fn own_attributes<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    let py = object.py();
    // SAFETY: the result is a new reference, or null with an exception set.
    let dict = unsafe {
        let dict = ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_opt(py, dict)
    };
    if dict.is_none() {
        drop(PyErr::take(py));
    }
    dict?.cast_into().ok()
}

/// Returns the module of this name, if it is imported: the entry of `sys.modules`, or of a
/// dictionary that took its place. Runs none of its code.
pub fn module_of_name<'py>(name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the dictionary of modules is borrowed and a dict; so is the result, or null.
    unsafe {
        let modules = ffi::PyImport_GetModuleDict();
        let found = ffi::PyDict_GetItemWithError(modules, name.as_ptr());
        Bound::from_borrowed_ptr_or_opt(name.py(), found)
    }
}

/// Returns the number of bytes in an object's buffer; `None` if it has no buffer.
pub fn buffer_length(object: &Bound<'_, PyAny>) -> Option<u64> {
    PyUntypedBuffer::get(object)
        .ok()
        .and_then(|buffer| u64::try_from(buffer.len_bytes()).ok())
}

/// Returns whether functions that take a sequence take the object.
pub fn is_sequence(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: it takes any object, and runs none of its code.
    unsafe { ffi::PySequence_Check(object.as_ptr()) != 0 }
}

/// The code of a module with this text. No audit event is raised.
///
/// # Errors
/// `SyntaxError`, `MemoryError`.
pub fn compile<'py>(py: Python<'py>, source: &CStr) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: both texts are NUL-terminated; the result is a new reference, or null with an
    // exception set.
    unsafe {
        let code = ffi::Py_CompileString(source.as_ptr(), c"".as_ptr(), ffi::Py_file_input);
        Bound::from_owned_ptr_or_err(py, code)
    }
}

/// A function of this code.
///
/// # Errors
/// `MemoryError`; `SystemError` if it is not code.
pub fn new_function<'py>(
    code: &Bound<'py, PyAny>,
    globals: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the first is looked at; the result is a new reference, or null with an exception set.
    unsafe {
        if ffi::PyCode_Check(code.as_ptr()) == 0 {
            return Err(pyo3::exceptions::PySystemError::new_err("no code"));
        }
        let function = ffi::PyFunction_New(code.as_ptr(), globals.as_ptr());
        Bound::from_owned_ptr_or_err(code.py(), function)
    }
}
