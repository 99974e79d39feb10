//! The function behind a tool, and its arguments and results, by value.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::{Once, intern};
use crate::python::cpython::{ffi as raw, objects};
use crate::python::denials::denial::{self, Denial};
use crate::python::guard::scope;
use crate::python::guard::tool_scope::Rights;
use crate::python::values::by_value::{self, Copier};
use crate::python::values::errors;

/// The module that hands over what is no plain data, and its functions: they make anew what a caller
/// passes, what the host returns becomes data, and these are made anew.
const VALUES: &str = "fastaudit_rs.sessions.tool_values";
static PASSED: Once<Py<PyAny>> = Once::new();
static AS_DATA: Once<Py<PyAny>> = Once::new();
static HANDED_OVER: Once<Py<PyAny>> = Once::new();

fn of_values<'py>(
    py: Python<'py>,
    kept: &'static Once<Py<PyAny>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    let function = kept
        .get_or_try_init(py, || PyResult::Ok(calling::import(py, VALUES)?.attr(name)?.unbind()));
    Ok(function?.bind(py))
}

/// Makes data of the host's own objects. Nothing that a guest can import leads to it.
fn as_data(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    let function = AS_DATA.get_or_try_init(py, || {
        PyResult::Ok(calling::import(py, VALUES)?.invoke_method0("as_data_maker")?.unbind())
    });
    Ok(function?.bind(py))
}

pub struct Function {
    pub function: Py<PyAny>,
    /// Makes of arguments what its annotations name, with the rights of the code that calls it.
    pub before: Option<Py<PyAny>>,
    /// The classes of arguments by position that need none of it; `object` for any.
    pub kinds: Vec<Py<PyType>>,
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

    /// The arguments that the function gets. Code of the guest may run: it is guarded.
    ///
    /// # Errors
    /// `TypeError` for objects that cannot be passed by value, `ValueError` for too much.
    pub fn given<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Copies<'py>> {
        let (args, kwargs) = self.passed(args, kwargs)?;
        let Some(before) = &self.before else {
            return Ok((args, kwargs));
        };
        let py = args.py();
        if kwargs.is_none() && self.are_as_named(&args) {
            return Ok((args, None));
        }
        let kwargs = kwargs.unwrap_or_else(|| PyDict::new(py));
        before.bind(py).invoke((args, kwargs), None)?.extract()
    }

    fn are_as_named(&self, args: &Bound<'_, PyTuple>) -> bool {
        let any = args.py().get_type::<PyAny>();
        args.len() <= self.kinds.len()
            && args
                .as_slice()
                .iter()
                .zip(&self.kinds)
                .all(|(arg, kind)| kind.is(&any) || arg.get_type().is(kind))
    }

    fn passed<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Copies<'py>> {
        let py = args.py();
        if self.raw || (kwargs.is_none() && by_value::are_constant(args)) {
            return Ok((args.clone(), kwargs.cloned()));
        }
        match copied(args, kwargs) {
            Ok(copies) => Ok(copies),
            Err((refused, _)) if refused.is_of_class() => {
                let pass = of_values(py, &PASSED, "passed")?;
                let kwargs = kwargs.map_or_else(|| PyDict::new(py), Bound::clone);
                let passed = pass.invoke((&self.name, &self.parameters, args, kwargs), None)?;
                Ok(passed.extract()?)
            }
            Err((refused, at)) => Err(refused.error(&self.told(py), &self.told_place(at))),
        }
    }

    fn told_place(&self, at: Place) -> String {
        match at {
            Place::Position(index) => {
                let mut by_position =
                    self.parameters.iter().take_while(|name| !name.starts_with('*'));
                by_position.nth(index).map_or_else(|| format!("args[{index}]"), String::clone)
            }
            Place::Name(name) => name,
        }
    }

    /// The result, while the tool has its rights: the host's own objects become data.
    pub fn result<'py>(&self, result: Bound<'py, PyAny>) -> PyResult<ToolResult<'py>> {
        if self.raw {
            return Ok(ToolResult::Value(result));
        }
        let py = result.py();
        match Copier::default().copy(&result) {
            Err(refused) if refused.is_of_class() => {
                let data = as_data(py)?.invoke((&self.name, result), None)?;
                Ok(ToolResult::Data(data))
            }
            copy => {
                let copy = copy.map_err(|refused| refused.error(&self.told(py), "its result"))?;
                Ok(ToolResult::Value(copy))
            }
        }
    }

    /// The result that the caller gets, once the rights of the tool have ended: what makes it anew is
    /// Python code, which the guest may have replaced.
    ///
    /// # Errors
    /// `TypeError` for objects that cannot be passed by value, `ValueError` for too much.
    pub fn handed_over<'py>(&self, returned: ToolResult<'py>) -> PyResult<Bound<'py, PyAny>> {
        match returned {
            ToolResult::Value(value) => Ok(value),
            ToolResult::Data(data) => {
                let py = data.py();
                of_values(py, &HANDED_OVER, "handed_over")?.invoke((&self.name, data), None)
            }
        }
    }
}

/// What a function returned.
pub enum ToolResult<'py> {
    Value(Bound<'py, PyAny>),
    /// Data that are not plain, and not copied yet.
    Data(Bound<'py, PyAny>),
}

/// The place of an argument.
enum Place {
    Position(usize),
    Name(String),
}

pub type Copies<'py> = (Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>);

/// Copies of arguments, if they are plain data.
fn copied<'py>(
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> Result<Copies<'py>, (by_value::NotCopied, Place)> {
    let py = args.py();
    let mut copier = Copier::default();
    let mut copies = Vec::with_capacity(args.len());
    for (index, arg) in args.iter().enumerate() {
        let copy = copier.copy(&arg);
        copies.push(copy.map_err(|refused| (refused, Place::Position(index)))?);
    }
    let failed = |error: PyErr| (error.into(), Place::Position(0));
    let args = PyTuple::new(py, copies).map_err(failed)?;
    let Some(kwargs) = kwargs else {
        return Ok((args, None));
    };
    let copies = PyDict::new(py);
    for (name, value) in kwargs.iter() {
        let told = |refused: by_value::NotCopied| {
            let name = name.cast::<PyString>().map(|name| name.to_string_lossy().into_owned());
            (refused, Place::Name(name.unwrap_or_default()))
        };
        let value = copier.copy(&value).map_err(told)?;
        copies.set_item(copier.copy(&name).map_err(told)?, value).map_err(failed)?;
    }
    Ok((args, Some(copies)))
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

// Errors of a tool, as the code that called it gets them: data, and no frames or objects of the host.

/// The class of errors that are not Python's own.
static TOOL_ERROR: Once<Py<PyType>> = Once::new();

/// The logger that gets the errors as they are.
const LOGGER: &str = "fastaudit_rs.tools";

pub fn prepare(py: Python<'_>) -> PyResult<()> {
    denial::prepare(py)?;
    // Before any code of a guest runs.
    of_values(py, &PASSED, "passed")?;
    as_data(py)?;
    of_values(py, &HANDED_OVER, "handed_over")?;
    class(py).map(|_| ())
}

pub fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    calling::class_of_package(py, &TOOL_ERROR, "fastaudit_rs.denied", "ToolError")
}

/// Logs an error, and lets go of the frames that it came through, while the tool has its rights.
pub fn settle(tool: &Function, py: Python<'_>, error: &PyErr) {
    let _ = log(tool, py, error);
    let traceback = error.traceback(py);
    if let (Some(denial), Some(traceback)) = (denial_of(error, py), &traceback) {
        let _ = denial.get().chain_of(traceback.as_any());
    }
    error.set_traceback(py, None);
}

fn log(tool: &Function, py: Python<'_>, error: &PyErr) -> PyResult<()> {
    let Some(logging) = raw::imported_module(py, intern!(py, "logging"))? else {
        return Ok(());
    };
    let logger = logging.invoke_method1("getLogger", (LOGGER,))?;
    let options = PyDict::new(py);
    // Before 3.12 the exception itself does not know the traceback yet.
    let told = (error.get_type(py), error.value(py), error.traceback(py));
    options.set_item("exc_info", told)?;
    let debug = logger.attr("debug")?;
    let args = ("tool %s raised", &tool.name).into_pyobject(py)?;
    calling::call(&debug, &args, Some(&options)).map(|_| ())
}

fn denial_of<'py>(error: &PyErr, py: Python<'py>) -> Option<Bound<'py, Denial>> {
    let class = error.get_type(py);
    let is_own =
        [denial::class(py), denial::violation(py)].into_iter().flatten().any(|own| class.is(own));
    if !is_own {
        return None;
    }
    let denial = error.value(py).attr(intern!(py, "_denial")).ok()?;
    denial.cast_into().ok()
}

/// The error that the code that called a tool gets. Code of the error's class runs with the rights of
/// that code.
pub fn raised(tool: &Function, py: Python<'_>, error: PyErr) -> PyErr {
    if tool.raw {
        return error;
    }
    handed_over(tool, py, &error).unwrap_or_else(|failed| failed)
}

/// An error as data.
pub fn handed_over(tool: &Function, py: Python<'_>, error: &PyErr) -> PyResult<PyErr> {
    if let Some(denial) = denial_of(error, py) {
        return Ok(PyErr::from_value(denial::exception(&denial)?));
    }
    let (class, value) = (error.get_type(py), error.value(py));
    if (objects::is_static(&class) || is_cancellation(&class))
        && let Some(args) = arguments(value.as_any())?
    {
        return Ok(PyErr::from_value(class.invoke1(args)?));
    }
    let own = self::class(py)?;
    let make = |args: Bound<'_, PyTuple>, kind: Bound<'_, PyString>| -> PyResult<PyErr> {
        let error = own.invoke1(args)?;
        error.set_attr("tool", &tool.name)?;
        error.set_attr("kind", kind)?;
        Ok(PyErr::from_value(error))
    };
    if class.is(own)
        && let (Some(args), Ok(kind)) =
            (arguments(value.as_any())?, value.attr("kind")?.cast_into_exact::<PyString>())
    {
        // That of another tool, or of this one as it is awaited.
        return make(args, kind);
    }
    let short = raw::class_name(value.as_any());
    let text = value.text();
    let text = text.map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned());
    let message = match text.is_empty() {
        true => short,
        false => format!("{short}: {text}"),
    };
    make((message,).into_pyobject(py)?, PyString::new(py, &qualified_name(&class)?))
}

/// The arguments to make an exception of one of Python's own classes anew; `None` if they are not data.
fn arguments<'py>(error: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let py = error.py();
    let mut args = error.attr("args")?.cast_into::<PyTuple>()?;
    if error.is_instance_of::<PyOSError>() && args.len() == 2 {
        let (one, other) = (error.attr("filename")?, error.attr("filename2")?);
        if !one.is_none() {
            let more = PyTuple::new(py, [one, py.None().into_bound(py), other])?;
            args = args.as_sequence().concat(more.as_sequence())?.to_tuple()?;
        }
    }
    let Ok(args) = Copier::default().copy(args.as_any()) else {
        return Ok(None);
    };
    Ok(args.cast_into().ok())
}

/// Returns whether it is the class by which a task is cancelled.
fn is_cancellation(class: &Bound<'_, PyType>) -> bool {
    let py = class.py();
    let own = || -> PyResult<bool> {
        let module = raw::imported_module(py, intern!(py, "asyncio.exceptions"))?;
        let Some(module) = module else {
            return Ok(false);
        };
        Ok(module.attr("CancelledError")?.is(class))
    };
    own().unwrap_or(false)
}

fn qualified_name(class: &Bound<'_, PyType>) -> PyResult<String> {
    let text = |name: &str| -> PyResult<String> {
        let text = class.attr(name)?;
        Ok(text.cast::<PyString>()?.to_string_lossy().into_owned())
    };
    let own = text("__qualname__")?;
    Ok(match text("__module__") {
        Ok(module) if module != "builtins" && module != "__main__" => format!("{module}.{own}"),
        _ => own,
    })
}
