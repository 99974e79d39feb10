//! What `sqlite3.connect(database)` opens.
//!
//! The audit event has the name but not the `uri` flag, so a `file:` name is read both ways:
//! <https://www.sqlite.org/uri.html>.

use memchr::memchr;

/// What a database name opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A private database in memory or in a temporary file of SQLite's own.
    Private,
    /// The file of this name.
    File,
    /// With `uri=True` what the URI says; else a file of this very name.
    Uri(UriTarget),
}

/// What a `file:` URI opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UriTarget {
    /// A database in memory.
    Memory,
    /// A file, for reading only (`mode=ro`).
    Read(Vec<u8>),
    /// A file, for writing.
    Write(Vec<u8>),
}

/// Reads a database name as `sqlite3_open_v2` does.
#[must_use]
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
    let mode = query
        .split(|&byte| byte == b'&')
        .filter_map(parameter)
        .filter(|(key, _)| key == b"mode")
        .map(|(_, value)| value)
        .next_back();
    Database::Uri(match mode.as_deref() {
        Some(b"memory") => UriTarget::Memory,
        _ if path.is_empty() || path == b":memory:" => UriTarget::Memory,
        Some(b"ro") => UriTarget::Read(path),
        _ => UriTarget::Write(path),
    })
}

/// `key=value`, both percent-decoded.
fn parameter(pair: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let at = memchr(b'=', pair)?;
    Some((percent_decode(&pair[..at]), percent_decode(&pair[at + 1..])))
}

fn percent_decode(text: &[u8]) -> Vec<u8> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &str) -> Database {
        Database::Uri(UriTarget::Write(path.into()))
    }

    #[test]
    fn plain_names() {
        assert_eq!(parse(b""), Database::Private);
        assert_eq!(parse(b":memory:"), Database::Private);
        assert_eq!(parse(b"/a/b.db"), Database::File);
        assert_eq!(parse(b"FILE:x"), Database::File);
    }

    #[test]
    fn uris_name_a_path() {
        assert_eq!(parse(b"file:/a/b.db"), write("/a/b.db"));
        assert_eq!(parse(b"file:///a/b.db?mode=rwc"), write("/a/b.db"));
        assert_eq!(parse(b"file://localhost/a%20b"), write("/a b"));
        assert_eq!(parse(b"file:a.db#x?mode=memory"), write("a.db"));
        assert_eq!(parse(b"file:/%65tc/x%zz"), write("/etc/x%zz"));
        assert_eq!(
            parse(b"file:/a?mode=ro"),
            Database::Uri(UriTarget::Read(b"/a".to_vec()))
        );
    }

    #[test]
    fn uris_in_memory() {
        for name in [
            &b"file::memory:"[..],
            b"file:",
            b"file:?cache=shared",
            b"file:m?mode=memory",
        ] {
            assert_eq!(parse(name), Database::Uri(UriTarget::Memory), "{name:?}");
        }
    }

    #[test]
    fn the_last_mode_counts() {
        assert_eq!(parse(b"file:/a?mode=ro&mode=rwc"), write("/a"));
        assert_eq!(parse(b"file:/a?mode=ro&%6dode=rw"), write("/a"));
        assert_eq!(parse(b"file:/a?mode=memory&mode=rw"), write("/a"));
    }

    #[test]
    fn an_encoded_nul_ends_what_it_is_in() {
        assert_eq!(parse(b"file:/a%00/../b"), write("/a"));
        assert_eq!(parse(b"file:/a?mode=memory&mode%00=rwc"), write("/a"));
        assert_eq!(parse(b"file:/a?mode=memory&mode%00x=rwc"), write("/a"));
        assert_eq!(
            parse(b"file:/a?mode=ro%00x"),
            Database::Uri(UriTarget::Read(b"/a".to_vec()))
        );
    }
}
