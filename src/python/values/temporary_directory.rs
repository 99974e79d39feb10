//! A directory for temporary files: made for one owner alone, removed with everything in it when
//! the owner goes, or as the process ends.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf as NativePath;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::policy::files::fs::PathBuf;
use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Base, Resolved};
#[cfg(unix)]
use crate::python::cpython::process;

/// The beginning of its name.
const PREFIX: &str = "fastaudit-";

/// The number of names that are tried.
const TRIES: usize = 100;

/// The directories to remove as the process ends, each with the process that made it.
static LEFT: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

fn left() -> MutexGuard<'static, Vec<(u32, PathBuf)>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory that this process, or one that it is a copy of, made.
pub struct Directory {
    path: Resolved,
    process: u32,
}

impl Directory {
    /// A free name in a directory; nothing is made yet.
    pub fn planned(inside: &[u8]) -> Option<Self> {
        let inside = path::resolve(&Os, inside, Base::CurrentDir)?;
        for _ in 0..TRIES {
            let name = format!("{PREFIX}{}", random_name());
            let path = inside.join(name.as_bytes());
            if std::fs::symlink_metadata(native(&path)).is_err() {
                let path = path::resolve(&Os, &path, Base::CurrentDir)?;
                let process = std::process::id();
                return Some(Self { path, process });
            }
        }
        None
    }

    /// Makes it, if it does not exist. Returns false if another file has its name, or it belongs to
    /// another process which removed it.
    pub fn is_made(&self) -> bool {
        let path = native(self.path.as_bytes());
        if let Ok(found) = std::fs::symlink_metadata(&path) {
            return found.is_dir();
        }
        self.is_own() && make(&path).is_ok_and(|()| self.note())
    }

    /// Where it is.
    pub fn path(&self) -> &Resolved {
        &self.path
    }

    /// Returns whether this process made it, not one that it is a copy of.
    fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Registers its removal at the end of the process.
    fn note(&self) -> bool {
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            #[cfg(unix)]
            process::at_end(remove_all);
        });
        let own = (self.process, PathBuf::from_slice(self.path.as_bytes()));
        let mut left = left();
        if !left.contains(&own) {
            left.push(own);
        }
        true
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A copy of the process leaves what its parent may still use.
        if self.is_own() {
            left().retain(|(process, path)| {
                *process != self.process || path[..] != *self.path.as_bytes()
            });
            remove(&native(self.path.as_bytes()));
        }
    }
}

#[cfg(unix)]
extern "C" fn remove_all() {
    // Another thread may have been stopped while it held the lock.
    let Ok(mut left) = LEFT.try_lock() else {
        return;
    };
    let left = std::mem::take(&mut *left);
    for (process, path) in left {
        if process == std::process::id() {
            remove(&native(&path));
        }
    }
}

/// Eight letters that nobody can predict.
fn random_name() -> String {
    let mut random = RandomState::new().build_hasher().finish();
    let letters = (0..8).map(|_| {
        let letter = u8::try_from(random % 26).unwrap_or(0) + b'a';
        random /= 26;
        char::from(letter)
    });
    letters.collect()
}

#[cfg(unix)]
fn make(path: &NativePath) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(not(unix))]
fn make(path: &NativePath) -> std::io::Result<()> {
    std::fs::create_dir(path)
}

#[cfg(unix)]
fn native(path: &[u8]) -> NativePath {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(path).into()
}

#[cfg(not(unix))]
fn native(path: &[u8]) -> NativePath {
    String::from_utf8_lossy(path).trim_start_matches('/').into()
}

#[cfg(unix)]
use unix::remove;

#[cfg(not(unix))]
fn remove(path: &NativePath) {
    let _ = std::fs::remove_dir_all(path);
}

#[cfg(unix)]
mod unix {
    use std::ffi::{CStr, CString};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::path::Path;

    use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
    use rustix::io::Errno;

    /// The most times that the tree is gone through. Each time it loses a level at least.
    const MAX_PASSES: usize = 1 << 20;

    /// Removes a directory with all that is in it, whatever the modes are and however deep it is.
    /// Links are removed, and not followed. Files that cannot be removed stay.
    pub fn remove(path: &Path) {
        let Ok(path) = CString::new(path.as_os_str().as_encoded_bytes()) else {
            return;
        };
        let Ok(top) = open(CWD, &path) else {
            return;
        };
        let mut moved = 0;
        for _ in 0..MAX_PASSES {
            if !flatten(top.as_fd(), &mut moved) {
                break;
            }
        }
        let _ = rustix::fs::unlinkat(CWD, &*path, AtFlags::REMOVEDIR);
    }

    /// Removes the files in a directory and moves the entries two levels down one up, so that no
    /// stack and no more than two descriptors are needed. Tells whether that changed anything.
    fn flatten(top: BorrowedFd<'_>, moved: &mut usize) -> bool {
        let mut progress = false;
        each(top, |name| {
            if unlink(top, name) {
                progress = true;
                return;
            }
            let Ok(directory) = open(top, name) else {
                return;
            };
            each(directory.as_fd(), |inner| {
                if unlink(directory.as_fd(), inner) {
                    progress = true;
                    return;
                }
                // A directory that is moved gets a new `..`, so that it must be writable itself.
                let _ = open(directory.as_fd(), inner);
                *moved += 1;
                let new = CString::new(format!("fastaudit-moved-{moved}"));
                progress |= new.is_ok_and(|new| {
                    rustix::fs::renameat(directory.as_fd(), inner, top, &*new).is_ok()
                });
            });
            progress |= unlink(top, name);
        });
        progress
    }

    /// Removes a file, a link or an empty directory.
    fn unlink(directory: BorrowedFd<'_>, name: &CStr) -> bool {
        rustix::fs::unlinkat(directory, name, AtFlags::empty()).is_ok()
            || rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR).is_ok()
    }

    fn each(directory: BorrowedFd<'_>, mut look: impl FnMut(&CStr)) {
        let Ok(entries) = Dir::read_from(directory) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name != c"." && name != c".." {
                look(name);
            }
        }
    }

    /// Opens a directory, but not a link to one, and lets its owner change it.
    fn open(base: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(base, name, flags, Mode::empty());
        let directory = match opened {
            Err(Errno::ACCESS) => {
                allow_owner(base, name)?;
                rustix::fs::openat(base, name, flags, Mode::empty())?
            }
            opened => opened?,
        };
        // If it is not ours, its entries may still be.
        let _ = rustix::fs::fchmod(&directory, Mode::RWXU);
        Ok(directory)
    }

    /// Lets the owner open a directory that cannot be opened.
    #[cfg(target_os = "linux")]
    fn allow_owner(base: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        use std::os::fd::AsRawFd;

        // Acts on the open file, whatever has its name by now.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::openat(base, name, flags, Mode::empty())?;
        let held = CString::new(format!("/proc/self/fd/{}", held.as_raw_fd()));
        rustix::fs::chmod(&*held.map_err(|_| Errno::INVAL)?, Mode::RWXU)
    }

    #[cfg(not(target_os = "linux"))]
    fn allow_owner(base: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        rustix::fs::chmodat(base, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
    }
}
