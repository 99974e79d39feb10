//! Installed packages: the one that native code belongs to, and the origin of an extension module
//! that is imported.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime};

use pyo3::prelude::*;
use pyo3::types::{PyList, PyModule, PyString};

use crate::policy::check::ModuleOrigin;
use crate::policy::distributions::{self, InstalledPackages, SITES};
use crate::policy::files::path::Resolved;
use crate::python::callees::callee::Native;
use crate::python::cpython::calling;
use crate::python::cpython::functions::Builtin;
use crate::python::cpython::layout;
use crate::python::cpython::once::{intern, lock};
use crate::python::cpython::{objects, process};
use crate::python::frames::stack;
use crate::python::importing::imports;
use crate::python::importing::loaded;

// The installed package that native code belongs to: its shared object lies in one's directory, or
// is listed among one's files, whatever name a native class or function says it has (`rsa.sign` of
// `cryptography`, `_dispatcher.Dispatcher` of `numba`).

/// The number of names whose package is remembered; for others their first component decides.
const MAX_NAMED: usize = 1000;

/// The time after which a change of a directory is told apart from one of guarded code.
const SETTLED: Duration = Duration::from_secs(2);

/// Changes only as guards are made and names are asked for.
#[derive(Default)]
struct Known {
    /// The directories that packages are installed in: as in `sys.path`, and with links resolved.
    sites: Vec<PathBuf>,
    /// The directories that modules were imported from as guards were made, by the host.
    paths: Vec<PathBuf>,
    seen: Vec<Py<PyAny>>,
    /// Also the times as of which they were read.
    installed: Option<(Vec<Option<SystemTime>>, Arc<InstalledPackages>)>,
    /// Packages by the first component of the name that their native code has for itself.
    named: BTreeMap<String, String>,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// No Python code runs while it is held.
fn known() -> MutexGuard<'static, Known> {
    lock(&KNOWN)
}

/// Reads the directories that packages are installed in. Called as a guard is made, by the host.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    let Some(path) = search_path(py)? else {
        return Ok(());
    };
    // Most guards find the entries that the one before found.
    let is_as_before = {
        let known = known();
        known.seen.len() == path.len()
            && known.seen.iter().zip(&path).all(|(one, own)| one.is(&own))
    };
    for entry in path.iter() {
        // One without a slash starts from the current directory.
        if let Ok(entry) = entry.cast::<PyString>()
            && let Ok(entry) = entry.to_str()
            && !(is_as_before && entry.starts_with('/'))
        {
            known().add(entry);
        }
    }
    if is_as_before {
        return Ok(());
    }
    let seen = path.iter().map(Bound::unbind).collect();
    let before = std::mem::replace(&mut known().seen, seen);
    // An entry may be of a class of Python code.
    drop(before);
    Ok(())
}

impl Known {
    fn add(&mut self, entry: &str) {
        let path = match std::env::current_dir() {
            _ if entry.starts_with('/') => PathBuf::from(entry),
            Ok(directory) => directory.join(entry),
            Err(_) => return,
        };
        if !self.paths.contains(&path) {
            self.paths.push(path);
        }
        let entry = entry.trim_end_matches('/');
        let (site, is_site) = (Path::new(entry), SITES.iter().any(|name| entry.ends_with(name)));
        if !is_site || self.sites.iter().any(|known| known == site) {
            return;
        }
        if let Ok(real) = std::fs::canonicalize(site)
            && real != site
        {
            self.sites.push(real);
        }
        self.sites.push(site.to_owned());
        self.installed = None;
    }
}

/// `sys.path`; `None` if other code put something else in its place.
fn search_path(py: Python<'_>) -> PyResult<Option<Bound<'_, PyList>>> {
    // An import statement would take longer than all else that making a guard does.
    let sys = match objects::module_of_name(intern!(py, "sys")) {
        Some(sys) => sys,
        None => calling::import(py, "sys")?.into_any(),
    };
    let Ok(sys) = sys.cast_into::<PyModule>() else {
        return Ok(None);
    };
    let path = sys.dict().get_item(intern!(py, "path"))?;
    Ok(path.and_then(|path| path.cast_into().ok()))
}

pub fn imported_from() -> Vec<PathBuf> {
    known().paths.clone()
}

/// Read again if something was installed since the last time.
pub fn installed() -> Arc<InstalledPackages> {
    let mut known = known();
    let changed = |site| std::fs::metadata(site).and_then(|site| site.modified());
    let changed: Vec<_> = known.sites.iter().map(|site| changed(site).ok()).collect();
    if let Some((when, installed)) = &known.installed
        && *when == changed
    {
        return Arc::clone(installed);
    }
    let installed = Arc::new(InstalledPackages::new(known.sites.clone(), process::time_of_files()));
    // What was installed just now has the time of now.
    let is_new = |site: &SystemTime| site.elapsed().is_ok_and(|time| time < SETTLED);
    if changed.iter().flatten().any(is_new) {
        installed.found();
    }
    known.installed = Some((changed, Arc::clone(&installed)));
    installed
}

/// The directories of packages that are installed by a link to their source.
pub fn editable() -> Vec<PathBuf> {
    let sites = known().sites.clone();
    distributions::editable(&sites)
}

/// The top-level module or directory of an installed package that a file is of.
pub fn module_of_file(file: &Path) -> Option<String> {
    let known = known();
    let mut below = known.sites.iter().filter_map(|site| file.strip_prefix(site).ok());
    distributions::module_of(below.next()?.to_str()?)
}

pub fn module_of_code(code: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let file = stack::code_file(code)?;
    Ok(file.to_str().ok().and_then(|file| module_of_file(Path::new(file))))
}

/// The package of native code by its name in a denial, as one imports the package.
#[must_use]
pub fn package_of(callee: &str) -> String {
    let first = callee.split('.').next().unwrap_or(callee);
    if let Some(package) = known().named.get(first) {
        return package.clone();
    }
    installed().found().package_of(first).to_owned()
}

/// The package of the announced callee, remembered for `package_of`; else by its name alone.
pub fn package_being_called(callee: &Bound<'_, PyString>) -> String {
    let name = callee.to_string_lossy();
    let Some(module) = module_being_called(callee) else {
        return package_of(&name);
    };
    let package = installed().found().package_of(&module).to_owned();
    let first = name.split('.').next().unwrap_or(&name);
    if first != package {
        let mut known = known();
        if known.named.len() < MAX_NAMED {
            known.named.insert(first.to_owned(), package.clone());
        }
    }
    package
}

thread_local! {
    static CALLED: RefCell<Option<(Py<PyString>, Option<String>)>> = const { RefCell::new(None) };
}

/// Notes, for as long as it lives, the module of the callee that an event is raised for.
pub struct Announced(Option<(Py<PyString>, Option<String>)>);

impl Announced {
    /// `name` is the event's object for the callee.
    pub fn new(name: &Bound<'_, PyString>, native: &Native<'_>) -> Self {
        let called = (name.clone().unbind(), module_of(native));
        Self(CALLED.replace(Some(called)))
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let ours = CALLED.replace(self.0.take());
        drop(ours);
    }
}

/// The top-level module or directory of the callee that an event is raised for, by its name there.
pub fn module_being_called(callee: &Bound<'_, PyString>) -> Option<String> {
    CALLED.with_borrow(|called| {
        let (name, module) = called.as_ref()?;
        name.is(callee).then(|| module.clone())?
    })
}

/// The top-level module or directory that native code is of; `None` if it cannot be told.
pub fn module_of(native: &Native<'_>) -> Option<String> {
    let function = &native.function;
    let by_object = |object: &Bound<'_, PyAny>| {
        let mut codes = layout::code_of(object);
        codes.find_map(|code| module_of_file(&loaded::holding(code)?))
    };
    if layout::has_code(function.as_borrowed()) {
        // Code that a compiler makes at run time is in no file, but is bound to an object of its
        // own.
        let bound = || by_object(Builtin::cast(function)?.receiver()?.get_type().as_any());
        if let Some(module) = by_object(function).or_else(bound) {
            return Some(module);
        }
    }
    let name = native.name.module.to_string_lossy();
    let first = name.split('.').next().unwrap_or(&name);
    if installed().found().has_module(first) {
        return Some(first.to_owned());
    }
    by_object(function.get_type().as_any())
}

// Extension modules that are imported: the places of their files. Loading one runs its code, which
// nothing watches.

/// The seconds and nanoseconds at which the first guard was made: guarded code wrote nothing before.
static SINCE: OnceLock<(i64, i64)> = OnceLock::new();

pub fn note_beginning() {
    SINCE.get_or_init(process::time_of_files);
}

/// The origin of an extension module's file, by its name and by the place it leads to.
#[cold]
pub fn extension_origin(file: &[u8], landing: &Resolved) -> ModuleOrigin {
    let named = Path::new(std::ffi::OsStr::from_bytes(file));
    let is_plain =
        file.starts_with(b"/") && named.components().all(|part| part.as_os_str() != "..");
    if imports::is_library_path(landing.as_bytes()) {
        return ModuleOrigin::Installed;
    }
    let landing = Path::new(std::ffi::OsStr::from_bytes(landing.as_bytes()));
    let is_below = |directories: &[PathBuf]| {
        directories.iter().any(|directory| {
            let real = || std::fs::canonicalize(directory);
            (is_plain && named.starts_with(directory))
                || real().is_ok_and(|real| landing.starts_with(real))
        })
    };
    let is_older = was_there_before(landing);
    if is_older && is_below(&editable()) {
        return ModuleOrigin::Installed;
    }
    // Packages may be installed as links to their place.
    if is_plain && imports::is_library_path(file) {
        return ModuleOrigin::Known;
    }
    match is_older && is_below(&imported_from()) {
        true => ModuleOrigin::Known,
        false => ModuleOrigin::Unknown,
    }
}

/// Returns whether the file was last changed before there was any guard.
pub fn was_there_before(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    match (std::fs::metadata(file), SINCE.get()) {
        (Ok(found), Some(since)) => (found.ctime(), found.ctime_nsec()) < *since,
        _ => false,
    }
}
