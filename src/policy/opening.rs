//! How a file is opened: whether that may write.

/// Whether opening the path writes no file: it discards, or goes to a stream the process was
/// started with.
pub(super) fn is_standing_device(path: &[u8]) -> bool {
    #[cfg(unix)]
    const DEVICES: &[&[u8]] = &[b"/dev/null", b"/dev/stdout", b"/dev/stderr"];
    #[cfg(not(unix))]
    const DEVICES: &[&[u8]] = &[];
    DEVICES.contains(&path)
}

/// Whether `open(path, mode, flags)` may write. `mode` is `None` for `os.open`, whose flags then
/// decide, as in open(2).
#[must_use]
pub fn open_may_write(mode: Option<&[u8]>, flags: i64) -> bool {
    match mode {
        Some(mode) => mode.iter().any(|letter| b"wax+".contains(letter)),
        None => flags & i64::from(WRITE_FLAGS) != 0,
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_modes() {
        for mode in ["w", "a", "x", "r+", "rb+", "wb"] {
            assert!(open_may_write(Some(mode.as_bytes()), 0), "{mode}");
        }
        for mode in ["r", "rb", "rt", ""] {
            assert!(!open_may_write(Some(mode.as_bytes()), 0xff), "{mode}");
        }
        assert!(!open_may_write(None, 0));
        assert!(open_may_write(None, i64::from(WRITE_FLAGS)));
    }
}
