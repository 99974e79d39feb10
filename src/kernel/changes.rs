//! The files that change in a directory during a run. The kernel tells which ones to look at
//! (inotify(7)), so that a run among many files is no slower than among few; where it does not, all
//! of them are compared.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ahash::AHashMap;
use rustix::fs::{AtFlags, FileType, Stat, fstat, statat};
use rustix::io::Errno;

use crate::kernel::tree::{Place, ROOT, State, Tree};
use crate::kernel::walk::{self, LOOKING};
use watch::Watch;

/// The greatest sum of the lengths of the names that a run is told of, in bytes.
const TOLD: usize = 16 << 20;

pub struct Changes {
    root: Arc<OwnedFd>,
    known: Tree,
    /// `None` if all files are to be compared.
    watch: Option<Watch>,
    runs: AHashMap<u64, Run>,
    next: u64,
    /// A copy of this process shares its watch, and would take what is told to it.
    process: u32,
}

/// The files that changed during a run, each with its state before and now.
#[derive(Default)]
struct Run {
    changes: AHashMap<Vec<u8>, (Option<State>, Option<State>)>,
    bytes: usize,
}

impl Changes {
    pub fn new(root: Arc<OwnedFd>) -> Result<Self, Errno> {
        let is = walk::identity(&fstat(&*root)?);
        Ok(Self {
            root,
            known: Tree::new(is, -1),
            watch: None,
            runs: AHashMap::new(),
            next: 0,
            process: std::process::id(),
        })
    }

    pub fn begin(&mut self) -> u64 {
        self.catch_up();
        self.next += 1;
        self.runs.insert(self.next, Run::default());
        self.next
    }

    /// Ends a run, and returns the names of the files that changed meanwhile, in order.
    pub fn end(&mut self, run: u64) -> Vec<Vec<u8>> {
        self.catch_up();
        let found = self.runs.remove(&run).unwrap_or_default().changes;
        let changed = found.into_iter().filter(|(_, (was, is))| was != is);
        let mut names: Vec<_> = changed.map(|(name, _)| name).collect();
        names.sort_unstable();
        names
    }

    fn catch_up(&mut self) {
        if self.process != std::process::id() {
            self.process = std::process::id();
            self.watch = None;
        }
        let told = self.watch.as_mut().and_then(Watch::told);
        let is_known = told.is_some_and(|told| {
            told.into_iter().all(|(place, name)| self.look_at(place, &name).is_some())
        });
        if !is_known {
            self.look_at_all();
        }
    }

    fn look_at_all(&mut self) {
        let is = walk::identity(&match fstat(&*self.root) {
            Ok(stat) => stat,
            Err(_) => return,
        });
        let mut watch = Watch::new();
        let first = watch.enter(self.root.as_fd(), ROOT, 0);
        let mut tree = Tree::new(is, first);
        let looked = tree.look(self.root.as_fd(), ROOT, &mut |directory, place, depth| {
            watch.enter(directory, place, depth)
        });
        if looked.is_err() {
            // What it lacks would count as removed: the next look compares all.
            self.watch = None;
            return;
        }
        let known = std::mem::replace(&mut self.known, tree);
        let runs = &mut self.runs;
        known.compare(&self.known, |tree, place, name, was, is| {
            note(runs, tree, place, name, was, is);
        });
        self.watch = watch.is_whole().then_some(watch);
    }

    /// Looks at one name. Returns `None` if all files have to be compared.
    fn look_at(&mut self, place: Place, name: &[u8]) -> Option<()> {
        // A directory that is gone, or elsewhere now, was told of by the one that it was in.
        let Some(parent) = self.open(place) else {
            return Some(());
        };
        let terminated = CString::new(name).ok()?;
        let stat = match statat(&parent, &terminated, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(_) => return None,
        };
        let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
        let directory = stat.filter(|stat| kind(stat).is_dir());
        let file = stat.filter(|stat| !kind(stat).is_dir());
        let below = self.known.get(place)?.below.get(name).copied();
        if let Some(below) = below {
            let is = directory.map(|stat| walk::identity(&stat));
            if is.is_some() && is == self.known.get(below).map(|known| known.is) {
                return Some(());
            }
            self.forget(below);
        }
        // Its other names are not told of.
        if file.is_some_and(|stat| stat.st_nlink > 1) {
            return None;
        }
        let is = file.map(|stat| State::of(&stat));
        let files = &mut self.known.get_mut(place)?.files;
        let was = match is {
            Some(is) => files.insert(name.into(), is),
            None => files.remove(name),
        };
        if was != is {
            note(&mut self.runs, &self.known, place, name, was, is);
        }
        if directory.is_some() {
            let (opened, is) = walk::open(parent.as_fd(), &terminated, LOOKING).ok()?;
            let added = self.known.add(place, name, is, -1);
            self.look_at_new(opened.as_fd(), added)?;
        }
        Some(())
    }

    fn look_at_new(&mut self, directory: BorrowedFd<'_>, place: Place) -> Option<()> {
        let watch = self.watch.as_mut()?;
        let depth = self.known.way(place).len();
        let number = watch.enter(directory, place, depth);
        self.known.get_mut(place)?.watch = number;
        let looked = self.known.look(directory, place, &mut |directory, place, depth| {
            watch.enter(directory, place, depth)
        });
        let runs = &mut self.runs;
        self.known.each(place, |tree, place, directory| {
            for (name, is) in &directory.files {
                note(runs, tree, place, name, None, Some(*is));
            }
        });
        (looked.is_ok() && watch.is_whole()).then_some(())
    }

    fn forget(&mut self, place: Place) {
        let (runs, watch) = (&mut self.runs, &mut self.watch);
        self.known.remove(place, |tree, place, directory| {
            for (name, was) in &directory.files {
                note(runs, tree, place, name, Some(*was), None);
            }
            if let Some(watch) = watch {
                watch.leave(directory.watch, place);
            }
        });
    }

    /// `None` if it is not where it was any more.
    fn open(&self, place: Place) -> Option<OwnedFd> {
        let wanted = self.known.get(place)?.is;
        let (mut at, mut is) = walk::open(self.root.as_fd(), c".", LOOKING).ok()?;
        for name in self.known.way(place).into_iter().rev() {
            let name = CString::new(name).ok()?;
            (at, is) = walk::open(at.as_fd(), &name, LOOKING).ok()?;
        }
        (is == wanted).then_some(at)
    }
}

fn note(
    runs: &mut AHashMap<u64, Run>,
    tree: &Tree,
    place: Place,
    name: &[u8],
    was: Option<State>,
    is: Option<State>,
) {
    if runs.is_empty() {
        return;
    }
    let Some(path) = tree.path(place, name) else {
        return;
    };
    for run in runs.values_mut() {
        if let Some((_, now)) = run.changes.get_mut(&path) {
            *now = is;
        } else if run.bytes + path.len() <= TOLD {
            run.bytes += path.len();
            run.changes.insert(path.clone(), (was, is));
        }
    }
}

// The kernel's word on which files of a directory changed: inotify(7), a watch for each directory.

type Told = (Place, Box<[u8]>);

mod watch {
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;

    use ahash::{AHashMap, AHashSet};
    use rustix::fs::inotify::{
        CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch,
    };
    use rustix::io::Errno;

    use super::{BorrowedFd, Place, Told};
    use crate::kernel::walk::through;

    /// The number of directories that are watched, and how deep they are: the system's watches are
    /// few, and others need them too.
    const DIRECTORIES: usize = 8192;
    const DEPTH: usize = 256;

    /// The number of names at a time beyond which comparing all is no slower.
    const NAMES: usize = 1 << 14;

    const CHANGES: WatchFlags = WatchFlags::CREATE
        .union(WatchFlags::DELETE)
        .union(WatchFlags::MOVE)
        .union(WatchFlags::MODIFY)
        .union(WatchFlags::CLOSE_WRITE)
        .union(WatchFlags::ATTRIB)
        .union(WatchFlags::ONLYDIR);

    pub struct Watch {
        /// `None` if some cannot be watched: their changes would be missed.
        inotify: Option<OwnedFd>,
        places: AHashMap<i32, Place>,
    }

    /// Closed by a thread of its own: the kernel first waits for all of its processors.
    impl Drop for Watch {
        fn drop(&mut self) {
            if let Some(inotify) = self.inotify.take() {
                // Where no thread can start, it is closed here.
                let _ = std::thread::Builder::new().spawn(move || drop(inotify));
            }
        }
    }

    impl Watch {
        pub fn new() -> Self {
            Self {
                inotify: init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok(),
                places: AHashMap::new(),
            }
        }

        pub fn is_whole(&self) -> bool {
            self.inotify.is_some()
        }

        /// `depth` steps below the first; returns the number of its watch.
        pub fn enter(&mut self, directory: BorrowedFd<'_>, place: Place, depth: usize) -> i32 {
            let Some(inotify) = &self.inotify else {
                return -1;
            };
            if depth <= DEPTH
                && self.places.len() < DIRECTORIES
                && let Ok(watch) = add_watch(inotify, through(directory), CHANGES)
            {
                self.places.insert(watch, place);
                return watch;
            }
            self.inotify = None;
            -1
        }

        /// Watches a directory no longer, unless it is another one by now.
        pub fn leave(&mut self, watch: i32, place: Place) {
            if self.places.get(&watch) == Some(&place) {
                self.places.remove(&watch);
                if let Some(inotify) = &self.inotify {
                    // The kernel ends the watch of one that was removed by itself.
                    let _ = remove_watch(inotify, watch);
                }
            }
        }

        /// Returns the names to look at; `None` if some may be missing.
        pub fn told(&mut self) -> Option<Vec<Told>> {
            let mut found = AHashSet::new();
            let mut names = Vec::new();
            let mut room = [MaybeUninit::uninit(); 1 << 13];
            let mut reader = Reader::new(self.inotify.as_ref()?, &mut room);
            loop {
                let event = match reader.next() {
                    Ok(event) => event,
                    Err(Errno::WOULDBLOCK) => return Some(names),
                    Err(Errno::INTR) => continue,
                    Err(_) => return None,
                };
                if event.events().contains(ReadFlags::QUEUE_OVERFLOW) || names.len() >= NAMES {
                    return None;
                }
                if event.events().contains(ReadFlags::IGNORED) {
                    self.places.remove(&event.wd());
                } else if let Some(place) = self.places.get(&event.wd())
                    && let Some(name) = event.file_name()
                {
                    let told: Told = (*place, name.to_bytes().into());
                    if found.insert(told.clone()) {
                        names.push(told);
                    }
                }
            }
        }
    }
}
