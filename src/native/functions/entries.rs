//! Functions that make, move and remove entries of directories.
//!
//! Libraries remove what may not be there, and make directories that may be there already, and go by
//! the error. These errors are answered at once: nothing is done, and so nothing is asked.

use std::ffi::{CStr, c_char, c_int, c_uint};

use libc::{dev_t, mode_t};

use super::{CWD, Path, dir, number, text, value};
use crate::native::asking::ActJudge;
use crate::policy::judge::{Act, Value};

/// Returns whether an entry is there, whatever it is.
fn is_there(at: c_int, path: &CStr) -> bool {
    let mut found = std::mem::MaybeUninit::uninit();
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the path is NUL-terminated, and what is found is not read. faccessat(2) has flags only
    // on newer systems, and not where the filter of a container does not know it.
    unsafe { libc::fstatat(at, path.as_ptr(), found.as_mut_ptr(), flags) == 0 }
}

pub(super) fn removes(at: c_int, path: Option<&CStr>, is_directory: bool) -> Option<Act<'_>> {
    let event = match is_directory {
        true => c"os.rmdir",
        false => c"os.remove",
    };
    let path = path.filter(|path| is_there(at, path))?;
    Some(Act::new(event, &[value(path), dir(at)]))
}

pub(super) fn moves<'a>(
    event: &'static CStr,
    (from, old): (c_int, Option<&'a CStr>),
    (to, new): (c_int, Option<&'a CStr>),
) -> Option<Act<'a>> {
    let old = old.filter(|old| is_there(from, old))?;
    let given = [value(old), value(new?), dir(from), dir(to)];
    Some(Act::new(event, &given))
}

pub(super) fn links<'a>(
    target: Option<&'a CStr>,
    at: c_int,
    path: Option<&'a CStr>,
) -> Option<Act<'a>> {
    let given = [value(target?), value(path?), dir(at)];
    Some(Act::new(c"os.symlink", &given))
}

pub(super) fn makes<'a>(
    event: &'static CStr,
    at: c_int,
    path: Option<&'a CStr>,
    mode: mode_t,
) -> Option<Act<'a>> {
    let path = value(path.filter(|path| !is_there(at, path))?);
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
    fn unlink(path: Path) -> c_int = removes(CWD, text(path), false), else -1;

    [c"unlinkat"]
    fn unlinkat(at: c_int, path: Path, flags: c_int) -> c_int
    = removes(at, text(path), flags & libc::AT_REMOVEDIR != 0), else -1;

    [c"remove"]
    fn remove(path: Path) -> c_int = removes(CWD, text(path), false), else -1;

    [c"rmdir"]
    fn rmdir(path: Path) -> c_int = removes(CWD, text(path), true), else -1;

    [c"rename"]
    fn rename(old: Path, new: Path) -> c_int
    = moves(c"os.rename", (CWD, text(old)), (CWD, text(new))), else -1;

    [c"renameat"]
    fn renameat(from: c_int, old: Path, to: c_int, new: Path) -> c_int
    = moves(c"os.rename", (from, text(old)), (to, text(new))), else -1;

    [c"renameat2"]
    fn renameat2(from: c_int, old: Path, to: c_int, new: Path, flags: c_uint) -> c_int
    // musl 1.2.5 has no such function, and an object with an import that is missing is not loaded.
    = moves(c"os.rename", (from, text(old)), (to, text(new))),
    do libc::syscall(libc::SYS_renameat2, from, old, to, new, flags) as c_int, else -1;

    [c"link"]
    fn link(old: Path, new: Path) -> c_int
    = moves(c"os.link", (CWD, text(old)), (CWD, text(new))), else -1;

    [c"linkat"]
    fn linkat(from: c_int, old: Path, to: c_int, new: Path, flags: c_int) -> c_int
    = moves(c"os.link", (from, text(old)), (to, text(new))), else -1;

    [c"symlink"]
    fn symlink(target: Path, path: Path) -> c_int = links(text(target), CWD, text(path)), else -1;

    [c"symlinkat"]
    fn symlinkat(target: Path, at: c_int, path: Path) -> c_int
    = links(text(target), at, text(path)), else -1;

    [c"mkdir"]
    fn mkdir(path: Path, mode: mode_t) -> c_int = makes(c"os.mkdir", CWD, text(path), mode), else -1;

    [c"mkdirat"]
    fn mkdirat(at: c_int, path: Path, mode: mode_t) -> c_int
    = makes(c"os.mkdir", at, text(path), mode), else -1;

    [c"mkdtemp"]
    fn mkdtemp(template: *mut c_char) -> *mut c_char
    = makes(c"os.mkdir", CWD, text(template), 0o700), else std::ptr::null_mut();

    [c"mkfifo"]
    fn mkfifo(path: Path, mode: mode_t) -> c_int
    = makes(c"os.mknod", CWD, text(path), libc::S_IFIFO | mode), else -1;

    [c"mkfifoat"]
    fn mkfifoat(at: c_int, path: Path, mode: mode_t) -> c_int
    = makes(c"os.mknod", at, text(path), libc::S_IFIFO | mode), else -1;

    [c"mknod"]
    fn mknod(path: Path, mode: mode_t, device: dev_t) -> c_int
    = makes(c"os.mknod", CWD, text(path), mode), else -1;

    [c"mknodat"]
    fn mknodat(at: c_int, path: Path, mode: mode_t, device: dev_t) -> c_int
    = makes(c"os.mknod", at, text(path), mode), else -1;

    /// What headers of glibc before 2.33 make of mknod(2).
    [c"__xmknod"]
    fn old_mknod(_version: c_int, path: Path, mode: mode_t, device: *const dev_t) -> c_int
    = makes(c"os.mknod", CWD, text(path), mode), do libc::mknod(path, mode, *device), else -1;

    [c"__xmknodat"]
    fn old_mknodat(_version: c_int, at: c_int, path: Path, mode: mode_t, device: *const dev_t) -> c_int
    = makes(c"os.mknod", at, text(path), mode), do libc::mknodat(at, path, mode, *device), else -1;
}
