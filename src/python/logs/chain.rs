//! The chain of a log's lines: each has a number, the hash of the line before it and its own hash.
//!
//! A hash is the SHA-256 of the bytes of its line before the key `hash`, which is the last one. Lines
//! of a file make one chain, whoever writes them. A writer that cannot keep to that has a chain of its
//! own, and a name for it in each line.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::python::values::json_line;

const DIGITS: usize = 64;
const NAME: usize = 16;

type Hex = [u8; DIGITS];

#[derive(Clone)]
pub struct Chain {
    /// The name of a chain that is not the file's.
    name: Option<String>,
    /// The number of the last line; 0 before the first one.
    pub number: u64,
    pub hash: Hex,
}

impl Chain {
    /// The chain of a file.
    pub const fn of_file() -> Self {
        Self { name: None, number: 0, hash: [b'0'; DIGITS] }
    }

    /// A chain of one writer, which begins after a line with this hash.
    pub fn of_writer(after: Hex) -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let unique = format!("{:?} {} {made}", SystemTime::now(), std::process::id());
        let mut name = String::from_utf8_lossy(&hex_of(unique.as_bytes())).into_owned();
        name.truncate(NAME);
        Self { name: Some(name), number: 0, hash: after }
    }

    pub const fn is_of_file(&self) -> bool {
        self.name.is_none()
    }

    /// Adds lines, each of which is an object of JSON and ends with a newline, as links.
    pub fn link_all(&mut self, lines: &[u8], out: &mut Vec<u8>) {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.link(line, out);
        }
    }

    fn link(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let end = line.iter().rposition(|byte| *byte == b'}').unwrap_or(line.len());
        out.extend_from_slice(&line[..end]);
        if let Some(name) = &self.name {
            out.extend_from_slice(b",\"chain\":\"");
            out.extend_from_slice(name.as_bytes());
            out.push(b'"');
        }
        self.number += 1;
        out.extend_from_slice(b",\"seq\":");
        json_line::number(out, self.number.try_into().unwrap_or(i64::MAX));
        out.extend_from_slice(b",\"prev_hash\":\"");
        out.extend_from_slice(&self.hash);
        out.push(b'"');
        self.hash = hex_of(&out[start..]);
        out.extend_from_slice(b",\"hash\":\"");
        out.extend_from_slice(&self.hash);
        out.extend_from_slice(b"\"}\n");
    }
}

/// The state of a file's chain after the last of its lines that is whole.
pub fn last_of_file(end: &[u8]) -> Option<Chain> {
    end.split_inclusive(|byte| *byte == b'\n').rev().find_map(of_line)
}

/// The state of a file's chain after a line; `None` if the line is none of that chain.
fn of_line(line: &[u8]) -> Option<Chain> {
    let (rest, hash) = cut_hash(line.strip_suffix(b"}\n")?, b",\"hash\":\"")?;
    let (rest, _) = cut_hash(rest, b",\"prev_hash\":\"")?;
    let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, digits) = rest.split_at(rest.len() - digits);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let rest = rest.strip_suffix(b",\"seq\":")?;
    let name = rest.len().checked_sub(NAME + 1).and_then(|start| rest[..start].strip_suffix(b"\""));
    if name.is_some_and(|rest| rest.ends_with(b",\"chain\":")) {
        return None;
    }
    Some(Chain { name: None, number, hash })
}

fn cut_hash<'a>(text: &'a [u8], key: &[u8]) -> Option<(&'a [u8], Hex)> {
    let (rest, hash) = text.strip_suffix(b"\"")?.split_last_chunk::<DIGITS>()?;
    let is_hash = hash.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    Some((rest.strip_suffix(key)?, is_hash.then_some(*hash)?))
}

fn hex_of(bytes: &[u8]) -> Hex {
    let mut hex = [0; DIGITS];
    for (digits, byte) in hex.chunks_exact_mut(2).zip(Sha256::digest(bytes)) {
        digits[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        digits[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::{Chain, last_of_file};

    #[test]
    fn the_state_of_a_chain_is_read_from_its_last_line() {
        let mut chain = Chain::of_file();
        let mut out = Vec::new();
        chain.link_all(b"{\"a\":1}\n{\"b\":\"}\"}\n", &mut out);
        let mut other = Chain::of_writer(chain.hash);
        other.link_all(b"{\"c\":3}\n", &mut out);
        out.extend_from_slice(b"torn");
        let found = last_of_file(&out).unwrap();
        assert_eq!((found.number, found.hash), (2, chain.hash));
        assert!(last_of_file(b"{\"a\":1}\n").is_none());
    }
}
