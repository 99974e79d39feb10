//! Functions that open, make, move, remove and change files by their names: open(2), mkstemp(3),
//! rename(2), chmod(2).
//!
//! open(2) has a third argument only where it makes a file. It is taken in any case, and handed on:
//! on the supported platforms it is in a register, whose value nobody uses otherwise. A file's size has
//! 64 bits there, so that functions with and without `64` in their names are the same.
//!
//! Libraries remove what may not be there, and make directories that may be there already, and go by
//! the error. These errors are answered at once: nothing is done, and so nothing is asked.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libc::{FILE, dev_t, gid_t, mode_t, off_t, size_t, timespec, timeval, uid_t, utimbuf};

use super::{CWD, Path, base, dir, number, text, value};
use crate::native::asking::ActJudge;
use crate::policy::judge::{Act, Value};

pub(super) fn opens(at: c_int, path: Option<&CStr>, flags: c_int) -> Option<Act<'_>> {
    let given = [value(path?), Value::None, number(flags)];
    Some(Act::new(c"open", &given).from(base(at)))
}

/// The flags that fopen(3) opens a file with.
fn flags_of(mode: Option<&CStr>) -> c_int {
    let mode = mode.unwrap_or_default().to_bytes();
    let opens = match mode.first() {
        Some(b'w') => libc::O_CREAT | libc::O_TRUNC,
        Some(b'a') => libc::O_CREAT | libc::O_APPEND,
        _ => 0,
    };
    let access = match (mode.contains(&b'+'), opens) {
        (true, _) => libc::O_RDWR,
        (false, 0) => libc::O_RDONLY,
        (false, _) => libc::O_WRONLY,
    };
    opens | access
}

const NEW: c_int = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;

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

pub(super) fn cuts(path: Option<&CStr>, length: off_t) -> Option<Act<'_>> {
    Some(Act::new(c"os.truncate", &[value(path?), number(length)]))
}

pub(super) fn sets_mode(
    at: c_int,
    path: Option<&CStr>,
    mode: mode_t,
    is_link: bool,
) -> Option<Act<'_>> {
    let act = Act::new(c"os.chmod", &[value(path?), number(mode), dir(at)]);
    Some(act.of_link_itself(is_link))
}

pub(super) fn sets_owner(
    at: c_int,
    path: Option<&CStr>,
    (user, group): (uid_t, gid_t),
    is_link: bool,
) -> Option<Act<'_>> {
    let given = [value(path?), number(user), number(group), dir(at)];
    Some(Act::new(c"os.chown", &given).of_link_itself(is_link))
}

/// Without a path the descriptor is meant, which was decided as it was opened.
pub(super) fn sets_times(at: c_int, path: Option<&CStr>, is_link: bool) -> Option<Act<'_>> {
    let given = [value(path?), Value::None, Value::None, dir(at)];
    Some(Act::new(c"os.utime", &given).of_link_itself(is_link))
}

pub(super) fn sets_attribute<'a>(
    event: &'static CStr,
    path: Option<&'a CStr>,
    name: Option<&'a CStr>,
    is_link: bool,
) -> Option<Act<'a>> {
    Some(Act::new(event, &[value(path?), value(name?)]).of_link_itself(is_link))
}

/// Returns whether a link itself is meant: the flag of the functions that end in `at`.
pub(super) fn is_link(flags: c_int) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW != 0
}

super::replaced! {
    table;

    [c"open", c"open64", c"__open", c"__open64"]
    fn open(path: Path, flags: c_int, mode: mode_t) -> c_int = opens(CWD, text(path), flags), else -1;

    [c"__open_2", c"__open64_2"]
    fn open_2(path: Path, flags: c_int) -> c_int
    = opens(CWD, text(path), flags), do libc::open(path, flags), else -1;

    [c"openat", c"openat64"]
    fn openat(at: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int
    = opens(at, text(path), flags), else -1;

    [c"__openat_2", c"__openat64_2"]
    fn openat_2(at: c_int, path: Path, flags: c_int) -> c_int
    = opens(at, text(path), flags), do libc::openat(at, path, flags), else -1;

    [c"creat", c"creat64"]
    fn creat(path: Path, mode: mode_t) -> c_int
    = opens(CWD, text(path), libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC), else -1;

    [c"fopen", c"fopen64"]
    fn fopen(path: Path, mode: *const c_char) -> *mut FILE
    = opens(CWD, text(path), flags_of(text(mode))), else std::ptr::null_mut();

    [c"freopen", c"freopen64"]
    fn freopen(path: Path, mode: *const c_char, file: *mut FILE) -> *mut FILE
    = opens(CWD, text(path), flags_of(text(mode))), else std::ptr::null_mut();

    [c"mkstemp", c"mkstemp64"]
    fn mkstemp(template: *mut c_char) -> c_int = opens(CWD, text(template), NEW), else -1;

    [c"mkostemp", c"mkostemp64"]
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int
    = opens(CWD, text(template), NEW | flags), else -1;

    [c"mkstemps", c"mkstemps64"]
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int
    = opens(CWD, text(template), NEW), else -1;

    [c"mkostemps", c"mkostemps64"]
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int
    = opens(CWD, text(template), NEW | flags), else -1;

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

    [c"truncate", c"truncate64"]
    fn truncate(path: Path, length: off_t) -> c_int = cuts(text(path), length), else -1;

    [c"chmod"]
    fn chmod(path: Path, mode: mode_t) -> c_int = sets_mode(CWD, text(path), mode, false), else -1;

    [c"fchmodat"]
    fn fchmodat(at: c_int, path: Path, mode: mode_t, flags: c_int) -> c_int
    = sets_mode(at, text(path), mode, is_link(flags)), else -1;

    [c"chown"]
    fn chown(path: Path, user: uid_t, group: gid_t) -> c_int
    = sets_owner(CWD, text(path), (user, group), false), else -1;

    [c"lchown"]
    fn lchown(path: Path, user: uid_t, group: gid_t) -> c_int
    = sets_owner(CWD, text(path), (user, group), true), else -1;

    [c"fchownat"]
    fn fchownat(at: c_int, path: Path, user: uid_t, group: gid_t, flags: c_int) -> c_int
    = sets_owner(at, text(path), (user, group), is_link(flags)), else -1;

    [c"utime"]
    fn utime(path: Path, times: *const utimbuf) -> c_int = sets_times(CWD, text(path), false), else -1;

    [c"utimes"]
    fn utimes(path: Path, times: *const timeval) -> c_int = sets_times(CWD, text(path), false), else -1;

    [c"lutimes"]
    fn lutimes(path: Path, times: *const timeval) -> c_int = sets_times(CWD, text(path), true), else -1;

    [c"utimensat"]
    fn utimensat(at: c_int, path: Path, times: *const timespec, flags: c_int) -> c_int
    = sets_times(at, text(path), is_link(flags)), else -1;

    [c"setxattr"]
    fn setxattr(path: Path, name: *const c_char, value: *const c_void, size: size_t, flags: c_int)
        -> c_int
    = sets_attribute(c"os.setxattr", text(path), text(name), false), else -1;

    [c"lsetxattr"]
    fn lsetxattr(path: Path, name: *const c_char, value: *const c_void, size: size_t, flags: c_int)
        -> c_int
    = sets_attribute(c"os.setxattr", text(path), text(name), true), else -1;

    [c"removexattr"]
    fn removexattr(path: Path, name: *const c_char) -> c_int
    = sets_attribute(c"os.removexattr", text(path), text(name), false), else -1;

    [c"lremovexattr"]
    fn lremovexattr(path: Path, name: *const c_char) -> c_int
    = sets_attribute(c"os.removexattr", text(path), text(name), true), else -1;
}
