//! The disk that a directory takes, with the files of processes that have no name any more.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ahash::AHashSet;
use rustix::fs::{AtFlags, FileType, Stat, statat};
use rustix::io::Errno;

use crate::kernel::beneath;
use crate::kernel::walk::{self, Identity, LOOKING, Next, Visitor};

/// The least that a file or directory counts: its own record takes disk too.
const LEAST: u64 = 4096;
/// The size of the unit that the system counts in: stat(3type).
const BLOCK: u64 = 512;
const INTERVAL: Duration = Duration::from_millis(50);
/// The pause after a look, as a multiple of the time that it took.
const PAUSE: u32 = 10;

/// Returns the bytes that a directory takes, or more than `most` as soon as they are more.
fn used(root: BorrowedFd<'_>, most: u64, ended: &AtomicBool) -> Result<u64, Errno> {
    let mut sum = Sum { bytes: 0, most, ended, linked: AHashSet::new() };
    walk::walk(root, LOOKING, &mut sum)?;
    Ok(sum.bytes)
}

/// The bytes that a directory takes.
pub fn used_now(directory: &Path) -> Result<u64, Errno> {
    used(beneath::directory(directory)?.as_fd(), u64::MAX, &AtomicBool::new(false))
}

struct Sum<'run> {
    bytes: u64,
    most: u64,
    ended: &'run AtomicBool,
    /// Files with several names, which count once.
    linked: AHashSet<Identity>,
}

impl Visitor for Sum<'_> {
    fn entry(&mut self, directory: BorrowedFd<'_>, name: &CStr, is_directory: bool) -> Next {
        if let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            && (is_directory || stat.st_nlink < 2 || self.linked.insert(walk::identity(&stat)))
        {
            self.bytes = self.bytes.saturating_add(size(&stat));
        }
        if self.bytes > self.most || self.ended.load(Ordering::Relaxed) {
            return Next::Stop;
        }
        Next::Enter
    }
}

#[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
fn size(stat: &Stat) -> u64 {
    LEAST.max((stat.st_blocks as u64).saturating_mul(BLOCK))
}

/// The bytes of nameless files in a directory that a process or one that it started has open.
fn nameless(process: u32, directory: &Path, device: u64) -> u64 {
    let mut found = AHashSet::new();
    let mut bytes = 0u64;
    let mut processes = vec![process];
    while let Some(process) = processes.pop() {
        // One that has ended meanwhile has nothing open.
        for task in listed(&format!("/proc/{process}/task")) {
            let children = std::fs::read_to_string(task.join("children")).unwrap_or_default();
            let children = children.split_ascii_whitespace();
            processes.extend(children.filter_map(|id| id.parse::<u32>().ok()));
        }
        for open in listed(&format!("/proc/{process}/fd")) {
            let Ok(stat) = rustix::fs::stat(&open) else {
                continue;
            };
            let is = walk::identity(&stat);
            if stat.st_nlink == 0
                && FileType::from_raw_mode(stat.st_mode).is_file()
                && is.0 == device
                // A path that is too long cannot be told.
                && std::fs::read_link(&open).map_or(true, |path| path.starts_with(directory))
                && found.insert(is)
            {
                bytes = bytes.saturating_add(size(&stat));
            }
        }
    }
    bytes
}

fn listed(directory: &str) -> impl Iterator<Item = std::path::PathBuf> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// Looks at a directory's disk in a thread, with a small part of a core, until it is too much.
pub struct Meter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// A copy of this process is without the thread.
    process: u32,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    ended: AtomicBool,
    pause: (Mutex<()>, Condvar),
}

impl Meter {
    pub fn start(directory: &Path, most: u64, process: Option<u32>) -> std::io::Result<Self> {
        let root = beneath::directory(directory)?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let path = directory.to_owned();
        let thread = std::thread::Builder::new()
            .name("fastaudit-rs-disk".to_owned())
            .spawn(move || theirs.watch(&root, &path, most, process))?;
        Ok(Self { shared, thread: Some(thread), process: std::process::id() })
    }

    pub fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Relaxed)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let (lock, changed) = &self.shared.pause;
        let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.ended.store(true, Ordering::Relaxed);
        changed.notify_all();
        drop(held);
        if let Some(thread) = self.thread.take() {
            // A thread of ours that failed has nothing to tell.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn watch(&self, root: &OwnedFd, directory: &Path, most: u64, process: Option<u32>) {
        let device = rustix::fs::fstat(root).map_or(0, |stat| walk::identity(&stat).0);
        while !self.ended.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let named = used(root.as_fd(), most, &self.ended).unwrap_or(0);
            let nameless = process.map_or(0, |id| nameless(id, directory, device));
            if named.saturating_add(nameless) > most {
                self.is_over.store(true, Ordering::Relaxed);
                return;
            }
            let pause = INTERVAL.max(begun.elapsed() * PAUSE);
            let (lock, changed) = &self.pause;
            let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let _paused =
                changed.wait_timeout_while(held, pause, |()| !self.ended.load(Ordering::Relaxed));
        }
    }
}
