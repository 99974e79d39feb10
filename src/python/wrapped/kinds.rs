//! The kinds of functions that do more under a guard, and the data of each.

use std::ffi::CStr;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::policy::files::path::Base;
use crate::policy::judge::Follows;
use crate::python::cpython::arguments::CallArguments;
use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::ffi as raw;
use crate::python::guard::event::{self, CallNote, NOTHING};
use crate::python::values::errors;

#[derive(Clone, Copy)]
pub enum What {
    /// Arguments that its event leaves out are noted.
    Notes(Follows),
    /// An event is raised, as it has none of its own.
    Raises(&'static Silent),
    /// The same for shared memory, which is marked.
    Shares(&'static Silent),
    Registers(&'static Registered),
    TellsRegistered,
    /// It changes tools of `sys.monitoring`, which has this event.
    #[cfg(Py_3_12)]
    ChangesTools(&'static CStr),
    Starts,
    /// It starts a program, and opens files for it.
    Spawns,
    Waits,
    /// It starts a program; without an event of its own, this one is raised first.
    StartsProgram(Option<&'static Silent>),
    /// It loads a native module, and returns it.
    Loads,
    MakesReady,
}

/// The event that a function without one raises, and how.
pub struct Silent {
    pub event: &'static CStr,
    pub raises: Raises,
}

/// The callbacks that a function takes for later.
#[derive(Debug)]
pub struct Registered {
    /// The place of the callback: by position, or by name.
    pub given: &'static [(usize, Option<&'static CStr>)],
    /// True if Python code of the standard library calls the function for its own callers.
    pub by_way_of_library: bool,
}

#[derive(Clone, Copy)]
pub enum Raises {
    AsGiven,
    /// The same if the arguments say so.
    When(Condition),
    /// The arguments of these names, the first a path; -1 for a missing `dir_fd`, else `None`.
    Entry(&'static [&'static CStr]),
    /// `open`, with the argument at this place, of this name, as a path, and with this mode.
    Opens(usize, &'static CStr, Mode),
    /// `open` for reading, with each of the arguments at these places, of these names, as a path.
    Reads(&'static [(usize, &'static CStr)]),
    /// `open` of this file for reading.
    ReadsFile(&'static str),
    /// `fastaudit.read` of these files of the system.
    ReadsForSystem(fn() -> Vec<PathBuf>),
    /// `open` of the file for reading that a line of readline(3)'s settings includes.
    Includes,
    /// `open` of a shared memory object, or `os.remove` of it: shm_overview(7).
    Shared,
    Starts,
}

#[derive(Clone, Copy)]
pub enum Mode {
    /// In this way; without a file, the one of readline(3)'s history.
    History(&'static str),
    /// For reading, by readline(3), which knows `~`; without a file, the one of its settings.
    Settings,
    /// As the flags of a `dbm` say, the second argument; the names of its files have these endings.
    Dbm(&'static [&'static str]),
}

pub type Condition = fn(Python<'_>, CallArguments<'_>) -> bool;

/// An error unless a method that has to be replaced was.
pub fn known(class: &str, method: &str, is_replaced: bool) -> PyResult<()> {
    match is_replaced {
        true => Ok(()),
        false => Err(errors::unknown_method(class, method)),
    }
}

// Arguments of native functions that their audit events leave out.
//
// Without the `dir_fd` of `os.open` a relative name cannot be judged: with the current directory
// inside a root, any `os.open(name, flags, dir_fd=fd)` would pass. Without `follow_symlinks` the
// file that `os.chmod` changes is not known. So such functions (`acts`) note them for the
// duration of the call.

/// The functions, and whether they follow links by default.
pub const FUNCTIONS: &[(&str, Follows)] = &[
    ("open", Follows::Always),
    ("chmod", Follows::Always),
    ("chown", Follows::Always),
    ("utime", Follows::Always),
    ("setxattr", Follows::Always),
    ("removexattr", Follows::Always),
    ("chflags", Follows::Always),
    ("lchown", Follows::Never),
    ("lchmod", Follows::Never),
    ("lchflags", Follows::Never),
];

pub fn call(called: Called<'_>, follows: Follows) -> Returned {
    // Noted for this call alone. A call may raise an event whose hook opens files itself.
    let before = event::replace_note(read(follows, called));
    let result = called.make();
    event::replace_note(before);
    result
}

fn read(follows: Follows, called: Called<'_>) -> CallNote {
    let mut noted = CallNote { follows, ..NOTHING };
    let arguments = called.arguments;
    if arguments.named() == 0 {
        return noted;
    }
    let named = |name| arguments.find(called.py, usize::MAX, Some(name));
    if let Some(fd) = named(c"dir_fd").filter(|fd| !fd.is_none()) {
        // An object with `__index__` has no known number before it is used.
        noted.base = Base::Descriptor(raw::i32_value(&fd).unwrap_or(-1));
    }
    if let Some(follows) = named(c"follow_symlinks") {
        noted.follows = match follows.cast_exact::<PyBool>() {
            Ok(follows) if follows.is_true() => Follows::Always,
            Ok(_) => Follows::Never,
            Err(_) => Follows::Unknown,
        };
    }
    noted
}
