//! Code of the guest is noted as it comes into being, once there is a tool: it stays guarded where it runs
//! in the course of a tool.

use std::collections::HashSet;
use std::ffi::CStr;
use std::sync::{LazyLock, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::files::os::Os;
use crate::policy::files::path::Target;
use crate::policy::{Operation, Policy};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::frames;
use crate::python::events::observe;
use crate::python::guard::scope::{self, Active};
use crate::python::guard::tool_rights;
use crate::python::values::imports;

/// The names of files that the guest gave to code of its own.
static CLAIMED: LazyLock<Mutex<Claimed>> = LazyLock::new(Mutex::default);

/// The names that are kept; with more of them any file may be one.
const MOST_CLAIMED: usize = 10_000;

#[derive(Default)]
struct Claimed {
    files: HashSet<Vec<u8>>,
    /// True if it may be any.
    are_all: bool,
}

/// Notes the code of an event under a guard.
///
/// # Errors
/// Errors raised while reading the code.
#[cold]
#[inline(never)]
pub fn note(event: &CStr, args: &Bound<'_, PyTuple>, active: &Active) -> PyResult<()> {
    let at = match event.to_bytes() {
        b"exec" | b"function.__new__" => 0,
        b"object.__setattr__" => 2,
        b"compile" | b"code.__new__" => return claim(args, Some(1)),
        b"marshal.loads" => return claim(args, None),
        _ => return Ok(()),
    };
    // Under an installed policy alone all code is the host's.
    if at >= args.len() || scope::is_installed(active) {
        return Ok(());
    }
    let code = raw::tuple_item(args, at);
    let level = tool_rights::level(active);
    if !frames::is_code(&code) || tool_rights::is_of_guest(&code, level) {
        return Ok(());
    }
    if event == c"exec" && is_import(&code, active)? {
        return Ok(());
    }
    tool_rights::note_guest(&code, level)
}

/// Records an event in the course of a tool, if the guard of the guest records.
///
/// # Errors
/// Errors raised while reading an argument.
#[cold]
#[inline(never)]
pub fn note_tool(event: &CStr, args: &Bound<'_, PyTuple>) -> PyResult<()> {
    let py = args.py();
    let Some(tool) = scope::tool_in_force(py)? else {
        return Ok(());
    };
    match tool.get().tool() {
        Some((call, guest)) => {
            let name = call.name().bind(py).to_string_lossy();
            observe::event_of_tool(event, args, guest.get(), &name)
        }
        None => Ok(()),
    }
}

/// Notes the name of a file that the guest gives to code, an argument of the event; any name without one.
fn claim(args: &Bound<'_, PyTuple>, at: Option<usize>) -> PyResult<()> {
    if imports::is_run_by_imports(args.py())? {
        return Ok(());
    }
    let file = at.and_then(|at| args.get_item(at).ok());
    let file = file.and_then(|file| file.cast_into::<PyString>().ok());
    let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    match file {
        Some(file) => {
            let file = raw::fs_encode(file.as_borrowed())?;
            let file = file.as_bytes();
            if !file.starts_with(b"<") && !claimed.files.contains(file) {
                claimed.files.insert(file.to_vec());
            }
        }
        // The event does not tell the name that a syntax tree is compiled with, as libraries do.
        None if at.is_some() => {}
        None => claimed.are_all = true,
    }
    claimed.are_all |= claimed.files.len() > MOST_CLAIMED;
    Ok(())
}

/// Returns whether the import system runs the code of a module that the guest cannot have written: it
/// would run it as well for the host.
fn is_import(code: &Bound<'_, PyAny>, active: &Active) -> PyResult<bool> {
    let py = code.py();
    if !imports::is_run_by_imports(py)? {
        return Ok(false);
    }
    let file = code.getattr(pyo3::intern!(py, "co_filename"))?;
    let (Ok(file), Some(config)) = (file.cast::<PyString>(), active.config()) else {
        return Ok(false);
    };
    let file = raw::fs_encode(file.as_borrowed())?;
    let file = file.as_bytes();
    {
        let claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        if claimed.are_all || claimed.files.contains(file) {
            return Ok(false);
        }
    }
    if file.starts_with(b"<") || imports::is_installed(code)? {
        return Ok(true);
    }
    let config = config.get();
    let may_write = |policy: &Policy| {
        let verdict = policy.check(&Os, Operation::ChangeFile(Target::path(file)));
        verdict.allows()
    };
    let in_temporary = config.policy_with_temporary();
    Ok(!may_write(config.policy()) && !in_temporary.is_some_and(|policy| may_write(&policy)))
}
