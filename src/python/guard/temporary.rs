//! The directories in which guards have their temporary files.
//!
//! A guard that may write anywhere at all has one of its own, which is made when `tempfile` asks
//! for it. If several guards are in force, the inner one's directory is inside the outer one's, so
//! that each of them lets it be used.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;

use crate::policy::files::fs::PathBuf;
use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Base, Resolved};
use crate::policy::files::places;
use crate::policy::{FileSystem, Policy};
use crate::python::values::temporary_directory::Directory;

/// The directories of guards that share them, made so far.
#[derive(Default)]
pub struct Directories {
    made: Mutex<Vec<Made>>,
    /// The same for their policies.
    paths: Arc<places::Directories>,
}

struct Made {
    /// The directory of another guard that it is inside; `None`: the host's.
    inside: Option<PathBuf>,
    directory: Directory,
}

impl Directories {
    /// The paths of them.
    pub fn paths(&self) -> &Arc<places::Directories> {
        &self.paths
    }

    /// Returns whether the path is one of them, or in one.
    pub fn hold(&self, path: &[u8]) -> bool {
        self.paths.hold(path)
    }

    /// The directory that is inside this one, or inside the host's; it is made if it does not
    /// exist.
    pub fn usable(&self, policy: &Policy, inside: Option<&[u8]>) -> Option<PathBuf> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let found = made.iter().find(|made| {
            made.inside.as_deref() == inside
                && policy.could_use(&Os, made.directory.path())
                && made.directory.is_made()
        });
        if let Some(found) = found {
            return Some(PathBuf::from_slice(found.directory.path().as_bytes()));
        }
        let places = match inside {
            Some(inside) => vec![PathBuf::from_slice(inside)],
            None => candidates(),
        };
        let new = places.iter().find_map(|place| {
            let directory = Directory::planned(place)?;
            let usable = policy.could_use(&Os, directory.path()) && directory.is_made();
            usable.then_some(directory)
        })?;
        let path = PathBuf::from_slice(new.path().as_bytes());
        self.paths.add(new.path());
        made.push(Made {
            inside: inside.map(PathBuf::from_slice),
            directory: new,
        });
        Some(path)
    }
}

#[doc = doc!("_TemporaryFiles")]
#[pyclass(
    frozen,
    immutable_type,
    module = "fastaudit_rs._native",
    name = "_TemporaryFiles"
)]
#[derive(Default)]
pub struct TemporaryFiles {
    directories: Arc<Directories>,
}

impl TemporaryFiles {
    pub fn directories(&self) -> &Arc<Directories> {
        &self.directories
    }
}

#[pymethods]
impl TemporaryFiles {
    #[new]
    fn new() -> Self {
        Self::default()
    }
}

/// The directory in which `tempfile` would make files without a guard, by the names it looks at:
/// `tempfile` itself makes a file in each to find out.
pub fn usual() -> PathBuf {
    let candidates = candidates();
    let first = candidates.first().cloned();
    first.unwrap_or_else(|| PathBuf::from_slice(b"."))
}

/// The directories for temporary files on this machine, where they lead to.
pub fn of_machine() -> Vec<Resolved> {
    let mut places = vec![
        PathBuf::from_slice(b"/tmp"),
        PathBuf::from_slice(b"/var/tmp"),
    ];
    places.extend(named());
    let places = places.iter();
    places
        .filter_map(|place| path::resolve(&Os, place, Base::CurrentDir))
        .collect()
}

/// The directories that environment variables name.
fn named() -> impl Iterator<Item = PathBuf> {
    let variables = ["TMPDIR", "TEMP", "TMP"].into_iter();
    let named = variables.filter_map(std::env::var_os);
    named
        .map(|name| PathBuf::from_slice(name.as_encoded_bytes()))
        .filter(|name| !name.is_empty())
}

/// The directories that `tempfile` looks at and can use, in their order.
fn candidates() -> Vec<PathBuf> {
    let usual = [&b"/tmp"[..], b"/var/tmp", b"/usr/tmp"].into_iter();
    named()
        .chain(usual.map(PathBuf::from_slice))
        .chain(Os.current_dir())
        .filter(|place| can_be_used(place))
        .collect()
}

#[cfg(unix)]
fn can_be_used(directory: &[u8]) -> bool {
    use rustix::fs::Access;
    Os.is_dir(directory)
        && std::ffi::CString::new(directory).is_ok_and(|directory| {
            rustix::fs::access(&*directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        })
}

#[cfg(not(unix))]
fn can_be_used(directory: &[u8]) -> bool {
    Os.is_dir(directory)
}
