//! Functions that change files by their names: size, mode, owner, times, extended attributes.

use std::ffi::{c_char, c_int, c_void};

use libc::{gid_t, mode_t, off_t, size_t, timespec, timeval, uid_t, utimbuf};

use super::{CWD, Path, dir, number, text};
use crate::native::asking::ActJudge;
use crate::policy::judge::{Act, Value};

/// # Safety
/// The path is NUL-terminated, or null; so for the others.
pub(super) unsafe fn cuts<'a>(path: Path, length: off_t) -> Option<Act<'a>> {
    // SAFETY: by the caller.
    let path = unsafe { text(path) }?;
    Some(Act::new(c"os.truncate", &[path, number(length)]))
}

pub(super) unsafe fn sets_mode<'a>(
    at: c_int,
    path: Path,
    mode: mode_t,
    is_link: bool,
) -> Option<Act<'a>> {
    // SAFETY: by the caller.
    let path = unsafe { text(path) }?;
    let act = Act::new(c"os.chmod", &[path, number(mode), dir(at)]);
    Some(act.of_link_itself(is_link))
}

pub(super) unsafe fn sets_owner<'a>(
    at: c_int,
    path: Path,
    (user, group): (uid_t, gid_t),
    is_link: bool,
) -> Option<Act<'a>> {
    // SAFETY: by the caller.
    let path = unsafe { text(path) }?;
    let act = Act::new(c"os.chown", &[path, number(user), number(group), dir(at)]);
    Some(act.of_link_itself(is_link))
}

pub(super) unsafe fn sets_times<'a>(at: c_int, path: Path, is_link: bool) -> Option<Act<'a>> {
    // SAFETY: by the caller. Without a path the descriptor is meant, which was decided as it was
    // opened.
    let path = unsafe { text(path) }?;
    let act = Act::new(c"os.utime", &[path, Value::None, Value::None, dir(at)]);
    Some(act.of_link_itself(is_link))
}

pub(super) unsafe fn sets_attribute<'a>(
    event: &'static std::ffi::CStr,
    path: Path,
    name: *const c_char,
    is_link: bool,
) -> Option<Act<'a>> {
    // SAFETY: by the caller.
    let (path, name) = unsafe { (text(path)?, text(name)?) };
    Some(Act::new(event, &[path, name]).of_link_itself(is_link))
}

/// Returns whether a link itself is meant: the flag of the functions that end in `at`.
pub(super) fn is_link(flags: c_int) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW != 0
}

super::replaced! {
    table;

    [c"truncate", c"truncate64"]
    fn truncate(path: Path, length: off_t) -> c_int = cuts(path, length), else -1;

    [c"chmod"]
    fn chmod(path: Path, mode: mode_t) -> c_int = sets_mode(CWD, path, mode, false), else -1;

    [c"fchmodat"]
    fn fchmodat(at: c_int, path: Path, mode: mode_t, flags: c_int) -> c_int
    = sets_mode(at, path, mode, is_link(flags)), else -1;

    [c"chown"]
    fn chown(path: Path, user: uid_t, group: gid_t) -> c_int
    = sets_owner(CWD, path, (user, group), false), else -1;

    [c"lchown"]
    fn lchown(path: Path, user: uid_t, group: gid_t) -> c_int
    = sets_owner(CWD, path, (user, group), true), else -1;

    [c"fchownat"]
    fn fchownat(at: c_int, path: Path, user: uid_t, group: gid_t, flags: c_int) -> c_int
    = sets_owner(at, path, (user, group), is_link(flags)), else -1;

    [c"utime"]
    fn utime(path: Path, times: *const utimbuf) -> c_int = sets_times(CWD, path, false), else -1;

    [c"utimes"]
    fn utimes(path: Path, times: *const timeval) -> c_int = sets_times(CWD, path, false), else -1;

    [c"lutimes"]
    fn lutimes(path: Path, times: *const timeval) -> c_int = sets_times(CWD, path, true), else -1;

    [c"utimensat"]
    fn utimensat(at: c_int, path: Path, times: *const timespec, flags: c_int) -> c_int
    = sets_times(at, path, is_link(flags)), else -1;

    [c"setxattr"]
    fn setxattr(path: Path, name: *const c_char, value: *const c_void, size: size_t, flags: c_int)
        -> c_int
    = sets_attribute(c"os.setxattr", path, name, false), else -1;

    [c"lsetxattr"]
    fn lsetxattr(path: Path, name: *const c_char, value: *const c_void, size: size_t, flags: c_int)
        -> c_int
    = sets_attribute(c"os.setxattr", path, name, true), else -1;

    [c"removexattr"]
    fn removexattr(path: Path, name: *const c_char) -> c_int
    = sets_attribute(c"os.removexattr", path, name, false), else -1;

    [c"lremovexattr"]
    fn lremovexattr(path: Path, name: *const c_char) -> c_int
    = sets_attribute(c"os.removexattr", path, name, true), else -1;
}
