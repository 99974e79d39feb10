//! The directory that relative paths of a policy begin at.
//!
//! Guarded code may change to any directory. If it leaves the process in one where it may not
//! write, those of the next guard begin at the directory that it came from.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::policy::files::fs::{FileSystem, Link, PathBuf};
use crate::policy::files::path::Resolved;

/// The last change to a directory where guarded code may not write.
struct Left {
    from: PathBuf,
    to: PathBuf,
}

static LEFT: ArcSwapOption<Left> = ArcSwapOption::const_empty();

/// Notes such a change, which is about to be made.
pub(crate) fn note_left(fs: &impl FileSystem, to: &Resolved) {
    let Some(now) = fs.current_dir().filter(|now| now[..] != *to.as_bytes()) else {
        return;
    };
    // A thread may have a directory of its own: /proc/self is the first thread's.
    if !matches!(fs.read_link(b"/proc/self/cwd"), Link::To(of_process) if of_process[..] == now[..])
    {
        return;
    }
    let from = match &*LEFT.load() {
        Some(left) if left.to == now => left.from.clone(),
        _ => now,
    };
    LEFT.store(Some(Arc::new(Left { from, to: PathBuf::from_slice(to.as_bytes()) })));
}

/// Returns the directory; `None` if the current one was removed.
pub fn directory(fs: &impl FileSystem) -> Option<PathBuf> {
    let now = fs.current_dir()?;
    Some(match &*LEFT.load() {
        Some(left) if left.to == now => left.from.clone(),
        _ => now,
    })
}
