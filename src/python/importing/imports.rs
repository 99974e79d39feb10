//! The code that imports: the imports of installed modules, and their acts while they are imported,
//! are not what the guarded code chose.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::policy::files::roots::is_within;
use crate::policy::written::values::is_within_module;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::frames;
use crate::python::cpython::once::intern;
use crate::python::frames::stack;
use crate::python::importing::{loads, stdlib};

/// The directories that modules are installed in, the standard library's among them.
static LIBRARIES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();

/// The code of the function that loads a module that is not loaded yet.
static FIND_AND_LOAD: OnceLock<Py<PyAny>> = OnceLock::new();

/// The code of the function by which the import system calls others, and the native functions that run
/// the code of an extension module.
static EXTENSIONS: OnceLock<(Py<PyAny>, [Py<PyAny>; 2])> = OnceLock::new();

/// The locks of the modules that are being imported.
static LOCKS: OnceLock<Py<PyDict>> = OnceLock::new();

/// The beginning of the file names of modules that are part of the interpreter.
const FROZEN: &[u8] = b"<frozen ";

/// The code of a module, and the functions of finders, loaders and path hooks.
const PARTS_OF_IMPORTS: &[&str] = &[
    "<module>",
    "find_spec",
    "find_module",
    "create_module",
    "exec_module",
    "load_module",
    "__init__",
    "__call__",
    "__getattr__",
];

/// Packages that import the modules they are asked to.
const IMPORTERS: &[&str] = &["importlib", "pkgutil", "runpy"];

pub fn library_paths(py: Python<'_>) -> PyResult<Vec<String>> {
    let paths = calling::import(py, "sysconfig")?.invoke_method0("get_paths")?;
    let mut paths = ["stdlib", "platstdlib", "purelib", "platlib"]
        .into_iter()
        .map(|name| paths.item(name)?.extract())
        .collect::<PyResult<Vec<String>>>()?;
    // The user's own directories, and those of a distribution.
    let path = calling::import(py, "sys")?.attr("path")?;
    for entry in path.cast::<PyList>()?.iter() {
        if let Ok(entry) = entry.extract::<String>()
            && ["site-packages", "dist-packages"]
                .iter()
                .any(|name| entry.ends_with(name))
            && !paths.contains(&entry)
        {
            paths.push(entry);
        }
    }
    Ok(paths)
}

pub fn know_import_system(py: Python<'_>) -> PyResult<()> {
    if FIND_AND_LOAD.get().is_none() {
        let import_system = calling::import(py, "_frozen_importlib")?;
        let function = import_system.attr("_find_and_load")?;
        let locks = import_system.attr("_module_locks")?.cast_into()?;
        let _ = LOCKS.set(locks.unbind());
        loads::prepare(py)?;
        let calls = import_system.attr("_call_with_frames_removed")?;
        let native = calling::import(py, "_imp")?;
        let runs = ["create_dynamic", "exec_dynamic"].map(|name| native.attr(name));
        let [creates, executes] = runs;
        let runs = [creates?.unbind(), executes?.unbind()];
        let _ = EXTENSIONS.set((calls.attr("__code__")?.unbind(), runs));
        let _ = FIND_AND_LOAD.set(function.attr("__code__")?.unbind());
    }
    Ok(())
}

/// Reads the directories that modules are installed in; without them no module counts as installed.
pub fn learn_libraries(py: Python<'_>) -> PyResult<()> {
    if LIBRARIES.get().is_none() {
        let mut paths = Vec::new();
        for path in library_paths(py)? {
            if let Ok(real) = std::fs::canonicalize(&path) {
                paths.push(real.into_os_string().into_encoded_bytes());
            }
            paths.push(path.into_bytes());
        }
        let _ = LIBRARIES.set(paths);
    }
    Ok(())
}

/// Returns whether modules are installed at a path, which can then always be read.
pub fn is_library_path(path: &[u8]) -> bool {
    let paths = LIBRARIES.get();
    paths.is_some_and(|paths| paths.iter().any(|library| is_within(path, library)))
}

/// The package whose import the current code is part of, the outermost one.
pub fn package_being_imported(py: Python<'_>) -> PyResult<Option<String>> {
    let Some(find_and_load) = FIND_AND_LOAD.get() else {
        return Ok(None);
    };
    let mut package = None;
    let mut frame = frames::current_frame(py);
    while let Some(current) = frame {
        let code = frames::code(current.cast()?);
        if code.is(find_and_load) {
            let name = name_in(&current)?;
            let name = name.to_string_lossy();
            package = name.split('.').next().map(str::to_owned);
        }
        if !is_installed(&code)? {
            break;
        }
        frame = stack::outer(&current)?;
    }
    Ok(package)
}

/// Returns whether the code comes from an installed module.
pub fn is_installed(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let file = code.attr(intern!(code.py(), "co_filename"))?;
    let Ok(file) = file.cast::<PyString>() else {
        return Ok(false);
    };
    let Ok(file) = file.to_str() else {
        return Ok(false);
    };
    let file = file.as_bytes();
    Ok(file.starts_with(FROZEN) || is_library_path(file))
}

fn is_importer(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(name) = module_of(frame)? else {
        return Ok(false);
    };
    let Ok(name) = name.to_str() else {
        return Ok(false);
    };
    let is_frozen = name == "_frozen_importlib" || name == "_frozen_importlib_external";
    Ok(is_frozen || IMPORTERS.iter().any(|own| is_within_module(name, own)))
}

/// The module whose code the import system is about to run.
pub fn module_being_loaded(py: Python<'_>) -> PyResult<Option<Bound<'_, PyString>>> {
    let Some(find_and_load) = FIND_AND_LOAD.get() else {
        return Ok(None);
    };
    let mut frame = frames::current_frame(py);
    while let Some(current) = frame {
        let code = frames::code(current.cast()?);
        if code.is(find_and_load) {
            return name_in(&current).map(Some);
        }
        if !is_importer(&current)? {
            return Ok(None);
        }
        frame = stack::outer(&current)?;
    }
    Ok(None)
}

/// Returns whether the import system runs, called by an import or by installed modules that take part in
/// it, and no code of a guest.
pub fn is_run_by_imports(py: Python<'_>) -> PyResult<bool> {
    let Some(find_and_load) = FIND_AND_LOAD.get() else {
        return Ok(false);
    };
    let mut frame = frames::current_frame(py);
    while let Some(current) = frame {
        let code = frames::code(current.cast()?);
        if code.is(find_and_load) {
            return Ok(true);
        }
        if frames::get(&code, frames::GUEST) != 0 || !is_installed(&code)? {
            return Ok(false);
        }
        frame = stack::outer(&current)?;
    }
    Ok(false)
}

fn name_in<'py>(frame: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let py = frame.py();
    let locals = frame.attr(intern!(py, "f_locals"))?;
    let name = locals.item(intern!(py, "name"))?;
    Ok(name.cast_into()?)
}

/// Returns whether an installed module imports, not the guarded code itself.
pub fn is_in_turn(py: Python<'_>) -> PyResult<bool> {
    let mut frame = frames::current_frame(py);
    while let Some(current) = frame {
        let code = frames::code(current.cast()?);
        if !is_installed(&code)? {
            return Ok(false);
        }
        if !is_importer(&current)? {
            return Ok(true);
        }
        frame = stack::outer(&current)?;
    }
    // The interpreter itself.
    Ok(true)
}

/// Returns whether the current call is part of importing one of these packages: every function that
/// runs since the import began is of an installed module.
pub fn is_importing(py: Python<'_>, packages: &[String]) -> PyResult<bool> {
    is_importing_by(py, packages, |_, code| is_installed(code))
}

/// The same, where every function that runs since the import began is one that `trusts` knows.
fn is_importing_by(
    py: Python<'_>,
    packages: &[String],
    trusts: impl Fn(&Bound<'_, PyAny>, &Bound<'_, PyAny>) -> PyResult<bool>,
) -> PyResult<bool> {
    let Some(find_and_load) = FIND_AND_LOAD.get() else {
        return Ok(false);
    };
    let mut frame = frames::current_frame(py);
    // The function that the import system called, if any, and the frame that called it.
    let mut called = None;
    let mut caller = None;
    while let Some(current) = frame {
        let code = frames::code(current.cast()?);
        if code.is(find_and_load) {
            let name = name_in(&current)?;
            let name = name.to_string_lossy();
            if packages
                .iter()
                .any(|package| is_within_module(&name, package))
            {
                return match (&called, &caller) {
                    (Some(called), _) if is_called_by_imports(called)? => Ok(true),
                    (Some(_), Some(caller)) => is_running_extension(caller),
                    (Some(_), None) => Ok(false),
                    (None, _) => Ok(true),
                };
            }
            (called, caller) = (None, None);
        }
        if !trusts(&current, &code)? {
            return Ok(false);
        }
        if !is_importer(&current)? {
            (called, caller) = (Some(code), None);
        } else if called.is_some() && caller.is_none() {
            caller = Some(current.clone());
        }
        frame = stack::outer(&current)?;
    }
    Ok(false)
}

/// Returns whether a frame of the import system runs the code of an extension module, which has no frame
/// itself.
fn is_running_extension(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = frame.py();
    let Some((calls, runs)) = EXTENSIONS.get() else {
        return Ok(false);
    };
    if !frames::code(frame.cast()?).is(calls) {
        return Ok(false);
    }
    let locals = frame.attr(intern!(py, "f_locals"))?;
    let function = locals.item(intern!(py, "f"))?;
    Ok(runs.iter().any(|run| function.is(run)))
}

/// Returns whether code is a module's, or is by its name a function that imports consist of:
/// guarded code can have the import system call any.
fn is_called_by_imports(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = code.attr(intern!(code.py(), "co_name"))?;
    let name = name.cast::<PyString>()?;
    Ok(PARTS_OF_IMPORTS.iter().any(|part| name == part))
}

/// Returns whether a function of the standard library called the current code, with code of
/// installed modules alone in between.
pub fn is_called_by(py: Python<'_>, module: &str, function: &str) -> PyResult<bool> {
    let mut frame = frames::current_frame(py);
    while let Some(current) = frame {
        let code = frames::code(current.cast()?);
        if !is_installed(&code)? {
            return Ok(false);
        }
        let name = code.attr(intern!(py, "co_name"))?;
        if name.equals(function)? && module_of(&current)?.is_some_and(|name| name == module) {
            return Ok(true);
        }
        frame = stack::outer(&current)?;
    }
    Ok(false)
}

/// Returns whether one of these functions of the standard library called the current code, or is
/// it, with code of the standard library alone in between.
pub fn is_in_function(py: Python<'_>, module: &str, functions: &[&str]) -> PyResult<bool> {
    let mut frame = frames::current_frame(py);
    while let Some(current) = frame {
        let code = frames::code(current.cast()?);
        if !stdlib::is_standard_library(&code)? {
            return Ok(false);
        }
        let name = code.attr(intern!(py, "co_name"))?;
        let is_one = |name: &Bound<'_, PyString>| functions.iter().any(|own| name == own);
        if name.cast().is_ok_and(is_one) && module_of(&current)?.is_some_and(|own| own == module) {
            return Ok(true);
        }
        frame = stack::outer(&current)?;
    }
    Ok(false)
}

/// Returns whether the innermost function is one of this installed module.
pub fn is_innermost(py: Python<'_>, module: &str) -> PyResult<bool> {
    let Some(frame) = frames::current_frame(py) else {
        return Ok(false);
    };
    let own = module_of(&frame)?;
    Ok(own.is_some_and(|own| own == module) && is_installed(&frames::code(frame.cast()?))?)
}

pub fn module_of<'py>(frame: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyString>>> {
    let globals = frame.attr(intern!(frame.py(), "f_globals"))?;
    Ok(globals.cast().ok().and_then(stack::module_name))
}

/// Returns whether a frame runs code of a module of the standard library, or of one below it.
pub fn is_of_module(frame: &Bound<'_, PyAny>, module: &str) -> PyResult<bool> {
    let globals = frame.attr(intern!(frame.py(), "f_globals"))?;
    let Ok(globals) = globals.cast::<PyDict>() else {
        return Ok(false);
    };
    let name = stack::module_name(globals);
    let is_named = name.is_some_and(|name| is_within_module(&name.to_string_lossy(), module));
    Ok(is_named && stack::are_of_their_module(globals)?)
}

/// Returns whether the current call is part of importing one of these modules, which the host
/// named, wherever they are installed. Code that was not imported itself, such as a notebook's or
/// that of `exec`, has no part in it.
pub fn is_importing_named(py: Python<'_>, modules: &[String]) -> PyResult<bool> {
    is_importing_by(py, modules, |frame, code| {
        Ok(is_installed(code)? || is_of_imported_module(frame)?)
    })
}

/// Returns whether the frame's code is that of a module that was imported, not of the main program.
pub fn is_of_imported_module(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    let globals = frame.attr(intern!(frame.py(), "f_globals"))?;
    let Ok(globals) = globals.cast::<PyDict>() else {
        return Ok(false);
    };
    let is_main = stack::module_name(globals).is_none_or(|name| name == "__main__");
    Ok(!is_main && stack::are_of_their_module(globals)?)
}

/// The imports in progress, for a later report.
pub struct Importing {
    /// The packages from the innermost, and the number of files before each.
    packages: Vec<(String, usize)>,
    /// The files of the code that runs, from the innermost.
    files: Vec<String>,
}

pub fn going_on(py: Python<'_>) -> PyResult<Option<Importing>> {
    match (LOCKS.get(), FIND_AND_LOAD.get()) {
        (Some(locks), Some(find_and_load)) if !locks.bind(py).is_empty() => {
            note(find_and_load.bind(py)).map(Some)
        }
        _ => Ok(None),
    }
}

#[cold]
fn note(find_and_load: &Bound<'_, PyAny>) -> PyResult<Importing> {
    let py = find_and_load.py();
    let (mut packages, mut files) = (Vec::new(), Vec::<String>::new());
    let mut frame = frames::current_frame(py);
    while let Some(current) = frame {
        let code = frames::code(current.cast()?);
        if code.is(find_and_load) {
            let name = name_in(&current)?;
            let name = name.to_string_lossy();
            let package = name.split('.').next().unwrap_or_default();
            packages.push((package.to_owned(), files.len()));
        }
        let file = code.attr(intern!(py, "co_filename"))?;
        let file = file.cast::<PyString>().map(|file| file.to_string_lossy());
        let file = file.unwrap_or_default();
        if !files.iter().any(|own| *own == file) {
            files.push(file.into_owned());
        }
        frame = stack::outer(&current)?;
    }
    Ok(Importing { packages, files })
}

impl Importing {
    /// The package whose import all of it is part of, the outermost one: from there on, installed
    /// code alone runs.
    pub fn package(&self, py: Python<'_>) -> Option<&str> {
        learn_libraries(py).ok()?;
        let is_installed = |file: &String| {
            let file = file.as_bytes();
            file.starts_with(FROZEN) || is_library_path(file)
        };
        let installed = self.files.iter().take_while(|file| is_installed(file));
        let installed = installed.count();
        let found = self.packages.iter().rev();
        let mut found = found.filter(|(_, files)| *files <= installed);
        found.next().map(|(package, _)| &package[..])
    }
}
