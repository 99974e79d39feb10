//! Acts that are denied to guarded code, but not to installed packages as they do their work:
//! giving a function another body or defaults, keeping the directories that were current, and
//! calling a library by `ctypes`. Under a policy, guarded code may give its own functions a body, and
//! any function defaults.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyFrame;

use crate::python::callees::distributions;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::once::intern;
use crate::python::cpython::{ffi as raw, frames};
use crate::python::frames::stack;
use crate::python::guard::event::Event;
use crate::python::importing::{imports, stdlib};

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

pub fn is_one(event: &Event<'_, '_>) -> PyResult<bool> {
    match event.name.to_bytes() {
        b"object.__setattr__" => sets_function(event),
        b"open" | b"os.mkdir" => keeps_directories(event),
        b"ctypes.dlopen" => loads_own_library(event),
        b"fastaudit.call" => calls_library(event),
        name if BY_ADDRESS.contains(&name) => comes_through_ctypes(event),
        _ => Ok(false),
    }
}

/// `__code__` and `__kwdefaults__`, which decorators of some packages assign, and the latter
/// `unittest.mock`: guarded code may replace any Python function by another, so that this opens
/// nothing. It may assign `__defaults__` of any function, too.
fn sets_function(event: &Event<'_, '_>) -> PyResult<bool> {
    let Some(attribute) = event.text(1) else {
        return Ok(false);
    };
    let is_code = attribute == "__code__";
    if !is_code && attribute != "__kwdefaults__" {
        return Ok(false);
    }
    let Some(frame) = frames::current_frame(event.args.py()) else {
        return Ok(false);
    };
    if event.config.is_of_policy() && (!is_code || is_of_same_globals(event, &frame)?) {
        return Ok(true);
    }
    let code = frames::code(&frame);
    Ok(distributions::module_of_code(&code)?.is_some()
        || (!is_code && stdlib::is_standard_library(&code)?))
}

/// Returns whether the function is of the globals that the code has which assigns to it.
fn is_of_same_globals(event: &Event<'_, '_>, frame: &Bound<'_, PyFrame>) -> PyResult<bool> {
    let Some(function) = event.argument(0).filter(raw::is_python_function) else {
        return Ok(false);
    };
    let py = function.py();
    let globals = function.attr(intern!(py, "__globals__"))?;
    Ok(globals.is(&frame.attr(intern!(py, "f_globals"))?))
}

/// The file in which IPython keeps the directories that `%cd` went to, and its directory.
fn keeps_directories(event: &Event<'_, '_>) -> PyResult<bool> {
    let is_it = event.text(0).is_some_and(|path| {
        let path = path.to_string_lossy();
        path.ends_with("/db/dhist") || path.ends_with("/db")
    });
    Ok(is_it && imports::is_called_by(event.args.py(), "IPython.core.magics.osm", &["cd"])?)
}

/// A library that is among the files of a package whose native code may be called.
fn loads_own_library(event: &Event<'_, '_>) -> PyResult<bool> {
    let library = event.text(0);
    let Some(Ok(library)) = library.as_ref().map(|library| library.to_str()) else {
        return Ok(false);
    };
    let library = Path::new(library);
    if library.components().any(|part| part.as_os_str() == "..") {
        return Ok(false);
    }
    let Some(owner) = distributions::module_of_file(library) else {
        return Ok(false);
    };
    Ok(may_call_native(event, &owner) && comes_through_ctypes(event)?)
}

/// A function of a library, which `ctypes` calls for a package.
fn calls_library(event: &Event<'_, '_>) -> PyResult<bool> {
    let Some(callee) = event.text(1) else {
        return Ok(false);
    };
    Ok(callee.to_string_lossy().starts_with("ctypes.") && comes_through_ctypes(event)?)
}

/// Returns whether a package whose native code may be called has `ctypes` do this: the innermost code
/// outside that module is one's.
fn comes_through_ctypes(event: &Event<'_, '_>) -> PyResult<bool> {
    for frame in stack::frames(event.args.py()) {
        if !imports::is_of_module(&frame, CTYPES)? {
            let package = distributions::module_of_code(&frames::code(&frame))?;
            return Ok(package.is_some_and(|package| may_call_native(event, &package)));
        }
    }
    Ok(false)
}

fn may_call_native(event: &Event<'_, '_>, module: &str) -> bool {
    let policy = event.config.policy();
    policy.rest().packages.have(module) || policy.calls_native_of(module, distributions::installed)
}
