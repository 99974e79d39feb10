//! The guard of a thread that let the interpreter's lock go.
//!
//! A thread's context changes only while it holds the lock, so that the guard which is noted as it
//! lets go stays the one in force until it holds the lock again.

use pyo3::prelude::*;

use crate::python::acts::told;
use crate::python::cpython::attachment::{Notes, Release};
use crate::python::guard::active::Active;
use crate::python::guard::scope::{self, Current};

/// What the context had as the lock was let go.
pub enum Noted {
    Unguarded,
    Guarded(Py<Active>),
    /// An object that is no guard.
    Tampered,
}

thread_local! {
    static NOTES: Notes<Noted> = const { Notes::none() };
}

pub struct Released;

impl Release for Released {
    type Note = Noted;

    #[inline(always)]
    fn may_note() -> bool {
        scope::any_guard()
    }

    fn note(py: Python<'_>) -> Noted {
        if !scope::is_ours() {
            return Noted::Unguarded;
        }
        match scope::current(py) {
            Ok(Current::Unguarded) => Noted::Unguarded,
            Ok(Current::Guarded(active)) => Noted::Guarded(active.unbind()),
            Ok(Current::Tampered) | Err(_) => Noted::Tampered,
        }
    }

    fn ends(py: Python<'_>, note: Noted) {
        if let Noted::Guarded(active) = note {
            told::tell(py, active.get());
        }
    }

    fn with_notes<R>(look: impl FnOnce(&Notes<Noted>) -> R) -> Option<R> {
        NOTES.try_with(look).ok()
    }
}

/// Looks at the note of this thread; there is none if code let the lock go that has no notes.
pub fn with_note<R>(look: impl Fn(Option<&Noted>) -> R) -> R {
    let looked = NOTES.try_with(|notes| notes.with_last(&look));
    // A thread that ends has none any more.
    looked.unwrap_or_else(|_| look(None))
}
