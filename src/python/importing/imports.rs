//! The code that imports: the imports of installed modules, and their acts while they are imported,
//! are not what the guarded code chose; and the filter of lazy imports.

use std::cell::RefCell;
use std::sync::{Mutex, OnceLock};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrame, PyList, PyString};

use crate::policy::distributions::SITES;
use crate::policy::files::path::is_within;
use crate::policy::written::values::is_within_module;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::{Once, intern, lock};
use crate::python::cpython::{ffi as raw, frames};
use crate::python::frames::stack;
use crate::python::importing::{loads, stdlib};

/// The directories that modules are installed in, the standard library's among them.
static LIBRARIES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();

struct ImportSystem {
    /// The code of the function that loads a module that is not loaded yet.
    find_and_load: Py<PyAny>,
    /// The code of the function by which the import system calls others.
    calls: Py<PyAny>,
    /// The code by which a finder lists its directory.
    fill_cache: Py<PyAny>,
    /// The native functions that run the code of an extension module.
    run_extensions: [Py<PyAny>; 2],
    locks: Py<PyDict>,
}

static SYSTEM: OnceLock<ImportSystem> = OnceLock::new();

thread_local! {
    /// The module whose import the host allowed last, and the address of the frame that imports it.
    static ALLOWED: RefCell<Option<(String, usize)>> = const { RefCell::new(None) };
}

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
const IMPORTERS: [&str; 5] =
    ["_frozen_importlib", "_frozen_importlib_external", "importlib", "pkgutil", "runpy"];

/// The directories that modules are installed in. `sysconfig` knows them as well, behind a lock that
/// a copy of the process waits for without end if another thread held it.
pub fn library_paths(py: Python<'_>) -> PyResult<Vec<String>> {
    let mut paths = vec![stdlib::directory(py)?.clone()];
    paths.extend(stdlib::extension_directory(py)?.to_str().map(str::to_owned));
    // An application that brings its own interpreter may be without it.
    if let Ok(site) = calling::import(py, "site")
        && let Some(packages) = site.attr_opt("getsitepackages")?
    {
        paths.extend(packages.invoke0()?.extract::<Vec<String>>()?);
    }
    // The user's own directories, and those of a distribution.
    let path = calling::import(py, "sys")?.attr("path")?;
    for entry in path.cast::<PyList>()?.iter() {
        if let Ok(entry) = entry.extract::<String>()
            && SITES.iter().any(|name| entry.ends_with(name))
            && !paths.contains(&entry)
        {
            paths.push(entry);
        }
    }
    Ok(paths)
}

pub fn know_import_system(py: Python<'_>) -> PyResult<()> {
    if SYSTEM.get().is_none() {
        let system = calling::import(py, "_frozen_importlib")?;
        let finder = calling::import(py, "_frozen_importlib_external")?.attr("FileFinder")?;
        let native = calling::import(py, "_imp")?;
        let code = |name| PyResult::Ok(system.attr(name)?.attr("__code__")?.unbind());
        loads::prepare(py)?;
        let _ = SYSTEM.set(ImportSystem {
            find_and_load: code("_find_and_load")?,
            calls: code("_call_with_frames_removed")?,
            fill_cache: finder.attr("_fill_cache")?.attr("__code__")?.unbind(),
            run_extensions: [
                native.attr("create_dynamic")?.unbind(),
                native.attr("exec_dynamic")?.unbind(),
            ],
            locks: system.attr("_module_locks")?.cast_into()?.unbind(),
        });
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

/// Files there can always be read.
pub fn is_library_path(path: &[u8]) -> bool {
    let paths = LIBRARIES.get();
    paths.is_some_and(|paths| paths.iter().any(|library| is_within(path, library)))
}

/// The package whose import the current code is part of, the outermost one.
pub fn package_being_imported(py: Python<'_>) -> PyResult<Option<String>> {
    let importing = going_on(py)?;
    Ok(importing.and_then(|importing| importing.package(py).map(str::to_owned)))
}

pub fn is_installed(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(stack::code_file(code)?.to_str().is_ok_and(is_installed_file))
}

fn is_installed_file(file: &str) -> bool {
    file.as_bytes().starts_with(FROZEN) || is_library_path(file.as_bytes())
}

fn is_importer(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = module_of(frame)?;
    let name = name.as_ref().and_then(|name| name.to_str().ok());
    Ok(name.is_some_and(|name| IMPORTERS.iter().any(|own| is_within_module(name, own))))
}

/// The module whose code the import system is about to run.
pub fn module_being_loaded(py: Python<'_>) -> PyResult<Option<Bound<'_, PyString>>> {
    let Some(system) = SYSTEM.get() else {
        return Ok(None);
    };
    for frame in stack::frames(py) {
        let code = frames::code(&frame);
        if code.is(&system.find_and_load) {
            return name_in(&frame).map(Some);
        }
        if !is_importer(&frame)? {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Notes that the host allowed an import, as it began.
pub fn note_allowed(module: &Bound<'_, PyString>) -> PyResult<()> {
    let importing = importing_frame(module.py())?;
    ALLOWED.set(importing.map(|frame| (module.to_string_lossy().into_owned(), frame)));
    Ok(())
}

/// The address of the innermost frame that is not the import system's.
fn importing_frame(py: Python<'_>) -> PyResult<Option<usize>> {
    for frame in stack::frames(py) {
        if !is_importer(&frame)? {
            return Ok(Some(frame.as_ptr() as usize));
        }
    }
    Ok(None)
}

pub fn forget_allowed() {
    // Each guard that is left asks for this, and there is seldom one.
    if ALLOWED.with_borrow(Option::is_some) {
        ALLOWED.take();
    }
}

/// Returns whether an import is part of the one that the host allowed last: it loads that module, which
/// it may do once, or imports a package that the module is in.
pub fn is_allowed(module: &Bound<'_, PyString>, begins: bool) -> PyResult<bool> {
    let Some((allowed, importing)) = ALLOWED.take() else {
        return Ok(false);
    };
    let module_name = module.to_string_lossy();
    let is_itself = *module_name == *allowed;
    if !is_within_module(&allowed, &module_name)
        || (is_itself && begins)
        || importing_frame(module.py())? != Some(importing)
    {
        return Ok(false);
    }
    if !is_itself {
        ALLOWED.set(Some((allowed, importing)));
    }
    Ok(true)
}

/// Returns whether a finder lists its directory.
pub fn is_listing(py: Python<'_>) -> bool {
    let innermost = stack::frames(py).next();
    SYSTEM.get().is_some_and(|system| {
        innermost.is_some_and(|frame| frames::code(&frame).is(&system.fill_cache))
    })
}

/// Code of installed modules alone runs since an import, and none of a guest.
pub fn is_run_by_imports(py: Python<'_>) -> PyResult<bool> {
    let Some(system) = SYSTEM.get() else {
        return Ok(false);
    };
    for frame in stack::frames(py) {
        let code = frames::code(&frame);
        if code.is(&system.find_and_load) {
            return Ok(true);
        }
        if frames::get(&code, frames::GUEST) != 0 || !is_installed(&code)? {
            return Ok(false);
        }
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
    for frame in stack::frames(py) {
        let code = frames::code(&frame);
        if !is_installed(&code)? {
            return Ok(false);
        }
        // A module that helps to import imports by its own body what it needs.
        if !is_importer(&frame)? || stack::code_name(&code)? == "<module>" {
            return Ok(true);
        }
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
    let Some(system) = SYSTEM.get() else {
        return Ok(false);
    };
    // The function that the import system called, if any, and the frame that called it.
    let mut called = None;
    let mut caller = None;
    for frame in stack::frames(py) {
        let code = frames::code(&frame);
        if code.is(&system.find_and_load) {
            let name = name_in(&frame)?;
            let name = name.to_string_lossy();
            let is_below = |package: &String| is_within_module(&name, package);
            if packages.iter().any(is_below) {
                return match (&called, &caller) {
                    (Some(called), _) if is_called_by_imports(called)? => Ok(true),
                    (Some(_), Some(caller)) => is_running_extension(caller),
                    (Some(_), None) => Ok(false),
                    (None, _) => Ok(true),
                };
            }
            (called, caller) = (None, None);
        }
        if !trusts(&frame, &code)? {
            return Ok(false);
        }
        if !is_importer(&frame)? {
            (called, caller) = (Some(code), None);
        } else if called.is_some() && caller.is_none() {
            caller = Some(frame.clone());
        }
    }
    Ok(false)
}

/// Returns whether a frame runs the code of an extension module, which has no frame itself.
fn is_running_extension(frame: &Bound<'_, PyFrame>) -> PyResult<bool> {
    let py = frame.py();
    let Some(system) = SYSTEM.get() else {
        return Ok(false);
    };
    if !frames::code(frame).is(&system.calls) {
        return Ok(false);
    }
    let locals = frame.attr(intern!(py, "f_locals"))?;
    let function = locals.item(intern!(py, "f"))?;
    Ok(system.run_extensions.iter().any(|run| function.is(run)))
}

/// Returns whether code is a module's, or is by its name a function that imports consist of:
/// guarded code can have the import system call any.
fn is_called_by_imports(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = stack::code_name(code)?;
    Ok(PARTS_OF_IMPORTS.iter().any(|part| name == *part))
}

/// Returns whether one of these functions called the current code, with installed code alone between.
pub fn is_called_by(py: Python<'_>, module: &str, functions: &[&str]) -> PyResult<bool> {
    is_in_any(py, module, functions, is_installed)
}

/// The same, with code of the standard library alone between.
pub fn is_in_function(py: Python<'_>, module: &str, functions: &[&str]) -> PyResult<bool> {
    is_in_any(py, module, functions, stdlib::is_standard_library)
}

fn is_in_any(
    py: Python<'_>,
    module: &str,
    functions: &[&str],
    trusts: fn(&Bound<'_, PyAny>) -> PyResult<bool>,
) -> PyResult<bool> {
    for frame in stack::frames(py) {
        let code = frames::code(&frame);
        if !trusts(&code)? {
            return Ok(false);
        }
        let name = stack::code_name(&code)?;
        if functions.iter().any(|own| name == *own)
            && module_of(&frame)?.is_some_and(|own| own == module)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

pub fn is_innermost(py: Python<'_>, module: &str) -> PyResult<bool> {
    let Some(frame) = frames::current_frame(py) else {
        return Ok(false);
    };
    let own = module_of(&frame)?;
    Ok(own.is_some_and(|own| own == module) && is_installed(&frames::code(&frame))?)
}

pub fn module_of<'py>(frame: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyString>>> {
    Ok(stack::globals(frame)?.as_ref().and_then(stack::module_name))
}

/// Returns whether a frame runs code of a module of the standard library, or of one below it.
pub fn is_of_module(frame: &Bound<'_, PyAny>, module: &str) -> PyResult<bool> {
    let Some(globals) = stack::globals(frame)? else {
        return Ok(false);
    };
    let name = stack::module_name(&globals);
    let is_named = name.is_some_and(|name| is_within_module(&name.to_string_lossy(), module));
    Ok(is_named && stack::are_of_their_module(&globals)?)
}

/// Returns whether the current call is part of importing one of these modules, which the host
/// named, wherever they are installed. Code that was not imported itself, such as a notebook's or
/// that of `exec`, has no part in it.
pub fn is_importing_named(py: Python<'_>, modules: &[String]) -> PyResult<bool> {
    is_importing_by(py, modules, |frame, code| {
        Ok(is_installed(code)? || is_of_imported_module(frame)?)
    })
}

pub fn is_of_imported_module(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(globals) = stack::globals(frame)? else {
        return Ok(false);
    };
    let is_main = stack::module_name(&globals).is_none_or(|name| name == "__main__");
    Ok(!is_main && stack::are_of_their_module(&globals)?)
}

pub struct Importing {
    /// The packages from the innermost, and the number of files before each.
    packages: Vec<(String, usize)>,
    /// The files of the code that runs, from the innermost.
    files: Vec<String>,
}

pub fn going_on(py: Python<'_>) -> PyResult<Option<Importing>> {
    match SYSTEM.get() {
        Some(system) if !system.locks.bind(py).is_empty() => note(py, system).map(Some),
        _ => Ok(None),
    }
}

#[cold]
fn note(py: Python<'_>, system: &ImportSystem) -> PyResult<Importing> {
    let (mut packages, mut files) = (Vec::new(), Vec::<String>::new());
    for frame in stack::frames(py) {
        let code = frames::code(&frame);
        if code.is(&system.find_and_load) {
            let name = name_in(&frame)?;
            let name = name.to_string_lossy();
            let package = name.split('.').next().unwrap_or_default();
            packages.push((package.to_owned(), files.len()));
        }
        let file = stack::code_file(&code)?;
        let file = file.to_string_lossy();
        if !files.iter().any(|own| *own == file) {
            files.push(file.into_owned());
        }
    }
    Ok(Importing { packages, files })
}

impl Importing {
    /// The outermost package from whose import on installed code alone runs.
    pub fn package(&self, py: Python<'_>) -> Option<&str> {
        learn_libraries(py).ok()?;
        let installed = self.files.iter().take_while(|file| is_installed_file(file));
        let installed = installed.count();
        let found = self.packages.iter().rev();
        let mut found = found.filter(|(_, files)| *files <= installed);
        found.next().map(|(package, _)| &package[..])
    }
}

// CPython's filter of lazy imports (PEP 810, Python 3.15), which is a guard's while one is in force.

/// The functions of `sys`, as guarded code cannot have replaced them, and the filter for guards.
struct FilterFunctions {
    set: Py<PyAny>,
    get: Py<PyAny>,
    own: Py<PyAny>,
}

static FILTER: Once<Option<FilterFunctions>> = Once::new();

static EARLIER: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Looks the functions up; none are there before 3.15. `own` makes the filter for guards.
pub fn prepare_filter<'py>(
    py: Python<'py>,
    own: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<()> {
    FILTER.get_or_try_init(py, || {
        let sys = calling::import(py, "sys")?;
        let Some(set) = sys.attr_opt("set_lazy_imports_filter")? else {
            return Ok::<_, PyErr>(None);
        };
        Ok(Some(FilterFunctions {
            set: set.unbind(),
            get: sys.attr("get_lazy_imports_filter")?.unbind(),
            own: own()?.unbind(),
        }))
    })?;
    Ok(())
}

/// Sets the filter, as the first guard of the process begins.
pub fn set_filter(py: Python<'_>) {
    exchange_filter(py, |functions, present| {
        if !present.is(&functions.own) {
            keep_filter((!present.is_none()).then(|| present.unbind()));
            functions.set.bind(py).invoke1((&functions.own,))?;
        }
        Ok(())
    });
}

/// Gives the host its filter back, as the last guard has ended.
pub fn unset_filter(py: Python<'_>) {
    exchange_filter(py, |functions, present| {
        // The host may have set another one meanwhile.
        if present.is(&functions.own) {
            functions.set.bind(py).invoke1((keep_filter(None),))?;
        }
        Ok(())
    });
}

/// Runs `work` with the filter that is set, while an exception may be on its way.
fn exchange_filter<'py>(
    py: Python<'py>,
    work: impl FnOnce(&FilterFunctions, Bound<'py, PyAny>) -> PyResult<()>,
) {
    let Some(Some(functions)) = FILTER.get(py) else {
        return;
    };
    raw::beside_pending(py, || {
        let done = functions.get.bind(py).invoke0();
        if let Err(error) = done.and_then(|present| work(functions, present)) {
            calling::write_unraisable(py, error);
        }
    });
}

fn keep_filter(filter: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
    let mut earlier = lock(&EARLIER);
    std::mem::replace(&mut earlier, filter)
}

/// The filter of the host, which is asked as well.
pub fn filter_of_host(py: Python<'_>) -> Option<Py<PyAny>> {
    let earlier = lock(&EARLIER);
    earlier.as_ref().map(|filter| filter.clone_ref(py))
}
