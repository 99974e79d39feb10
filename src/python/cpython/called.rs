//! A call of a replaced native function, to be made as it came or with other arguments.

use pyo3::ffi::{self, PyObject};

use crate::python::cpython::arguments::Arguments;
use crate::python::cpython::functions::{Builtin, Convention, WithKeywords, WithTuple};
use crate::python::cpython::replace;

/// A call of a native function that does more than its own under a guard.
#[derive(Clone, Copy)]
pub struct Called {
    pub callable: *mut PyObject,
    pub original: Convention,
    pub arguments: Arguments,
}

impl Called {
    /// The same call with other arguments.
    pub fn with(self, arguments: Arguments) -> Self {
        Self { arguments, ..self }
    }

    /// Makes the call, with these arguments.
    ///
    /// # Safety
    /// The thread is attached, and the arguments are those of a vectorcall.
    pub unsafe fn make(self, arguments: Arguments) -> *mut PyObject {
        let Arguments {
            args,
            nargsf,
            kwnames,
        } = arguments;
        let callable = self.callable;
        // SAFETY: as this function's; the callable is the one that was called, whose C function has
        // the convention that was read from it.
        unsafe {
            match self.original {
                Convention::Vectorcall(own) => own(callable, args, nargsf, kwnames),
                Convention::Tuple if has_names(kwnames) => {
                    replace::ours(|_| Err::<(), _>(Builtin::takes_no_names(callable)));
                    std::ptr::null_mut()
                }
                Convention::Tuple => replace::by_tuple(arguments, |args, _| {
                    let (own, receiver) = Builtin::parts(callable);
                    std::mem::transmute::<*const (), WithTuple>(own)(receiver, args)
                }),
                Convention::TupleAndDict => replace::by_tuple(arguments, |args, kwargs| {
                    let (own, receiver) = Builtin::parts(callable);
                    std::mem::transmute::<*const (), WithKeywords>(own)(receiver, args, kwargs)
                }),
            }
        }
    }
}

/// # Safety
/// `kwnames` is a tuple or null, as a vectorcall has it.
unsafe fn has_names(kwnames: *mut PyObject) -> bool {
    // SAFETY: as this function's.
    unsafe { !kwnames.is_null() && ffi::PyTuple_GET_SIZE(kwnames) != 0 }
}
