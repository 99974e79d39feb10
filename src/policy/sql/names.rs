//! The files that `sqlite3.connect(database)` opens.
//!
//! The audit event has the name but not the `uri` flag, so a `file:` name is read both ways:
//! <https://www.sqlite.org/uri.html>.

use memchr::memchr;

use crate::policy::files::fs::FileSystem;

/// The kind of database that a name opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A private database in memory or in a temporary file of SQLite's own.
    Private,
    /// The file of this name.
    File,
    /// With `uri=True` the target of the URI; else a file of this very name.
    Uri(UriTarget),
}

/// The target of a `file:` URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UriTarget {
    /// A database in memory.
    Memory,
    /// A file that nobody changes, for reading only (`mode=ro&immutable=1`).
    Read(Vec<u8>),
    /// A file, for reading only (`mode=ro`), with the locks and the log of those who write to it.
    ReadShared(Vec<u8>),
    /// A file, for writing.
    Write(Vec<u8>),
}

/// Reads a database name as `sqlite3_open_v2` does.
pub fn parse(name: &[u8]) -> Database {
    if name.is_empty() || name == b":memory:" {
        return Database::Private;
    }
    let Some(rest) = name.strip_prefix(b"file:") else {
        return Database::File;
    };
    let rest = &rest[..memchr(b'#', rest).unwrap_or(rest.len())];
    let (path, query) = match memchr(b'?', rest) {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &b""[..]),
    };
    // An authority, "//host", ends at the next slash. SQLite refuses any but "" and "localhost".
    let path = match path.strip_prefix(b"//") {
        Some(after) => &after[memchr(b'/', after).unwrap_or(after.len())..],
        None => path,
    };
    let path = percent_decode(path);
    let parameters: Vec<_> = query
        .split(|&byte| byte == b'&')
        .filter_map(parameter)
        .collect();
    let values = |name: &'static [u8]| {
        let named = parameters.iter().filter(move |(key, _)| key == name);
        named.map(|(_, value)| &value[..])
    };
    // The last `mode` and `vfs` count, the first `immutable`.
    let (mode, vfs) = (values(b"mode").next_back(), values(b"vfs").next_back());
    Database::Uri(match mode {
        Some(b"memory") => UriTarget::Memory,
        _ if path.is_empty() || path == b":memory:" => UriTarget::Memory,
        Some(b"ro") if values(b"immutable").next().is_some_and(is_true) => UriTarget::Read(path),
        Some(b"ro") if vfs.is_none_or(locks_in_place) => UriTarget::ReadShared(path),
        _ => UriTarget::Write(path),
    })
}

fn is_true(value: &[u8]) -> bool {
    let words: [&[u8]; 4] = [b"1", b"on", b"true", b"yes"];
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Returns whether SQLite locks a file itself by this `vfs`: with `unix-dotfile` it makes another.
fn locks_in_place(vfs: &[u8]) -> bool {
    matches!(vfs, b"unix" | b"unix-excl" | b"unix-none" | b"win32")
}

/// `key=value`, both percent-decoded.
fn parameter(pair: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let at = memchr(b'=', pair)?;
    Some((percent_decode(&pair[..at]), percent_decode(&pair[at + 1..])))
}

/// Returns the text with its percent escapes decoded.
pub(crate) fn percent_decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                // For SQLite "%00" ends the path, the key or the value that it is in.
                match hex(*high) << 4 | hex(*low) {
                    0 => return out,
                    byte => out.push(byte),
                }
                rest = after;
            }
            _ => out.push(first),
        }
    }
    out
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

// The SQLite databases that keep a write-ahead log: reading one makes files beside it, or writes
// to those that are there, <https://www.sqlite.org/wal.html#read_only_databases>.
//
// The database is not opened where this process holds a lock on it: closing any descriptor of a
// file gives up all that the process has locked there (fcntl_locking(2)), a transaction of the
// host's too.

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
