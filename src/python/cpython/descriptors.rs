//! File descriptors as the numbers that Python code knows them by.

use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

/// A descriptor for a system call; `None` for a negative number.
pub fn borrow<'fd>(number: i32) -> Option<BorrowedFd<'fd>> {
    // SAFETY: -1 alone cannot be one. The number is passed to system calls and to nothing else, and
    // they take any: an error is all that a closed descriptor can lead to.
    (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
}

/// The same descriptor, as one that dup2(2) may replace. Its owner is elsewhere, so that it is not
/// closed here.
pub fn place(number: i32) -> Option<ManuallyDrop<OwnedFd>> {
    // SAFETY: as it is never dropped, nothing is closed that somebody else owns; -1 is left out.
    (number >= 0).then(|| ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) }))
}
