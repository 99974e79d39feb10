//! The host's callbacks, while one of them is asked.

use std::cell::Cell;

use pyo3::prelude::*;

use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::intern;

thread_local! {
    static ASKING_HOST: Cell<bool> = const { Cell::new(false) };
    static TOO_LATE: Cell<bool> = const { Cell::new(false) };
}

/// Marks, for as long as it lives, that the operations which are judged on this thread have failed by
/// now: they are told, and nobody is asked.
pub struct TooLate;

impl TooLate {
    /// It is so from now on.
    pub fn begin() -> Self {
        TOO_LATE.set(true);
        Self
    }
}

impl Drop for TooLate {
    fn drop(&mut self) {
        TOO_LATE.set(false);
    }
}

/// Returns whether it is too late to ask anybody.
pub fn is_too_late() -> bool {
    TOO_LATE.get()
}

/// Marks, for as long as it lives, that `before_deny` runs on this thread. A denial there is a
/// plain one: asking again could go on for ever.
pub struct Asking;

impl Asking {
    /// It runs from now on.
    pub fn begin() -> Self {
        ASKING_HOST.set(true);
        Self
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING_HOST.set(false);
    }
}

/// Returns whether `before_deny` runs on this thread.
pub fn is_asking_host() -> bool {
    ASKING_HOST.get()
}

/// Returns whether a callback's answer is still to be computed: it would count as true before it
/// has run.
pub fn is_awaitable(answer: &Bound<'_, PyAny>) -> bool {
    let name = intern!(answer.py(), "__await__");
    raw::type_lookup(&answer.get_type(), name).is_some()
}
