//! Arguments of native functions that their audit events leave out.
//!
//! Without the `dir_fd` of `os.open` a relative name cannot be judged: with the current directory
//! inside a root, any `os.open(name, flags, dir_fd=fd)` would pass. Without `follow_symlinks` the
//! file that `os.chmod` changes is not known. So such functions (`natives`) note them for the
//! duration of the call.
#![allow(unsafe_code)]

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::policy::files::path::Base;
use crate::policy::judge::Follows;
use crate::python::cpython::arguments::Arguments;
use crate::python::cpython::called::Called;
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
///
/// # Safety
/// The thread is attached, and the arguments are those of a vectorcall.
pub unsafe fn call(call: Called, follows: Follows) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe {
        // Noted for this call alone. A call may raise an event whose hook opens files itself.
        let before = call_notes::replace(read(follows, call.arguments));
        let result = call.make(call.arguments);
        call_notes::replace(before);
        result
    }
}

/// Reads the keyword arguments of a call.
///
/// # Safety
/// The arguments are those of a vectorcall.
unsafe fn read(follows: Follows, arguments: Arguments) -> Noted {
    let Arguments {
        args,
        nargsf,
        kwnames,
    } = arguments;
    let mut noted = Noted { follows, ..NOTHING };
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
                // An object with `__index__` has no known number before it is used.
                let fd = crate::python::cpython::ffi::int_value(&Borrowed::from_ptr(py, value));
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
