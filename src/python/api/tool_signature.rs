//! A tool's name, text and signature: data, which lead to no object of the host.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::python::cpython::calling::{self, Calling};
use crate::python::values::by_value::Copier;
use crate::python::values::errors;

/// The name of a function.
///
/// # Errors
/// `TypeError` if it has none.
pub fn name<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let name = function.attr_opt("__name__")?;
    let name = name.and_then(|name| name.cast_into::<PyString>().ok());
    name.ok_or_else(|| {
        PyTypeError::new_err(format!(
            "function is a {} without a __name__: write tool(function, name=\"...\")",
            errors::type_name(function)
        ))
    })
}

/// The text of a function.
pub fn doc(function: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    let text = function.attr_opt("__doc__")?;
    let text = text.filter(|text| text.is_instance_of::<PyString>());
    Ok(text.map(Bound::unbind))
}

/// The signature of a function, and the names of its parameters; `None` if it is not known.
pub fn read<'py>(
    function: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyAny>, Vec<String>)>> {
    let py = function.py();
    let inspect = calling::import(py, "inspect")?;
    let signature = match inspect.invoke_method1("signature", (function,)) {
        Ok(signature) => signature,
        Err(error) if error.is_instance_of::<PyValueError>(py) => return Ok(None),
        Err(error) => return Err(error),
    };
    let empty = inspect.attr("Signature")?.attr("empty")?;
    let annotation = |object: &Bound<'py, PyAny>| -> PyResult<Bound<'py, PyAny>> {
        let annotation = object.clone();
        match annotation.is(&empty) || annotation.is_instance_of::<PyString>() {
            true => Ok(annotation),
            false => inspect.invoke_method1("formatannotation", (annotation,)),
        }
    };
    let (parameters, mut names) = (PyList::empty(py), Vec::new());
    for parameter in signature
        .attr("parameters")?
        .invoke_method0("values")?
        .iterate()?
    {
        let parameter = parameter?;
        let default = parameter.attr("default")?;
        let default = match default.is(&empty) {
            true => default,
            // The text of any other object says no more than that there is one.
            false => Copier::default()
                .copy(&default)
                .unwrap_or_else(|_| py.Ellipsis().into_bound(py)),
        };
        let changes = PyDict::new(py);
        changes.set_item("default", default)?;
        changes.set_item("annotation", annotation(&parameter.attr("annotation")?)?)?;
        parameters.append(parameter.invoke_method("replace", (), Some(&changes))?)?;
        let name: String = parameter.attr("name")?.extract()?;
        let kind: u8 = parameter.attr("kind")?.extract()?;
        names.push(match kind {
            2 => format!("*{name}"),
            4 => format!("**{name}"),
            _ => name,
        });
    }
    let changes = PyDict::new(py);
    changes.set_item("parameters", parameters)?;
    let returned = annotation(&signature.attr("return_annotation")?)?;
    changes.set_item("return_annotation", returned)?;
    let signature = signature.invoke_method("replace", (), Some(&changes))?;
    Ok(Some((signature, names)))
}
