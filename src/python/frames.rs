//! Python frames: the one that a host callback gets, and how a caller is named.

use pyo3::prelude::*;
#[cfg(Py_3_12)]
use pyo3::types::PyModule;
use pyo3::types::{PyDict, PyString};

use super::ffi as raw;

/// The package's name, the first component of the module names of our own Python code.
const PACKAGE: &str = "fastaudit_rs";

/// The innermost frame that is not of this package.
pub fn first_foreign(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let mut frame = raw::current_frame(py);
    while let Some(current) = frame {
        let globals = current.getattr(pyo3::intern!(py, "f_globals"))?;
        if !globals.cast::<PyDict>().is_ok_and(is_ours) {
            return Ok(Some(current));
        }
        frame = outer(&current)?;
    }
    Ok(None)
}

/// The frame that called this one's code.
pub fn outer<'py>(frame: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let back = frame.getattr(pyo3::intern!(frame.py(), "f_back"))?;
    Ok((!back.is_none()).then_some(back))
}

fn is_ours(globals: &Bound<'_, PyDict>) -> bool {
    module_name(globals).is_some_and(|name| {
        name.to_str()
            .is_ok_and(|name| name.split('.').next() == Some(PACKAGE))
    })
}

fn module_name<'py>(globals: &Bound<'py, PyDict>) -> Option<Bound<'py, PyString>> {
    let name = globals
        .get_item(pyo3::intern!(globals.py(), "__name__"))
        .ok()??;
    name.cast_into().ok()
}

/// Names the code that makes a call: its module's name and its own qualified name.
#[cfg(Py_3_12)]
pub fn caller<'py>(code: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let py = code.py();
    let module = raw::current_globals(py).as_ref().and_then(module_name);
    let module = module.unwrap_or_else(|| PyString::new(py, "None"));
    let qualname = code.getattr(pyo3::intern!(py, "co_qualname"))?;
    raw::dotted(&module, &qualname)
}

/// Whether the innermost Python code is that of the module that it names itself after.
#[cfg(Py_3_12)]
pub fn is_of_its_module(py: Python<'_>) -> PyResult<bool> {
    let Some(globals) = raw::current_globals(py) else {
        return Ok(false);
    };
    let Some(name) = module_name(&globals) else {
        return Ok(false);
    };
    let Some(module) = raw::imported_module(py, &name)? else {
        return Ok(false);
    };
    let module = module.cast::<PyModule>();
    Ok(module.is_ok_and(|module| module.dict().is(&globals)))
}
