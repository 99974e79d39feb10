//! The verdict on one operation.

use super::database::{self, Database, UriTarget};
use super::fs::FileSystem;
use super::path::{self, Base, Name, Resolved, Target};
use super::roots::Roots;
use super::rules;

/// What code is about to do, decoded from one argument of an audit event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Creates, changes or removes the directory entry of this name. An operation on an open
    /// descriptor was decided when that was opened.
    ChangeEntry(Target<'a>),
    /// Opens a file so that it may be written.
    OpenForWriting(Target<'a>),
    /// Makes this the current directory. `left` is the directory the guarded code was in before
    /// it first changed it: going back there is no overreach.
    ChangeDirectory {
        /// The destination.
        to: Target<'a>,
        /// The directory first left, if any.
        left: Option<&'a [u8]>,
    },
    /// Makes a symbolic link with this text at `at`. The entry itself is a `ChangeEntry`.
    LinkTo {
        /// The text of the link.
        text: Name<'a>,
        /// The link.
        at: Target<'a>,
    },
    /// Opens an SQLite database of this name.
    OpenDatabase(Name<'a>),
    /// Assigns one of the attributes that raise `object.__setattr__`.
    SetAttribute(&'a [u8]),
}

/// Whether an operation may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

impl From<bool> for Verdict {
    fn from(allowed: bool) -> Self {
        if allowed { Self::Allow } else { Self::Deny }
    }
}

/// What a guard allows. Immutable once built.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    roots: Roots,
}

impl Policy {
    /// The policy that approves writing below these roots.
    #[must_use]
    pub fn new(roots: Roots) -> Self {
        Self { roots }
    }

    /// Judges an operation.
    pub fn check(&self, fs: &impl FileSystem, operation: Operation<'_>) -> Verdict {
        match operation {
            Operation::ChangeEntry(target) => match target.name {
                Name::Path(path) => self.holds_entry(fs, path, target.base),
                Name::Descriptor(_) => true,
                Name::Unreadable => false,
            },
            Operation::OpenForWriting(target) => self.may_open(fs, target),
            Operation::ChangeDirectory { to, left } => self.may_enter(fs, to, left),
            Operation::LinkTo { text, at } => self.may_link(fs, text, at),
            Operation::OpenDatabase(Name::Path(name)) => self.may_open_database(fs, name),
            Operation::OpenDatabase(_) => false,
            Operation::SetAttribute(name) => rules::is_ordinary_attribute(name),
        }
        .into()
    }

    /// Whether the directory that holds the entry is approved.
    fn holds_entry(&self, fs: &impl FileSystem, path: &[u8], base: Base) -> bool {
        parent(fs, path, base).is_some_and(|dir| self.roots.contain(fs, &dir))
    }

    fn may_open(&self, fs: &impl FileSystem, target: Target<'_>) -> bool {
        let path = match target.name {
            Name::Path(path) => path,
            Name::Descriptor(_) => return true,
            Name::Unreadable => return false,
        };
        let Some(dir) = parent(fs, path, target.base) else {
            return false;
        };
        if self.roots.contain(fs, &dir) || is_standing_device(&dir.join(path::split(path).1)) {
            return true;
        }
        // A root itself, opened as a directory: `O_TMPFILE`, and `tempfile`, which names the
        // directory to `open` and hands it an opener. Without one of these it fails: a directory
        // cannot be opened for writing.
        path::resolve(fs, path, target.base)
            .is_some_and(|whole| self.roots.is_root(fs, &whole) && fs.is_dir(whole.as_bytes()))
    }

    fn may_enter(&self, fs: &impl FileSystem, to: Target<'_>, left: Option<&[u8]>) -> bool {
        let (path, base) = match to.name {
            Name::Path(path) => (path, to.base),
            Name::Descriptor(fd) => (&b"."[..], Base::Descriptor(fd)),
            Name::Unreadable => return false,
        };
        path::resolve(fs, path, base)
            .is_some_and(|dir| self.roots.contain(fs, &dir) || left == Some(dir.as_bytes()))
    }

    fn may_link(&self, fs: &impl FileSystem, text: Name<'_>, at: Target<'_>) -> bool {
        let Name::Path(text) = text else {
            return false;
        };
        if text.starts_with(b"/") {
            return self.holds_entry(fs, text, Base::CurrentDir);
        }
        let Name::Path(link) = at.name else {
            return false;
        };
        parent(fs, link, at.base)
            .and_then(|dir| path::resolve_beside(fs, text, &dir))
            .is_some_and(|landing| self.roots.contain(fs, &landing))
    }

    fn may_open_database(&self, fs: &impl FileSystem, name: &[u8]) -> bool {
        let by_uri = match database::parse(name) {
            Database::Private => return true,
            Database::File => return self.holds_entry(fs, name, Base::CurrentDir),
            Database::Uri(UriTarget::Memory | UriTarget::Read(_)) => true,
            Database::Uri(UriTarget::Write(path)) => self.holds_entry(fs, &path, Base::CurrentDir),
        };
        // Without uri=True the same text is a relative path, "file:" its first directory. Where
        // that does not exist, nothing can be opened by it.
        let by_name = memchr::memchr(b'/', name).is_none()
            || !parent(fs, name, Base::CurrentDir).is_some_and(|dir| fs.exists(dir.as_bytes()))
            || self.holds_entry(fs, name, Base::CurrentDir);
        by_uri && by_name
    }
}

fn parent(fs: &impl FileSystem, path: &[u8], base: Base) -> Option<Resolved> {
    path::resolve(fs, path::split(path).0, base)
}

/// Whether opening the path writes no file: it discards, or goes to a stream the process was
/// started with.
fn is_standing_device(path: &[u8]) -> bool {
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
