//! The values of a `str`, an `int` or a `float`, whatever a subclass makes of them.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};

/// The actual text as a plain str, whose methods are CPython's own.
pub fn plain_str<'py>(text: Bound<'py, PyString>) -> PyResult<Bound<'py, PyString>> {
    if text.is_exact_instance_of::<PyString>() {
        return Ok(text);
    }
    // SAFETY: takes any str, and copies the text of one of a subclass.
    unsafe {
        let plain = ffi::PyUnicode_FromObject(text.as_ptr());
        Ok(Bound::from_owned_ptr_or_err(text.py(), plain)?.cast_into_unchecked())
    }
}

/// The actual number as a plain int.
///
/// # Errors
/// `MemoryError`.
pub fn plain_int<'py>(number: &Bound<'py, PyInt>) -> PyResult<Bound<'py, PyInt>> {
    if number.is_exact_instance_of::<PyInt>() {
        return Ok(number.clone());
    }
    // SAFETY: the slot of `int` itself, which every interpreter has, takes any int, and makes a plain
    // one of one of a subclass; a new reference or null.
    unsafe {
        let slots = ffi::PyLong_Type.tp_as_number;
        let Some(as_int) = (*slots).nb_int else {
            return Err(pyo3::exceptions::PySystemError::new_err(
                "int has no nb_int",
            ));
        };
        let plain = Bound::from_owned_ptr_or_err(number.py(), as_int(number.as_ptr()))?;
        Ok(plain.cast_into_unchecked())
    }
}
