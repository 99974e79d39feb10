//! The methods of `ssl.SSLContext` that have OpenSSL read files, made to raise events first.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::arguments::Arguments;
use crate::python::cpython::functions::{KEYWORDS, Keywords, Method};
use crate::python::guard::scope;
use crate::python::values::errors;
use crate::python::wrapped::kinds::{Raises, Silent};
use crate::python::wrapped::without_event;

/// The module of the class.
pub const MODULE: &str = "_ssl";

type NoArguments = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;

static CHAIN: OnceLock<Method> = OnceLock::new();
static AUTHORITIES: OnceLock<Method> = OnceLock::new();
static DEFAULTS: OnceLock<Method> = OnceLock::new();

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
type Defaults = (OsString, PathBuf, OsString, PathBuf);

static DEFAULT_PATHS: OnceLock<Defaults> = OnceLock::new();

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

/// Makes the methods raise events.
///
/// # Errors
/// `RuntimeError` if they are called by a convention that is not known here.
pub fn install(module: &Bound<'_, PyAny>) -> PyResult<()> {
    // If the module is not ready yet, it will be looked at again.
    let Some(class) = module.getattr_opt("_SSLContext")? else {
        return Ok(());
    };
    let class = class.cast_into::<PyType>()?;
    if DEFAULT_PATHS.get().is_none() {
        let paths: Defaults = module.call_method0("get_default_verify_paths")?.extract()?;
        // If another thread was first, it found the same.
        drop(DEFAULT_PATHS.set(paths));
    }
    let keywords =
        |by: Keywords| move |convention| (convention == KEYWORDS).then_some(by as *mut ());
    let none = |convention| (convention == ffi::METH_NOARGS).then_some(load_defaults as *mut ());
    // SAFETY: the functions have the conventions that they are given for.
    let done = unsafe {
        Method::replace(&class, "load_cert_chain", &CHAIN, keywords(load_chain))?
            && Method::replace(
                &class,
                "load_verify_locations",
                &AUTHORITIES,
                keywords(load_authorities),
            )?
            && Method::replace(&class, "set_default_verify_paths", &DEFAULTS, none)?
    };
    match done {
        true => Ok(()),
        false => Err(errors::unknown_method("_SSLContext", "a method")),
    }
}

/// # Safety
/// Called by CPython by the convention `METH_FASTCALL | METH_KEYWORDS`.
unsafe extern "C-unwind" fn load_chain(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: CPython passed these for `load_cert_chain`, whose own function `CHAIN` keeps.
    unsafe { load(&CHAIN, &LOADS_CHAIN, slf, (args, count, kwnames)) }
}

/// # Safety
/// Called by CPython by the convention `METH_FASTCALL | METH_KEYWORDS`.
unsafe extern "C-unwind" fn load_authorities(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: these came for `load_verify_locations`, whose own function is in `AUTHORITIES`.
    unsafe {
        load(
            &AUTHORITIES,
            &LOADS_AUTHORITIES,
            slf,
            (args, count, kwnames),
        )
    }
}

/// # Safety
/// The arguments are those of the convention `METH_FASTCALL | METH_KEYWORDS`, which the original
/// has.
unsafe fn load(
    original: &OnceLock<Method>,
    silent: &Silent,
    slf: *mut PyObject,
    (args, count, kwnames): (*const *mut PyObject, isize, *mut PyObject),
) -> *mut PyObject {
    let Some(original) = original.get() else {
        return std::ptr::null_mut();
    };
    let arguments = Arguments {
        args,
        nargsf: count as usize,
        kwnames,
    };
    // SAFETY: the arguments live for the call, and are passed on by the same convention.
    unsafe {
        let original = std::mem::transmute::<*mut (), Keywords>(original.function());
        let make = |given: Arguments| {
            original(slf, given.args, given.positional() as isize, given.kwnames)
        };
        match scope::may_be_guarded() {
            true => without_event::call_by(arguments, silent, make),
            false => make(arguments),
        }
    }
}

/// # Safety
/// Called by CPython by the convention `METH_NOARGS`.
unsafe extern "C-unwind" fn load_defaults(
    slf: *mut PyObject,
    nothing: *mut PyObject,
) -> *mut PyObject {
    let Some(original) = DEFAULTS.get() else {
        return std::ptr::null_mut();
    };
    let arguments = Arguments {
        args: std::ptr::null(),
        nargsf: 0,
        kwnames: std::ptr::null_mut(),
    };
    // SAFETY: as this function's; the original has the same convention.
    unsafe {
        let original = std::mem::transmute::<*mut (), NoArguments>(original.function());
        let make = |_: Arguments| original(slf, nothing);
        match scope::may_be_guarded() {
            true => without_event::call_by(arguments, &LOADS_DEFAULTS, make),
            false => make(arguments),
        }
    }
}
