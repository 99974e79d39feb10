//! The methods of `ssl.SSLContext` that have OpenSSL read files, made to raise events first.

use std::ffi::{CStr, OsString};
use std::path::PathBuf;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::replace;
use crate::python::guard::scope;
use crate::python::wrapped::kinds::{Raises, Silent, known};
use crate::python::wrapped::without_event;

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

pub fn install(module: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<()> {
    if DEFAULT_PATHS.get().is_none() {
        let paths: Paths = module
            .invoke_method0("get_default_verify_paths")?
            .extract()?;
        // If another thread was first, it found the same.
        drop(DEFAULT_PATHS.set(paths));
    }
    let chain = replace::wrap_method!(class, "load_cert_chain", |called| {
        reads(called, &[(0, c"certfile"), (1, c"keyfile")])
    })?;
    let authorities = replace::wrap_method!(class, "load_verify_locations", |called| {
        reads(called, &[(0, c"cafile"), (1, c"capath")])
    })?;
    let usual = replace::wrap_method!(class, "set_default_verify_paths", |called| {
        load(called, c"fastaudit.read", Raises::ReadsForSystem(defaults))
    })?;
    known("_SSLContext", "a method", chain && authorities && usual)
}

fn reads(called: Called<'_>, files: &'static [(usize, &'static CStr)]) -> Returned {
    load(called, c"open", Raises::Reads(files))
}

fn load(called: Called<'_>, event: &'static CStr, raises: Raises) -> Returned {
    match scope::may_be_guarded() {
        true => without_event::call(called, &Silent { event, raises }),
        false => called.make(),
    }
}
