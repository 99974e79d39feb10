//! The databases that SQL statements open by themselves: `ATTACH` and `VACUUM INTO`, and the
//! temporary ones, where a `PRAGMA` says their directory.
//!
//! SQLite runs these at the start of a statement alone: <https://www.sqlite.org/lang_attach.html>,
//! <https://www.sqlite.org/lang_vacuum.html>,
//! <https://www.sqlite.org/pragma.html#pragma_temp_store_directory>. Tokens are told apart as its
//! tokenizer does; a parser such as `sqlparser` refuses statements that SQLite runs.

use memchr::{memchr, memmem};

/// A database that a statement opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenedDatabase {
    /// The database of this name.
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
    [b"attach", b"vacuum", DIRECTORY].iter().any(|word| {
        sql.windows(word.len())
            .any(|part| part.eq_ignore_ascii_case(word))
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
    each(sql, |statement| {
        opened_by(statement).or_else(|| opened_later(statement))
    })
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
        return Some(database(&rest[..end.unwrap_or(rest.len())]));
    }
    if is(first, b"vacuum") {
        let into = rest.iter().position(|token| is(token, b"into"))?;
        return Some(database(&rest[into + 1..]));
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

fn database(expression: &[Token]) -> OpenedDatabase {
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
        }
        assert_eq!(
            opened(b"attach 'a' as b; select 1; vacuum into 'c';").len(),
            2
        );
    }
}
