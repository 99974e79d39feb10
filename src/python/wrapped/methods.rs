//! Methods of native classes that act without an audit event of CPython's: under a guard each
//! raises one first.

use std::ffi::{CStr, OsString};
use std::path::PathBuf;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple, PyType};

use crate::policy::sql::{OpenedDatabase, may_open, opened, opened_unrun};
use crate::python::callees::caller;
use crate::python::cpython::called::{Called, CalledByTuple, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::cpython::slots::Slot;
use crate::python::cpython::{ffi as raw, frames, replace};
use crate::python::guard::scope;
use crate::python::values::errors;
use crate::python::wrapped::without_event::{self, Raises, Silent};

/// An error unless a method that has to be replaced was.
pub fn known(class: &str, method: &str, is_replaced: bool) -> PyResult<()> {
    match is_replaced {
        true => Ok(()),
        false => Err(errors::unknown_method(class, method)),
    }
}

// SQL statements that open databases by themselves, or say where temporary ones are: `sqlite3`
// raises no event for them, and SQLite asks nobody. Under a guard each raises `sqlite3.attach`
// first, also on a connection that was open before.

pub fn install_connection(_module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    // `connection(sql)` has SQLite read a statement; `executemany` calls it too.
    replace::wrap_slot!(class, Slot::Call, read)?;
    let name = "Connection";
    known(name, "execute", replace::wrap_method!(class, "execute", run)?)?;
    known(name, "executescript", replace::wrap_method!(class, "executescript", run)?)
}

pub fn install_cursor(_module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    let name = "Cursor";
    known(name, "execute", replace::wrap_method!(class, "execute", run)?)?;
    known(name, "executescript", replace::wrap_method!(class, "executescript", run)?)
}

fn run(called: Called<'_>) -> Returned {
    let matters = scope::may_be_guarded() && called.arguments.positional() > 0;
    called.make_if(matters, |py| {
        let parameters = called.arguments.find(py, 1, None);
        raise(&called.arguments.at(py, 0), parameters.as_ref(), opened)
    })
}

fn read(called: CalledByTuple<'_>) -> Returned {
    called.make_if(scope::may_be_guarded(), |_| match called.args().get_item(0) {
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
            OpenedDatabase::Parameter => {
                parameters.and_then(only).unwrap_or_else(|| py.None().into_bound(py))
            }
            OpenedDatabase::Unknown => py.None().into_bound(py),
        };
        raw::audit(py, c"sqlite3.attach", (&name, sql))?;
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

// Functions of native libraries that `ctypes` found before a guard began: CPython raises events
// for finding one, not for calling it. Under a guard a call raises `fastaudit.call` first, like
// that of a native module.

pub fn install_ctypes(_module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    // Each library has a class of its own, which took over the call when it was made.
    replace::wrap_slot!(class, Slot::Call, call)
}

fn call(called: CalledByTuple<'_>) -> Returned {
    called.make_if(scope::may_be_guarded(), |_| raise_call(&called.receiver()))
}

/// Raises the event: the caller, and `ctypes.` with the function's name.
fn raise_call(function: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = function.py();
    let name = calling::getattr_opt(function, intern!(py, "__name__"))?;
    let name = name.and_then(|name| name.cast_into::<PyString>().ok());
    let name = name.map_or_else(|| "function".into(), |name| name.to_string_lossy().into_owned());
    let caller = match frames::current_frame(py) {
        Some(frame) => caller::name(&frames::code(&frame))?,
        None => PyString::new(py, ""),
    };
    raw::audit(py, c"fastaudit.call", (caller, format!("ctypes.{name}")))
}

// The methods of `ssl.SSLContext` that have OpenSSL read files, made to raise events first.

/// The variables that name OpenSSL's file and directory of authorities, each with its default.
type Paths = (OsString, PathBuf, OsString, PathBuf);

static DEFAULT_PATHS: OnceLock<Paths> = OnceLock::new();

fn defaults() -> Vec<PathBuf> {
    let Some((file_by, file, places_by, places)) = DEFAULT_PATHS.get() else {
        return Vec::new();
    };
    let mut all = vec![std::env::var_os(file_by).map_or_else(|| file.clone(), PathBuf::from)];
    match std::env::var_os(places_by) {
        Some(named) => all.extend(std::env::split_paths(&named)),
        None => all.push(places.clone()),
    }
    all
}

pub fn install_certificates(module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    if DEFAULT_PATHS.get().is_none() {
        let paths: Paths = module.invoke_method0("get_default_verify_paths")?.extract()?;
        // If another thread was first, it found the same.
        drop(DEFAULT_PATHS.set(paths));
    }
    let chain = replace::wrap_method!(class, "load_cert_chain", |called| {
        load(called, c"open", Raises::Reads(&[(0, c"certfile"), (1, c"keyfile")]))
    })?;
    let authorities = replace::wrap_method!(class, "load_verify_locations", |called| {
        load(called, c"open", Raises::Reads(&[(0, c"cafile"), (1, c"capath")]))
    })?;
    let usual = replace::wrap_method!(class, "set_default_verify_paths", |called| {
        load(called, c"fastaudit.read", Raises::ReadsForSystem(defaults))
    })?;
    known("_SSLContext", "a method", chain && authorities && usual)
}

fn load(called: Called<'_>, event: &'static CStr, raises: Raises) -> Returned {
    without_event::call(called, &Silent { event, raises })
}
