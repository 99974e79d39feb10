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

/// Which variables may be set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Environment {
    /// None.
    #[default]
    Fixed,
    /// All but those that are dangerous.
    Harmless,
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
            Self::Only(names) => names
                .iter()
                .any(|own| own.as_bytes() == name || (matches(own, name) && !is_dangerous(name))),
        }
    }
}

fn matches(pattern: &str, name: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => pattern.as_bytes() == name,
    }
}

/// Upper and lower case are the same variable on Windows, and to some programs (`http_proxy`).
fn is_dangerous(name: &[u8]) -> bool {
    let name = name.to_ascii_uppercase();
    DANGEROUS.iter().any(|pattern| matches(pattern, &name))
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
            (Environment::Harmless, "http_proxy", false),
            (Environment::Harmless, "PATHS", true),
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
