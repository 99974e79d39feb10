//! The kernel's word on which files of a directory changed: inotify(7), a watch for each directory.

use std::os::fd::BorrowedFd;

use crate::kernel::tree::Place;

#[cfg(target_os = "linux")]
pub use linux::Watch;
#[cfg(not(target_os = "linux"))]
pub use other::Watch;

/// A name in a directory.
type Told = (Place, Box<[u8]>);

#[cfg(target_os = "linux")]
mod linux {
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

    /// Directories that are watched.
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

        /// Returns true if each directory that was entered is watched.
        pub fn is_whole(&self) -> bool {
            self.inotify.is_some()
        }

        /// Watches a directory so many steps below the first, and returns the number of its watch.
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

#[cfg(not(target_os = "linux"))]
mod other {
    use super::{BorrowedFd, Place, Told};

    /// Nothing is watched.
    pub struct Watch {}

    impl Watch {
        pub fn new() -> Self {
            Self {}
        }

        pub fn is_whole(&self) -> bool {
            false
        }

        pub fn enter(&mut self, _directory: BorrowedFd<'_>, _place: Place, _depth: usize) -> i32 {
            -1
        }

        pub fn leave(&mut self, _watch: i32, _place: Place) {}

        pub fn told(&mut self) -> Option<Vec<Told>> {
            None
        }
    }
}
