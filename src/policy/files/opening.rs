//! Tells whether opening a file may write.

use crate::policy::files::descriptors;
use crate::policy::files::fs::{Descriptor, FileSystem};

/// Returns whether opening this entry of a directory for writing changes no file: it discards, or
/// stands for a descriptor that this process has open for writing, which leads to no file or is
/// `appended` to. Opening it in another way begins at the start of the file: what the host wrote
/// there is lost.
pub(crate) fn is_standing_device(fs: &impl FileSystem, entry: &[u8], appends: bool) -> bool {
    if !cfg!(unix) {
        return false;
    }
    if entry == b"/dev/null" {
        return true;
    }
    let Some(fd) = descriptors::named_by(entry) else {
        return false;
    };
    match fs.descriptor(fd) {
        Descriptor::Open(opened) => opened.writes && (opened.streams || appends),
        Descriptor::Closed | Descriptor::Unknown => false,
    }
}

/// Returns whether `open(path, mode, flags)` may write. `mode` is `None` for `os.open`, whose flags
/// then decide, as in open(2).
pub fn open_may_write(mode: Option<&[u8]>, flags: i64) -> bool {
    match mode {
        Some(mode) => mode.iter().any(|letter| b"wax+".contains(letter)),
        None => flags & i64::from(WRITE_FLAGS) != 0,
    }
}

/// Returns whether `open(path, mode, flags)`, which may write, keeps the contents.
pub fn open_appends(mode: Option<&[u8]>, flags: i64) -> bool {
    match mode {
        Some(mode) => mode.contains(&b'a'),
        None => flags & i64::from(APPEND) != 0 && flags & i64::from(TRUNCATE) == 0,
    }
}

/// Returns whether `os.open(path, flags)` makes a file that is not to be there, as what makes
/// temporary files does: its name is another one each time.
pub fn open_makes_new(flags: i64) -> bool {
    flags & i64::from(EXCLUSIVE) != 0
}

#[cfg(unix)]
const EXCLUSIVE: u32 = rustix::fs::OFlags::EXCL.bits();
/// `_O_EXCL` of the Windows C runtime.
#[cfg(not(unix))]
const EXCLUSIVE: u32 = 0x400;

#[cfg(unix)]
const APPEND: u32 = rustix::fs::OFlags::APPEND.bits();
#[cfg(unix)]
const TRUNCATE: u32 = rustix::fs::OFlags::TRUNC.bits();

/// `_O_APPEND` and `_O_TRUNC` of the Windows C runtime.
#[cfg(not(unix))]
const APPEND: u32 = 0x0008;
#[cfg(not(unix))]
const TRUNCATE: u32 = 0x0200;

#[cfg(unix)]
const WRITE_FLAGS: u32 = {
    use rustix::fs::OFlags;
    OFlags::WRONLY
        .union(OFlags::RDWR)
        .union(OFlags::CREATE)
        .union(OFlags::TRUNC)
        .union(OFlags::APPEND)
        .bits()
};

/// `_O_WRONLY | _O_RDWR | _O_CREAT | _O_TRUNC | _O_APPEND` of the Windows C runtime.
#[cfg(not(unix))]
const WRITE_FLAGS: u32 = 0x0001 | 0x0002 | 0x0100 | 0x0200 | 0x0008;
