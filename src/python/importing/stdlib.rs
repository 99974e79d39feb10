//! The directory of the standard library, and its code.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::frames;
use crate::python::cpython::once::Once;
use crate::python::frames::stack;

static STANDARD_LIBRARY: Once<String> = Once::new();

pub fn directory(py: Python<'_>) -> PyResult<&String> {
    STANDARD_LIBRARY.get_or_try_init(py, || {
        let file = calling::import(py, "os")?.attr("__file__")?;
        let file = file.extract::<String>()?;
        let directory = file.rsplit_once(['/', '\\']);
        let directory = directory.map_or("", |(directory, _)| directory);
        Ok::<_, PyErr>(directory.to_owned())
    })
}

/// Returns whether code is the standard library's, and of no installed package, by its file's name.
pub fn is_standard_library(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = code.py();
    let Some(directory) = STANDARD_LIBRARY.get(py) else {
        return Ok(false);
    };
    let file = stack::code_file(code)?;
    let file = file.to_string_lossy();
    let rest = file.strip_prefix(directory.as_str());
    Ok(rest.is_some_and(|rest| !rest.contains("-packages")) || file.starts_with("<frozen "))
}

/// Returns whether an object is this function of the standard library, by its file's name.
pub fn is_function_of_library(
    object: &Bound<'_, PyAny>,
    module: &str,
    name: &str,
) -> PyResult<bool> {
    let py = object.py();
    let Some(directory) = STANDARD_LIBRARY.get(py) else {
        return Ok(false);
    };
    if !raw::is_python_function(object) {
        return Ok(false);
    }
    let code = frames::function_code(object);
    let file = stack::code_file(&code)?;
    let file = file.to_string_lossy();
    let rest = file.strip_prefix(directory.as_str());
    let rest = rest.and_then(|rest| rest.strip_prefix(['/', '\\'])?.strip_prefix(module));
    Ok(stack::code_name(&code)? == name
        && rest.is_some_and(|rest| rest.starts_with(['.', '/', '\\'])))
}

/// Where the extension modules of the standard library are.
pub fn extension_directory(py: Python<'_>) -> PyResult<PathBuf> {
    let sys = calling::import(py, "sys")?;
    let mut path: PathBuf = sys.attr("base_exec_prefix")?.extract()?;
    path.push(sys.attr("platlibdir")?.extract::<PathBuf>()?);
    let version = py.version_info();
    let threads = if cfg!(Py_GIL_DISABLED) { "t" } else { "" };
    path.push(format!("python{}.{}{threads}", version.major, version.minor));
    path.push("lib-dynload");
    Ok(path)
}
