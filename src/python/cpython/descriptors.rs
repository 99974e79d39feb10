//! File descriptors as the numbers that Python code knows them by.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::{Errno, FdFlags, dup2, fcntl_setfd};

/// Calls a function with a descriptor, to be passed to system calls; `None` for a negative number.
pub fn with<R>(number: i32, call: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
    // SAFETY: -1 alone cannot be one. The number is passed to system calls and to nothing else, and
    // they take any: an error is all that a closed descriptor can lead to.
    (number >= 0).then(|| call(unsafe { BorrowedFd::borrow_raw(number) }))
}

/// Makes a descriptor another one of the file `by`, which programs do not inherit if `closes`; the
/// file that it was of is closed.
///
/// # Errors
/// `EBADF` for a negative number, and those of dup2(2).
pub fn replace(number: i32, by: impl AsFd, closes: FdFlags) -> rustix::io::Result<()> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: as it is never dropped, nothing is closed that somebody else owns; -1 is left out.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    dup2(by, &mut place)?;
    fcntl_setfd(&*place, closes)
}
