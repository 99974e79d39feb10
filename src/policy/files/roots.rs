//! The approved roots, and the paths that lie inside them.

use ahash::AHashSet;
use memchr::memchr_iter;

use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::path::Resolved;

/// A set of approved directories. Containment is by path component and costs the same for one
/// root as for a thousand: it looks up the path's ancestors, not the roots.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    fixed: AHashSet<PathBuf>,
    /// The length of the longest of them: a longer ancestor of a path is none.
    longest: usize,
    follows_current_dir: bool,
}

impl Roots {
    /// Roots that approve nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Roots that approve every path.
    pub fn everywhere() -> Self {
        let mut roots = Self::new();
        roots.insert(b"/");
        roots
    }

    /// Approves a directory and everything below it.
    pub fn add(&mut self, root: &Resolved) {
        self.insert(root.as_bytes());
    }

    fn insert(&mut self, root: &[u8]) {
        self.longest = self.longest.max(root.len());
        self.fixed.insert(PathBuf::from_slice(root));
    }

    /// Approves what other roots approve, too.
    pub fn extend(&mut self, more: &Self) {
        self.longest = self.longest.max(more.longest);
        self.fixed.extend(more.fixed.iter().cloned());
        self.follows_current_dir |= more.follows_current_dir;
    }

    /// Approves whatever the current directory is at the time of each check.
    pub fn follow_current_dir(&mut self) {
        self.follows_current_dir = true;
    }

    /// Returns whether there are no roots.
    pub fn is_empty(&self) -> bool {
        self.fixed.is_empty() && !self.follows_current_dir
    }

    /// Returns whether the path is a root or lies below one.
    pub fn contain(&self, fs: &impl FileSystem, path: &Resolved) -> bool {
        self.contain_path(fs, path.as_bytes())
    }

    /// The same for a path that is resolved.
    pub(crate) fn contain_path(&self, fs: &impl FileSystem, path: &[u8]) -> bool {
        self.fixed_contain(path)
            || (self.follows_current_dir
                && fs.current_dir().is_some_and(|dir| is_within(path, &dir)))
    }

    /// Returns whether a root is at this path.
    pub fn has(&self, fs: &impl FileSystem, path: &[u8]) -> bool {
        self.fixed.contains(path)
            || (self.follows_current_dir && fs.current_dir().is_some_and(|dir| dir[..] == *path))
    }

    fn fixed_contain(&self, path: &[u8]) -> bool {
        !self.fixed.is_empty()
            && (self.fixed.contains(&b"/"[..])
                || self.fixed.contains(path)
                || memchr_iter(b'/', path)
                    .skip(1)
                    .take_while(|&end| end <= self.longest)
                    .any(|end| self.fixed.contains(&path[..end])))
    }
}

/// Returns whether a path is a directory or lies below it, by component.
pub fn is_within(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || dir.ends_with(b"/"))
}
