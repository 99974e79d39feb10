//! The files of a directory as they were when they were looked at last, each with a state that
//! changes when the file does.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use ahash::AHashMap;
use rustix::fs::{AtFlags, Stat, statat};
use rustix::io::Errno;

use crate::kernel::beneath::LONGEST;
use crate::kernel::walk::{self, Identity, LOOKING, Next, Visitor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    is: Identity,
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl State {
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_possible_wrap,
        reason = "the types differ between systems"
    )]
    pub fn of(stat: &Stat) -> Self {
        Self {
            is: walk::identity(stat),
            size: stat.st_size as i64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

pub type Place = u64;

pub const ROOT: Place = 0;

type Name = Box<[u8]>;

/// No path is kept for each directory: all together could be of any length.
pub struct Tree {
    directories: AHashMap<Place, DirectoryState>,
    next: Place,
}

pub struct DirectoryState {
    parent: Place,
    name: Name,
    pub is: Identity,
    pub watch: i32,
    pub files: AHashMap<Name, State>,
    pub below: AHashMap<Name, Place>,
}

impl Tree {
    pub fn new(is: Identity, watch: i32) -> Self {
        let mut tree = Self { directories: AHashMap::new(), next: ROOT };
        tree.add(ROOT, b"", is, watch);
        tree
    }

    pub fn get(&self, place: Place) -> Option<&DirectoryState> {
        self.directories.get(&place)
    }

    pub fn get_mut(&mut self, place: Place) -> Option<&mut DirectoryState> {
        self.directories.get_mut(&place)
    }

    pub fn add(&mut self, parent: Place, name: &[u8], is: Identity, watch: i32) -> Place {
        let place = self.next;
        self.next += 1;
        let directory = DirectoryState {
            parent,
            name: name.into(),
            is,
            watch,
            files: AHashMap::new(),
            below: AHashMap::new(),
        };
        self.directories.insert(place, directory);
        if place != ROOT
            && let Some(above) = self.directories.get_mut(&parent)
        {
            above.below.insert(name.into(), place);
        }
        place
    }

    /// Removes a directory with all that is in it: `each` is shown each directory first.
    pub fn remove(&mut self, place: Place, mut each: impl FnMut(&Self, Place, &DirectoryState)) {
        self.each(place, &mut each);
        let mut rest = vec![place];
        if let Some(removed) = self.get(place) {
            let (parent, name) = (removed.parent, removed.name.clone());
            if let Some(above) = self.get_mut(parent) {
                above.below.remove(&name);
            }
        }
        while let Some(place) = rest.pop() {
            if let Some(removed) = self.directories.remove(&place) {
                rest.extend(removed.below.into_values());
            }
        }
    }

    pub fn each(&self, place: Place, mut each: impl FnMut(&Self, Place, &DirectoryState)) {
        let mut rest = vec![place];
        while let Some(place) = rest.pop() {
            if let Some(directory) = self.get(place) {
                each(self, place, directory);
                rest.extend(directory.below.values());
            }
        }
    }

    /// The names on the way to a directory, the last one first.
    pub fn way(&self, mut place: Place) -> Vec<&[u8]> {
        let mut names = Vec::new();
        while place != ROOT
            && let Some(directory) = self.get(place)
        {
            names.push(&*directory.name);
            place = directory.parent;
        }
        names
    }

    /// Returns the path of a file; `None` if it is too long to open the file by.
    pub fn path(&self, mut place: Place, name: &[u8]) -> Option<Vec<u8>> {
        let mut names = vec![name];
        let mut length = name.len();
        while place != ROOT {
            let directory = self.get(place)?;
            length += directory.name.len() + 1;
            if length >= LONGEST {
                return None;
            }
            names.push(&directory.name);
            place = directory.parent;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    /// Looks at all that is below a directory; `enter` is called with each directory before its
    /// entries are read, and its number of steps from the first, and returns its watch.
    pub fn look(
        &mut self,
        directory: BorrowedFd<'_>,
        place: Place,
        enter: &mut dyn FnMut(BorrowedFd<'_>, Place, usize) -> i32,
    ) -> Result<(), Errno> {
        let steps = self.way(place).len();
        let mut looking = Looking { tree: self, way: vec![place], steps, enter };
        walk::walk(directory, LOOKING, &mut looking)
    }

    pub fn compare(
        &self,
        newer: &Self,
        mut tell: impl FnMut(&Self, Place, &[u8], Option<State>, Option<State>),
    ) {
        let mut rest = vec![(Some(ROOT), Some(ROOT))];
        while let Some((old, new)) = rest.pop() {
            let before = old.and_then(|place| Some((place, self.get(place)?)));
            let after = new.and_then(|place| Some((place, newer.get(place)?)));
            if let Some((place, after)) = after {
                for (name, state) in &after.files {
                    let was = before.and_then(|(_, before)| before.files.get(name).copied());
                    if was != Some(*state) {
                        tell(newer, place, name, was, Some(*state));
                    }
                }
                for (name, below) in &after.below {
                    let was = before.and_then(|(_, before)| before.below.get(name).copied());
                    rest.push((was, Some(*below)));
                }
            }
            if let Some((place, before)) = before {
                for (name, state) in &before.files {
                    if after.is_none_or(|(_, after)| !after.files.contains_key(name)) {
                        tell(self, place, name, Some(*state), None);
                    }
                }
                for (name, below) in &before.below {
                    if after.is_none_or(|(_, after)| !after.below.contains_key(name)) {
                        rest.push((Some(*below), None));
                    }
                }
            }
        }
    }
}

struct Looking<'run> {
    tree: &'run mut Tree,
    way: Vec<Place>,
    steps: usize,
    enter: &'run mut dyn FnMut(BorrowedFd<'_>, Place, usize) -> i32,
}

impl Visitor for Looking<'_> {
    fn entry(&mut self, directory: BorrowedFd<'_>, name: &CStr, is_directory: bool) -> Next {
        if is_directory {
            return Next::Enter;
        }
        if let Some(place) = self.way.last()
            && let Some(place) = self.tree.get_mut(*place)
            && let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        {
            place.files.insert(name.to_bytes().into(), State::of(&stat));
        }
        Next::Pass
    }

    fn enter(&mut self, directory: BorrowedFd<'_>, name: &CStr, is: Identity) {
        let parent = self.way.last().copied().unwrap_or(ROOT);
        let place = self.tree.add(parent, name.to_bytes(), is, -1);
        self.way.push(place);
        let watch = (self.enter)(directory, place, self.steps + self.way.len() - 1);
        if let Some(added) = self.tree.get_mut(place) {
            added.watch = watch;
        }
    }

    fn leave(&mut self, _parent: Option<BorrowedFd<'_>>, _name: &CStr) {
        self.way.pop();
    }
}
