//! Functions that open files: open(2), fopen(3), mkstemp(3).
//!
//! open(2) has a third argument only where it makes a file. It is taken in any case, and handed on:
//! on the supported platforms it is in a register, whose value nobody uses otherwise. A file's size has
//! 64 bits there, so that functions with and without `64` in their names are the same.

use std::ffi::{CStr, c_char, c_int};

use libc::{FILE, mode_t};

use super::{CWD, Path, base, number, text, value};
use crate::native::asking::ActJudge;
use crate::policy::judge::{Act, Value};

pub(super) fn opens(dir: c_int, path: Option<&CStr>, flags: c_int) -> Option<Act<'_>> {
    let given = [value(path?), Value::None, number(flags)];
    Some(Act::new(c"open", &given).from(base(dir)))
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

super::replaced! {
    table;

    [c"open", c"open64", c"__open", c"__open64"]
    fn open(path: Path, flags: c_int, mode: mode_t) -> c_int = opens(CWD, text(path), flags), else -1;

    [c"__open_2", c"__open64_2"]
    fn open_2(path: Path, flags: c_int) -> c_int
    = opens(CWD, text(path), flags), do libc::open(path, flags), else -1;

    [c"openat", c"openat64"]
    fn openat(dir: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int
    = opens(dir, text(path), flags), else -1;

    [c"__openat_2", c"__openat64_2"]
    fn openat_2(dir: c_int, path: Path, flags: c_int) -> c_int
    = opens(dir, text(path), flags), do libc::openat(dir, path, flags), else -1;

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
}
