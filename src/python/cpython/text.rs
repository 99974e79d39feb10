//! Text of a `str`, whatever a subclass makes of it.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

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
