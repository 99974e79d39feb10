//! Functions that change files by their names: size, mode, owner, times, extended attributes.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{gid_t, mode_t, off_t, size_t, timespec, timeval, uid_t, utimbuf};

use super::{CWD, Path, dir, number, text, value};
use crate::native::asking::ActJudge;
use crate::policy::judge::{Act, Value};

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
