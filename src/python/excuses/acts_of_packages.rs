//! Acts that are denied to guarded code, but not to installed packages as they do their work:
//! giving a function another body or defaults, calling a library by `ctypes`, running a program
//! that describes the machine.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::python::callees::distributions;
use crate::python::cpython::frames;
use crate::python::frames::stack;
use crate::python::guard::event::Event;
use crate::python::importing::imports;

/// The events of `ctypes` that need a library which is loaded already.
const BY_ADDRESS: &[&[u8]] = &[
    b"ctypes.addressof",
    b"ctypes.cdata",
    b"ctypes.cdata/buffer",
    b"ctypes.dlsym",
    b"ctypes.dlsym/handle",
    b"ctypes.memoryview_at",
    b"ctypes.string_at",
    b"ctypes.wstring_at",
];

/// The module through whose functions others come to those events.
const CTYPES: &str = "ctypes";

/// Returns whether an event that is about to be denied is such an act of an installed package.
pub fn is_one(event: &Event<'_, '_>) -> PyResult<bool> {
    match event.name.to_bytes() {
        b"object.__setattr__" => sets_function(event),
        b"ctypes.dlopen" => loads_own_library(event),
        b"fastaudit.call" => calls_library(event),
        b"subprocess.Popen" => runs_program(event),
        name if BY_ADDRESS.contains(&name) => Ok(caller(event.args.py(), CTYPES)?
            .is_some_and(|package| may_call_native(event, &package))),
        _ => Ok(false),
    }
}

fn text<'py>(event: &Event<'_, 'py>, index: usize) -> Option<Bound<'py, PyString>> {
    event.args.get_item(index).ok()?.cast_into().ok()
}

/// `__code__` and `__kwdefaults__`, which decorators of some packages assign: guarded code may
/// replace any Python function by another, so that this opens nothing.
fn sets_function(event: &Event<'_, '_>) -> PyResult<bool> {
    let Some(attribute) = text(event, 1) else {
        return Ok(false);
    };
    if attribute != "__code__" && attribute != "__kwdefaults__" {
        return Ok(false);
    }
    let Some(frame) = frames::current_frame(event.args.py()) else {
        return Ok(false);
    };
    let code = frames::code(frame.cast()?);
    Ok(distributions::module_of_code(&code)?.is_some())
}

/// A library that is among the files of a package whose native code may be called.
fn loads_own_library(event: &Event<'_, '_>) -> PyResult<bool> {
    let Some(library) = text(event, 0) else {
        return Ok(false);
    };
    let Ok(library) = library.to_str() else {
        return Ok(false);
    };
    let library = Path::new(library);
    if library.components().any(|part| part.as_os_str() == "..") {
        return Ok(false);
    }
    let Some(owner) = distributions::module_of_file(library) else {
        return Ok(false);
    };
    Ok(may_call_native(event, &owner)
        && caller(event.args.py(), CTYPES)?.is_some_and(|package| may_call_native(event, &package)))
}

/// A function of a library, which `ctypes` calls for a package.
fn calls_library(event: &Event<'_, '_>) -> PyResult<bool> {
    let Some(callee) = text(event, 1) else {
        return Ok(false);
    };
    let name = callee.to_string_lossy();
    let is_of_ctypes = name
        .strip_prefix(CTYPES)
        .is_some_and(|rest| rest.starts_with('.'));
    if !is_of_ctypes {
        return Ok(false);
    }
    let py = event.args.py();
    let Some(package) = caller(py, CTYPES)? else {
        return Ok(false);
    };
    Ok(may_call_native(event, &package))
}

/// A program that a package runs to learn of the machine, with just these arguments.
fn runs_program(event: &Event<'_, '_>) -> PyResult<bool> {
    let packages = &event.config.policy().rest().packages;
    if packages.is_empty() {
        return Ok(false);
    }
    let Some(words) = event
        .args
        .get_item(1)
        .ok()
        .and_then(|words| words.cast_into::<PyList>().ok())
    else {
        return Ok(false);
    };
    let mut command = Vec::new();
    for word in &words {
        let Ok(word) = word.cast_into_exact::<PyString>() else {
            return Ok(false);
        };
        command.push(word.to_string_lossy().into_owned());
    }
    // Another directory or environment may hold another program of the name.
    let is_plain = text(event, 0).is_some_and(|program| {
        command
            .first()
            .is_some_and(|first| program == first.as_str())
    }) && [2, 3].into_iter().all(|index| {
        event
            .args
            .get_item(index)
            .is_ok_and(|given| given.is_none())
    });
    if !is_plain || !packages.may_run(&command.join(" ")) {
        return Ok(false);
    }
    Ok(caller(event.args.py(), "subprocess")?.is_some_and(|package| packages.have(&package)))
}

fn may_call_native(event: &Event<'_, '_>, module: &str) -> bool {
    let policy = event.config.policy();
    policy.rest().packages.have(module) || policy.calls_native_of(module, distributions::installed)
}

/// Returns the top-level module of the innermost code outside the module `through` which it goes;
/// `None` if it is of no installed package.
fn caller(py: Python<'_>, through: &str) -> PyResult<Option<String>> {
    let mut frame = frames::current_frame(py);
    while let Some(current) = frame {
        if !imports::is_of_module(&current, through)? {
            return distributions::module_of_code(&frames::code(current.cast()?));
        }
        frame = stack::outer(&current)?;
    }
    Ok(None)
}
