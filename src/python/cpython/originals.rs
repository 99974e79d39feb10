//! Functions as they were before others took their place.

use std::sync::OnceLock;

use crate::python::cpython::conventions::Convention;

/// A function as it was.
pub struct Original(OnceLock<Kept>);

struct Kept {
    convention: Convention,
    /// The addresses of the function, and of the one in its place.
    own: usize,
    ours: usize,
}

/// The state of a function that may be replaced.
pub(super) enum Found {
    /// It is to be replaced now.
    Own,
    /// It was replaced before.
    Ours,
    /// It is another one than was replaced elsewhere.
    Other,
}

impl Original {
    /// One of a function that was not replaced yet.
    pub const fn unknown() -> Self {
        Self(OnceLock::new())
    }

    #[inline]
    pub(super) fn convention(&self) -> Option<Convention> {
        self.0.get().map(|kept| kept.convention)
    }

    /// The address of the function; `None` if none was replaced.
    pub(super) fn own(&self) -> Option<usize> {
        self.0.get().map(|kept| kept.own)
    }

    /// Keeps a function that `ours` is going to replace. A class that is made anew has the same one.
    pub(super) fn keep(&self, convention: Convention, own: usize, ours: usize) -> Found {
        if self.0.get().is_some_and(|kept| kept.ours == own) || own == ours {
            return Found::Ours;
        }
        let kept = self.0.get_or_init(|| Kept {
            convention,
            own,
            ours,
        });
        match kept.own == own {
            true => Found::Own,
            false => Found::Other,
        }
    }
}
