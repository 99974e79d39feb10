//! Extension modules that are imported: the places of their files. Loading one runs its code, which
//! nothing watches.
#![cfg(unix)]

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::policy::check::ModuleOrigin;
use crate::policy::files::path::Resolved;
use crate::python::callees::distributions;
use crate::python::importing::{imports, search_path};

/// The directories that modules were imported from as guards were made, by the host.
struct Known {
    /// The time at which the first guard was made: guarded code wrote nothing before.
    since: Option<SystemTime>,
    /// The directories of `sys.path`.
    paths: Vec<PathBuf>,
    /// The entries of `sys.path` that these came from.
    seen: Vec<Py<PyString>>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known {
    since: None,
    paths: Vec::new(),
    seen: Vec::new(),
});

/// No Python code runs while it is held.
fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the directories that modules are imported from. Called as a guard is made, by the host.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    known().since.get_or_insert_with(SystemTime::now);
    let Some(path) = search_path::list(py)? else {
        return Ok(());
    };
    for entry in path.iter() {
        let Ok(entry) = entry.cast::<PyString>() else {
            continue;
        };
        // Most guards find the entries that the one before found.
        if known().seen.iter().any(|seen| seen.is(entry)) {
            continue;
        }
        let object = entry;
        let Ok(entry) = entry.to_str() else {
            continue;
        };
        let entry = match entry.starts_with('/') {
            true => PathBuf::from(entry),
            // It stands for the current directory.
            false => match std::env::current_dir() {
                Ok(directory) => directory.join(entry),
                Err(_) => continue,
            },
        };
        let mut known = known();
        if object.to_str().is_ok_and(|text| text.starts_with('/')) {
            known.seen.push(object.clone().unbind());
        }
        if !known.paths.contains(&entry) {
            known.paths.push(entry);
        }
    }
    Ok(())
}

/// The origin of an extension module's file, by its name and by the place it leads to.
#[cold]
pub fn origin(file: &[u8], landing: &Resolved) -> ModuleOrigin {
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
    if is_older && is_below(&distributions::editable()) {
        return ModuleOrigin::Installed;
    }
    // Packages may be installed as links to their place.
    if is_plain && imports::is_library_path(file) {
        return ModuleOrigin::Known;
    }
    let paths = known().paths.clone();
    match is_older && is_below(&paths) {
        true => ModuleOrigin::Known,
        false => ModuleOrigin::Unknown,
    }
}

/// Returns whether the file was last changed before there was any guard.
pub fn was_there_before(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    let (Ok(found), Some(since)) = (std::fs::metadata(file), known().since) else {
        return false;
    };
    let (Ok(seconds), Ok(nanoseconds)) = (
        u64::try_from(found.ctime()),
        u32::try_from(found.ctime_nsec()),
    ) else {
        return false;
    };
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds) < since
}
