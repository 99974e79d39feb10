//! Arguments of native functions that their audit events leave out.
//!
//! Without the `dir_fd` of `os.open` a relative name cannot be judged: with the current directory
//! inside a root, any `os.open(name, flags, dir_fd=fd)` would pass. Without `follow_symlinks` the
//! file that `os.chmod` changes is not known. So such functions (`acts`) note them for the
//! duration of the call.

use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::policy::files::path::Base;
use crate::policy::judge::Follows;
use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::ffi as raw;
use crate::python::values::call_notes::{self, NOTHING, Noted};

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

/// Makes a call, with its arguments noted.
pub fn call(called: Called<'_>, follows: Follows) -> Returned {
    // Noted for this call alone. A call may raise an event whose hook opens files itself.
    let before = call_notes::replace(read(follows, called));
    let result = called.make();
    call_notes::replace(before);
    result
}

/// Reads the keyword arguments of a call.
fn read(follows: Follows, called: Called<'_>) -> Noted {
    let mut noted = Noted { follows, ..NOTHING };
    let arguments = called.arguments;
    if arguments.named() == 0 {
        return noted;
    }
    let named = |name| arguments.find(called.py, usize::MAX, Some(name));
    if let Some(fd) = named(c"dir_fd").filter(|fd| !fd.is_none()) {
        // An object with `__index__` has no known number before it is used.
        let fd = raw::int_value(&fd).and_then(|fd| i32::try_from(fd).ok());
        noted.base = Base::Descriptor(fd.unwrap_or(-1));
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
