//! SQL statements that open databases by themselves, or say where temporary ones are: `sqlite3`
//! raises no event for them, and SQLite asks nobody. Under a guard each raises `sqlite3.attach`
//! first, also on a connection that was open before.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple, PyType};

use crate::policy::sql::{OpenedDatabase, may_open, opened, opened_unrun};
use crate::python::cpython::called::{Called, CalledByTuple, Returned};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::replace;
use crate::python::cpython::slots::Slot;
use crate::python::guard::scope;
use crate::python::wrapped::kinds::known;

pub fn install_connection(_module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    // `connection(sql)` has SQLite read a statement; `executemany` calls it too.
    replace::wrap_slot!(class, Slot::Call, read)?;
    let name = "Connection";
    known(
        name,
        "execute",
        replace::wrap_method!(class, "execute", run)?,
    )?;
    known(
        name,
        "executescript",
        replace::wrap_method!(class, "executescript", run)?,
    )
}

pub fn install_cursor(_module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    let name = "Cursor";
    known(
        name,
        "execute",
        replace::wrap_method!(class, "execute", run)?,
    )?;
    known(
        name,
        "executescript",
        replace::wrap_method!(class, "executescript", run)?,
    )
}

fn run(called: Called<'_>) -> Returned {
    if !scope::may_be_guarded() || called.arguments.positional() == 0 {
        return called.make();
    }
    called.make_if(|py| {
        let parameters = called.arguments.find(py, 1, None);
        raise(&called.arguments.at(py, 0), parameters.as_ref(), opened)
    })
}

fn read(called: CalledByTuple<'_>) -> Returned {
    if !scope::may_be_guarded() {
        return called.make();
    }
    called.make_if(|_| match called.args().get_item(0) {
        Ok(sql) => raise(&sql, None, opened_unrun),
        Err(_) => Ok(()),
    })
}

/// Raises an event for each database that the statements open; none for what is not text.
fn raise(
    sql: &Bound<'_, PyAny>,
    parameters: Option<&Bound<'_, PyAny>>,
    opened: fn(&[u8]) -> Vec<OpenedDatabase>,
) -> PyResult<()> {
    let py = sql.py();
    let Ok(text) = sql.cast::<PyString>() else {
        return Ok(());
    };
    let text = raw::fs_encode(text.as_borrowed())?;
    if !may_open(text.as_bytes()) {
        return Ok(());
    }
    for opened in opened(text.as_bytes()) {
        let name = match opened {
            OpenedDatabase::Named(name) => raw::fs_decode(py, &name)?.into_any(),
            OpenedDatabase::Parameter => parameters
                .and_then(only)
                .unwrap_or_else(|| py.None().into_bound(py)),
            OpenedDatabase::Unknown => py.None().into_bound(py),
        };
        raw::audit(py, c"sqlite3.attach", &[&name, sql])?;
    }
    Ok(())
}

/// The first parameter of a statement, if it is a text that cannot be another later.
fn only<'py>(parameters: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let first = match parameters.cast_exact::<PyTuple>() {
        Ok(parameters) => parameters.get_item(0).ok()?,
        Err(_) => parameters.cast_exact::<PyList>().ok()?.get_item(0).ok()?,
    };
    let is_text =
        first.is_exact_instance_of::<PyString>() || first.is_exact_instance_of::<PyBytes>();
    is_text.then_some(first)
}
