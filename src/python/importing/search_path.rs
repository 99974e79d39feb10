//! `sys.path`, where modules are looked for.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyModule};

use crate::python::cpython::calling;
use crate::python::cpython::objects;
use crate::python::cpython::once::intern;

/// `sys.path`; `None` if other code put something else in its place.
pub fn list(py: Python<'_>) -> PyResult<Option<Bound<'_, PyList>>> {
    // An import statement would take longer than all else that making a guard does.
    let sys = match objects::module_of_name(intern!(py, "sys")) {
        Some(sys) => sys,
        None => calling::import(py, "sys")?.into_any(),
    };
    let Ok(sys) = sys.cast_into::<PyModule>() else {
        return Ok(None);
    };
    let path = sys.dict().get_item(intern!(py, "path"))?;
    Ok(path.and_then(|path| path.cast_into().ok()))
}
