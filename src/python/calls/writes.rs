//! Native functions of declared packages that write files by themselves: no audit event tells of
//! it, so `open` is raised for the path that they are given, if it can be seen.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::policy::packages::{Packages, Writer};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::frames;
use crate::python::values::distributions;
use crate::python::values::stack;

/// Returns whether a call of such a function may be made: `open` of its path passes. Returns false
/// if the path cannot be seen. `first` is its first argument.
///
/// # Errors
/// The denial.
pub fn may_write(
    py: Python<'_>,
    packages: &Packages,
    writer: &Writer,
    first: Option<&Bound<'_, PyAny>>,
) -> PyResult<bool> {
    let local = |name: &str| local_of_package(py, packages, name);
    let path = match (&writer.local, writer.is_first) {
        (Some(name), _) => local(name)?,
        (None, true) => first.cloned(),
        (None, false) => None,
    };
    let Some(path) = path else {
        return Ok(false);
    };
    let Some(path) = path_of(&path)? else {
        return Ok(false);
    };
    let Path::At(path) = path else {
        return Ok(true);
    };
    let given = match &writer.mode {
        Some(name) => local(name)?,
        None => None,
    };
    let mode = given.filter(PyAnyMethods::is_exact_instance_of::<PyString>);
    let mode = mode.unwrap_or_else(|| PyString::new(py, "w").into_any());
    let flags = 0i32.into_pyobject(py)?.into_any();
    raw::audit(py, c"open", &[&path, &mode, &flags])?;
    Ok(true)
}

/// Where a file is written.
enum Path<'py> {
    At(Bound<'py, PyAny>),
    /// To an object that Python code opened, as an event told.
    Open,
}

/// Returns the path that an object names; `None` for an object that could name another the next
/// time.
fn path_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Path<'py>>> {
    let py = object.py();
    if object.is_exact_instance_of::<PyString>() || object.is_exact_instance_of::<PyBytes>() {
        return Ok(Some(Path::At(object.clone())));
    }
    if object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyByteArray>()
    {
        return Ok(None);
    }
    let class = object.get_type();
    if raw::type_lookup(&class, pyo3::intern!(py, "__fspath__")).is_some() {
        let own = calling::import(py, "pathlib")?.attr("PosixPath")?;
        return Ok(match class.is(&own) {
            true => Some(Path::At(calling::fs_path(object)?)),
            false => None,
        });
    }
    // `MISSING` of `sys.monitoring`, and numbers, which may be descriptors, write nothing by name.
    let is_file = raw::type_lookup(&class, pyo3::intern!(py, "write")).is_some();
    Ok(is_file.then_some(Path::Open))
}

/// Returns a local variable of the innermost Python function, if that is of one of the packages.
fn local_of_package<'py>(
    py: Python<'py>,
    packages: &Packages,
    name: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(frame) = frames::current_frame(py) else {
        return Ok(None);
    };
    let code = frames::code(frame.cast()?);
    let module = distributions::module_of_code(&code)?;
    if !module.is_some_and(|module| packages.have(&module)) {
        return Ok(None);
    }
    stack::local(&frame, name)
}
