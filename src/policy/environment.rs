//! Which environment variables may be set and removed.

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

/// Those of `DANGEROUS` that only say how a Python that is started computes, writes and reports: which
/// seed hashes have, whether output is held back and how it is encoded, whether compiled modules are
/// kept, whether a crash shows a traceback. None names code or a place.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONHASHSEED", "PYTHONIOENCODING",
    "PYTHONUNBUFFERED", "PYTHONUTF8",
];

/// The directory for temporary files.
const TEMPORARY: &[u8] = b"TMPDIR";

/// Variables that the contract of fastaudit 0.2 keeps: what commands, imports and shared libraries
/// are looked up by, and where the user's places are.
#[rustfmt::skip]
const SENSITIVE: &[&str] = &[
    "CONDA_PREFIX", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "HOME", "LD_LIBRARY_PATH",
    "LOGNAME", "PATH", "PIP_*", "PYTHON*", "SHELL", "TEMP", "TMP", "TMPDIR", "USER", "UV_*",
    "VIRTUAL_ENV",
];

/// Which variables may be set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Environment {
    /// None.
    #[default]
    Fixed,
    /// All but those that are dangerous.
    Harmless,
    /// All but those that fastaudit 0.2 keeps.
    Insensitive,
    /// These; `*` at the end of a name stands for whatever follows, dangerous names excepted.
    Only(Vec<String>),
}

impl Environment {
    /// Whether the variable may be set or removed.
    #[must_use]
    pub fn may_set(&self, name: &[u8]) -> bool {
        match self {
            Self::Fixed => false,
            Self::Harmless => !is_dangerous(name),
            Self::Insensitive => !is_one_of(SENSITIVE, name),
            Self::Only(names) => names
                .iter()
                .any(|own| own.as_bytes() == name || (matches(own, name) && !is_dangerous(name))),
        }
    }

    /// Whether any variable may be set.
    #[must_use]
    pub fn allows_some(&self) -> bool {
        match self {
            Self::Fixed => false,
            Self::Harmless | Self::Insensitive => true,
            Self::Only(names) => !names.is_empty(),
        }
    }

    /// Whether the variable may be set to a place that may be written, and to no other.
    #[must_use]
    pub fn may_place(&self, name: &[u8]) -> bool {
        *self == Self::Harmless && name == TEMPORARY
    }
}

fn matches(pattern: &str, name: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => pattern.as_bytes() == name,
    }
}

/// Whether a variable decides what other programs run or load, or where they look for their settings.
#[must_use]
pub fn is_dangerous(name: &[u8]) -> bool {
    is_one_of(DANGEROUS, name) && !is_one_of(HARMLESS, name)
}

/// Upper and lower case are the same variable on Windows, and to some programs (`http_proxy`).
fn is_one_of(patterns: &[&str], name: &[u8]) -> bool {
    let name = name.to_ascii_uppercase();
    patterns.iter().any(|pattern| matches(pattern, &name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_variables_need_naming() {
        let only = |names: &[&str]| {
            Environment::Only(names.iter().map(|name| (*name).to_owned()).collect())
        };
        for (environment, name, may) in [
            (Environment::Fixed, "A", false),
            (Environment::Harmless, "A", true),
            (Environment::Harmless, "PATH", false),
            (Environment::Harmless, "LD_PRELOAD", false),
            (Environment::Harmless, "PYTHONPATH", false),
            (Environment::Harmless, "PYTHONHASHSEED", true),
            (Environment::Harmless, "PYTHONUTF8MODE", false),
            (Environment::Harmless, "PYTHONWARNINGS", false),
            (Environment::Insensitive, "PYTHONHASHSEED", false),
            (Environment::Harmless, "http_proxy", false),
            (Environment::Harmless, "PATHS", true),
            (Environment::Insensitive, "LD_PRELOAD", true),
            (Environment::Insensitive, "pythonpath", false),
            (Environment::Insensitive, "Tmp", false),
            (only(&["A"]), "A", true),
            (only(&["A"]), "AB", false),
            (only(&["A*"]), "AB", true),
            (only(&["PATH"]), "PATH", true),
            (only(&["P*"]), "PATH", false),
            (only(&["P*"]), "P", true),
            (only(&["*"]), "LD_PRELOAD", false),
            (only(&["LD_*"]), "LD_PRELOAD", false),
            (only(&["LD_PRELOAD"]), "LD_PRELOAD", true),
            (only(&[]), "A", false),
        ] {
            assert_eq!(
                environment.may_set(name.as_bytes()),
                may,
                "{environment:?} {name}"
            );
        }
    }
}
