//! The rules of a policy for paths beside the approved roots: places that nothing opens, and names
//! that are kept from writing wherever they are.

use memchr::memchr_iter;

use crate::policy::files::path::Resolved;
use crate::policy::files::roots::is_within;

/// Paths that no root opens, for reading and writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked(Vec<Vec<u8>>);

impl Blocked {
    /// Blocks a path and everything below it.
    pub fn add(&mut self, path: &Resolved) {
        self.0.push(path.as_bytes().to_vec());
    }

    /// Returns whether nothing is blocked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the path is blocked, or lies below a blocked one.
    pub fn holds(&self, path: &[u8]) -> bool {
        self.0.iter().any(|blocked| is_within(path, blocked))
    }

    /// Returns whether a blocked path lies at or below this one: moving this one would move it.
    pub fn is_below(&self, path: &[u8]) -> bool {
        self.0.iter().any(|blocked| is_within(blocked, path))
    }
}

/// Directories that were made for a guard's temporary files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Temporary(Vec<Vec<u8>>);

impl Temporary {
    /// Adds a directory.
    pub fn add(&mut self, directory: &Resolved) {
        self.0.push(directory.as_bytes().to_vec());
    }

    /// Returns whether the path is one of them, or lies below one: asked if no root approves it.
    #[cold]
    pub fn hold(&self, path: &[u8]) -> bool {
        self.0.iter().any(|directory| is_within(path, directory))
    }
}

/// The names that are kept from writing even inside a root, unless a policy says otherwise: files
/// that are run later without being asked for, and credentials.
pub const PRESET: &[&str] = &[
    ".git/config",
    ".git/hooks",
    ".gitconfig",
    ".gitmodules",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".config/autostart",
    ".config/fish",
    ".config/systemd",
    ".cshrc",
    ".kshrc",
    ".login",
    ".profile",
    ".tcshrc",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    ".emacs",
    ".emacs.d",
    ".config/nvim",
    ".exrc",
    ".idea",
    ".vim",
    ".vimrc",
    ".vscode",
    ".ipython/profile_default/startup",
    ".mcp.json",
    ".netrc",
    ".pypirc",
    ".ssh",
];

/// Names that are kept from writing, at any depth: `.git/hooks` protects `a/.git/hooks/b`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protected(Vec<Vec<Vec<u8>>>);

impl Protected {
    /// Protects a name, or names below each other with `/` between them.
    pub fn add(&mut self, name: &str) {
        self.0
            .push(components(name.as_bytes()).map(<[u8]>::to_vec).collect());
    }

    /// Returns whether nothing is protected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the path has a protected name in it. It is absolute and resolved.
    pub fn holds(&self, path: &[u8]) -> bool {
        starts(path).any(|at| {
            self.0.iter().any(|name| {
                let mut rest = components(&path[at..]);
                name.iter().all(|part| rest.next() == Some(part))
            })
        })
    }

    /// Returns whether a path below this one may have a protected name: moving a directory to
    /// `.git` makes its `hooks` the hooks of the repository.
    pub fn may_be_below(&self, path: &[u8]) -> bool {
        starts(path).any(|at| {
            self.0.iter().any(|name| {
                let mut parts = name.iter();
                components(&path[at..]).all(|own| parts.next().is_some_and(|part| own == part))
                    && parts.next().is_some()
            })
        })
    }
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty())
}

/// Returns the positions at which the components of an absolute path start.
fn starts(path: &[u8]) -> impl Iterator<Item = usize> {
    memchr_iter(b'/', path)
        .map(|slash| slash + 1)
        .filter(|&at| at < path.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected(names: &[&str]) -> Protected {
        let mut protected = Protected::default();
        for name in names {
            protected.add(name);
        }
        protected
    }

    #[test]
    fn protected_names_are_whole_components() {
        let protected = protected(&[".git/hooks", ".ssh"]);
        for (path, held) in [
            ("/a/.git/hooks", true),
            ("/a/.git/hooks/pre-commit", true),
            ("/.ssh", true),
            ("/a/.ssh/b/c", true),
            ("/a/.git", false),
            ("/a/.git/hooksy", false),
            ("/a/x.git/hooks", false),
            ("/a/.git/x/hooks", false),
            ("/a/.sshx", false),
            ("/", false),
        ] {
            assert_eq!(protected.holds(path.as_bytes()), held, "{path}");
        }
    }

    #[test]
    fn what_may_hold_a_protected_name() {
        let protected = protected(&[".git/hooks", ".ssh"]);
        for (path, may) in [
            ("/a/.git", true),
            ("/.git", true),
            ("/a", false),
            ("/a/.ssh", false),
            ("/a/.git/hooks", false),
            ("/a/.git/b", false),
        ] {
            assert_eq!(protected.may_be_below(path.as_bytes()), may, "{path}");
        }
    }

    #[test]
    fn blocked_paths_are_whole_components() {
        let blocked = Blocked(vec![b"/a/b".to_vec()]);
        for (path, held, below) in [
            ("/a/b", true, true),
            ("/a/b/c", true, false),
            ("/a/bc", false, false),
            ("/a", false, true),
            ("/", false, true),
        ] {
            assert_eq!(blocked.holds(path.as_bytes()), held, "{path}");
            assert_eq!(blocked.is_below(path.as_bytes()), below, "{path}");
        }
    }
}
