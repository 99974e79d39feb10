//! Installs the hook and everything that belongs to it, once for the process.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::calls::monitor;
use crate::python::cpython::forks;
use crate::python::denials::denial;
use crate::python::events::hook;
use crate::python::excuses::handlers;
use crate::python::excuses::variables;
use crate::python::guard::scope;
use crate::python::guard::sealed;
use crate::python::guard::turns::{self, Turns};
#[cfg(unix)]
use crate::python::guard::workers;
use crate::python::values::stdlib;
use crate::python::values::with_statement;
use crate::python::wrapped::callbacks_later;
use crate::python::wrapped::contextvars;
use crate::python::wrapped::table;

/// Makes and lists the native classes.
pub type Classes = for<'py> fn(Python<'py>) -> PyResult<Vec<Bound<'py, PyType>>>;

static CLASSES: OnceLock<Classes> = OnceLock::new();

/// Says which classes are to be sealed.
pub fn know_classes(classes: Classes) {
    let _ = CLASSES.set(classes);
}

/// Installs them.
///
/// # Errors
/// `RuntimeError` if another hook refuses ours. Nothing is installed then.
pub fn install(py: Python<'_>) -> PyResult<()> {
    turns::set(Turns {
        first_begins: |py| handlers::take_note(py, true),
        last_ended: |py| handlers::take_note(py, false),
        left: variables::put_back,
        watch: monitor::watch,
        unwatch: monitor::unwatch,
    });
    hook::install(py, prepare, wrap)
}

fn prepare(py: Python<'_>) -> PyResult<()> {
    scope::install(py)?;
    forks::install(py)?;
    stdlib::prepare(py)?;
    callbacks_later::prepare(py)?;
    variables::prepare(py)?;
    with_statement::prepare(py)?;
    denial::prepare(py)?;
    match CLASSES.get() {
        Some(classes) => sealed::install(py, classes(py)?),
        None => Ok(()),
    }
}

fn wrap(py: Python<'_>) -> PyResult<()> {
    #[cfg(unix)]
    workers::prepare(py)?;
    table::install(py)?;
    contextvars::install(py)
}
