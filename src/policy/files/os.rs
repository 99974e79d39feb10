//! The file system of the operating system.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{Access, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::policy::files::descriptors;
use crate::policy::files::fs::{Descriptor, FileSystem, Link, Passes, PathBuf};
use crate::policy::sql;

/// The operating system's file system, as this process sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Os;

/// The longest name of one path component on every file system Linux has.
const NAME_MAX: usize = 255;

/// Room for the text of any link: a path is at most this long (`PATH_MAX`).
const LINK_MAX: usize = 4096;

thread_local! {
    /// The buffer of the last `getcwd`, to be filled again.
    static CWD_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Os {
    /// Forgets the current directory that was looked up last in this thread.
    pub fn forget_current_dir() {
        let mut cwd = CWD_BUFFER.take();
        cwd.clear();
        CWD_BUFFER.set(cwd);
    }

    /// The current directory as it was looked up last in this thread since it was forgotten, or as
    /// it is now.
    pub fn last_current_dir() -> Option<PathBuf> {
        let cwd = CWD_BUFFER.take();
        let dir = cwd.starts_with(b"/").then(|| PathBuf::from_slice(&cwd));
        CWD_BUFFER.set(cwd);
        dir.or_else(|| Self.current_dir())
    }
}

impl FileSystem for Os {
    fn current_dir(&self) -> Option<PathBuf> {
        let cwd = rustix::process::getcwd(CWD_BUFFER.take()).ok()?.into_bytes();
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
        let text = match rustix::fs::readlinkat_raw(CWD, path, &mut buffer[..]) {
            Ok((text, _)) => Ok(text.to_vec()),
            Err(Errno::FAULT) => read_odd_link(path),
            Err(error) => Err(error),
        };
        match text {
            // Cut short, perhaps.
            Ok(text) if text.len() == LINK_MAX => Link::Unknown,
            Ok(text) => Link::To(text),
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

    fn descriptor_path(&self, fd: i32) -> Option<PathBuf> {
        // proc_pid_fd(5): the link's text is the path, with " (deleted)" after the path of
        // what was removed. A real name may end so too: then the text names it.
        let path = rustix::fs::readlinkat(CWD, format!("/proc/self/fd/{fd}"), Vec::new()).ok()?;
        let path = path.as_bytes();
        let gone = path.ends_with(b" (deleted)") && !self.exists(path);
        (path.starts_with(b"/") && !gone).then(|| PathBuf::from_slice(path))
    }

    fn descriptor(&self, fd: i32) -> Descriptor {
        descriptors::describe(self, fd)
    }

    fn database_header(&self, path: &[u8]) -> Option<[u8; 20]> {
        sql::header(path)
    }

    fn identity(&self, path: &[u8]) -> Option<(u64, u64)> {
        let found = status(path, OFlags::empty()).ok()?;
        Some((found.st_dev as u64, found.st_ino as u64))
    }

    fn is_dir(&self, path: &[u8]) -> bool {
        status(path, OFlags::empty())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }

    fn exists(&self, path: &[u8]) -> bool {
        status(path, OFlags::NOFOLLOW).is_ok()
    }

    fn is_executable(&self, path: &[u8]) -> bool {
        let is_file = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
        rustix::fs::stat(path).is_ok_and(|stat| is_file(stat.st_mode))
            && rustix::fs::access(path, Access::EXEC_OK).is_ok()
    }
}

/// Returns the status of a file, or of the link itself.
fn status(path: &[u8], follow: OFlags) -> rustix::io::Result<Stat> {
    let found = match follow.contains(OFlags::NOFOLLOW) {
        true => rustix::fs::lstat(path),
        false => rustix::fs::stat(path),
    };
    match found {
        Err(Errno::FAULT) => rustix::fs::fstat(open_odd(path, follow)?),
        found => found,
    }
}

/// Reads a link by a descriptor. The supervisor of a sandbox answers `EFAULT` to readlink(2)
/// and stat(2) of a name that is not UTF-8, and lets it be opened.
fn read_odd_link(path: &[u8]) -> rustix::io::Result<Vec<u8>> {
    let link = open_odd(path, OFlags::NOFOLLOW)?;
    match rustix::fs::readlinkat(link, c"", Vec::new()) {
        // It is no link.
        Err(Errno::NOENT) => Err(Errno::INVAL),
        text => Ok(text?.into_bytes()),
    }
}

fn open_odd(path: &[u8], follow: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = NO_ACCESS | OFlags::CLOEXEC | follow;
    rustix::fs::open(path, flags, Mode::empty())
}

#[cfg(target_os = "linux")]
const NO_ACCESS: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const NO_ACCESS: OFlags = OFlags::RDONLY;

/// Opens the path, for no access at all, by openat2(2) with `RESOLVE_NO_SYMLINKS`: one system
/// call in place of one for each component.
#[cfg(target_os = "linux")]
fn openat2(path: &[u8]) -> Passes {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::ResolveFlags;

    // Openat2 is missing before Linux 5.6, and refused by seccomp filters that do not know it:
    // it will not be there the next time either.
    static REFUSED: AtomicBool = AtomicBool::new(false);
    if REFUSED.load(Ordering::Relaxed) {
        return Passes::Unknown;
    }
    let flags = NO_ACCESS | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
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

/// Other systems have no such call.
#[cfg(not(target_os = "linux"))]
fn openat2(_: &[u8]) -> Passes {
    Passes::Unknown
}

fn has_overlong_component(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(|component| component.len() > NAME_MAX)
}
