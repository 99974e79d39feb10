//! The places of a policy: the approved roots, places that nothing opens, names that are kept from
//! writing wherever they are, and directories for temporary files.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use ahash::{AHashMap, AHashSet};
use arc_swap::ArcSwap;
use memchr::{memchr, memchr_iter};

use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::path::{Resolved, is_within};
use crate::policy::packages::Packages;

/// A set of directories. Containment is by path component and costs the same for one as for a
/// thousand: it looks up the path's ancestors, not the directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Directories {
    all: AHashSet<PathBuf>,
    /// The length of the longest of them: a longer ancestor of a path is none.
    longest: usize,
}

impl Directories {
    fn insert(&mut self, directory: &[u8]) {
        self.longest = self.longest.max(directory.len());
        self.all.insert(PathBuf::from_slice(directory));
    }

    /// Returns whether the path is one of them or lies below one.
    fn contain(&self, path: &[u8]) -> bool {
        !self.all.is_empty()
            && (self.all.contains(&b"/"[..])
                || self.all.contains(path)
                || memchr_iter(b'/', path)
                    .skip(1)
                    .take_while(|&end| end <= self.longest)
                    .any(|end| self.all.contains(&path[..end])))
    }
}

/// A set of approved directories.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    fixed: Directories,
    follows_current_dir: bool,
}

impl Roots {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn everywhere() -> Self {
        let mut roots = Self::new();
        roots.fixed.insert(b"/");
        roots
    }

    pub fn add(&mut self, root: &Resolved) {
        self.fixed.insert(root.as_bytes());
    }

    pub fn extend(&mut self, more: &Self) {
        for root in &more.fixed.all {
            self.fixed.insert(root);
        }
        self.follows_current_dir |= more.follows_current_dir;
    }

    /// Approves whatever the current directory is at the time of each check.
    pub fn follow_current_dir(&mut self) {
        self.follows_current_dir = true;
    }

    pub fn is_empty(&self) -> bool {
        self.fixed.all.is_empty() && !self.follows_current_dir
    }

    /// Returns whether the path is a root or lies below one.
    pub fn contain(&self, fs: &impl FileSystem, path: &Resolved) -> bool {
        self.contain_path(fs, path.as_bytes())
    }

    pub(crate) fn contain_path(&self, fs: &impl FileSystem, path: &[u8]) -> bool {
        self.fixed.contain(path)
            || (self.follows_current_dir
                && fs.current_dir().is_some_and(|dir| is_within(path, &dir)))
    }

    pub fn has(&self, fs: &impl FileSystem, path: &[u8]) -> bool {
        self.fixed.all.contains(path)
            || (self.follows_current_dir && fs.current_dir().is_some_and(|dir| dir[..] == *path))
    }
}

/// Paths that no root opens, for reading and writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked(Directories);

impl Blocked {
    /// Blocks a path and everything below it.
    pub fn add(&mut self, path: &Resolved) {
        self.0.insert(path.as_bytes());
    }

    pub fn is_empty(&self) -> bool {
        self.0.all.is_empty()
    }

    pub fn holds(&self, path: &[u8]) -> bool {
        self.0.contain(path)
    }

    /// Returns whether a blocked path lies at or below this one: moving this one would move it.
    pub fn is_below(&self, path: &[u8]) -> bool {
        self.0.all.iter().any(|blocked| is_within(blocked, path))
    }
}

/// The directories that were made for the temporary files of guards which share them. More are
/// added while policies read it, without a lock.
#[derive(Debug, Default)]
pub struct TemporaryPaths(OnceLock<ArcSwap<Vec<Vec<u8>>>>);

impl TemporaryPaths {
    pub fn add(&self, directory: &Resolved) {
        self.0.get_or_init(ArcSwap::default).rcu(|all| {
            let mut all = Vec::clone(all);
            all.push(directory.as_bytes().to_vec());
            all
        });
    }

    /// Returns whether the path is one of them, or lies below one.
    pub fn hold(&self, path: &[u8]) -> bool {
        self.0.get().is_some_and(|all| {
            let all = all.load();
            all.iter().any(|directory| is_within(path, directory))
        })
    }
}

/// Directories that were made for a guard's temporary files, and those that packages keep.
#[derive(Clone, Debug, Default)]
pub struct Temporary {
    own: Arc<TemporaryPaths>,
    packages: Packages,
    /// The directories for temporary files on this machine, which those of packages are in.
    of_machine: Vec<Resolved>,
}

impl Temporary {
    pub fn set_own(&mut self, own: &Arc<TemporaryPaths>) {
        self.own = Arc::clone(own);
    }

    pub fn own(&self) -> &TemporaryPaths {
        &self.own
    }

    /// Adds the directories that packages keep in those of the machine.
    pub fn add_kept(&mut self, packages: Packages, of_machine: Vec<Resolved>) {
        (self.packages, self.of_machine) = (packages, of_machine);
    }

    /// Returns whether the path is one of them, or lies below one: asked if no root approves it.
    #[cold]
    pub fn hold(&self, path: &[u8]) -> bool {
        self.own.hold(path) || self.is_kept(path)
    }

    /// Returns whether the entry of this name in a directory is one that a package keeps, which
    /// makes it itself.
    #[cold]
    pub fn keeps(&self, dir: &[u8], name: &[u8]) -> bool {
        let mut of_machine = self.of_machine.iter();
        of_machine.any(|own| own.as_bytes() == dir) && self.packages.keep(name)
    }

    /// Returns whether the path is at or below an entry that a package keeps.
    fn is_kept(&self, path: &[u8]) -> bool {
        self.of_machine.iter().any(|own| {
            let below = path.strip_prefix(own.as_bytes());
            let below = below.and_then(|below| below.strip_prefix(b"/"));
            let name = below.and_then(|below| components(below).next());
            name.is_some_and(|name| self.packages.keep(name))
        })
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

/// The files by which a host governs code: policies, answers, logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Governing {
    paths: BTreeSet<Vec<u8>>,
    /// The devices and numbers of those that have other names, too.
    linked: BTreeSet<(u64, u64)>,
}

impl Governing {
    pub fn add(&mut self, path: Vec<u8>) {
        self.paths.insert(path);
    }

    /// Adds a file by its device and number.
    pub fn add_linked(&mut self, identity: (u64, u64)) {
        self.linked.insert(identity);
    }

    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.paths.iter().map(Vec::as_slice)
    }

    fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns whether the path is one of them, or of the file that is going to take its place.
    fn hold(&self, path: &[u8]) -> bool {
        !self.paths.is_empty()
            && (self.paths.contains(path)
                || replaced(path).is_some_and(|path| self.paths.contains(path)))
    }
}

/// Returns the file whose place one of the name `NAME.PID.new` is going to take.
fn replaced(path: &[u8]) -> Option<&[u8]> {
    let path = path.strip_suffix(b".new")?;
    let dot = path.iter().rposition(|byte| !byte.is_ascii_digit())?;
    (path[dot] == b'.').then_some(&path[..dot])
}

/// Names that are kept from writing, at any depth: `.git/hooks` protects `a/.git/hooks/b`. Files
/// that govern the code are kept as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protected {
    /// What is below the first name, for each first name. Nothing is below some.
    names: AHashMap<Vec<u8>, Vec<Vec<Vec<u8>>>>,
    /// The first bytes of the first names, a bit for each.
    begins: [u64; 4],
    files: Arc<Governing>,
}

impl Protected {
    /// Protects a name, or names below each other with `/` between them.
    pub fn add(&mut self, name: &str) {
        let mut parts = components(name.as_bytes()).map(<[u8]>::to_vec);
        if let Some(first) = parts.next() {
            let (word, bit) = place_of_bit(first[0]);
            self.begins[word] |= bit;
            self.names.entry(first).or_default().push(parts.collect());
        }
    }

    pub fn add_files(&mut self, files: Arc<Governing>) {
        self.files = files;
    }

    pub fn files(&self) -> &Governing {
        &self.files
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.files.is_empty()
    }

    /// Returns whether the path has a protected name in it, or is that of a protected file. It is
    /// absolute and resolved.
    pub fn holds(&self, path: &[u8]) -> bool {
        self.files.hold(path)
            || self.named(path).any(|(names, below)| {
                names.iter().any(|name| {
                    let mut rest = components(below);
                    name.iter().all(|part| rest.next() == Some(part))
                })
            })
    }

    /// The places in a path where a first name is: what is below the name, and the rest of the path.
    fn named<'a>(&'a self, path: &'a [u8]) -> impl Iterator<Item = (&'a [Vec<Vec<u8>>], &'a [u8])> {
        starts(path).filter_map(|at| {
            let (word, bit) = place_of_bit(path[at]);
            if self.begins[word] & bit == 0 {
                return None;
            }
            let end = memchr(b'/', &path[at..]).map_or(path.len(), |length| at + length);
            Some((&self.names.get(&path[at..end])?[..], &path[end..]))
        })
    }

    /// Returns whether the path leads to a protected file by another of its names.
    pub fn holds_by_link(&self, fs: &impl FileSystem, path: &[u8]) -> bool {
        !self.files.linked.is_empty()
            && fs.identity(path).is_some_and(|identity| self.files.linked.contains(&identity))
    }

    /// Returns whether a path below this one may have a protected name, or be that of a protected
    /// file: moving a directory to `.git` makes its `hooks` the hooks of the repository.
    pub fn may_be_below(&self, path: &[u8]) -> bool {
        let mut files = self.files.paths.iter();
        files.any(|file| is_within(file, path)) || self.has_name_below(path)
    }

    fn has_name_below(&self, path: &[u8]) -> bool {
        self.named(path).any(|(names, below)| {
            names.iter().any(|name| {
                let mut parts = name.iter();
                components(below).all(|own| parts.next().is_some_and(|part| own == part))
                    && parts.next().is_some()
            })
        })
    }
}

fn place_of_bit(byte: u8) -> (usize, u64) {
    (usize::from(byte >> 6), 1 << (byte & 63))
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty())
}

/// Returns the positions at which the components of an absolute path start.
fn starts(path: &[u8]) -> impl Iterator<Item = usize> {
    memchr_iter(b'/', path).map(|slash| slash + 1).filter(|&at| at < path.len())
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
    fn files_that_govern_are_protected() {
        let mut files = Governing::default();
        files.add(b"/a/b.toml".to_vec());
        let mut protected = Protected::default();
        protected.add_files(Arc::new(files));
        for (path, held, below) in [
            ("/a/b.toml", true, true),
            ("/a/b.toml.17.new", true, false),
            ("/a/b.toml.x.new", false, false),
            ("/a/b.toml.new", false, false),
            ("/a/b.toml2", false, false),
            ("/a", false, true),
            ("/ab", false, false),
        ] {
            assert_eq!(protected.holds(path.as_bytes()), held, "{path}");
            assert_eq!(protected.may_be_below(path.as_bytes()), below, "{path}");
        }
    }

    #[test]
    fn blocked_paths_are_whole_components() {
        let mut blocked = Blocked::default();
        blocked.0.insert(b"/a/b");
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
