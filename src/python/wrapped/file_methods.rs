//! The methods by which Python files are written, made to count (`quota`).

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::replace::{self, wrapped};
use crate::python::wrapped::quota::{Writes, count};

wrapped! {
    Write: Wrapped(Called) => |called| count(called, Writes::Data);
    Truncate: Wrapped(Called) => |called| count(called, Writes::Length);
}

pub fn install(py: Python<'_>) -> PyResult<()> {
    let class = calling::import(py, "_io")?
        .attr("FileIO")?
        .cast_into::<PyType>()?;
    let replaced = |name, done: bool| {
        done.then_some(()).ok_or_else(|| {
            PyRuntimeError::new_err(format!(
                "max_bytes cannot be held here: {name} of _io.FileIO is called in an unknown way"
            ))
        })
    };
    replaced("truncate", replace::method::<Truncate>(&class, "truncate")?)?;
    replaced("write", replace::method::<Write>(&class, "write")?)
}
