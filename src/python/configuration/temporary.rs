//! The directories in which guards have their temporary files, and what pools have beside them.
//!
//! A guard that may write anywhere at all has one of its own, which is made when `tempfile` asks
//! for it. If several guards are in force, the inner one's directory is inside the outer one's, so
//! that each of them lets it be used.

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::hash::{BuildHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use rustix::fs::{Access, XattrFlags, access, fsetxattr};

use crate::kernel::beneath::remove;
use crate::policy::files::fs::PathBuf;
use crate::policy::files::os::Os;
use crate::policy::files::path::is_within;
use crate::policy::files::path::{self, Base, Resolved};
use crate::policy::files::places;
use crate::policy::{FileSystem, Policy};
use crate::python::cpython::once::lock;
use crate::python::cpython::process;

/// The directories of guards that share them, made so far.
#[derive(Default)]
pub struct TemporaryDirectories {
    made: Mutex<Vec<Made>>,
    /// The same for their policies.
    pub paths: Arc<places::TemporaryPaths>,
}

struct Made {
    /// The directory of another guard that it is inside; `None`: the host's.
    inside: Option<PathBuf>,
    directory: TemporaryDirectory,
}

impl TemporaryDirectories {
    pub fn hold(&self, path: &[u8]) -> bool {
        self.paths.hold(path)
    }

    /// The directory inside this one, or inside the host's, which is made if it does not exist.
    pub fn usable(&self, policy: &Policy, inside: Option<&[u8]>) -> Option<PathBuf> {
        let mut made = lock(&self.made);
        let found = made.iter().find(|made| {
            made.inside.as_deref() == inside
                && policy.could_use(&Os, &made.directory.path)
                && made.directory.is_made()
        });
        if let Some(found) = found {
            return Some(PathBuf::from_slice(found.directory.path.as_bytes()));
        }
        let places = match inside {
            Some(inside) => vec![PathBuf::from_slice(inside)],
            None => candidates(),
        };
        let new = places.iter().find_map(|place| {
            TemporaryDirectory::planned(place)
                .filter(|new| policy.could_use(&Os, &new.path) && new.is_made())
        })?;
        let path = PathBuf::from_slice(new.path.as_bytes());
        self.paths.add(&new.path);
        made.push(Made { inside: inside.map(PathBuf::from_slice), directory: new });
        Some(path)
    }
}

#[doc = doc!("_TemporaryFiles")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_TemporaryFiles")]
#[derive(Default)]
pub struct TemporaryFiles {
    pub directories: Arc<TemporaryDirectories>,
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
    let first = candidates().into_iter().next();
    first.unwrap_or_else(|| PathBuf::from_slice(b"."))
}

/// The directories for temporary files on this machine, where they lead to.
pub fn of_machine() -> Vec<Resolved> {
    let mut places = vec![PathBuf::from_slice(b"/tmp"), PathBuf::from_slice(b"/var/tmp")];
    places.extend(named());
    let places = places.iter();
    places.filter_map(|place| path::resolve(&Os, place, Base::CurrentDir)).collect()
}

fn named() -> impl Iterator<Item = PathBuf> {
    let variables = ["TMPDIR", "TEMP", "TMP"].into_iter();
    let named = variables.filter_map(std::env::var_os);
    named.map(|name| PathBuf::from_slice(name.as_encoded_bytes())).filter(|name| !name.is_empty())
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

fn can_be_used(directory: &[u8]) -> bool {
    Os.is_dir(directory) && access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

// A directory for temporary files: made for one owner alone, removed with everything in it when
// the owner goes, or as the process ends.

/// With the letters of `tempfile`'s own names alone: programs take paths apart.
const PREFIX: &str = "fastaudit_";

/// The directories to remove as the process ends, each with the process that made it.
static LEFT: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

/// A directory that this process, or one that it is a copy of, made.
pub struct TemporaryDirectory {
    path: Resolved,
    process: u32,
}

impl TemporaryDirectory {
    /// A name in a directory that nothing has; nothing is made yet.
    pub fn planned(inside: &[u8]) -> Option<Self> {
        let inside = path::resolve(&Os, inside, Base::CurrentDir)?;
        let path = inside.join(format!("{PREFIX}{}", random_name()).as_bytes());
        let path = path::resolve(&Os, &path, Base::CurrentDir)?;
        Some(Self { path, process: std::process::id() })
    }

    /// Makes it, if it does not exist. Returns false if another file has its name, or it belongs to
    /// another process which removed it.
    pub fn is_made(&self) -> bool {
        let path = native(self.path.as_bytes());
        if let Ok(found) = std::fs::symlink_metadata(path) {
            return found.is_dir();
        }
        self.is_own() && DirBuilder::new().mode(0o700).create(path).is_ok_and(|()| self.note())
    }

    /// Returns whether this process made it, not one that it is a copy of.
    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Registers its removal at the end of the process.
    fn note(&self) -> bool {
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            process::at_end(remove_all);
        });
        let own = (self.process, PathBuf::from_slice(self.path.as_bytes()));
        let mut left = lock(&LEFT);
        if !left.contains(&own) {
            left.push(own);
        }
        true
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // A copy of the process leaves what its parent may still use.
        if self.is_own() {
            lock(&LEFT).retain(|(process, path)| {
                *process != self.process || path[..] != *self.path.as_bytes()
            });
            remove(native(self.path.as_bytes()));
        }
    }
}

extern "C" fn remove_all() {
    // Another thread may have been stopped while it held the lock.
    let Ok(mut left) = LEFT.try_lock() else {
        return;
    };
    let left = std::mem::take(&mut *left);
    for (process, path) in left {
        if process == std::process::id() {
            remove(native(&path));
        }
    }
}

/// A name that nobody can predict.
fn random_name() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

fn native(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

// Shared memory of pools, and directories for their sockets, that were made under a guard.

/// The attribute of shared memory that says which processes made it. Guarded code cannot give it to
/// a file of others: that changes the file.
const ATTRIBUTE: &str = "user.fastaudit";

/// What it says: the same in all processes of a guard's pools.
static MARK: OnceLock<String> = OnceLock::new();

/// What it says besides of shared memory that the host made.
const HOSTS: &str = " host";

/// True if a process was told what it says.
static HAS_TOLD: AtomicBool = AtomicBool::new(false);

fn mark() -> &'static str {
    MARK.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        format!("{}.{}", std::process::id(), now.map_or(0, |now| now.as_nanos()))
    })
}

/// Returns what it says, for a process that is started.
pub fn told_mark() -> &'static str {
    HAS_TOLD.store(true, Ordering::Relaxed);
    mark()
}

pub fn has_told() -> bool {
    HAS_TOLD.load(Ordering::Relaxed)
}

/// Takes over what it says in the process that started this one.
pub fn take_over(mark: &str) {
    let _ = MARK.set(mark.to_owned());
    HAS_TOLD.store(true, Ordering::Relaxed);
}

/// Gives shared memory that was just made the attribute; older kernels have none there.
pub fn put_mark(fd: i32, is_guarded: bool) {
    let whose = if is_guarded { "" } else { HOSTS };
    let text = format!("{}{whose}", mark());
    let flags = XattrFlags::empty();
    let _ = process::with_descriptor(fd, |fd| fsetxattr(fd, ATTRIBUTE, text.as_bytes(), flags));
}

/// True if shared memory has the attribute of this process; `None` if its files can have none.
pub fn is_marked(path: &[u8]) -> Option<bool> {
    match attribute(path) {
        Ok(given) => Some(given.starts_with(mark().as_bytes())),
        Err(rustix::io::Errno::OPNOTSUPP) => None,
        Err(_) => Some(false),
    }
}

/// Returns whether shared memory was made under a guard of this process, or of one of its pools.
pub fn is_of_guards(path: &[u8]) -> bool {
    attribute(path).is_ok_and(|given| given == mark().as_bytes())
}

fn attribute(path: &[u8]) -> rustix::io::Result<Vec<u8>> {
    let mut given = [0; 64];
    let length = rustix::fs::lgetxattr(path, ATTRIBUTE, &mut given)?;
    Ok(given[..length].to_vec())
}

/// The shared memory, and the directories for sockets, that were made under a guard.
pub struct Memory(Mutex<Vec<Vec<u8>>>);

impl Default for Memory {
    fn default() -> Self {
        // Copies of this process mark what they make as it does.
        mark();
        Self(Mutex::default())
    }
}

impl Memory {
    pub fn note(&self, path: &[u8]) {
        let mut all = lock(&self.0);
        if !all.iter().any(|own| own == path) {
            all.push(path.to_vec());
        }
    }

    pub fn is_empty(&self) -> bool {
        let all = lock(&self.0);
        all.is_empty()
    }

    pub fn holds(&self, path: &[u8]) -> bool {
        let all = lock(&self.0);
        all.iter().any(|own| is_within(path, own))
    }
}
