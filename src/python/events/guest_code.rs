//! Code of the guest is noted as it comes into being, once there is a tool: it stays guarded where it runs
//! in the course of a tool. The file that code is from decides, not the name that code bears: code from
//! a file that the guest may write is the guest's, whoever imports it.

use std::collections::HashSet;
use std::ffi::CStr;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::Operation;
use crate::policy::files::fs::FileSystem;
use crate::policy::files::os::Os;
use crate::policy::files::path::Target;
use crate::python::callees::distributions;
use crate::python::cpython::once::lock;
use crate::python::cpython::{ffi as raw, frames};
use crate::python::events::observe;
use crate::python::frames::stack;
use crate::python::guard::scope::{self, Active};
use crate::python::guard::tool_rights;
use crate::python::importing::imports;
use crate::python::importing::loads::{self, Source};

/// The sources in whose place compiled code was read that a guest may have written.
static REPLACED: LazyLock<Mutex<HashSet<Vec<u8>>>> = LazyLock::new(Mutex::default);

/// Notes the code of an event under a guard.
#[cold]
#[inline(never)]
pub fn note(event: &CStr, args: &Bound<'_, PyTuple>, active: &Active) -> PyResult<()> {
    let at = match event.to_bytes() {
        b"exec" | b"function.__new__" | b"marshal.loads" => 0,
        b"object.__setattr__" => 2,
        _ => return Ok(()),
    };
    let py = args.py();
    if at >= args.len() {
        return Ok(());
    }
    if let Some(tool) = scope::tool_in_force(py)? {
        note_of_tool(event, args, tool.get())?;
    }
    // Under an installed policy alone all code is the host's.
    if scope::is_installed(active) {
        return Ok(());
    }
    if event == c"marshal.loads" {
        return note_compiled(py, active);
    }
    let code = raw::tuple_item(args, at);
    let level = tool_rights::level(active);
    if !frames::is_code(&code) || tool_rights::is_of_guest(&code, level) {
        return Ok(());
    }
    if event == c"exec" && is_import(py, active)? {
        return Ok(());
    }
    tool_rights::note_guest(&code, level)
}

/// Notes the code that runs in the course of a tool, and records the event if the guard of the guest
/// records.
#[cold]
#[inline(never)]
pub fn note_tool(event: &CStr, args: &Bound<'_, PyTuple>) -> PyResult<()> {
    let py = args.py();
    let Some(tool) = scope::tool_in_force(py)? else {
        return Ok(());
    };
    note_of_tool(event, args, tool.get())?;
    match tool.get().tool() {
        Some((call, guest)) => {
            let name = call.name.bind(py).to_string_lossy();
            observe::event_of_tool(event, args, guest.get(), &name)
        }
        None => Ok(()),
    }
}

/// Notes code that a tool runs, for each guest in whose course it does.
fn note_of_tool(event: &CStr, args: &Bound<'_, PyTuple>, tool: &Active) -> PyResult<()> {
    let is_exec = event == c"exec";
    if !is_exec && event != c"marshal.loads" {
        return Ok(());
    }
    let mut running = tool;
    while let Some((_, guest)) = running.tool() {
        running = guest.get();
        if is_exec {
            let code = raw::tuple_item(args, 0);
            if frames::is_code(&code) && is_from(&code, running)? {
                tool_rights::note_guest(&code, tool_rights::level(running))?;
            }
        } else {
            note_compiled(args.py(), running)?;
        }
    }
    Ok(())
}

/// Returns the guest that may have written the native code that a tool imports: its guard judges it.
#[cold]
#[inline(never)]
pub fn writer_of_native<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, Active>>> {
    let py = args.py();
    let (tool, file) = (scope::tool_in_force(py)?, args.get_item(1).ok());
    let (Some(tool), Some(Ok(file))) = (tool, file.map(Bound::cast_into_exact::<PyString>)) else {
        return Ok(None);
    };
    let file = raw::fs_encode(file.as_borrowed())?;
    let mut running = tool.get();
    while let Some((_, guest)) = running.tool() {
        running = guest.get();
        if may_be_of(file.as_bytes(), running) {
            return Ok(Some(guest.bind(py).clone()));
        }
    }
    Ok(None)
}

/// Notes that compiled code is read which the guest may have written.
fn note_compiled(py: Python<'_>, guest: &Active) -> PyResult<()> {
    if let Some([compiled, source]) = loads::compiled(py)?
        && may_have_written(&compiled, guest)
    {
        let mut replaced = lock(&REPLACED);
        replaced.insert(source);
    }
    Ok(())
}

/// Returns whether the import system runs the code of a module that the guest cannot have written: it
/// would run it as well for the host.
fn is_import(py: Python<'_>, active: &Active) -> PyResult<bool> {
    if !imports::is_run_by_imports(py)? {
        return Ok(false);
    }
    Ok(match loads::source(py)? {
        Source::Interpreter => true,
        Source::File(file) => !may_be_of(&file, active),
        Source::Loader(_) | Source::Changed | Source::Elsewhere => false,
    })
}

/// Returns whether code that a tool runs is from a file of the guest, or from its changes of imports.
fn is_from(code: &Bound<'_, PyAny>, guest: &Active) -> PyResult<bool> {
    let py = code.py();
    Ok(match loads::source(py)? {
        Source::Interpreter => false,
        Source::File(file) => may_be_of(&file, guest),
        Source::Changed => true,
        Source::Loader(loader) if loads::has_method_of_guest(&loader)? => true,
        Source::Loader(_) | Source::Elsewhere => {
            let file = stack::code_file(code)?;
            let file = raw::fs_encode(file.as_borrowed())?;
            let file = file.as_bytes();
            Os.exists(file) && may_be_of(file, guest)
        }
    })
}

fn may_be_of(file: &[u8], guest: &Active) -> bool {
    let is_replaced = {
        let replaced = lock(&REPLACED);
        replaced.contains(file)
    };
    is_replaced || may_have_written(file, guest)
}

/// Returns whether the guest may write a file; whether it did in this process if it belongs to an
/// installed package: who may write there has the host's next start anyway.
fn may_have_written(file: &[u8], guest: &Active) -> bool {
    let Some(config) = guest.config() else {
        return false;
    };
    let config = config.get();
    let change = Operation::ChangeFile(Target::path(file));
    let was_there = || distributions::was_there_before(Path::new(OsStr::from_bytes(file)));
    (config.policy().check(&Os, change).is_ok() || config.directories().hold(file))
        && !(imports::is_library_path(file) && was_there())
}
