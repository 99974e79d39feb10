//! The function behind a tool, and its arguments and results, by value.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;
use crate::python::guard::config::AuditCfg;
use crate::python::guard::scope;
use crate::python::guard::tool_scope::Rights;
use crate::python::values::by_value::{self, Copier};
use crate::python::values::errors;

/// The other way to hand an object over.
const OR_RAW: &str = ", or make the tool with raw=True";

/// The function behind a tool.
pub struct Function {
    pub function: Py<PyAny>,
    pub name: Py<PyString>,
    /// The names of its parameters, those by position first.
    pub parameters: Vec<String>,
    /// True if objects are handed over as they are.
    pub raw: bool,
    /// The guard that it runs under; `None` for the rights of the host.
    pub config: Option<Py<AuditCfg>>,
}

impl Function {
    /// The beginning of messages.
    pub fn told(&self, py: Python<'_>) -> String {
        format!("tool '{}'", self.name.bind(py).to_string_lossy())
    }

    /// The rights of a call; `None` if no guard is in force.
    ///
    /// # Errors
    /// `PermissionError` if the guards' context variable was changed.
    pub fn rights(&self, py: Python<'_>) -> PyResult<Option<Rights>> {
        Rights::new(py, &self.name, self.config.as_ref())
    }

    /// The arguments that the function gets.
    ///
    /// # Errors
    /// `TypeError` for objects that are no data, `ValueError` for too much of it.
    pub fn given<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<(Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>)> {
        let py = args.py();
        if self.raw || (kwargs.is_none() && by_value::are_constant(args)) {
            return Ok((args.clone(), kwargs.cloned()));
        }
        copied(|| self.told(py), &self.parameters, args, kwargs)
    }

    /// The result that the caller gets.
    ///
    /// # Errors
    /// The same.
    pub fn result<'py>(&self, result: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if self.raw {
            return Ok(result);
        }
        let copy = Copier::default().copy(&result);
        copy.map_err(|refused| refused.error(&self.told(result.py()), "its result", OR_RAW))
    }
}

/// Copies of arguments. `of` makes the beginning of messages, `parameters` the names of those by position.
fn copied<'py>(
    of: impl Fn() -> String,
    parameters: &[String],
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>)> {
    let py = args.py();
    let mut copier = Copier::default();
    let mut copies = Vec::with_capacity(args.len());
    for (index, arg) in args.iter().enumerate() {
        let copy = copier.copy(&arg).map_err(|refused| {
            let mut by_position = parameters.iter().take_while(|name| !name.starts_with('*'));
            let name = by_position.nth(index);
            let name = name.map_or_else(|| format!("args[{index}]"), String::clone);
            refused.error(&of(), &name, "")
        });
        copies.push(copy?);
    }
    let args = PyTuple::new(py, copies)?;
    let Some(kwargs) = kwargs else {
        return Ok((args, None));
    };
    let copies = PyDict::new(py);
    for (name, value) in kwargs.iter() {
        let told = |refused: by_value::Refused| {
            let name = name
                .cast::<PyString>()
                .map(|name| name.to_string_lossy().into_owned());
            refused.error(&of(), &name.unwrap_or_default(), "")
        };
        let value = copier.copy(&value).map_err(told)?;
        copies.set_item(copier.copy(&name).map_err(told)?, value)?;
    }
    Ok((args, Some(copies)))
}

#[doc = doc!("_tool_arguments")]
#[pyfunction]
#[pyo3(name = "_tool_arguments")]
pub fn tool_arguments<'py>(
    name: &str,
    parameters: Vec<String>,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<(Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>)> {
    copied(|| format!("tool '{name}'"), &parameters, args, Some(kwargs))
}

#[doc = doc!("_tool_result")]
#[pyfunction]
#[pyo3(name = "_tool_result")]
pub fn tool_result<'py>(name: &str, result: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let copy = Copier::default().copy(result);
    copy.map_err(|refused| refused.error(&format!("tool '{name}'"), "its result", ""))
}

#[doc = doc!("_in_tool")]
#[pyfunction]
#[pyo3(name = "_in_tool")]
pub fn in_tool(py: Python<'_>) -> PyResult<bool> {
    Ok(scope::tool_in_force(py)?.is_some())
}

#[doc = doc!("_run_in")]
#[pyfunction]
#[pyo3(name = "_run_in", signature = (context, function, args, kwargs, /))]
pub fn run_in<'py>(
    context: &Bound<'py, PyAny>,
    function: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = context.py();
    let var = scope::var(py)?;
    let guard = raw::context_var_get(py, var)?;
    if !raw::is_context(context) {
        return Err(errors::wrong_type("context", "a Context", context));
    }
    let copy = raw::copy_context(py, Some(context))?;
    let _entered = raw::EnteredContext::new(&copy)?;
    // Nobody else has the copy: the guard stays in it.
    if let Some(guard) = guard {
        raw::context_var_set(var, &guard)?;
    }
    calling::call(function, args, Some(kwargs))
}
