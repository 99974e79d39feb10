//! Notes on the call in progress: arguments that its audit event leaves out. They are the directory
//! that a relative name starts from, and whether links are followed.

use std::cell::Cell;

use crate::policy::files::path::Base;
use crate::policy::judge::Follows;

/// The arguments of a call that its audit event leaves out.
#[derive(Clone, Copy)]
pub struct CallNote {
    /// The directory that a relative name starts from.
    pub base: Base,
    /// Tells whether links are followed.
    pub follows: Follows,
}

/// Nothing was said.
pub const NOTHING: CallNote = CallNote {
    base: Base::CurrentDir,
    follows: Follows::Always,
};

thread_local! {
    static NOTED: Cell<CallNote> = const { Cell::new(NOTHING) };
}

/// The directory that a relative name in an `open` event raised by `os.open` starts from.
pub fn base() -> Base {
    NOTED.get().base
}

/// Tells whether the call that raises the event follows links.
pub fn follows() -> Follows {
    NOTED.get().follows
}

/// Replaces the notes, and returns those of the call around it.
pub fn replace(noted: CallNote) -> CallNote {
    NOTED.replace(noted)
}
