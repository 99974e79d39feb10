//! Values as JSON in one line. No Python code runs for it, and it does not grow without a bound.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyList, PyString, PyTuple};

use crate::python::cpython::ffi as raw;
use crate::python::values::simple;

/// The bytes of a text that are written; more of them are cut off.
const MOST_OF_TEXT: usize = 2048;
/// The bytes after which no more arguments are written.
const MOST_OF_ARGUMENTS: usize = 8192;
const MAX_DEPTH: usize = 3;
const MORE: &str = "…";

/// Adds a text. Bytes that are not UTF-8 become U+FFFD, and no byte ends a line.
pub fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let cut = bytes.len().min(MOST_OF_TEXT);
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' if *byte != b'"' && *byte != b'\\');
    if bytes[..cut].iter().all(is_plain) {
        out.extend_from_slice(&bytes[..cut]);
    } else {
        escaped(out, &bytes[..boundary(bytes, cut)]);
    }
    if cut < bytes.len() {
        out.extend_from_slice(MORE.as_bytes());
    }
    out.push(b'"');
}

/// The position of the start of the character that is at this one.
fn boundary(bytes: &[u8], mut at: usize) -> usize {
    let least = at.saturating_sub(3);
    while at > least && bytes.get(at).is_some_and(|byte| byte & 0xc0 == 0x80) {
        at -= 1;
    }
    at
}

fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for char in String::from_utf8_lossy(bytes).chars() {
        match char {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            // Line breaks of Unicode end a line for some readers.
            '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(char)).as_bytes());
            }
            char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

pub fn number(out: &mut Vec<u8>, number: i64) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, &number);
}

pub fn arguments(out: &mut Vec<u8>, args: &Bound<'_, PyTuple>, most: usize) {
    let start = out.len();
    let items = args.as_slice().iter().take(most);
    list(out, items.cloned(), start, MAX_DEPTH);
}

fn list<'py>(
    out: &mut Vec<u8>,
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    start: usize,
    depth: usize,
) {
    out.push(b'[');
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        if out.len() - start > MOST_OF_ARGUMENTS {
            text(out, MORE.as_bytes());
            break;
        }
        value(out, &item, start, depth);
    }
    out.push(b']');
}

/// Adds a value: text for paths and bytes, lists for tuples, the class for all that JSON cannot hold.
fn value(out: &mut Vec<u8>, object: &Bound<'_, PyAny>, start: usize, depth: usize) {
    if let Ok(given) = object.cast::<PyString>() {
        return python_text(out, given);
    }
    if object.is_none() {
        out.extend_from_slice(b"null");
    } else if let Ok(flag) = object.cast::<PyBool>() {
        out.extend_from_slice(if flag.is_true() { b"true" } else { b"false" });
    } else if let Some(whole) = raw::int_value(object) {
        number(out, whole);
    } else if let Ok(bytes) = object.cast::<PyBytes>() {
        text(out, bytes.as_bytes());
    } else if let Ok(float) = object.cast_exact::<PyFloat>()
        && float.value().is_finite()
    {
        out.extend_from_slice(format!("{:?}", float.value()).as_bytes());
    } else if let Ok(items) = object.cast::<PyTuple>()
        && depth > 0
    {
        list(out, items.iter(), start, depth - 1);
    } else if let Ok(items) = object.cast::<PyList>()
        && depth > 0
    {
        list(out, items.iter(), start, depth - 1);
    } else if let Ok(Some(path)) = simple::text(object) {
        python_text(out, &path);
    } else {
        text(out, format!("<{}>", raw::class_name(object)).as_bytes());
    }
}

pub fn whole(out: &mut Vec<u8>, object: &Bound<'_, PyAny>) {
    let start = out.len();
    value(out, object, start, MAX_DEPTH);
}

pub fn python_text(out: &mut Vec<u8>, given: &Bound<'_, PyString>) {
    match raw::fs_encode(given.as_borrowed()) {
        Ok(bytes) => text(out, bytes.as_bytes()),
        Err(_) => text(out, given.to_string_lossy().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::text;

    fn written(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        text(&mut out, bytes);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_are_json() {
        for given in ["plain", "a\nb\r\"c\\", "é\u{2028}\u{85}\0\x7f", ""] {
            let read: String = serde_json::from_str(&written(given.as_bytes())).unwrap();
            assert_eq!(read, given);
            assert_eq!(written(given.as_bytes()).lines().count(), 1);
        }
        assert_eq!(written(b"a\xffb"), "\"a\u{fffd}b\"");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "é".repeat(5000);
        let read: String = serde_json::from_str(&written(&long.as_bytes()[1..])).unwrap();
        assert!(read.ends_with("é…"), "{}", &read[read.len() - 20..]);
        assert!(read.len() < 2100);
    }
}
