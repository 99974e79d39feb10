//! Notes on the call in progress: arguments that its audit event leaves out. They are the directory
//! that a relative name starts from, and whether links are followed.

use std::cell::Cell;

use crate::policy::files::path::Base;
use crate::policy::judge::Follows;

#[derive(Clone, Copy)]
pub struct CallNote {
    pub base: Base,
    pub follows: Follows,
}

pub const NOTHING: CallNote = CallNote {
    base: Base::CurrentDir,
    follows: Follows::Always,
};

thread_local! {
    static NOTED: Cell<CallNote> = const { Cell::new(NOTHING) };
}

/// The notes on the call that raises the event; without `dir_fd` and the like, [`NOTHING`].
pub fn now() -> CallNote {
    NOTED.get()
}

pub fn replace(noted: CallNote) -> CallNote {
    NOTED.replace(noted)
}
