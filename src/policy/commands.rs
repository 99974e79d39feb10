//! The programs that may be started.

use std::ffi::OsString;

use ahash::AHashSet;

use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::path::{self, Base};

/// The separator between the directories of a `PATH`.
const SEPARATOR: u8 = if cfg!(windows) { b';' } else { b':' };

/// The programs that may be started.
#[derive(Clone, Debug, Default)]
pub enum Commands {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// The programs at these places: the resolved directory and the name in it. A link and its
    /// target are two programs, as many programs act by the name they are called by.
    At(AHashSet<PathBuf>),
}

impl Commands {
    /// The programs of these names and paths. A name without a slash is the program that `search`
    /// finds first; if it finds none, the name starts nothing.
    pub fn named<'a>(
        fs: &impl FileSystem,
        names: impl IntoIterator<Item = &'a [u8]>,
        search: &[u8],
    ) -> Self {
        let places = names.into_iter().filter_map(|name| {
            let found = if name.contains(&b'/') {
                PathBuf::from_slice(name)
            } else {
                find(fs, name, search)?
            };
            place(fs, &found)
        });
        Self::At(places.collect())
    }

    /// Returns the programs of both.
    pub(super) fn with(&self, more: &Self) -> Self {
        match (self, more) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::None, more) => more.clone(),
            (own, Self::None) => own.clone(),
            (Self::At(own), Self::At(more)) => Self::At(own.union(more).cloned().collect()),
        }
    }

    /// Returns whether the program at this path may be started.
    pub fn allow(&self, fs: &impl FileSystem, program: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::At(places) => place(fs, program).is_some_and(|place| places.contains(&place)),
        }
    }
}

/// Returns the place of a program: the resolved directory and the name in it.
fn place(fs: &impl FileSystem, program: &[u8]) -> Option<PathBuf> {
    match path::is_unnamed(path::split(program).1) {
        true => None,
        false => path::entry(fs, program, Base::CurrentDir),
    }
}

/// The `PATH` of this process.
#[must_use]
pub fn own_path() -> Vec<u8> {
    std::env::var_os("PATH").map_or_else(Vec::new, OsString::into_encoded_bytes)
}

/// Returns the program that a name starts, by the directories of a `PATH`: the first that can be
/// executed (execvp(3)). An empty directory is the current one.
pub fn find(fs: &impl FileSystem, name: &[u8], search: &[u8]) -> Option<PathBuf> {
    search
        .split(|&byte| byte == SEPARATOR)
        .find_map(|directory| {
            let mut candidate = PathBuf::from_slice(if directory.is_empty() {
                b"."
            } else {
                directory
            });
            candidate.push(b'/');
            candidate.extend_from_slice(name);
            fs.is_executable(&candidate).then_some(candidate)
        })
}
