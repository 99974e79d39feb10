//! SQL statements that open databases by themselves, or say where temporary ones are: `sqlite3` raises no event for them, and SQLite
//! asks nobody. Under a guard each raises `sqlite3.attach` first, also on a connection that was
//! open before.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple, PyType};

use crate::policy::sql::statements::{OpenedDatabase, may_open, opened, opened_unrun};
use crate::python::cpython::called::{Called, CalledByTuple, Returned};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::replace::{self, wrapped};
use crate::python::cpython::slots::Slot;
use crate::python::guard::scope;
use crate::python::values::errors::unknown_method;

pub const MODULE: &str = "_sqlite3";

wrapped! {
    Connection: Wrapped(Called) => run;
    ConnectionScript: Wrapped(Called) => run;
    Cursor: Wrapped(Called) => run;
    CursorScript: Wrapped(Called) => run;
}

wrapped! {
    // `connection(sql)` has SQLite read a statement; `executemany` calls it too.
    Statement: WrappedByTuple(CalledByTuple) => read;
}

pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
    type Method = (
        &'static str,
        &'static str,
        fn(&Bound<'_, PyType>, &str) -> PyResult<bool>,
    );
    const METHODS: [Method; 4] = [
        ("Connection", "execute", replace::method::<Connection>),
        (
            "Connection",
            "executescript",
            replace::method::<ConnectionScript>,
        ),
        ("Cursor", "execute", replace::method::<Cursor>),
        ("Cursor", "executescript", replace::method::<CursorScript>),
    ];
    if let Some(connection) = module.attr_opt("Connection")? {
        replace::slot::<Statement>(&connection.cast_into()?, Slot::Call)?;
    }
    for (class, name, replace) in METHODS {
        // If the module is not ready yet, it will be looked at again.
        if let Some(found) = module.attr_opt(class)? {
            let found = found.cast_into::<PyType>()?;
            if !replace(&found, name)? {
                return Err(unknown_method(class, name));
            }
        }
    }
    Ok(())
}

fn run(called: Called<'_>) -> Returned {
    if !scope::may_be_guarded() || called.arguments.positional() == 0 {
        return called.make();
    }
    let asked = called.ours(|py| {
        let parameters = called.arguments.find(py, 1, None);
        ask(&called.arguments.at(py, 0), parameters.as_ref(), opened)
    });
    match asked {
        Some(()) => called.make(),
        None => Returned::failed(),
    }
}

fn read(called: CalledByTuple<'_>) -> Returned {
    if !scope::may_be_guarded() {
        return called.make();
    }
    let asked = called.ours(|_| match called.args().get_item(0) {
        Ok(sql) => ask(&sql, None, opened_unrun),
        Err(_) => Ok(()),
    });
    match asked {
        Some(()) => called.make(),
        None => Returned::failed(),
    }
}

/// Asks about a statement; one that is not text is an error of its own.
fn ask(
    sql: &Bound<'_, PyAny>,
    parameters: Option<&Bound<'_, PyAny>>,
    opened: fn(&[u8]) -> Vec<OpenedDatabase>,
) -> PyResult<()> {
    match sql.cast::<PyString>() {
        Ok(sql) => raise(sql, parameters, opened),
        Err(_) => Ok(()),
    }
}

fn raise(
    sql: &Bound<'_, PyString>,
    parameters: Option<&Bound<'_, PyAny>>,
    opened: fn(&[u8]) -> Vec<OpenedDatabase>,
) -> PyResult<()> {
    let py = sql.py();
    let text = raw::fs_encode(sql.as_borrowed())?;
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
        raw::audit(py, c"sqlite3.attach", &[&name, sql.as_any()])?;
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
