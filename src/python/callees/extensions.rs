//! Extension modules that are imported: the places of their files. Loading one runs its code, which
//! nothing watches.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use crate::policy::check::ModuleOrigin;
use crate::policy::files::path::Resolved;
use crate::python::callees::distributions;
use crate::python::importing::imports;

/// The time at which the first guard was made: guarded code wrote nothing before.
static SINCE: OnceLock<SystemTime> = OnceLock::new();

/// Files have the time of the system's last tick, which may be 10 ms ago.
const TICK: Duration = Duration::from_millis(20);

pub fn prepare() {
    SINCE.get_or_init(|| SystemTime::now() - TICK);
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
    match is_older && is_below(&distributions::imported_from()) {
        true => ModuleOrigin::Known,
        false => ModuleOrigin::Unknown,
    }
}

/// Returns whether the file was last changed before there was any guard.
pub fn was_there_before(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let (Ok(found), Some(since)) = (std::fs::metadata(file), SINCE.get()) else {
        return false;
    };
    let (Ok(seconds), Ok(nanoseconds)) = (
        u64::try_from(found.ctime()),
        u32::try_from(found.ctime_nsec()),
    ) else {
        return false;
    };
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds) < *since
}
