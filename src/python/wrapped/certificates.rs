//! The methods of `ssl.SSLContext` that have OpenSSL read files, made to raise events first.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::replace::{self, wrapped};
use crate::python::guard::scope;
use crate::python::values::errors;
use crate::python::wrapped::kinds::{Raises, Silent};
use crate::python::wrapped::without_event;

pub const MODULE: &str = "_ssl";

wrapped! {
    Chain: Wrapped(Called) => |called| load(called, &LOADS_CHAIN);
    Authorities: Wrapped(Called) => |called| load(called, &LOADS_AUTHORITIES);
    Defaults: Wrapped(Called) => |called| load(called, &LOADS_DEFAULTS);
}

const LOADS_CHAIN: Silent = Silent {
    event: c"open",
    raises: Raises::Reads(&[(0, c"certfile"), (1, c"keyfile")]),
};
const LOADS_AUTHORITIES: Silent = Silent {
    event: c"open",
    raises: Raises::Reads(&[(0, c"cafile"), (1, c"capath")]),
};
const LOADS_DEFAULTS: Silent = Silent {
    event: c"fastaudit.read",
    raises: Raises::ReadsForSystem(defaults),
};

/// The variables that name OpenSSL's file and directory of authorities, each with its default.
type Paths = (OsString, PathBuf, OsString, PathBuf);

static DEFAULT_PATHS: OnceLock<Paths> = OnceLock::new();

/// The file and the directory of authorities that OpenSSL reads if none are named.
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

pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
    // If the module is not ready yet, it will be looked at again.
    let Some(class) = module.attr_opt("_SSLContext")? else {
        return Ok(());
    };
    let class = class.cast_into::<PyType>()?;
    if DEFAULT_PATHS.get().is_none() {
        let paths: Paths = module
            .invoke_method0("get_default_verify_paths")?
            .extract()?;
        // If another thread was first, it found the same.
        drop(DEFAULT_PATHS.set(paths));
    }
    let done = replace::method::<Chain>(&class, "load_cert_chain")?
        && replace::method::<Authorities>(&class, "load_verify_locations")?
        && replace::method::<Defaults>(&class, "set_default_verify_paths")?;
    match done {
        true => Ok(()),
        false => Err(errors::unknown_method("_SSLContext", "a method")),
    }
}

fn load(called: Called<'_>, silent: &Silent) -> Returned {
    match scope::may_be_guarded() {
        true => without_event::call(called, silent),
        false => called.make(),
    }
}
