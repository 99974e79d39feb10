//! The extent of a report that somebody made who is not trusted, before it is read.

use pyo3::prelude::*;

#[doc = doc!("_json_extent")]
#[pyfunction]
#[pyo3(name = "_json_extent")]
pub fn json_extent(data: &[u8]) -> (usize, usize) {
    let (mut values, mut depth, mut deepest) = (1, 0usize, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in data {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'[' | b'{' => {
                values += 1;
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
    }
    (values, deepest)
}

#[cfg(test)]
mod tests {
    use super::json_extent;

    #[test]
    fn texts_and_brackets() {
        assert_eq!(json_extent(b"1"), (1, 0));
        assert_eq!(json_extent(br#"{"a": [1, 2, [3]]}"#), (6, 3));
        assert_eq!(json_extent(br#""[[[,,,\"[[[,,,""#), (1, 0));
        assert_eq!(json_extent(b"]]]["), (2, 1));
    }
}
