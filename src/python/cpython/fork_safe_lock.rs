//! A lock that may be held while functions of Python's wait.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::python::cpython::once::wait;
use crate::python::cpython::process;

/// In a copy of the process it is free, whoever had it in the original: for what may be half done there.
pub struct ForkSafeLock(AtomicUsize);

pub struct ForkSafeLocked {
    lock: &'static ForkSafeLock,
    by: usize,
}

impl ForkSafeLock {
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Waits until nobody has it; the result keeps it. The interpreter's lock does as well where there is one.
    pub fn lock_without_gil(&'static self) -> Option<ForkSafeLocked> {
        cfg!(Py_GIL_DISABLED).then(|| self.lock())
    }

    fn lock(&'static self) -> ForkSafeLocked {
        for tries in 0.. {
            // Of whoever has it the number of copies before this process, plus one.
            let by = process::generation() + 1;
            let before = self.0.load(Ordering::Relaxed);
            let take = || self.0.compare_exchange(before, by, Ordering::Acquire, Ordering::Relaxed);
            if before != by && take().is_ok() {
                return ForkSafeLocked { lock: self, by };
            }
            wait(tries);
        }
        unreachable!("it tries for ever")
    }
}

impl Drop for ForkSafeLocked {
    fn drop(&mut self) {
        let _ = self.lock.0.compare_exchange(self.by, 0, Ordering::Release, Ordering::Relaxed);
    }
}
