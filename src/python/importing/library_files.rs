//! The files that the libraries behind the standard library find by themselves.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub fn users() -> Vec<PathBuf> {
    vec!["/etc/passwd".into()]
}

pub fn groups() -> Vec<PathBuf> {
    vec!["/etc/group".into()]
}

pub fn in_home(name: &str) -> PathBuf {
    Path::new(&home()).join(name)
}

fn home() -> OsString {
    std::env::var_os("HOME").unwrap_or_default()
}

/// The file of readline(3)'s settings, if none is named.
pub fn settings() -> PathBuf {
    let named = std::env::var_os("INPUTRC").filter(|path| !path.is_empty());
    named.map_or_else(|| in_home(".inputrc"), |path| expanded(path.as_bytes()))
}

/// The path that readline(3) makes of one with `~`, or `~user`, before it.
pub fn expanded(path: &[u8]) -> PathBuf {
    let Some(rest) = path.strip_prefix(b"~") else {
        return OsStr::from_bytes(path).into();
    };
    let end = memchr::memchr(b'/', rest).unwrap_or(rest.len());
    let (user, rest) = rest.split_at(end);
    let home = match user {
        b"" => Some(home().into_vec()),
        user => home_of(user),
    };
    match home {
        Some(home) => OsString::from_vec([&home[..], rest].concat()).into(),
        None => OsStr::from_bytes(path).into(),
    }
}

fn home_of(user: &[u8]) -> Option<Vec<u8>> {
    let users = std::fs::read("/etc/passwd").ok()?;
    let mut lines = users.split(|&byte| byte == b'\n');
    lines.find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        (fields.next()? == user).then(|| fields.nth(4).map(<[u8]>::to_vec))?
    })
}

/// The file that a line of readline(3)'s settings includes.
pub fn included(line: &[u8]) -> Option<PathBuf> {
    let directive = skip_blanks(skip_blanks(line).strip_prefix(b"$")?);
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let end = directive.iter().position(is_blank)?;
    let (name, path) = directive.split_at(end);
    if !name.eq_ignore_ascii_case(b"include") {
        return None;
    }
    let path = skip_blanks(path);
    let end = memchr::memchr2(b'\n', 0, path).unwrap_or(path.len());
    Some(expanded(&path[..end]))
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
    &text[start.unwrap_or(text.len())..]
}
