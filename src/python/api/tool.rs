//! Tools: functions of the host that guarded code may call, and that run with rights of their own.

use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};

use crate::python::api::options;
use crate::python::api::policy::PyPolicy;
use crate::python::api::readers::GivenArguments;
use crate::python::api::supervisor::Held;
use crate::python::api::tool_awaitable::ToolAwaitable;
use crate::python::api::tool_function::{self, Function};
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::guard::tool_rights;
use crate::python::values::by_value::Copier;
use crate::python::values::errors;
use crate::python::wrapped::contextvars;

// The garbage collector is not shown the function: it would show it to everyone.
#[pyclass(frozen, immutable_type, module = "fastaudit_rs")]
pub struct Tool {
    function: Arc<Function>,
    is_async: bool,
    doc: Option<Py<PyAny>>,
    signature: Option<Py<PyAny>>,
    schema: Py<PyAny>,
}

impl Tool {
    fn make(function: &Bound<'_, PyAny>, options: &GivenArguments<'_>) -> PyResult<Self> {
        let py = function.py();
        if !function.is_callable() || function.is_instance_of::<pyo3::types::PyType>() {
            return Err(errors::wrong_type("function", "a function", function));
        }
        let name = match options.some("name") {
            Some(name) => match name.cast::<PyString>() {
                Ok(name) => name.clone(),
                Err(_) => return Err(errors::wrong_type("name", "None or a str", name)),
            },
            None => own_name(function)?,
        };
        let raw = options.flag("raw", false)?;
        raw::audit(py, c"audit_perms.set_config", (&name,))?;
        let inspect = calling::import(py, "inspect")?;
        let is = |what: &str| inspect.invoke_method1(what, (function,))?.truth();
        if is("isasyncgenfunction")? || is("isgeneratorfunction")? {
            return Err(PyTypeError::new_err(
                "a generator function cannot be a tool, as its body runs after the call: return a \
                 list",
            ));
        }
        let config = options.some("policy").map(config_of).transpose()?;
        let signature = read_signature(function)?;
        tool_function::prepare(py)?;
        let prepare = calling::import(py, "fastaudit_rs.sessions.typed")?.attr("prepared")?;
        let prepared = prepare.invoke((function, &name, raw), None)?;
        let (called, before, kinds, schema): (_, Option<_>, Vec<Bound<'_, PyType>>, Py<PyAny>) =
            prepared.extract()?;
        contextvars::install_copies(py)?;
        tool_rights::note_tool();
        let (signature, parameters) = match signature {
            Some((signature, parameters)) => (Some(signature.unbind()), parameters),
            None => (None, vec!["*args".to_owned(), "**kwargs".to_owned()]),
        };
        Ok(Self {
            is_async: is("iscoroutinefunction")?,
            doc: own_doc(function)?,
            signature,
            schema,
            function: Arc::new(Function {
                function: called,
                before,
                kinds: kinds.into_iter().map(Bound::unbind).collect(),
                name: name.unbind(),
                parameters,
                raw,
                config,
            }),
        })
    }
}

fn config_of(policy: &Bound<'_, PyAny>) -> PyResult<Py<AuditCfg>> {
    let Ok(policy) = policy.cast::<PyPolicy>() else {
        return Err(errors::wrong_type("policy", "None or a Policy", policy));
    };
    options::of_policy(&GivenArguments::default(), policy)
}

/// Makes a tool of a function, or a decorator that does: `maker.tool` with these options.
///
/// # Errors
/// `TypeError` for anything but a plain function or a coroutine function; the denial under a guard.
pub fn tool<'py>(
    maker: &Bound<'py, PyAny>,
    function: Option<&Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = maker.py();
    let no_more = PyTuple::empty(py);
    let given =
        GivenArguments::read("Policy.tool", &["name", "policy", "raw"], 0, &no_more, options)?;
    match function {
        Some(function) => Ok(Bound::new(py, Tool::make(function, &given)?)?.into_any()),
        None => {
            let partial = calling::import(py, "functools")?.attr("partial")?;
            partial.invoke((maker.attr("tool")?,), options)
        }
    }
}

#[pymethods]
impl Tool {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, tool) = (slf.py(), &slf.get().function);
        let (args, kwargs) = tool.given(args, kwargs)?;
        let rights = tool.rights(py)?;
        if slf.get().is_async {
            let awaitable = ToolAwaitable::new(Arc::clone(tool), args, kwargs, rights);
            return Ok(Bound::new(py, awaitable)?.into_any());
        }
        let call = || calling::call(tool.function.bind(py), &args, kwargs.as_ref());
        let Some(mut rights) = rights else {
            let result = call().and_then(|result| tool.handed_over(tool.result(result)?));
            return result.map_err(|error| {
                tool_function::settle(tool, py, &error);
                tool_function::raised(tool, py, error)
            });
        };
        let held = Held::here(py);
        let result = rights.begin(py).and_then(|()| {
            let result = call().and_then(|result| tool.result(result));
            // Frames of the host end with its rights.
            result.inspect_err(|error| tool_function::settle(tool, py, error))
        });
        rights.finish(py);
        if let Some(held) = held {
            held.release(py);
        }
        let result = result.and_then(|returned| tool.handed_over(returned));
        result.map_err(|error| tool_function::raised(tool, py, error))
    }

    #[getter]
    fn __name__(&self, py: Python<'_>) -> Py<PyString> {
        self.function.name.clone_ref(py)
    }

    #[getter]
    fn __qualname__(&self, py: Python<'_>) -> Py<PyString> {
        self.function.name.clone_ref(py)
    }

    #[classattr]
    fn __doc__() -> Text {
        Text
    }

    #[getter]
    fn __signature__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let signature = self.signature.as_ref();
        let copy = signature.map(|signature| signature.bind(py).invoke_method0("replace"));
        copy.transpose()
    }

    #[doc = doc!("Tool.schema")]
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let copy = Copier::default().copy(self.schema.bind(py));
        copy.map_err(|refused| refused.error("schema", "it"))
    }

    #[doc = doc!("Tool._is_async")]
    #[getter(_is_async)]
    fn is_async(&self) -> bool {
        self.is_async
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let name = self.function.name.bind(py).to_string_lossy();
        format!("<tool {name}({})>", self.function.parameters.join(", "))
    }
}

/// The `__doc__` of the class, and of its instances that of their functions.
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_ToolText")]
pub struct Text;

#[pymethods]
impl Text {
    fn __get__(
        &self,
        py: Python<'_>,
        tool: Option<&Bound<'_, Tool>>,
        _class: Option<&Bound<'_, PyAny>>,
    ) -> Option<Py<PyAny>> {
        match tool {
            Some(tool) => tool.get().doc.as_ref().map(|doc| doc.clone_ref(py)),
            None => Some(PyString::new(py, doc!("Tool")).into_any().unbind()),
        }
    }
}

// A tool's name, text and signature: data, which lead to no object of the host.

/// The name of a function.
///
/// # Errors
/// `TypeError` if it has none.
pub fn own_name<'py>(function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let name = function.attr_opt("__name__")?;
    let name = name.and_then(|name| name.cast_into::<PyString>().ok());
    name.ok_or_else(|| {
        PyTypeError::new_err(format!(
            "function is a {} without a __name__: write tool(function, name=\"...\")",
            errors::type_name(function)
        ))
    })
}

pub fn own_doc(function: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    let text = function.attr_opt("__doc__")?;
    let text = text.filter(|text| text.is_instance_of::<PyString>());
    Ok(text.map(Bound::unbind))
}

/// The signature of a function, and the names of its parameters; `None` if it is not known.
pub fn read_signature<'py>(
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
    for parameter in signature.attr("parameters")?.invoke_method0("values")?.iterate()? {
        let parameter = parameter?;
        let default = parameter.attr("default")?;
        let default = match default.is(&empty) {
            true => default,
            // The text of any other object says no more than that there is one.
            false => {
                Copier::default().copy(&default).unwrap_or_else(|_| py.Ellipsis().into_bound(py))
            }
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
