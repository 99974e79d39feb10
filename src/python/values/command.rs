//! The program that an event is going to start.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::policy::commands;
use crate::policy::files::fs::{FileSystem, Os, PathBuf};
use crate::python::cpython::ffi as raw;
use crate::python::values::decode;
use crate::python::values::simple;

/// The program that runs the command of `os.system`.
const SHELL: &str = "/bin/sh";

/// The program that an event is going to start; `None` if that cannot be told.
pub fn program(event: &CStr, args: &Bound<'_, PyTuple>) -> Option<PathBuf> {
    let arg = |index: usize| args.get_item(index).ok();
    match event.to_bytes() {
        b"subprocess.Popen" => {
            let found = search(&arg(0)?, arg(3))?;
            // The child changes its directory first.
            let cwd = arg(2).filter(|cwd| !cwd.is_none());
            match cwd {
                Some(cwd) if !found.starts_with(b"/") => {
                    let mut whole = bytes(&cwd)?;
                    whole.push(b'/');
                    whole.extend_from_slice(&found);
                    Some(whole)
                }
                _ => Some(found),
            }
        }
        b"os.exec" | b"os.posix_spawn" => search(&arg(0)?, arg(2)),
        b"os.system" => Some(PathBuf::from_slice(SHELL.as_bytes())),
        b"pty.spawn" => search(&first(&arg(0)?)?, None),
        b"_posixsubprocess.fork_exec" => {
            // The paths to try, from PATH: the first that can be executed is started.
            let places = arg(0)?;
            let places: Vec<_> = match places.cast::<PyList>() {
                Ok(places) => places.iter().collect(),
                Err(_) => places.cast::<PyTuple>().ok()?.iter().collect(),
            };
            let found = places.iter().map_while(bytes);
            found.into_iter().find(|place| Os.is_executable(place))
        }
        _ => None,
    }
}

/// The program of an event as a policy would name it.
pub fn shown<'py>(event: &str, args: &Bound<'py, PyTuple>) -> Option<Bound<'py, PyString>> {
    let text = |object: Bound<'py, PyAny>| simple::text(&object).ok().flatten();
    match event {
        "subprocess.Popen" | "os.exec" | "os.posix_spawn" => text(args.get_item(0).ok()?),
        "os.system" => Some(PyString::new(args.py(), SHELL)),
        "pty.spawn" => text(first(&args.get_item(0).ok()?)?),
        "_posixsubprocess.fork_exec" => {
            let found = program(c"_posixsubprocess.fork_exec", args)?;
            raw::fs_decode(args.py(), &found).ok()
        }
        _ => None,
    }
}

/// The program of a name: one without a slash is looked for on the `PATH` of the new environment,
/// or of this process.
fn search(name: &Bound<'_, PyAny>, environment: Option<Bound<'_, PyAny>>) -> Option<PathBuf> {
    let name = bytes(name)?;
    if name.contains(&b'/') {
        return Some(name);
    }
    let path = match environment.filter(|environment| !environment.is_none()) {
        Some(environment) => path_of(&environment)?,
        None => own_path(),
    };
    commands::find(&Os, &name, &path)
}

/// The `PATH` of this process.
pub fn own_path() -> Vec<u8> {
    std::env::var_os("PATH").map_or_else(Vec::new, |path| path.into_encoded_bytes())
}

/// The `PATH` in the environment for a child: `os.environ` itself, or a plain `dict`.
fn path_of(environment: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    let py = environment.py();
    let os = raw::imported_module(py, pyo3::intern!(py, "os")).ok()??;
    if os
        .getattr(pyo3::intern!(py, "environ"))
        .is_ok_and(|environ| environ.is(environment))
    {
        return Some(own_path());
    }
    let environment = environment.cast_exact::<PyDict>().ok()?;
    let found = match environment.get_item("PATH").ok()? {
        Some(path) => Some(path),
        None => environment.get_item(PyBytes::new(py, b"PATH")).ok()?,
    };
    match found {
        Some(path) => bytes(&path).map(|path| path.to_vec()),
        // Without a `PATH`, `os.defpath` would be taken, which nobody means.
        None => None,
    }
}

/// The bytes of a `str`, `bytes` or path-like of the standard library.
fn bytes(object: &Bound<'_, PyAny>) -> Option<PathBuf> {
    let text = simple::text(object).ok()??;
    decode::root_name(text.as_any()).ok()
}

fn first<'py>(arguments: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    if let Ok(arguments) = arguments.cast::<PyList>() {
        return arguments.get_item(0).ok();
    }
    arguments.cast::<PyTuple>().ok()?.get_item(0).ok()
}
