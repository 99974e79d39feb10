//! Arguments of native functions that their audit events leave out.
//!
//! Without the `dir_fd` of `os.open` a relative name cannot be judged: with the current directory
//! inside a root, any `os.open(name, flags, dir_fd=fd)` would pass. Without `follow_symlinks` it is
//! not known what `os.chmod` changes. So the one function object that such a function is, however it
//! was imported, is made to note the argument for the duration of the call, and then to do what it
//! always did. It stays the same object: sets and tables that hold it still find it.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use super::context;
use super::methods::{Builtin, Vectorcall};
use crate::policy::path::Base;

/// Whether a call follows a link that its path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// It does.
    Always,
    /// It changes the link itself.
    Never,
    /// An object says so, which is asked later.
    Unknown,
}

/// What was noted of a call.
#[derive(Clone, Copy)]
struct Noted {
    base: Base,
    follows: Follows,
}

const NOTHING: Noted = Noted {
    base: Base::CurrentDir,
    follows: Follows::Always,
};

/// The functions, and whether they follow links when they are not told.
const FUNCTIONS: &[(&str, Follows)] = &[
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

/// A function that notes.
struct Function {
    object: *mut PyObject,
    original: Vectorcall,
    follows: Follows,
}

// SAFETY: the object is kept for ever, and only its address is read without the GIL.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

static NOTING: OnceLock<Vec<Function>> = OnceLock::new();

thread_local! {
    static NOTED: Cell<Noted> = const { Cell::new(NOTHING) };
}

/// What a relative name in an `open` event raised by `os.open` starts from.
pub fn base() -> Base {
    NOTED.get().base
}

/// Whether the call that raises the event follows links.
pub fn follows() -> Follows {
    NOTED.get().follows
}

/// Has the functions note. Does nothing where there are none, as on Windows, whose `os.open` takes
/// no `dir_fd`.
///
/// # Errors
/// What looking them up raises.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let Ok(posix) = py.import("posix") else {
        return Ok(());
    };
    let mut noting = Vec::new();
    let mut objects = Vec::new();
    for (name, follows) in FUNCTIONS {
        let Some(object) = posix.getattr_opt(*name)? else {
            continue;
        };
        let original = Builtin::cast(&object).and_then(|function| function.vectorcall());
        if let Some(original) = original {
            noting.push(Function {
                object: object.as_ptr(),
                original,
                follows: *follows,
            });
            objects.push(object);
        }
    }
    if NOTING.set(noting).is_err() {
        return Ok(());
    }
    for object in objects {
        if let Some(function) = Builtin::cast(&object) {
            // SAFETY: `note` passes each call on to the original vectorcall.
            unsafe { function.set_vectorcall(note) };
        }
        // It is found again by its address.
        std::mem::forget(object);
    }
    Ok(())
}

/// # Safety
/// Called by CPython by the vectorcall convention.
unsafe extern "C-unwind" fn note(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    let functions = NOTING.get().map_or(&[][..], Vec::as_slice);
    let Some(function) = functions.iter().find(|known| known.object == callable) else {
        // Only functions that were put there are made to come here.
        return std::ptr::null_mut();
    };
    // SAFETY: the arguments are those CPython passed, and are passed on as they came.
    unsafe {
        if !context::may_be_guarded() {
            return (function.original)(callable, args, nargsf, kwnames);
        }
        // In place for this call alone. A call may raise an event whose hook opens files itself.
        let before = NOTED.replace(read(function, args, nargsf, kwnames));
        let result = (function.original)(callable, args, nargsf, kwnames);
        NOTED.set(before);
        result
    }
}

/// Reads the keyword arguments of a call.
///
/// # Safety
/// The arguments are those of a vectorcall.
unsafe fn read(
    function: &Function,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> Noted {
    let mut noted = Noted {
        follows: function.follows,
        ..NOTHING
    };
    if kwnames.is_null() {
        return noted;
    }
    // SAFETY: `kwnames` is a tuple of str, and the values follow the positional arguments.
    unsafe {
        for index in 0..ffi::PyTuple_GET_SIZE(kwnames) {
            let name = ffi::PyTuple_GET_ITEM(kwnames, index);
            let is = |ascii: &std::ffi::CStr| {
                ffi::PyUnicode_CompareWithASCIIString(name, ascii.as_ptr()) == 0
            };
            let value = *args.offset(ffi::PyVectorcall_NARGS(nargsf) + index);
            let py = Python::assume_attached();
            if is(c"dir_fd") && value != ffi::Py_None() {
                // Of an object with `__index__` the number is not known before it is used.
                let fd = super::ffi::int_value(&Borrowed::from_ptr(py, value));
                let fd = fd.and_then(|fd| i32::try_from(fd).ok());
                noted.base = Base::Descriptor(fd.unwrap_or(-1));
            } else if is(c"follow_symlinks") {
                noted.follows = match value {
                    value if value == ffi::Py_True() => Follows::Always,
                    value if value == ffi::Py_False() => Follows::Never,
                    _ => Follows::Unknown,
                };
            }
        }
    }
    noted
}
