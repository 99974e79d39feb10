//! The SQLite databases that keep a write-ahead log: reading one makes files beside it, or writes
//! to those that are there, <https://www.sqlite.org/wal.html#read_only_databases>.
//!
//! The database is not opened where this process holds a lock on it: closing any descriptor of a
//! file gives up all that the process has locked there (fcntl_locking(2)), a transaction of the
//! host's too.

use crate::policy::files::fs::FileSystem;

/// The version numbers in the header which say that a log is kept:
/// <https://www.sqlite.org/fileformat.html#file_format_version_numbers>.
const VERSIONS: std::ops::Range<usize> = 18..20;
const LOGGED: u8 = 2;

/// The endings that make the names of the log and its index from that of the database.
const BESIDE: [&[u8]; 2] = [b"-wal", b"-shm"];

/// Returns whether reading the database at this resolved path may make or change files beside it.
pub(crate) fn is_kept(fs: &impl FileSystem, path: &[u8]) -> bool {
    let is_beside = |suffix: &&[u8]| fs.exists(&[path, suffix].concat());
    BESIDE.iter().any(is_beside)
        || fs
            .database_header(path)
            .is_some_and(|header| says_so(&header))
}

fn says_so(header: &[u8]) -> bool {
    let versions = header.get(VERSIONS);
    versions.is_some_and(|versions| versions.contains(&LOGGED))
}

/// Returns the first bytes of a file; `None` if it cannot be read, or if any log that it has is
/// there.
#[cfg(unix)]
pub(crate) fn header(path: &[u8]) -> Option<[u8; 20]> {
    use rustix::fs::{FileType, Mode, OFlags};

    let stat = rustix::fs::stat(path).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || is_locked(stat.st_ino) {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let mut start = [0; 20];
    let read = rustix::io::pread(&file, &mut start, 0).ok()?;
    (read == start.len()).then_some(start)
}

/// Returns whether this process holds a lock on the file of this number: then it has it open, and
/// the log is beside it.
#[cfg(unix)]
fn is_locked(number: u64) -> bool {
    // proc_locks(5): `1: POSIX  ADVISORY  WRITE 458 03:07:133880 0 EOF`
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else {
        return false;
    };
    let own = std::process::id().to_string();
    let file = format!(":{number}");
    locks.lines().any(|lock| {
        let mut words = lock.split_whitespace().filter(|word| *word != "->").skip(1);
        words.next() == Some("POSIX")
            && words.nth(2) == Some(&own)
            && words.next().is_some_and(|place| place.ends_with(&file))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let mut header = [0; 20];
        header[18..].fill(1);
        assert!(!says_so(&header));
        header[19] = 2;
        assert!(says_so(&header));
        assert!(!says_so(b"SQLite"));
    }
}
