//! Tells whether native code from outside the standard library is loaded.
//!
//! Until some is, no call can reach any, and there is nothing to watch. Libraries that were loaded
//! before the monitor was installed are found among the process's shared objects; loading one later
//! raises an audit event before.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::Once;
use crate::python::cpython::{ffi as raw, shared_objects as objects};
use crate::python::importing::stdlib_objects::StandardLibrary;

static FOREIGN: AtomicBool = AtomicBool::new(false);
static EXTENSIONS: Once<PathBuf> = Once::new();

/// Once true, this stays true.
pub fn foreign() -> bool {
    FOREIGN.load(Ordering::Relaxed)
}

pub fn install(py: Python<'_>) -> PyResult<()> {
    let known = StandardLibrary::get(py)?;
    let extensions = EXTENSIONS.get_or_try_init(py, || extension_directory(py))?;
    let builtin: Vec<String> = calling::import(py, "sys")?
        .attr("builtin_module_names")?
        .extract()?;
    let foreign = builtin.iter().any(|name| !known.is_standard(name))
        || objects::any_foreign(|path| is_standard_extension(known, extensions, path));
    FOREIGN.fetch_or(foreign, Ordering::Relaxed);
    Ok(())
}

fn extension_directory(py: Python<'_>) -> PyResult<PathBuf> {
    let sys = calling::import(py, "sys")?;
    let mut path: PathBuf = sys.attr("base_exec_prefix")?.extract()?;
    path.push(sys.attr("platlibdir")?.extract::<PathBuf>()?);
    let version = py.version_info();
    path.push(format!("python{}.{}", version.major, version.minor));
    path.push("lib-dynload");
    Ok(path)
}

fn is_standard_extension(known: &StandardLibrary, directory: &Path, path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    let module = name.and_then(|name| name.split('.').next());
    path.parent() == Some(directory)
        && module.is_some_and(|module| known.is_standard(module) || module == INTERPRETERS)
}

/// Also CPython's own, though `sys.stdlib_module_names` leaves it out.
const INTERPRETERS: &str = "_xxsubinterpreters";

/// The extension module of a native function, by its shared object; `None` of a standard one.
pub fn foreign_module(known: &StandardLibrary, function: usize) -> Option<String> {
    let object = objects::holding(function)?;
    let name = Path::new(&object).file_name()?.to_str()?;
    let module = name.split('.').next().unwrap_or(name);
    (!known.is_standard(module) && module != INTERPRETERS).then(|| module.to_owned())
}

/// Returns whether the event says that the first native code of others is going to be loaded.
pub fn take_note(event: &[u8], args: &Bound<'_, PyTuple>) -> bool {
    let place = match event {
        // The name and, for an extension module, the file.
        b"import" => 1,
        b"ctypes.dlopen" => 0,
        _ => return false,
    };
    // `None` names no file: for a module that is searched for, or for the process itself.
    let file = args.get_borrowed_item(place);
    if foreign() || file.is_ok_and(|file| file.is_none()) {
        return false;
    }
    let py = args.py();
    let is_standard = || -> Option<bool> {
        let file = args.get_item(place).ok()?.cast_into::<PyString>().ok()?;
        let file = raw::fs_encode(file.as_borrowed()).ok()?;
        let path = Path::new(std::str::from_utf8(file.as_bytes()).ok()?);
        let known = StandardLibrary::get(py).ok()?;
        Some(is_standard_extension(known, EXTENSIONS.get(py)?, path))
    };
    let foreign = EXTENSIONS.get(py).is_some() && !is_standard().unwrap_or(false);
    FOREIGN.fetch_or(foreign, Ordering::Relaxed);
    foreign
}
