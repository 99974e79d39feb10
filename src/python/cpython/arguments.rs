//! The arguments of a call of a native function, by the vectorcall convention (PEP 590).

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::sync::OnceLock;

use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;

/// `PY_VECTORCALL_ARGUMENTS_OFFSET`: the bit that says that the place before the first may be used.
const OFFSET: usize = 1 << (usize::BITS - 1);

#[inline(always)]
pub(super) fn positional(nargsf: usize) -> usize {
    nargsf & !OFFSET
}

/// Arguments, which live for the call.
#[derive(Clone, Copy)]
pub struct CallArguments<'a> {
    pub(super) args: *const *mut PyObject,
    pub(super) nargsf: usize,
    pub(super) kwnames: *mut PyObject,
    call: PhantomData<&'a PyObject>,
}

impl<'a> CallArguments<'a> {
    /// The arguments as CPython passes them.
    ///
    /// # Safety
    /// There are as many as `nargsf` says and one more for each name; `kwnames` is a tuple of `str`, or
    /// null. All of that lives for `'a`, in which the thread stays attached.
    #[inline]
    pub(super) unsafe fn new(
        args: *const *mut PyObject,
        nargsf: usize,
        kwnames: *mut PyObject,
    ) -> Self {
        Self { args, nargsf, kwnames, call: PhantomData }
    }

    #[inline]
    pub fn positional(&self) -> usize {
        positional(self.nargsf)
    }

    pub fn named(&self) -> usize {
        if self.kwnames.is_null() {
            return 0;
        }
        // SAFETY: the names are a tuple, which lives for the call.
        unsafe { ffi::PyTuple_GET_SIZE(self.kwnames) as usize }
    }

    /// The arguments, by position and then by name, as addresses.
    pub(super) fn all(&self) -> &'a [*mut PyObject] {
        match self.positional() + self.named() {
            0 => &[],
            // SAFETY: there are so many, which live for the call.
            count => unsafe { std::slice::from_raw_parts(self.args, count) },
        }
    }

    /// Returns the place of the argument at this position, or of this name.
    pub fn position(&self, index: usize, name: Option<&CStr>) -> Option<usize> {
        if index < self.positional() {
            return Some(index);
        }
        let name = name?;
        // SAFETY: the names are a tuple of str with so many, which lives for the call.
        let is_it = |at: &usize| unsafe {
            let own = ffi::PyTuple_GET_ITEM(self.kwnames, *at as isize);
            ffi::PyUnicode_CompareWithASCIIString(own, name.as_ptr()) == 0
        };
        Some(self.positional() + (0..self.named()).find(is_it)?)
    }

    /// The argument at an index that `position` gave.
    ///
    /// # Panics
    /// When there is none.
    pub fn at<'py>(&self, py: Python<'py>, position: usize) -> Bound<'py, PyAny> {
        let given = self.all()[position];
        // SAFETY: it is an object, which the caller of the function holds.
        unsafe { Bound::from_borrowed_ptr(py, given) }
    }

    /// The argument at this position, or of this name.
    pub fn find<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        name: Option<&CStr>,
    ) -> Option<Bound<'py, PyAny>> {
        Some(self.at(py, self.position(index, name)?))
    }
}

// The calling conventions of native functions.

/// The C function that calls a function object (PEP 590). Before 3.14 CPython ends a daemon thread
/// that wants to go on when the interpreter has ended by unwinding its stack (pthread_exit(3)):
/// such a call must let that pass, with nothing to drop and nothing that catches it on the way.
pub type Vectorcall = unsafe extern "C-unwind" fn(
    *mut PyObject,
    *const *mut PyObject,
    usize,
    *mut PyObject,
) -> *mut PyObject;

/// `METH_FASTCALL | METH_KEYWORDS`.
pub(super) type Keywords = unsafe extern "C-unwind" fn(
    *mut PyObject,
    *const *mut PyObject,
    isize,
    *mut PyObject,
) -> *mut PyObject;

/// `METH_FASTCALL`.
pub(super) type Fast =
    unsafe extern "C-unwind" fn(*mut PyObject, *const *mut PyObject, isize) -> *mut PyObject;

/// `METH_METHOD | METH_FASTCALL | METH_KEYWORDS`.
pub(super) type OfClass = unsafe extern "C-unwind" fn(
    *mut PyObject,
    *mut PyTypeObject,
    *const *mut PyObject,
    isize,
    *mut PyObject,
) -> *mut PyObject;

/// `METH_O`, `METH_NOARGS` and `METH_VARARGS`.
pub(super) type WithOne =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;

/// `METH_VARARGS | METH_KEYWORDS`, and the slots `tp_call` and `tp_new`.
pub(super) type WithKeywords =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;

/// The slot `tp_init`.
pub(super) type Init =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> c_int;

#[derive(Clone, Copy)]
pub(super) enum Convention {
    /// A function object by its own vectorcall.
    Vectorcall(Vectorcall),
    /// The C function of a function object, with a tuple alone.
    Tuple(WithOne),
    /// The C function of a function object, with a tuple and a dict.
    TupleAndDict(WithKeywords),
    Keywords(Keywords),
    Fast(Fast),
    OfClass(OfClass),
    One(WithOne),
    Nothing(WithOne),
    /// A method with a tuple that is made of the arguments.
    MethodOfTuple(WithOne),
    /// By `CalledByTuple`.
    Slot(WithKeywords),
    /// By `CalledByTuple`, with `None` for success.
    Init(Init),
}

/// A pointer to a function by the type of the function. It may differ from CPython's in whether the
/// function may be unwound alone.
///
/// # Safety
/// It is the type of a function pointer, and the function is of it.
pub(super) unsafe fn typed<F: Copy>(function: *const ()) -> F {
    const { assert!(size_of::<F>() == size_of::<*const ()>()) };
    // SAFETY: a pointer to a function has this size, and the caller vouches for the type.
    unsafe { std::mem::transmute_copy::<*const (), F>(&function) }
}

/// The vectorcall of a function that was replaced: it passes each call on to the original, and fails where
/// none was kept.
#[derive(Clone, Copy)]
pub(super) struct Route(pub(super) Vectorcall);

impl Route {
    pub(super) fn address(self) -> usize {
        self.0 as usize
    }
}

// Functions as they were before others took their place.

/// A function as it was.
pub struct Original(OnceLock<Kept>);

struct Kept {
    convention: Convention,
    /// The addresses of the function, and of the one in its place.
    own: usize,
    ours: usize,
}

/// The state of a function that may be replaced.
pub(super) enum FoundArgument {
    /// It is to be replaced now.
    Own,
    /// It was replaced before.
    Ours,
    /// It is another one than was replaced elsewhere.
    Other,
}

impl Original {
    pub const fn unknown() -> Self {
        Self(OnceLock::new())
    }

    #[inline]
    pub(super) fn convention(&self) -> Option<Convention> {
        self.0.get().map(|kept| kept.convention)
    }

    pub(super) fn own(&self) -> Option<usize> {
        self.0.get().map(|kept| kept.own)
    }

    /// Keeps a function that `ours` is going to replace. A class that is made anew has the same one.
    pub(super) fn keep(&self, convention: Convention, own: usize, ours: usize) -> FoundArgument {
        if self.0.get().is_some_and(|kept| kept.ours == own) || own == ours {
            return FoundArgument::Ours;
        }
        let kept = self.0.get_or_init(|| Kept { convention, own, ours });
        match kept.own == own {
            true => FoundArgument::Own,
            false => FoundArgument::Other,
        }
    }
}
