//! The environment variables that may be set and removed.

use crate::policy::written::values::Choice;

/// Variables that decide what other programs run or load, or where they look for their settings.
/// A trailing `*` stands for whatever follows.
#[rustfmt::skip]
const DANGEROUS: &[&str] = &[
    "BASH_ENV", "CDPATH", "CLASSPATH", "DYLD_*", "EDITOR", "ENV", "GCONV_PATH", "GIT_*", "HOME",
    "HTTPS_PROXY", "HTTP_PROXY", "IFS", "JAVA_TOOL_OPTIONS", "LD_*", "LESSOPEN", "LOCPATH",
    "MALLOC_*", "NODE_OPTIONS", "PAGER", "PATH", "PATHEXT", "PERL5*", "PIP_*", "PROMPT_COMMAND",
    "PS4", "PYTHON*", "REQUESTS_CA_BUNDLE", "RUBYLIB", "RUBYOPT", "SHELL", "SSL_CERT_*",
    "SYSTEMROOT", "TMPDIR", "UV_*", "VIRTUAL_ENV", "VISUAL", "XDG_*",
];

/// The members of `DANGEROUS` that only say how a started Python computes, writes and reports:
/// which seed hashes have, whether output is held back and how it is encoded, whether compiled
/// modules are kept, whether a crash shows a traceback. No such variable names code or a place.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONHASHSEED", "PYTHONIOENCODING",
    "PYTHONUNBUFFERED", "PYTHONUTF8",
];

const TEMPORARY: &[u8] = b"TMPDIR";

/// Variables that the contract of fastaudit 0.2 keeps: the search paths of commands, imports and
/// shared libraries, and the user's places.
#[rustfmt::skip]
const SENSITIVE: &[&str] = &[
    "CONDA_PREFIX", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "HOME", "LD_LIBRARY_PATH",
    "LOGNAME", "PATH", "PIP_*", "PYTHON*", "SHELL", "TEMP", "TMP", "TMPDIR", "USER", "UV_*",
    "VIRTUAL_ENV",
];

/// The variables that may be set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    unnamed: Unnamed,
    /// `*` at the end of a name stands for whatever follows, dangerous names excepted.
    names: Vec<String>,
}

/// The variables that may be set without being named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Unnamed {
    #[default]
    None,
    /// All but the dangerous ones.
    Harmless,
    /// All but those that fastaudit 0.2 keeps.
    Insensitive,
}

impl Environment {
    /// All but the dangerous ones.
    pub fn harmless() -> Self {
        Self { unnamed: Unnamed::Harmless, names: Vec::new() }
    }

    /// All but those that fastaudit 0.2 keeps.
    pub(super) fn insensitive() -> Self {
        Self { unnamed: Unnamed::Insensitive, names: Vec::new() }
    }

    pub(super) fn of(choice: &Choice) -> Self {
        match choice {
            Choice::All(true) => Self::harmless(),
            choice => Self { unnamed: Unnamed::None, names: choice.names().to_vec() },
        }
    }

    /// Adds the variables of a choice, of which all are the harmless ones.
    pub(super) fn add(&mut self, more: &Choice) {
        match more {
            Choice::All(true) => self.names.push("*".to_owned()),
            more => self.names.extend_from_slice(more.names()),
        }
    }

    /// Returns whether the variable may be set or removed.
    pub fn may_set(&self, name: &[u8]) -> bool {
        let is_it =
            |own: &String| own.as_bytes() == name || (matches(own, name) && !is_dangerous(name));
        let is_open = match self.unnamed {
            Unnamed::None => false,
            Unnamed::Harmless => !is_dangerous(name),
            Unnamed::Insensitive => !is_one_of(SENSITIVE, name),
        };
        is_open || self.names.iter().any(is_it)
    }

    pub fn allows_some(&self) -> bool {
        self.unnamed != Unnamed::None || !self.names.is_empty()
    }

    /// Returns whether the variable may be set to a place that may be written, and to no other.
    pub fn may_place(&self, name: &[u8]) -> bool {
        self.unnamed == Unnamed::Harmless && name == TEMPORARY
    }
}

/// Returns whether a name is that of a pattern, whose `*` at the end stands for whatever follows.
pub(super) fn matches(pattern: &str, name: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => pattern.as_bytes() == name,
    }
}

/// Returns whether a variable decides which code other programs run or load, or where they look for
/// their settings.
pub fn is_dangerous(name: &[u8]) -> bool {
    is_one_of(DANGEROUS, name) && !is_one_of(HARMLESS, name)
}

/// Upper and lower case are the same variable on Windows, and to some programs (`http_proxy`).
fn is_one_of(patterns: &[&str], name: &[u8]) -> bool {
    let name = name.to_ascii_uppercase();
    patterns.iter().any(|pattern| matches(pattern, &name))
}

/// Variables by which native code of the standard library and of the C library finds files that it
/// reads, and the form of their values.
#[rustfmt::skip]
const READ: &[(&str, Value)] = &[
    ("HOSTALIASES", Value::Path), ("INPUTRC", Value::Path), ("LOCPATH", Value::Paths),
    ("NLSPATH", Value::Paths), ("OPENSSL_CONF", Value::Path), ("SSL_CERT_DIR", Value::Paths),
    ("SSL_CERT_FILE", Value::Path), ("TERMCAP", Value::Absolute), ("TERMINFO", Value::Path),
    ("TERMINFO_DIRS", Value::Paths), ("TZ", Value::Zone), ("TZDIR", Value::Path),
];

/// The way in which the value of a variable names files.
#[derive(Clone, Copy)]
enum Value {
    /// It is a path.
    Path,
    /// Paths with `:` between them, which may have `%` from some component on.
    Paths,
    /// A path, if it begins with `/`.
    Absolute,
    /// A path, if it begins with `/`, or the name of a file among the time zones: tzset(3).
    Zone,
}

const ZONES: &[u8] = b"/usr/share/zoneinfo/";

/// The files and directories that native code reads once a variable is set so.
pub fn files_named(name: &[u8], value: &[u8]) -> Vec<Vec<u8>> {
    let Some((_, kind)) = READ.iter().find(|(own, _)| own.as_bytes() == name) else {
        return Vec::new();
    };
    let named = |value: &[u8]| match value {
        b"" => None,
        _ => Some(value.to_vec()),
    };
    match kind {
        Value::Path => named(value).into_iter().collect(),
        Value::Paths => {
            let whole = |path: &[u8]| match memchr::memchr(b'%', path) {
                Some(end) => named(&path[..memchr::memrchr(b'/', &path[..end]).unwrap_or(0)]),
                None => named(path),
            };
            value.split(|&byte| byte == b':').filter_map(whole).collect()
        }
        Value::Absolute if value.starts_with(b"/") => vec![value.to_vec()],
        Value::Absolute => Vec::new(),
        Value::Zone => match value.strip_prefix(b":").unwrap_or(value) {
            path if path.starts_with(b"/") => vec![path.to_vec()],
            // Any other is among the time zones, or no file at all.
            path if memchr::memmem::find(path, b"..").is_some() => vec![[ZONES, path].concat()],
            _ => Vec::new(),
        },
    }
}
