//! The view of the file system that a check needs, and the real one.
//!
//! Paths are bytes with `/` as the separator, as POSIX has them. On Windows (untested) they are
//! brought into that form: `C:\a` is `/c:/a`.

use smallvec::SmallVec;

use crate::policy::files::opened::Descriptor;

/// A path as bytes; most fit without an allocation.
pub type PathBuf = SmallVec<[u8; 256]>;

/// Result of reading a directory entry as a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// It is a link with this text.
    To(Vec<u8>),
    /// It is not a link, or there is no way to it: an operation on it is then one on this very
    /// name, or fails.
    None,
    /// There is no such entry, and so nothing below it.
    Missing,
    /// The system would not say, so nothing may be concluded.
    Unknown,
}

/// The part of an absolute path that goes through no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passes {
    /// It leads to something.
    Whole,
    /// It leads to a place that does not exist.
    UpToMissing,
    /// There is a link on the way, or it cannot be told.
    Unknown,
}

/// The questions of the policy core to the file system.
pub trait FileSystem {
    /// The absolute path of the current directory; `None` if it was deleted.
    fn current_dir(&self) -> Option<PathBuf>;
    /// Reads the entry as a symbolic link. The path is absolute and its parent is resolved.
    fn read_link(&self, path: &[u8]) -> Link;
    /// Returns whether the absolute path goes through no link. A shortcut to an answer that
    /// `read_link` gives too.
    fn passes_no_link(&self, _path: &[u8]) -> Passes {
        Passes::Unknown
    }
    /// Returns the absolute path of an open descriptor's file; `None` if that has no path.
    fn descriptor_path(&self, fd: i32) -> Option<PathBuf>;
    /// Returns the access mode of an open descriptor, and where it leads.
    fn descriptor(&self, _fd: i32) -> Descriptor {
        Descriptor::Unknown
    }
    /// Returns the start of an SQLite database, if it can be read without harm.
    fn database_header(&self, _path: &[u8]) -> Option<[u8; 20]> {
        None
    }
    /// Returns whether there is a directory at the path.
    fn is_dir(&self, path: &[u8]) -> bool;
    /// Returns whether there is anything at the path.
    fn exists(&self, path: &[u8]) -> bool;
    /// Returns whether there is a program at the path that this process may execute.
    fn is_executable(&self, path: &[u8]) -> bool;
}

/// The operating system's file system, as this process sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Os;

#[cfg(unix)]
mod imp {
    use std::cell::Cell;
    use std::mem::MaybeUninit;

    use rustix::fs::{Access, CWD, FileType};
    use rustix::io::Errno;

    use super::{FileSystem, Link, Os, Passes, PathBuf};
    use crate::policy::files::descriptors;
    use crate::policy::files::opened::Descriptor;
    use crate::policy::sql::write_ahead_log;

    /// The longest name of one path component on every file system Linux and macOS have.
    const NAME_MAX: usize = 255;

    /// Room for the text of any link: a path is at most this long (`PATH_MAX`).
    const LINK_MAX: usize = 4096;

    thread_local! {
        /// The buffer of the last `getcwd`, to be filled again.
        static CWD_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }

    impl FileSystem for Os {
        fn current_dir(&self) -> Option<PathBuf> {
            let cwd = rustix::process::getcwd(CWD_BUFFER.take())
                .ok()?
                .into_bytes();
            // Linux says "(unreachable)…" for a directory outside the process's root.
            let dir = cwd.starts_with(b"/").then(|| PathBuf::from_slice(&cwd));
            CWD_BUFFER.set(cwd);
            dir
        }

        fn passes_no_link(&self, path: &[u8]) -> Passes {
            openat2(path)
        }

        // For each component of a path.
        #[inline(always)]
        fn read_link(&self, path: &[u8]) -> Link {
            let mut buffer = [MaybeUninit::<u8>::uninit(); LINK_MAX];
            match rustix::fs::readlinkat_raw(CWD, path, &mut buffer[..]) {
                // Cut short, perhaps.
                Ok((text, _)) if text.len() == LINK_MAX => Link::Unknown,
                Ok((text, _)) => Link::To(text.to_vec()),
                // EINVAL: it exists, and is not a link. EACCES, ELOOP: no way to it, and none for
                //   the operation.
                Err(Errno::INVAL | Errno::ACCESS | Errno::LOOP) => Link::None,
                Err(Errno::NOENT | Errno::NOTDIR) => Link::Missing,
                // A component that is too long cannot exist. A path that is too long can, by way
                // of the current directory or a dir_fd, so it must not count as resolved.
                Err(Errno::NAMETOOLONG) if has_overlong_component(path) => Link::Missing,
                Err(_) => Link::Unknown,
            }
        }

        #[cfg(any(target_os = "linux", target_os = "android"))]
        fn descriptor_path(&self, fd: i32) -> Option<PathBuf> {
            // proc_pid_fd(5): the link's text is the path, with " (deleted)" after the path of
            // what was removed. A real name may end so too: then the text names it.
            let path =
                rustix::fs::readlinkat(CWD, format!("/proc/self/fd/{fd}"), Vec::new()).ok()?;
            let path = path.as_bytes();
            let gone = path.ends_with(b" (deleted)") && !self.exists(path);
            (path.starts_with(b"/") && !gone).then(|| PathBuf::from_slice(path))
        }

        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        fn descriptor_path(&self, fd: i32) -> Option<PathBuf> {
            // /dev/fd/N does not tell a path here; canonicalizing it does on macOS.
            let path = std::fs::canonicalize(format!("/dev/fd/{fd}")).ok()?;
            let path = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
            (!path.starts_with(b"/dev/fd")).then(|| PathBuf::from_slice(path))
        }

        fn descriptor(&self, fd: i32) -> Descriptor {
            descriptors::describe(fd)
        }

        fn database_header(&self, path: &[u8]) -> Option<[u8; 20]> {
            write_ahead_log::header(path)
        }

        fn is_dir(&self, path: &[u8]) -> bool {
            rustix::fs::stat(path)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        }

        fn exists(&self, path: &[u8]) -> bool {
            rustix::fs::lstat(path).is_ok()
        }

        fn is_executable(&self, path: &[u8]) -> bool {
            let is_file = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
            rustix::fs::stat(path).is_ok_and(|stat| is_file(stat.st_mode))
                && rustix::fs::access(path, Access::EXEC_OK).is_ok()
        }
    }

    /// Opens the path, for no access at all, by openat2(2) with `RESOLVE_NO_SYMLINKS`: one system
    /// call in place of one for each component.
    #[cfg(target_os = "linux")]
    fn openat2(path: &[u8]) -> Passes {
        use std::sync::atomic::{AtomicBool, Ordering};

        use rustix::fs::{Mode, OFlags, ResolveFlags};

        // Openat2 is missing before Linux 5.6, and refused by seccomp filters that do not know it:
        // it will not be there the next time either.
        static REFUSED: AtomicBool = AtomicBool::new(false);
        if REFUSED.load(Ordering::Relaxed) {
            return Passes::Unknown;
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened =
            rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        match opened {
            Ok(_) => Passes::Whole,
            // The components are looked up in order: a link before the missing one is ELOOP.
            Err(Errno::NOENT) => Passes::UpToMissing,
            Err(Errno::NOSYS | Errno::PERM) => {
                REFUSED.store(true, Ordering::Relaxed);
                Passes::Unknown
            }
            // Every other error (a link: ELOOP, no descriptors left: EMFILE) says only that the
            // components must be looked at one by one.
            Err(_) => Passes::Unknown,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn openat2(_path: &[u8]) -> Passes {
        Passes::Unknown
    }

    fn has_overlong_component(path: &[u8]) -> bool {
        path.split(|&byte| byte == b'/')
            .any(|component| component.len() > NAME_MAX)
    }
}

#[cfg(windows)]
mod imp {
    use std::path::{Path, PathBuf as OsPathBuf};

    use super::{FileSystem, Link, Os, PathBuf};

    fn to_os(path: &[u8]) -> OsPathBuf {
        let text = String::from_utf8_lossy(path);
        OsPathBuf::from(text.strip_prefix('/').unwrap_or(&text))
    }

    fn from_os(path: &Path) -> Option<PathBuf> {
        Some(super::from_windows(path.to_str()?.as_bytes()))
    }

    impl FileSystem for Os {
        fn current_dir(&self) -> Option<PathBuf> {
            from_os(&std::env::current_dir().ok()?)
        }

        fn read_link(&self, path: &[u8]) -> Link {
            match std::fs::read_link(to_os(path)) {
                Ok(text) => from_os(&text).map_or(Link::Unknown, |text| Link::To(text.to_vec())),
                Err(_) => Link::None,
            }
        }

        fn descriptor_path(&self, _fd: i32) -> Option<PathBuf> {
            None
        }

        fn is_dir(&self, path: &[u8]) -> bool {
            to_os(path).is_dir()
        }

        fn exists(&self, path: &[u8]) -> bool {
            to_os(path).symlink_metadata().is_ok()
        }

        fn is_executable(&self, path: &[u8]) -> bool {
            to_os(path).is_file()
        }
    }
}

/// A Windows path in the form the policy core uses: `/` as the separator, lower-case ASCII as the
/// file system does not tell case apart, and a `/` before the drive.
pub fn from_windows(path: &[u8]) -> PathBuf {
    let mut path: PathBuf = path
        .iter()
        .map(|&byte| {
            if byte == b'\\' {
                b'/'
            } else {
                byte.to_ascii_lowercase()
            }
        })
        .collect();
    if path.starts_with(b"//?/") {
        path.drain(..4);
    }
    if path.get(1) == Some(&b':') {
        path.insert(0, b'/');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_paths_take_the_posix_form() {
        assert_eq!(&from_windows(br"C:\Temp\x")[..], b"/c:/temp/x");
        assert_eq!(&from_windows(br"\\?\C:\Temp")[..], b"/c:/temp");
        assert_eq!(&from_windows(br"sub\x")[..], b"sub/x");
    }
}
