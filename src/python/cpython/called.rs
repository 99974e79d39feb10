//! A call of a replaced native function, to be made as it came or with other arguments.
//!
//! Before 3.14 CPython ends a daemon thread by unwinding its stack (see `calling`), also where it is in
//! such a call. So nothing that is to be dropped is held while `make` runs: it is put into a
//! `ManuallyDrop`, and lost then.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::PyPermissionError;
use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::python::cpython::arguments::{CallArguments, Convention};
use crate::python::cpython::functions::Builtin;
use crate::python::cpython::once::Once;
use crate::python::cpython::{calling, ffi as raw};

/// Runs our own part of a call. Where that fails, or panics, the exception is set and there is no
/// result: the call must not go on.
pub fn ours<'py, T>(py: Python<'py>, work: impl FnOnce(Python<'py>) -> PyResult<T>) -> Option<T> {
    // A function that CPython calls must not panic.
    let result = catch_unwind(AssertUnwindSafe(|| raw::or_set_error(py, || work(py))));
    match result {
        Ok(result) => result.ok(),
        Err(_panic) => {
            raw::with_attachment_counted(py, || {
                PyPermissionError::new_err("fastaudit_rs: internal error, so the call is denied")
                    .restore(py);
            });
            None
        }
    }
}

/// The result of a call: a reference, or none, and then an exception is set. It is lost if it is not
/// given on.
#[must_use]
pub struct Returned(Option<Py<PyAny>>);

impl Returned {
    /// The result of a call that failed, for a reason that is set.
    pub const fn failed() -> Self {
        Self(None)
    }

    #[inline]
    pub fn none(py: Python<'_>) -> Self {
        Self(Some(py.None()))
    }

    pub fn has_failed(&self) -> bool {
        self.0.is_none()
    }

    /// # Safety
    /// It is a new reference or null, and the thread is attached.
    #[inline]
    unsafe fn new(py: Python<'_>, result: *mut PyObject) -> Self {
        // SAFETY: the caller vouches for it.
        Self(unsafe { Bound::from_owned_ptr_or_opt(py, result) }.map(Bound::unbind))
    }

    #[inline]
    pub(super) fn into_ptr(self) -> *mut PyObject {
        self.0.map_or(std::ptr::null_mut(), Py::into_ptr)
    }

    /// The object; `None` if the call failed.
    pub fn object<'a, 'py>(&'a self, py: Python<'py>) -> Option<Borrowed<'a, 'py, PyAny>> {
        self.0.as_ref().map(|object| object.bind_borrowed(py))
    }

    /// The same result if work after the call went well, else none.
    pub fn if_done(self, py: Python<'_>, done: Option<()>) -> Self {
        match done {
            Some(()) => self,
            None => self.instead(py, Self::failed()),
        }
    }

    /// Another result in the place of this one.
    pub fn instead(self, py: Python<'_>, other: Self) -> Self {
        raw::with_attachment_counted(py, || drop(self.0));
        other
    }
}

impl From<Bound<'_, PyAny>> for Returned {
    fn from(object: Bound<'_, PyAny>) -> Self {
        Self(Some(object.unbind()))
    }
}

/// A call with arguments one by one.
#[derive(Clone, Copy)]
pub struct Called<'a> {
    pub py: Python<'a>,
    pub arguments: CallArguments<'a>,
    /// The function object, or the object that the method is called on.
    object: Borrowed<'a, 'a, PyAny>,
    /// The class of the method, where the convention tells it.
    class: *mut PyTypeObject,
    original: Convention,
}

impl<'a> Called<'a> {
    /// # Safety
    /// CPython made the call, by the convention of the original or one with the same arguments; `'a` ends
    /// before the call does.
    #[inline]
    pub(super) unsafe fn new(
        original: Convention,
        object: *mut PyObject,
        class: *mut PyTypeObject,
        arguments: CallArguments<'a>,
    ) -> Self {
        // SAFETY: CPython calls functions on attached threads, and the caller of the function holds it.
        let object = unsafe { Borrowed::from_ptr(Python::assume_attached(), object) };
        Self { py: object.py(), arguments, object, class, original }
    }

    /// The object that the method is called on; a function itself.
    pub fn receiver(&self) -> Borrowed<'a, 'a, PyAny> {
        self.object
    }

    /// Returns whether the call is one of a function object, and not of a method by its class.
    pub fn is_of_function(&self) -> bool {
        matches!(
            self.original,
            Convention::Vectorcall(_) | Convention::Tuple(_) | Convention::TupleAndDict(_)
        )
    }

    pub fn ours<T>(&self, work: impl FnOnce(Python<'a>) -> PyResult<T>) -> Option<T> {
        ours(self.py, work)
    }

    pub fn make(self) -> Returned {
        let CallArguments { args, nargsf, kwnames, .. } = self.arguments;
        let (object, count) = (self.object.as_ptr(), self.arguments.positional() as isize);
        // A function object has the object that its C function is called with.
        let bound_to = || {
            Builtin::cast(&self.receiver()).map_or(std::ptr::null_mut(), |own| own.get().receiver)
        };
        let is_named = self.arguments.named() != 0;
        // SAFETY: the object is the one that was called, and each function is called by its own
        // convention, with as many arguments as it was called with. The results are new references or
        // null.
        unsafe {
            Returned::new(
                self.py,
                match self.original {
                    Convention::Vectorcall(own) => own(object, args, nargsf, kwnames),
                    Convention::Keywords(own) => own(object, args, count, kwnames),
                    Convention::Fast(own) => own(object, args, count),
                    Convention::OfClass(own) => own(object, self.class, args, count, kwnames),
                    Convention::One(own) => own(object, *args),
                    Convention::Nothing(own) => own(object, std::ptr::null_mut()),
                    Convention::Tuple(_) if is_named => {
                        let error = Builtin::cast(&self.receiver()).map(|own| own.takes_no_names());
                        ours(self.py, |_| error.map_or(Ok(()), Err));
                        std::ptr::null_mut()
                    }
                    Convention::Tuple(own) => {
                        by_tuple(self.arguments, |args, _| own(bound_to(), args))
                    }
                    Convention::TupleAndDict(own) => {
                        by_tuple(self.arguments, |args, kwargs| own(bound_to(), args, kwargs))
                    }
                    Convention::MethodOfTuple(own) => {
                        by_tuple(self.arguments, |args, _| own(object, args))
                    }
                    // No call comes here by these.
                    Convention::Slot(_) | Convention::Init(_) => std::ptr::null_mut(),
                },
            )
        }
    }

    /// Makes the call, unless it `matters` and our own part before it fails.
    pub fn make_if(self, matters: bool, work: impl FnOnce(Python<'a>) -> PyResult<()>) -> Returned {
        match matters && self.ours(work).is_none() {
            true => Returned::failed(),
            false => self.make(),
        }
    }

    /// Makes a call, with what `work` has for the place of one argument, if anything.
    pub fn replacing_with<'b>(
        self,
        position: usize,
        work: impl FnOnce(Python<'a>) -> PyResult<Option<Bound<'b, PyAny>>>,
        call: impl FnOnce(Called<'_>) -> Returned,
    ) -> Returned {
        match self.ours(work) {
            None => Returned::failed(),
            Some(None) => call(self),
            Some(Some(object)) => self.replacing(position, object, call),
        }
    }

    /// Makes a call with another object in the place of one argument.
    ///
    /// # Panics
    /// When there is no argument there.
    pub fn replacing(
        self,
        position: usize,
        object: Bound<'_, PyAny>,
        call: impl FnOnce(Called<'_>) -> Returned,
    ) -> Returned {
        let mut all = ManuallyDrop::new(self.arguments.all().to_vec());
        all[position] = object.as_ptr();
        let result = holding(object, |_| {
            // SAFETY: they are as many as before, with the same names, and live until after the call.
            let arguments = unsafe {
                CallArguments::new(
                    all.as_ptr(),
                    self.arguments.positional(),
                    self.arguments.kwnames,
                )
            };
            call(Called { arguments, ..self })
        });
        drop(ManuallyDrop::into_inner(all));
        result
    }
}

/// Makes a call while an object lives.
fn holding<'py, T>(
    object: Bound<'py, T>,
    call: impl FnOnce(Borrowed<'_, 'py, T>) -> Returned,
) -> Returned {
    let (py, object) = (object.py(), ManuallyDrop::new(object));
    let result = call(object.as_borrowed());
    raw::with_attachment_counted(py, || drop(ManuallyDrop::into_inner(object)));
    result
}

/// Makes a call by a tuple, and a dict where there are arguments with a name.
fn by_tuple(
    arguments: CallArguments<'_>,
    call: impl FnOnce(*mut PyObject, *mut PyObject) -> *mut PyObject,
) -> *mut PyObject {
    let (args, kwnames) = (arguments.args, arguments.kwnames);
    // SAFETY: the arguments live for the call, and there are as many as they say. Nothing is dropped
    // after the call that unwinding would miss but the references in `positional` and `named`, which are
    // then lost.
    unsafe {
        let count = arguments.positional() as isize;
        let positional = ffi::PyTuple_New(count);
        if positional.is_null() {
            return positional;
        }
        for index in 0..count {
            let item = ffi::Py_NewRef(*args.offset(index));
            ffi::PyTuple_SET_ITEM(positional, index, item);
        }
        let mut named = std::ptr::null_mut();
        if !kwnames.is_null() {
            named = ffi::PyDict_New();
            for index in 0..ffi::PyTuple_GET_SIZE(kwnames) {
                let name = ffi::PyTuple_GET_ITEM(kwnames, index);
                if named.is_null()
                    || ffi::PyDict_SetItem(named, name, *args.offset(count + index)) != 0
                {
                    ffi::Py_XDECREF(named);
                    ffi::Py_DECREF(positional);
                    return std::ptr::null_mut();
                }
            }
        }
        let result = call(positional, named);
        ffi::Py_XDECREF(named);
        ffi::Py_DECREF(positional);
        result
    }
}

/// An object that lives for ever once it is set, and that callbacks return.
pub struct Forever(Once<Py<PyAny>>);

impl Forever {
    pub const fn unknown() -> Self {
        Self(Once::new())
    }

    pub fn set(&self, object: &Bound<'_, PyAny>) {
        let _ = self.0.set(object.py(), object.clone().unbind());
    }

    pub fn is(&self, object: &Bound<'_, PyAny>) -> bool {
        self.0.get(object.py()).is_some_and(|own| object.is(own))
    }

    /// A reference to it; `None` before it was set.
    #[cfg(Py_3_12)]
    #[inline]
    pub fn give(&self, py: Python<'_>) -> Returned {
        match self.0.get(py) {
            Some(object) => object.bind(py).clone().into(),
            None => Returned::none(py),
        }
    }
}

/// A call with a tuple, and a dict where there are arguments with a name.
#[derive(Clone, Copy)]
pub struct CalledByTuple<'a> {
    pub py: Python<'a>,
    object: Borrowed<'a, 'a, PyAny>,
    args: Borrowed<'a, 'a, PyTuple>,
    kwargs: Option<Borrowed<'a, 'a, PyDict>>,
    /// `None` for a method of ours.
    original: Option<Convention>,
}

impl<'a> CalledByTuple<'a> {
    /// # Safety
    /// CPython made the call, by the convention of the original where there is one, with a tuple, and a
    /// dict or null; `'a` ends before the call does.
    #[inline]
    pub(super) unsafe fn new(
        original: Option<Convention>,
        object: *mut PyObject,
        args: *mut PyObject,
        kwargs: *mut PyObject,
    ) -> Self {
        // SAFETY: CPython calls functions on attached threads, and the caller of the function holds all of
        // them; the classes are those that the caller vouches for.
        unsafe {
            let py = Python::assume_attached();
            Self {
                py,
                object: Borrowed::from_ptr(py, object),
                args: Borrowed::from_ptr(py, args).cast_unchecked(),
                kwargs: Borrowed::from_ptr_or_opt(py, kwargs).map(|all| all.cast_unchecked()),
                original,
            }
        }
    }

    /// The object that is called, or whose method is; the class of an object that is made.
    pub fn receiver(&self) -> Borrowed<'a, 'a, PyAny> {
        self.object
    }

    pub fn args(&self) -> Borrowed<'a, 'a, PyTuple> {
        self.args
    }

    pub fn kwargs(&self) -> Option<Borrowed<'a, 'a, PyDict>> {
        self.kwargs
    }

    pub fn ours<T>(&self, work: impl FnOnce(Python<'a>) -> PyResult<T>) -> Option<T> {
        ours(self.py, work)
    }

    pub fn make(self) -> Returned {
        let (object, args) = (self.object.as_ptr(), self.args.as_ptr());
        let kwargs = self.kwargs.map_or(std::ptr::null_mut(), |all| all.as_ptr());
        // SAFETY: the object is the one that was called, or the callable of `make_of`, and each function
        // is called by its own convention. The results are new references or null.
        unsafe {
            match self.original {
                Some(Convention::Slot(own)) => Returned::new(self.py, own(object, args, kwargs)),
                Some(Convention::Init(own)) => match own(object, args, kwargs) {
                    0 => Returned::none(self.py),
                    _ => Returned::failed(),
                },
                _ => Returned::failed(),
            }
        }
    }

    /// Makes the call, unless it `matters` and our own part before it fails.
    pub fn make_if(self, matters: bool, work: impl FnOnce(Python<'a>) -> PyResult<()>) -> Returned {
        match matters && self.ours(work).is_none() {
            true => Returned::failed(),
            false => self.make(),
        }
    }

    pub fn make_with(self, kwargs: Bound<'_, PyDict>) -> Returned {
        holding(kwargs, |kwargs| {
            let kwargs = Some(kwargs);
            CalledByTuple { kwargs, ..self }.make()
        })
    }

    pub fn make_of(self, function: Bound<'_, PyAny>) -> Returned {
        let original = Some(Convention::Slot(calling::object_call()));
        holding(function, |object| CalledByTuple { object, original, ..self }.make())
    }
}
