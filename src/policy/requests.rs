//! Rules for requests of HTTP: a method, a host and a path, as a policy names them.
//!
//! Whoever reads the requests judges them by these: the proxy of a sandbox. A path is matched in its
//! normal form, which is also what goes to the server. Servers take some paths in two ways (`/a/..`,
//! `/a%2Fb`): such a path must be allowed in both, or is refused.

use super::hosts::{Destination, HostRule};

/// The times that a path is decoded: a server, and another one behind it, may do so too.
const DECODED: usize = 4;

/// One rule: `"GET api.example.com/v1/*"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRule {
    /// `None` for each.
    method: Option<String>,
    pub host: HostRule,
    segments: Vec<String>,
    /// True if all below the segments is meant: the pattern ends with `/*`.
    and_below: bool,
}

impl RequestRule {
    /// Reads `"GET api.example.com/v1/*"`.
    ///
    /// # Errors
    /// The values that are accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        const RULE: &str = "must be a method, a host and a path (\"GET api.example.com/v1/*\", \"* localhost:8080/*\")";
        let (method, place) = text.split_once(' ').ok_or(RULE)?;
        let is_method = |byte: u8| byte.is_ascii_uppercase() || b"-_".contains(&byte);
        if method != "*" && (method.is_empty() || !method.bytes().all(is_method)) {
            return Err(RULE.to_owned());
        }
        // The first slash behind a host: networks of addresses (`10.0.0.0/8`) are none.
        let slash = place.find('/').ok_or(RULE)?;
        let (host, path) = place.split_at(slash);
        let host = HostRule::parse(host).map_err(|_| RULE)?;
        let starless = path.split('/').all(|segment| segment == "*" || !segment.contains('*'));
        if !starless {
            return Err(format!(
                "{RULE}; in its path \"*\" stands for one segment, and at the end for all below"
            ));
        }
        if normal(path).as_deref() != Some(path) || decoded(path).as_deref() != Some(path) {
            return Err(format!("{RULE}; its path has neither \"%\", \"?\", \"//\" nor \"..\""));
        }
        let (path, and_below) = match path.strip_suffix("/*") {
            Some(path) => (path, true),
            None => (path, false),
        };
        Ok(Self {
            method: (method != "*").then(|| method.to_owned()),
            host,
            segments: path.split('/').skip(1).map(str::to_owned).collect(),
            and_below,
        })
    }

    /// Returns whether the requests to a host are held to this rule.
    pub fn is_for(&self, to: &Destination<'_>, port: u16) -> bool {
        self.host.matches(to) && self.host.ports.is_none_or(|ports| ports.has(port))
    }

    /// Returns whether it allows a request to its host. `path` is a normal one.
    pub fn allows(&self, method: &str, path: &str) -> bool {
        self.method.as_ref().is_none_or(|own| own == method)
            && self.has(path)
            && decoded(path).is_some_and(|path| self.has(&path))
    }

    fn has(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else {
            return false;
        };
        let mut given = path.split('/');
        for own in &self.segments {
            match given.next() {
                Some(segment) if own == segment || (own == "*" && !segment.is_empty()) => {}
                _ => return false,
            }
        }
        // `/v1/*` has `/v1/`, and not `/v1`.
        given.next().is_some() == self.and_below
    }
}

/// Returns the path of a request in the form in which paths are compared: without escapes of
/// letters that need none, other escapes in capitals (RFC 3986, 6.2.2). `None` if it is none, or if
/// a server may take it for another one.
pub fn normal(path: &str) -> Option<String> {
    let mut found = String::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let (high, low) = (hex(rest.next()?)?, hex(rest.next()?)?);
                let letter = high * 16 + low;
                match letter {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        found.push(char::from(letter));
                    }
                    _ => found.push_str(&format!("%{letter:02X}")),
                }
            }
            b'?' | b'#' | b'\\' | ..=b' ' | 0x7f.. => return None,
            _ => found.push(char::from(byte)),
        }
    }
    let is_whole = found.starts_with('/') && !found.starts_with("//");
    (is_whole && decoded(&found).is_some()).then_some(found)
}

/// Returns a path without any escapes, as a server may see it; `None` if it leads up, or has what
/// no path has.
fn decoded(path: &str) -> Option<String> {
    let mut found = path.as_bytes().to_vec();
    for _ in 0..DECODED {
        if !found.contains(&b'%') {
            break;
        }
        found = once_decoded(&found)?;
    }
    let found = String::from_utf8(found).ok()?;
    let is_odd = |letter: char| letter.is_control() || letter == '\\' || letter == '%';
    // Some servers leave out what is behind a semicolon: `/a/..;b/`.
    let leads_up = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    let is_plain = !found.contains(is_odd) && !found.split('/').any(leads_up);
    is_plain.then_some(found)
}

fn once_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut found = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        found.push(match byte {
            b'%' => hex(rest.next()?)? * 16 + hex(rest.next()?)?,
            byte => byte,
        });
    }
    Some(found)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_normal_form() {
        for (path, wanted) in [
            ("/", Some("/")),
            ("/v1/%69tems", Some("/v1/items")),
            ("/a%2fb", Some("/a%2Fb")),
            ("/a%20b/c;d=1", Some("/a%20b/c;d=1")),
            ("/%c3%a9", Some("/%C3%A9")),
            ("/a//b/", Some("/a//b/")),
            ("/...", Some("/...")),
            ("", None),
            ("*", None),
            ("a/b", None),
            ("//a", None),
            ("/a/../b", None),
            ("/a/./b", None),
            ("/a/%2e%2E/b", None),
            ("/a/.%2e", None),
            ("/a%2F..%2Fb", None),
            ("/a/%252e%252e/b", None),
            ("/a/..;/b", None),
            ("/a/..%3bx/b", None),
            ("/a%5c..%5cb", None),
            ("/a\\b", None),
            ("/a%00", None),
            ("/a%0d%0ab", None),
            ("/%c0%ae%c0%ae/", None),
            ("/%ff", None),
            ("/%", None),
            ("/%2", None),
            ("/%zz", None),
            ("/a?b", None),
            ("/a#b", None),
            ("/a b", None),
            ("/%2525252525", None),
        ] {
            assert_eq!(normal(path).as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn a_rule_has_the_paths_that_it_names() {
        for (rule, method, path, allowed) in [
            ("GET a.org/", "GET", "/", true),
            ("GET a.org/", "GET", "/x", false),
            ("GET a.org/v1", "GET", "/v1", true),
            ("GET a.org/v1", "GET", "/v1/", false),
            ("GET a.org/v1", "HEAD", "/v1", false),
            ("GET a.org/v1", "get", "/v1", false),
            ("* a.org/v1", "DELETE", "/v1", true),
            ("GET a.org/*", "GET", "/", true),
            ("GET a.org/*", "GET", "/a/b", true),
            ("GET a.org/v1/*", "GET", "/v1/", true),
            ("GET a.org/v1/*", "GET", "/v1/a/b", true),
            ("GET a.org/v1/*", "GET", "/v1", false),
            ("GET a.org/v1/*", "GET", "/v11/a", false),
            ("GET a.org/v1/*", "GET", "/V1/a", false),
            ("GET a.org/v1/*", "GET", "/v1/group%2Fname", true),
            ("GET a.org/v1/*", "GET", "/v1%2Fa", false),
            ("GET a.org/u/*/read", "GET", "/u/7/read", true),
            ("GET a.org/u/*/read", "GET", "/u//read", false),
            ("GET a.org/u/*/read", "GET", "/u/7/8/read", false),
            ("GET a.org/u/*/read", "GET", "/u/7%2F8/read", false),
            ("GET a.org/u/*/read/*", "GET", "/u/7/read/x", true),
        ] {
            let parsed = RequestRule::parse(rule).unwrap();
            assert_eq!(parsed.allows(method, path), allowed, "{rule} | {method} {path}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "GET",
            "a.org/",
            "get a.org/",
            "GET a.org",
            "GET  a.org/",
            "GET https://a.org/",
            "GET a.org/v*",
            "GET a.org/**",
            "GET a.org/a/../b",
            "GET a.org/a%2fb",
            "GET a.org/a?b=1",
            "GET a.org//a",
            "GET a.org/a b",
            "GET,POST a.org/",
            "GET a.org:x/",
        ] {
            assert!(RequestRule::parse(text).is_err(), "{text}");
        }
        for text in
            ["GET *.a.org:8000-8999/*", "* [::1]:80/", "PROPFIND 127.0.0.1/x", "M-SEARCH */*"]
        {
            assert!(RequestRule::parse(text).is_ok(), "{text}");
        }
    }
}
