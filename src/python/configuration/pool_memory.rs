//! Shared memory of pools, and directories for their sockets, that were made under a guard.

use std::sync::{Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::policy::files::path::is_within;
#[cfg(target_os = "linux")]
use crate::python::cpython::descriptors;
use crate::python::cpython::once::lock;

/// The attribute of shared memory that says which processes made it. Guarded code cannot give it to
/// a file of others: that changes the file.
#[cfg(target_os = "linux")]
const ATTRIBUTE: &str = "user.fastaudit";

/// What it says: the same in all processes of a guard's pools.
static MARK: OnceLock<String> = OnceLock::new();

pub fn mark() -> &'static str {
    MARK.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        format!(
            "{}.{}",
            std::process::id(),
            now.map_or(0, |now| now.as_nanos())
        )
    })
}

/// Returns whether a process was told.
pub fn has_told() -> bool {
    MARK.get().is_some()
}

/// Takes over what it says in the process that started this one.
pub fn enter(mark: &str) {
    let _ = MARK.set(mark.to_owned());
}

/// Gives shared memory that was just made the attribute; older kernels have none there.
#[cfg(target_os = "linux")]
pub fn put_mark(fd: i32) {
    use rustix::fs::{XattrFlags, fsetxattr};
    let flags = XattrFlags::empty();
    let _ = descriptors::with(fd, |fd| fsetxattr(fd, ATTRIBUTE, mark().as_bytes(), flags));
}

/// True if shared memory has the attribute of this process; `None` if its files can have none.
#[cfg(target_os = "linux")]
pub fn is_marked(path: &[u8]) -> Option<bool> {
    let mut given = [0; 64];
    match rustix::fs::lgetxattr(path, ATTRIBUTE, &mut given) {
        Ok(length) => Some(given[..length] == *mark().as_bytes()),
        Err(rustix::io::Errno::OPNOTSUPP) => None,
        Err(_) => Some(false),
    }
}

#[cfg(not(target_os = "linux"))]
pub fn put_mark(_fd: i32) {}

#[cfg(not(target_os = "linux"))]
pub fn is_marked(_path: &[u8]) -> Option<bool> {
    None
}

/// The shared memory, and the directories for sockets, that were made under a guard.
#[derive(Default)]
pub struct Memory(Mutex<Vec<Vec<u8>>>);

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
