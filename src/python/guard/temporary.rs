//! The directories in which guards have their temporary files.
//!
//! A guard that may write anywhere at all has one of its own, which is made when `tempfile` asks
//! for it. If several guards are in force, the inner one's directory is inside the outer one's, so
//! that each of them lets it be used.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::prelude::*;

use crate::policy::files::fs::PathBuf;
use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Base, Resolved};
use crate::policy::files::roots::is_within;
use crate::policy::{FileSystem, Operation, Policy, Target};
use crate::python::values::temporary_directory::Directory;

/// The directories of guards that share them, made so far.
#[derive(Default)]
pub struct Directories(Mutex<Vec<Made>>);

struct Made {
    /// The directory of another guard that it is inside; `None`: the host's.
    inside: Option<PathBuf>,
    directory: Directory,
}

impl Directories {
    fn made(&self) -> MutexGuard<'_, Vec<Made>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the policy with the directories; `None` if there are none yet.
    fn with_policy(&self, policy: &Policy) -> Option<(usize, Policy)> {
        let made = self.made();
        let all = made.iter().map(|made| made.directory.path());
        let with = all.fold(None, |with: Option<Policy>, directory| {
            Some(with.as_ref().unwrap_or(policy).with_temporary(directory))
        });
        with.map(|with| (made.len(), with))
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

/// The temporary directory of one configuration of guards.
#[derive(Default)]
pub struct Temporary {
    directories: OnceLock<Arc<Directories>>,
    /// The policy with the first of the directories, and their number.
    policy: Mutex<Option<(usize, Arc<Policy>)>>,
}

impl Temporary {
    /// Directories that other configurations have as well.
    pub fn sharing(directories: Arc<Directories>) -> Self {
        Self {
            directories: OnceLock::from(directories),
            policy: Mutex::default(),
        }
    }

    /// The directories, for others to share them.
    pub fn directories(&self) -> &Arc<Directories> {
        self.directories.get_or_init(Arc::default)
    }

    /// Returns the policy with the directories that were made; `None` if there are none yet.
    pub fn policy(&self, policy: &Policy) -> Option<Arc<Policy>> {
        let directories = self.directories.get()?;
        let mut known = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let count = directories.made().len();
        match &*known {
            Some((number, with)) if *number == count => return Some(Arc::clone(with)),
            _ => {}
        }
        *known = directories
            .with_policy(policy)
            .map(|(count, with)| (count, Arc::new(with)));
        known.as_ref().map(|(_, with)| Arc::clone(with))
    }

    /// Returns whether the path is one of the directories, or in one.
    pub fn hold(&self, path: &[u8]) -> bool {
        let directories = self.directories.get();
        directories.is_some_and(|directories| {
            let made = directories.made();
            let mut all = made.iter().map(|made| made.directory.path().as_bytes());
            all.any(|directory| is_within(path, directory))
        })
    }

    /// The directory that is inside this one, or inside the host's; it is made if it does not
    /// exist.
    pub fn directory(&self, policy: &Policy, inside: Option<&[u8]>) -> Option<PathBuf> {
        let mut made = self.directories().made();
        let found = made.iter().find(|made| {
            made.inside.as_deref() == inside
                && is_usable(policy, made.directory.path())
                && made.directory.is_made()
        });
        if let Some(found) = found {
            return Some(PathBuf::from_slice(found.directory.path().as_bytes()));
        }
        let places = match inside {
            Some(inside) => vec![PathBuf::from_slice(inside)],
            None => candidates(),
        };
        // A list to which others were added before has another length.
        let new = places.iter().find_map(|place| {
            let directory = Directory::planned(place)?;
            let usable = is_usable(policy, directory.path()) && directory.is_made();
            usable.then_some(directory)
        })?;
        let path = PathBuf::from_slice(new.path().as_bytes());
        made.push(Made {
            inside: inside.map(PathBuf::from_slice),
            directory: new,
        });
        Some(path)
    }
}

/// Returns whether the policy lets a directory be used as a temporary one: nothing blocks it.
fn is_usable(policy: &Policy, directory: &Resolved) -> bool {
    may_use(&policy.with_temporary(directory), directory.as_bytes())
}

/// Returns whether the policy lets files be made and read in a directory.
pub fn may_use(policy: &Policy, directory: &[u8]) -> bool {
    let file = [directory, b"/file"].concat();
    policy
        .check(&Os, Operation::ChangeEntry(Target::path(&file)))
        .allows()
        && policy
            .check(&Os, Operation::Read(Target::path(&file)))
            .allows()
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
