//! The databases that names and SQL statements open.

use memchr::{memchr, memchr2_iter, memmem};

use crate::policy::files::fs::FileSystem;

// The files that `sqlite3.connect(database)` opens. The audit event has the name but not the `uri`
// flag, so a `file:` name is read both ways: <https://www.sqlite.org/uri.html>.

/// The kind of database that a name opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// A private database in memory or in a temporary file of SQLite's own.
    Private,
    File,
    /// With `uri=True` the target of the URI; else a file of this very name.
    Uri(UriTarget),
}

/// The target of a `file:` URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UriTarget {
    Memory,
    /// A file that nobody changes, for reading only (`mode=ro&immutable=1`).
    Read(Vec<u8>),
    /// A file, for reading only (`mode=ro`), with the locks and the log of those who write to it.
    ReadShared(Vec<u8>),
    Write(Vec<u8>),
}

/// Reads a database name as `sqlite3_open_v2` does.
pub fn database_of(name: &[u8]) -> Database {
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
    let parameters: Vec<_> = query.split(|&byte| byte == b'&').filter_map(parameter).collect();
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
    matches!(vfs, b"unix" | b"unix-excl" | b"unix-none")
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
        let digit = |at: usize| char::from(*tail.get(at)?).to_digit(16);
        match digit(0).zip(digit(1)).filter(|_| first == b'%') {
            // For SQLite "%00" ends the path, the key or the value that it is in.
            Some((0, 0)) => return out,
            Some((high, low)) => {
                out.push((high << 4 | low) as u8);
                rest = &tail[2..];
            }
            None => out.push(first),
        }
    }
    out
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
    BESIDE.iter().any(is_beside) || fs.database_header(path).is_some_and(|header| says_so(&header))
}

fn says_so(header: &[u8]) -> bool {
    let versions = header.get(VERSIONS);
    versions.is_some_and(|versions| versions.contains(&LOGGED))
}

/// Returns the first bytes of a file; `None` if it cannot be read, or if any log that it has is
/// there.
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

// The databases that SQL statements open by themselves: `ATTACH` and `VACUUM INTO`, and the
// temporary ones, where a `PRAGMA` says their directory.
//
// SQLite runs these at the start of a statement alone: <https://www.sqlite.org/lang_attach.html>,
// <https://www.sqlite.org/lang_vacuum.html>,
// <https://www.sqlite.org/pragma.html#pragma_temp_store_directory>. Tokens are told apart as its
// tokenizer does; a parser such as `sqlparser` refuses statements that SQLite runs.

/// A database that a statement opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenedDatabase {
    Named(Vec<u8>),
    /// The one that the only parameter names.
    Parameter,
    /// The value of an expression.
    Unknown,
}

/// The pragma that says where temporary databases are, for the whole process. SQLite obeys it as it
/// reads the statement, which need not run.
const DIRECTORY: &[u8] = b"temp_store_directory";

/// The beginning of the names of temporary databases.
const TEMPORARY: &[u8] = b"/etilqs_";

/// Returns whether the statements may open a database: a cheap test for the common case.
pub fn may_open(sql: &[u8]) -> bool {
    // Each word is looked for by a letter of it that is rare in statements.
    [(b"attach".as_slice(), 5), (b"vacuum", 0), (DIRECTORY, 4)].iter().any(|(word, rare)| {
        let letter = word[*rare];
        memchr2_iter(letter, letter.to_ascii_uppercase(), sql).any(|at| {
            let part = at.checked_sub(*rare).and_then(|begin| sql.get(begin..begin + word.len()));
            part.is_some_and(|part| part.eq_ignore_ascii_case(word))
        })
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A keyword or a name, in lower case.
    Word(Vec<u8>),
    /// A text in quotes of any kind.
    Text(Vec<u8>),
    /// `?`
    Parameter,
    /// `;`
    End,
    /// `.`
    Dot,
    Other,
}

/// Returns the databases that the statements of a script open.
pub fn opened(sql: &[u8]) -> Vec<OpenedDatabase> {
    each(sql, |statement| opened_by(statement).or_else(|| opened_later(statement)))
}

/// Returns those that they open though they do not run.
pub fn opened_unrun(sql: &[u8]) -> Vec<OpenedDatabase> {
    each(sql, opened_later)
}

fn each(sql: &[u8], opened: impl Fn(&[Token]) -> Option<OpenedDatabase>) -> Vec<OpenedDatabase> {
    let mut found = Vec::new();
    let mut tokens = Tokens(sql);
    let mut statement = Vec::new();
    loop {
        match tokens.next() {
            Some(Token::End) => {}
            Some(token) => {
                statement.push(token);
                continue;
            }
            None if statement.is_empty() => return found,
            None => {}
        }
        found.extend(opened(&statement));
        statement.clear();
    }
}

fn is(token: &Token, word: &[u8]) -> bool {
    matches!(token, Token::Word(own) if own == word)
}

fn opened_by(statement: &[Token]) -> Option<OpenedDatabase> {
    let (first, rest) = statement.split_first()?;
    if is(first, b"attach") {
        let rest = match rest {
            [second, rest @ ..] if is(second, b"database") && !begins(rest, b"as") => rest,
            rest => rest,
        };
        let end = rest.iter().position(|token| is(token, b"as"));
        return Some(of_expression(&rest[..end.unwrap_or(rest.len())]));
    }
    if is(first, b"vacuum") {
        let into = rest.iter().position(|token| is(token, b"into"))?;
        return Some(of_expression(&rest[into + 1..]));
    }
    None
}

/// Returns the temporary databases of the directory that a pragma sets.
fn opened_later(statement: &[Token]) -> Option<OpenedDatabase> {
    let pragma = statement.iter().position(|token| is(token, b"pragma"))?;
    let explains = |token: &Token| {
        let words: [&[u8]; 3] = [b"explain", b"query", b"plan"];
        words.iter().any(|word| is(token, word))
    };
    if !statement[..pragma].iter().all(explains) {
        return None;
    }
    let (name, value) = match &statement[pragma + 1..] {
        [_, Token::Dot, name, value @ ..] | [name, value @ ..] => (name, value),
        [] => return None,
    };
    let (Token::Word(name) | Token::Text(name)) = name else {
        return None;
    };
    if !name.eq_ignore_ascii_case(DIRECTORY) {
        return None;
    }
    // `= 'directory'` or `('directory')`.
    match value {
        [] => None,
        [_, Token::Text(dir)] | [_, Token::Text(dir), _] if dir.is_empty() => None,
        [_, Token::Text(dir)] | [_, Token::Text(dir), _] => {
            Some(OpenedDatabase::Named([dir, TEMPORARY].concat()))
        }
        _ => Some(OpenedDatabase::Unknown),
    }
}

fn begins(tokens: &[Token], word: &[u8]) -> bool {
    tokens.first().is_some_and(|token| is(token, word))
}

fn of_expression(expression: &[Token]) -> OpenedDatabase {
    match expression {
        [Token::Text(name)] => OpenedDatabase::Named(name.clone()),
        [Token::Parameter] => OpenedDatabase::Parameter,
        // A bare word is a name, but its case is lost here.
        _ => OpenedDatabase::Unknown,
    }
}

struct Tokens<'a>(&'a [u8]);

impl Tokens<'_> {
    /// Takes a text that ends with a quote, which is doubled inside.
    fn quoted(&mut self, end: u8) -> Token {
        let mut text = Vec::new();
        loop {
            let Some(at) = memchr(end, self.0) else {
                text.extend_from_slice(self.0);
                self.0 = &[];
                return Token::Text(text);
            };
            text.extend_from_slice(&self.0[..at]);
            self.0 = &self.0[at + 1..];
            if end == b']' || self.0.first() != Some(&end) {
                return Token::Text(text);
            }
            text.push(end);
            self.0 = &self.0[1..];
        }
    }

    fn skip(&mut self, count: usize) {
        self.0 = &self.0[count.min(self.0.len())..];
    }

    fn next(&mut self) -> Option<Token> {
        loop {
            let first = *self.0.first()?;
            match (first, self.0.get(1)) {
                (b' ' | b'\t' | b'\n' | b'\x0c' | b'\r', _) => self.skip(1),
                // A byte order mark is white space, at the start of a token alone.
                (0xef, _) if self.0.starts_with(b"\xef\xbb\xbf") => self.skip(3),
                (b'-', Some(b'-')) => {
                    let end = memchr(b'\n', self.0);
                    self.skip(end.map_or(usize::MAX, |end| end + 1));
                }
                (b'/', Some(b'*')) => {
                    let end = memmem::find(&self.0[2..], b"*/");
                    self.skip(end.map_or(usize::MAX, |end| end + 4));
                }
                (b'\'' | b'"' | b'`', _) => {
                    self.skip(1);
                    return Some(self.quoted(first));
                }
                (b'[', _) => {
                    self.skip(1);
                    return Some(self.quoted(b']'));
                }
                (b';', _) => {
                    self.skip(1);
                    return Some(Token::End);
                }
                (b'.', _) => {
                    self.skip(1);
                    return Some(Token::Dot);
                }
                (b'?', next) if !next.is_some_and(u8::is_ascii_digit) => {
                    self.skip(1);
                    return Some(Token::Parameter);
                }
                _ if is_of_word(first) => {
                    let end = self.0.iter().position(|&byte| !is_of_word(byte));
                    let word = self.0[..end.unwrap_or(self.0.len())].to_ascii_lowercase();
                    self.skip(word.len());
                    // A blob, `x'61'`, is neither a word nor a text.
                    if word == b"x" && self.0.first() == Some(&b'\'') {
                        self.skip(1);
                        self.quoted(b'\'');
                        return Some(Token::Other);
                    }
                    return Some(Token::Word(word));
                }
                _ => {
                    self.skip(1);
                    return Some(Token::Other);
                }
            }
        }
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn what_statements_open() {
        let named = |name: &str| vec![OpenedDatabase::Named(name.as_bytes().to_vec())];
        for (sql, found) in [
            ("select 1", vec![]),
            ("select 'attach ''x'' as y'", vec![]),
            ("create table attach (a)", vec![]),
            ("insert into a values (';attach ''b'' as c;')", vec![]),
            ("select 1; -- attach 'x' as y", vec![]),
            ("explain attach 'x' as y", vec![]),
            ("vacuum", vec![]),
            ("VACUUM main", vec![]),
            ("attach 'x' as y", named("x")),
            ("ATTACH DATABASE 'x''y' AS z", named("x'y")),
            ("attach database as y", vec![OpenedDatabase::Unknown]),
            ("attach \"x\" as y", named("x")),
            ("attach [x] as y", named("x")),
            ("attach `x` as y", named("x")),
            (" ;\n/* c */ Attach/**/'x'as y", named("x")),
            ("--c\nattach'x'as y", named("x")),
            ("attach Name as y", vec![OpenedDatabase::Unknown]),
            ("attach 'x' || 'y' as z", vec![OpenedDatabase::Unknown]),
            ("attach ('x') as z", vec![OpenedDatabase::Unknown]),
            ("attach x'61' as z", vec![OpenedDatabase::Unknown]),
            ("attach ? as z", vec![OpenedDatabase::Parameter]),
            ("attach ?1 as z", vec![OpenedDatabase::Unknown]),
            ("attach :a as z", vec![OpenedDatabase::Unknown]),
            ("\u{feff}attach\u{feff} 'x' as y", vec![]),
            ("\u{feff} attach \u{feff}'x' as y", named("x")),
            ("attach 'unterminated", named("unterminated")),
            ("vacuum into 'x'", named("x")),
            ("vacuum main into 'x'", named("x")),
            ("vacuum into ?", vec![OpenedDatabase::Parameter]),
            ("vacuum 'main' into lower('x')", vec![OpenedDatabase::Unknown]),
            ("pragma temp_store_directory", vec![]),
            ("pragma temp_store_directory = ''", vec![]),
            ("select 1 -- pragma temp_store_directory = 'x'", vec![]),
            ("pragma table_info(temp_store_directory)", vec![]),
            ("pragma temp_store_directory = 'x'", named("x/etilqs_")),
            ("PRAGMA Temp_Store_Directory('x')", named("x/etilqs_")),
            ("pragma main.[temp_store_directory]=[x]", named("x/etilqs_")),
            ("explain query plan pragma temp_store_directory=\"x\"", named("x/etilqs_")),
            ("pragma temp_store_directory = x", vec![OpenedDatabase::Unknown]),
        ] {
            assert_eq!(opened(sql.as_bytes()), found, "{sql}");
            assert!(found.is_empty() || may_open(sql.as_bytes()), "{sql}");
        }
        assert_eq!(
            opened(b"attach 'a' as b; select 1; vacuum into 'c';").len(),
            2
        );
    }
}
