//! A call of an asynchronous tool. Each step of its coroutine runs with the tool's rights, which rest
//! meanwhile.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::python::api::tool_function::{self, Function, ToolResult};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::{intern, lock};
use crate::python::guard::tool_scope::Rights;

/// A call of an asynchronous tool.
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_ToolAwaitable")]
pub struct ToolAwaitable {
    tool: Arc<Function>,
    state: Mutex<State>,
}

enum State {
    /// It has not begun.
    Given(Py<PyTuple>, Option<Py<PyDict>>, Option<Rights>),
    /// It rests.
    Suspended(Py<PyAny>, Option<Rights>),
    Running,
    Over,
}

enum Step<'py> {
    Send(Bound<'py, PyAny>),
    Throw(PyErr),
    Close,
}

impl ToolAwaitable {
    pub fn new(
        tool: Arc<Function>,
        args: Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
        rights: Option<Rights>,
    ) -> Self {
        let state = State::Given(args.unbind(), kwargs.map(Bound::unbind), rights);
        Self { tool, state: Mutex::new(state) }
    }

    fn set(&self, state: State) {
        let before = std::mem::replace(&mut *lock(&self.state), state);
        // The lock is free again: this may run code.
        drop(before);
    }

    fn step<'py>(&self, py: Python<'py>, step: Step<'py>) -> PyResult<Bound<'py, PyAny>> {
        let tool = &*self.tool;
        let before = std::mem::replace(&mut *lock(&self.state), State::Running);
        let wrong = |state, text: &str| {
            self.set(state);
            let text = format!("{}: {text}", tool.told(py));
            Err(PyRuntimeError::new_err(text))
        };
        let (coroutine, given, mut rights) = match before {
            State::Given(args, kwargs, rights) => (None, Some((args, kwargs)), rights),
            State::Suspended(coroutine, rights) => (Some(coroutine), None, rights),
            State::Running => return wrong(State::Running, "its call is being awaited already"),
            State::Over if matches!(step, Step::Close) => {
                self.set(State::Over);
                return Ok(py.None().into_bound(py));
            }
            State::Over => return wrong(State::Over, "its call was awaited already"),
        };
        let is_closing = matches!(step, Step::Close);
        let mut kept = coroutine;
        let mut run = || -> PyResult<Bound<'py, PyAny>> {
            if let Some((args, kwargs)) = &given {
                match &step {
                    Step::Send(_) => {}
                    // Nothing of it has run.
                    Step::Throw(error) => return Err(error.clone_ref(py)),
                    Step::Close => return Ok(py.None().into_bound(py)),
                }
                let kwargs = kwargs.as_ref().map(|kwargs| kwargs.bind(py));
                let made = calling::call(tool.function.bind(py), args.bind(py), kwargs)?;
                kept = Some(made.unbind());
            }
            let Some(coroutine) = &kept else {
                return Err(PyRuntimeError::new_err("no coroutine"));
            };
            advance(coroutine.bind(py), &step)
        };
        let began = match &mut rights {
            Some(rights) => rights.begin(py),
            None => Ok(()),
        };
        let result = began.and_then(|()| run());
        let is_over = result.is_err() || is_closing;
        let result = match result {
            Ok(yielded) => Ok(yielded),
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                let value = error.value(py).attr(intern!(py, "value"))?;
                match tool.result(value) {
                    Ok(returned) => Err(Ended::With(returned)),
                    Err(error) => Err(Ended::By(error)),
                }
            }
            Err(error) => {
                tool_function::settle(tool, py, &error);
                Err(Ended::By(error))
            }
        };
        let rests = match &mut rights {
            Some(rights) if is_over => {
                rights.finish(py);
                Ok(())
            }
            Some(rights) => rights.suspend(py),
            None => Ok(()),
        };
        match (is_over, kept) {
            (false, Some(coroutine)) => self.set(State::Suspended(coroutine, rights)),
            _ => self.set(State::Over),
        }
        rests?;
        match result {
            Ok(yielded) => Ok(yielded),
            Err(Ended::With(returned)) => match tool.handed_over(returned) {
                Ok(value) => Err(PyStopIteration::new_err((value.unbind(),))),
                Err(error) => Err(tool_function::raised(tool, py, error)),
            },
            Err(Ended::By(error)) => Err(tool_function::raised(tool, py, error)),
        }
    }
}

enum Ended<'py> {
    With(ToolResult<'py>),
    By(PyErr),
}

fn advance<'py>(coroutine: &Bound<'py, PyAny>, step: &Step<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = coroutine.py();
    let call = |name: &str, args: Bound<'py, PyTuple>| {
        let method = coroutine.attr(name)?;
        calling::call(&method, &args, None)
    };
    match step {
        Step::Send(value) => call("send", PyTuple::new(py, [value])?),
        Step::Throw(error) => call("throw", PyTuple::new(py, [error.value(py)])?),
        Step::Close => call("close", PyTuple::empty(py)),
    }
}

#[pymethods]
impl ToolAwaitable {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py, Step::Send(py.None().into_bound(py)))
    }

    fn send<'py>(&self, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = value.py();
        let tool = &*self.tool;
        let value = match tool.raw {
            true => value,
            false => py.None().into_bound(py),
        };
        self.step(py, Step::Send(value))
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    #[expect(unused_variables, reason = "the protocol of coroutines passes it")]
    fn throw<'py>(
        &self,
        py: Python<'py>,
        kind: Bound<'py, PyAny>,
        value: Option<Bound<'py, PyAny>>,
        traceback: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let error = match value.filter(|value| raw::is_exception(value)) {
            Some(value) => value,
            None => kind,
        };
        let error = PyErr::from_value(error);
        let tool = &*self.tool;
        let error = match tool.raw {
            true => error,
            false => tool_function::handed_over(tool, py, &error)?,
        };
        self.step(py, Step::Throw(error))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.step(py, Step::Close).map(|_| ())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<call of {}>", self.tool.told(py))
    }
}

impl Drop for ToolAwaitable {
    /// A call that was begun and is not waited for any more is closed, with the rights of the tool.
    fn drop(&mut self) {
        if !matches!(&*lock(&self.state), State::Suspended(..)) {
            return;
        }
        Python::attach(|py| {
            if raw::is_finalizing() {
                return;
            }
            raw::beside_pending(py, || {
                if let Err(error) = self.step(py, Step::Close) {
                    calling::write_unraisable(py, error);
                }
            });
        });
    }
}
