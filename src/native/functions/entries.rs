//! Functions that make, move and remove entries of directories.
//!
//! Libraries remove what may not be there, and make directories that may be there already, and go by
//! the error. These errors are answered at once: nothing is done, and so nothing is asked.

use std::ffi::{c_char, c_int, c_uint};

use libc::{dev_t, mode_t};

use super::{CWD, Path, dir, number, text};
use crate::native::asking::ActJudge;
use crate::policy::judge::{Act, Value};

/// Returns whether an entry is there, whatever it is.
///
/// # Safety
/// The path is NUL-terminated.
unsafe fn is_there(at: c_int, path: Path) -> bool {
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: by the caller.
    path.is_null() || unsafe { libc::faccessat(at, path, libc::F_OK, flags) } == 0
}

/// # Safety
/// The path is NUL-terminated, or null; so for the others.
pub(super) unsafe fn removes<'a>(at: c_int, path: Path, is_directory: bool) -> Option<Act<'a>> {
    let event = match is_directory {
        true => c"os.rmdir",
        false => c"os.remove",
    };
    // SAFETY: by the caller.
    unsafe { is_there(at, path).then_some(())? };
    // SAFETY: by the caller.
    Some(Act::new(event, &[unsafe { text(path) }?, dir(at)]))
}

pub(super) unsafe fn moves<'a>(
    event: &'static std::ffi::CStr,
    (from, old): (c_int, Path),
    (to, new): (c_int, Path),
) -> Option<Act<'a>> {
    // SAFETY: by the caller.
    let (old, new) = unsafe {
        is_there(from, old).then_some(())?;
        (text(old)?, text(new)?)
    };
    Some(Act::new(event, &[old, new, dir(from), dir(to)]))
}

pub(super) unsafe fn links<'a>(target: Path, at: c_int, path: Path) -> Option<Act<'a>> {
    // SAFETY: by the caller.
    let (target, path) = unsafe { (text(target)?, text(path)?) };
    Some(Act::new(c"os.symlink", &[target, path, dir(at)]))
}

pub(super) unsafe fn makes<'a>(
    event: &'static std::ffi::CStr,
    at: c_int,
    path: Path,
    mode: mode_t,
) -> Option<Act<'a>> {
    // SAFETY: by the caller.
    let path = unsafe {
        match is_there(at, path) {
            true => return None,
            false => text(path)?,
        }
    };
    let mode = number(mode);
    Some(match event.to_bytes() {
        // `os.mknod(path, mode, device, dir_fd)`.
        b"os.mknod" => Act::new(event, &[path, mode, Value::None, dir(at)]),
        _ => Act::new(event, &[path, mode, dir(at)]),
    })
}

super::replaced! {
    table;

    [c"unlink"]
    fn unlink(path: Path) -> c_int = removes(CWD, path, false), else -1;

    [c"unlinkat"]
    fn unlinkat(at: c_int, path: Path, flags: c_int) -> c_int
    = removes(at, path, flags & libc::AT_REMOVEDIR != 0), else -1;

    [c"remove"]
    fn remove(path: Path) -> c_int = removes(CWD, path, false), else -1;

    [c"rmdir"]
    fn rmdir(path: Path) -> c_int = removes(CWD, path, true), else -1;

    [c"rename"]
    fn rename(old: Path, new: Path) -> c_int
    = moves(c"os.rename", (CWD, old), (CWD, new)), else -1;

    [c"renameat"]
    fn renameat(from: c_int, old: Path, to: c_int, new: Path) -> c_int
    = moves(c"os.rename", (from, old), (to, new)), else -1;

    [c"renameat2"]
    fn renameat2(from: c_int, old: Path, to: c_int, new: Path, flags: c_uint) -> c_int
    // musl 1.2.5 has no such function, and an object with an import that is missing is not loaded.
    = moves(c"os.rename", (from, old), (to, new)),
    do libc::syscall(libc::SYS_renameat2, from, old, to, new, flags) as c_int, else -1;

    [c"link"]
    fn link(old: Path, new: Path) -> c_int
    = moves(c"os.link", (CWD, old), (CWD, new)), else -1;

    [c"linkat"]
    fn linkat(from: c_int, old: Path, to: c_int, new: Path, flags: c_int) -> c_int
    = moves(c"os.link", (from, old), (to, new)), else -1;

    [c"symlink"]
    fn symlink(target: Path, path: Path) -> c_int = links(target, CWD, path), else -1;

    [c"symlinkat"]
    fn symlinkat(target: Path, at: c_int, path: Path) -> c_int
    = links(target, at, path), else -1;

    [c"mkdir"]
    fn mkdir(path: Path, mode: mode_t) -> c_int = makes(c"os.mkdir", CWD, path, mode), else -1;

    [c"mkdirat"]
    fn mkdirat(at: c_int, path: Path, mode: mode_t) -> c_int
    = makes(c"os.mkdir", at, path, mode), else -1;

    [c"mkdtemp"]
    fn mkdtemp(template: *mut c_char) -> *mut c_char
    = makes(c"os.mkdir", CWD, template, 0o700), else std::ptr::null_mut();

    [c"mkfifo"]
    fn mkfifo(path: Path, mode: mode_t) -> c_int
    = makes(c"os.mknod", CWD, path, libc::S_IFIFO | mode), else -1;

    [c"mkfifoat"]
    fn mkfifoat(at: c_int, path: Path, mode: mode_t) -> c_int
    = makes(c"os.mknod", at, path, libc::S_IFIFO | mode), else -1;

    [c"mknod"]
    fn mknod(path: Path, mode: mode_t, device: dev_t) -> c_int
    = makes(c"os.mknod", CWD, path, mode), else -1;

    [c"mknodat"]
    fn mknodat(at: c_int, path: Path, mode: mode_t, device: dev_t) -> c_int
    = makes(c"os.mknod", at, path, mode), else -1;
}
