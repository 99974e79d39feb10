//! Calls of Python code from our functions that catch panics.
//!
//! Before 3.14 CPython ends a daemon thread that wants to go on when the interpreter has ended by
//! unwinding its stack (pthread_exit(3)). This may happen wherever Python code runs, and a function
//! that catches panics turns it into an abort. So the thread is held here, for good, as CPython
//! itself does from 3.14 on.

use std::ffi::{CStr, c_char, c_int};

use pyo3::BoundObject;
#[cfg(not(Py_3_13))]
use pyo3::exceptions::PyAttributeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PyModule, PyString, PyTuple, PyType};

use crate::python::cpython::arguments::Vectorcall;
use crate::python::cpython::arguments::{WithKeywords, typed};
use crate::python::cpython::objects::{self, plain_str};
use crate::python::cpython::once::Once;

/// Functions of CPython by the objects that they take.
type OfOne<R> = unsafe extern "C-unwind" fn(*mut PyObject) -> R;
type OfTwo<R> = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> R;
type SetAttribute =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> c_int;
#[cfg(Py_3_13)]
type OptionalAttribute =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut *mut PyObject) -> c_int;
type Warn = unsafe extern "C-unwind" fn(*mut PyObject, *const c_char, ffi::Py_ssize_t) -> c_int;
type Compare = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, c_int) -> *mut PyObject;

/// Re-types a CPython function as one that may be unwound (`extern "C-unwind"`). `black_box` hides
/// which one it is: the compiler would use its `nounwind` declaration and drop the cleanup.
///
/// # Safety
/// `F` is the type of the function, but for that.
unsafe fn unwinding<F: Copy>(function: *const ()) -> F {
    // SAFETY: the caller vouches for the type.
    unsafe { typed(std::hint::black_box(function)) }
}

/// `PyObject_Call`, which may be unwound.
pub(super) fn object_call() -> WithKeywords {
    // SAFETY: it takes the object, a tuple, and a dict or null.
    unsafe { unwinding(ffi::PyObject_Call as *const ()) }
}

/// Holds a thread that is being unwound, not by a panic.
struct Hold;

impl Drop for Hold {
    fn drop(&mut self) {
        while !std::thread::panicking() {
            std::thread::park();
        }
    }
}

/// Runs a call that may be unwound.
pub fn held<R>(work: impl FnOnce() -> R) -> R {
    let hold = Hold;
    let result = work();
    std::mem::forget(hold);
    result
}

pub fn call<'py>(
    callable: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let kwargs = kwargs.map_or(std::ptr::null_mut(), |kwargs| kwargs.as_ptr());
    // SAFETY: the arguments are a tuple and a dict, or null; a new reference or an error.
    unsafe {
        let result = held(|| object_call()(callable.as_ptr(), args.as_ptr(), kwargs));
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// Calls an object with arguments without making a tuple of them.
pub fn call_with<'py, const COUNT: usize>(
    callable: &Bound<'py, PyAny>,
    args: [&Bound<'py, PyAny>; COUNT],
) -> PyResult<Bound<'py, PyAny>> {
    let args = args.map(|argument| argument.as_ptr());
    let names = std::ptr::null_mut();
    // SAFETY: the arguments are so many objects, which their borrowers keep alive; a new reference
    // or an error.
    unsafe {
        let call: Vectorcall = unwinding(ffi::PyObject_Vectorcall as *const ());
        let result = held(|| call(callable.as_ptr(), args.as_ptr(), COUNT, names));
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// Functions of CPython that make one object of another.
enum Conversion {
    Repr,
    Str,
    FsPath,
    Call,
    Import,
    Iter,
    Index,
    List,
}

fn converted<'py>(
    object: &Bound<'py, PyAny>,
    conversion: Conversion,
) -> PyResult<Bound<'py, PyAny>> {
    let function = match conversion {
        Conversion::Repr => ffi::PyObject_Repr as *const (),
        Conversion::Str => ffi::PyObject_Str as *const (),
        Conversion::FsPath => ffi::PyOS_FSPath as *const (),
        Conversion::Call => ffi::PyObject_CallNoArgs as *const (),
        Conversion::Import => ffi::PyImport_Import as *const (),
        Conversion::Iter => ffi::PyObject_GetIter as *const (),
        Conversion::Index => ffi::PyNumber_Index as *const (),
        Conversion::List => ffi::PySequence_List as *const (),
    };
    // SAFETY: each of them takes any object, and gives a new reference or null.
    unsafe {
        let convert: OfOne<*mut PyObject> = unwinding(function);
        let result = held(|| convert(object.as_ptr()));
        Bound::from_owned_ptr_or_err(object.py(), result)
    }
}

/// `os.fspath(object)`.
pub fn fs_path<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    converted(object, Conversion::FsPath)
}

/// `operator.index(object)`.
pub fn index<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    converted(object, Conversion::Index)
}

/// `list(object)`.
pub fn list<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    converted(object, Conversion::List)
}

/// Calls a function of CPython that answers by a number, which is -1 for an error.
fn numbered<N: PartialEq + From<i8>>(py: Python<'_>, call: impl FnOnce() -> N) -> PyResult<N> {
    let answer = held(call);
    match answer == N::from(-1) {
        true => Err(PyErr::fetch(py)),
        false => Ok(answer),
    }
}

/// Returns whether an object is true.
pub fn is_true(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: it takes any object, on an attached thread.
    let answer = numbered(object.py(), || unsafe {
        let is_true: OfOne<c_int> = unwinding(ffi::PyObject_IsTrue as *const ());
        is_true(object.as_ptr())
    })?;
    Ok(answer != 0)
}

/// Returns an attribute; `None` if it does not exist.
pub fn getattr_opt<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    #[cfg(Py_3_13)]
    {
        let mut value = std::ptr::null_mut();
        // SAFETY: it takes two objects and a place for a new reference, or null.
        numbered(object.py(), || unsafe {
            let get: OptionalAttribute = unwinding(ffi::PyObject_GetOptionalAttr as *const ());
            get(object.as_ptr(), name.as_ptr(), &raw mut value)
        })?;
        // SAFETY: it was put there.
        Ok(unsafe { Bound::from_owned_ptr_or_opt(object.py(), value) })
    }
    #[cfg(not(Py_3_13))]
    match paired(object, name, Pair::Attribute) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyAttributeError>(object.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

pub fn compare<'py>(
    one: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
    how: CompareOp,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: it takes two objects and a number; a new reference, or null with an error.
    unsafe {
        let compare: Compare = unwinding(ffi::PyObject_RichCompare as *const ());
        let result = held(|| compare(one.as_ptr(), other.as_ptr(), how as c_int));
        Bound::from_owned_ptr_or_err(one.py(), result)
    }
}

/// Functions of CPython that make one object of two.
enum Pair {
    Attribute,
    Item,
}

#[inline(always)]
fn paired<'py>(
    one: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
    pair: Pair,
) -> PyResult<Bound<'py, PyAny>> {
    let function = match pair {
        Pair::Attribute => ffi::PyObject_GetAttr as *const (),
        Pair::Item => ffi::PyObject_GetItem as *const (),
    };
    // SAFETY: both functions take two objects, and give a new reference, or null with an error.
    unsafe {
        let function: OfTwo<*mut PyObject> = unwinding(function);
        let result = held(|| function(one.as_ptr(), other.as_ptr()));
        Bound::from_owned_ptr_or_err(one.py(), result)
    }
}

/// `hash(object)`.
pub fn hash(object: &Bound<'_, PyAny>) -> PyResult<isize> {
    // SAFETY: it takes any object, on an attached thread.
    numbered(object.py(), || unsafe {
        let hash: OfOne<ffi::Py_hash_t> = unwinding(ffi::PyObject_Hash as *const ());
        hash(object.as_ptr())
    })
}

/// `isinstance(object, class)`.
pub fn is_instance(object: &Bound<'_, PyAny>, class: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: it takes two objects, on an attached thread.
    let answer = numbered(object.py(), || unsafe {
        let is_instance: OfTwo<c_int> = unwinding(ffi::PyObject_IsInstance as *const ());
        is_instance(object.as_ptr(), class.as_ptr())
    })?;
    Ok(answer != 0)
}

/// Issues a warning of the innermost frame.
pub fn warn(category: &Bound<'_, PyAny>, text: &CStr) -> PyResult<()> {
    // SAFETY: it takes a class, a text that ends with a null, and the number of frames to go up.
    let answer = numbered(category.py(), || unsafe {
        let warn: Warn = unwinding(ffi::PyErr_WarnEx as *const ());
        warn(category.as_ptr(), text.as_ptr(), 1)
    });
    answer.map(drop)
}

/// Hands an error that nobody can catch to `sys.unraisablehook`.
pub fn write_unraisable(py: Python<'_>, error: PyErr) {
    error.restore(py);
    // SAFETY: it takes an object or null, while an error is set.
    held(|| unsafe {
        let tell: OfOne<()> = unwinding(ffi::PyErr_WriteUnraisable as *const ());
        tell(std::ptr::null_mut());
    });
}

pub fn import<'py>(
    py: Python<'py>,
    name: impl IntoPyObject<'py, Target = PyString>,
) -> PyResult<Bound<'py, PyModule>> {
    let name = converted_into(py, name)?;
    let module = converted(name.as_any(), Conversion::Import)?;
    Ok(module.cast_into()?)
}

/// The items of an object that can be iterated.
pub struct Iterated<'py>(Bound<'py, PyAny>);

impl<'py> Iterator for Iterated<'py> {
    type Item = PyResult<Bound<'py, PyAny>>;

    fn next(&mut self) -> Option<Self::Item> {
        let py = self.0.py();
        // SAFETY: it takes an iterator, which `iterate` made; it gives a new reference or null.
        let item = unsafe {
            let next: OfOne<*mut PyObject> = unwinding(ffi::PyIter_Next as *const ());
            Bound::from_owned_ptr_or_opt(py, held(|| next(self.0.as_ptr())))
        };
        match item {
            Some(item) => Some(Ok(item)),
            None => PyErr::take(py).map(Err),
        }
    }
}

fn converted_into<'py, V: IntoPyObject<'py>>(
    py: Python<'py>,
    value: V,
) -> PyResult<Bound<'py, V::Target>> {
    Ok(value.into_pyobject(py).map_err(Into::into)?.into_bound())
}

/// What PyO3's methods of objects do, and a thread that is unwound in it is held. The linter denies
/// those of PyO3 (`clippy.toml`).
pub trait Calling<'py> {
    fn object(&self) -> &Bound<'py, PyAny>;

    /// `object.name`.
    fn attr(&self, name: impl IntoPyObject<'py, Target = PyString>) -> PyResult<Bound<'py, PyAny>> {
        let object = self.object();
        paired(object, converted_into(object.py(), name)?.as_any(), Pair::Attribute)
    }

    /// `getattr(object, name, None)`.
    fn attr_opt(
        &self,
        name: impl IntoPyObject<'py, Target = PyString>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let object = self.object();
        getattr_opt(object, &converted_into(object.py(), name)?)
    }

    /// `hasattr(object, name)`.
    fn has_attr(&self, name: impl IntoPyObject<'py, Target = PyString>) -> PyResult<bool> {
        Ok(self.attr_opt(name)?.is_some())
    }

    /// `object.name = value`.
    fn set_attr(
        &self,
        name: impl IntoPyObject<'py, Target = PyString>,
        value: impl IntoPyObject<'py>,
    ) -> PyResult<()> {
        let object = self.object();
        let py = object.py();
        let (name, value) = (converted_into(py, name)?, converted_into(py, value)?);
        // SAFETY: it takes three objects, on an attached thread.
        let answer = numbered(py, || unsafe {
            let set: SetAttribute = unwinding(ffi::PyObject_SetAttr as *const ());
            set(object.as_ptr(), name.as_ptr(), value.as_ptr())
        });
        answer.map(drop)
    }

    /// `object(*args, **kwargs)`.
    fn invoke(
        &self,
        args: impl IntoPyObject<'py, Target = PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = self.object();
        call(object, &converted_into(object.py(), args)?, kwargs)
    }

    /// `object()`.
    fn invoke0(&self) -> PyResult<Bound<'py, PyAny>> {
        converted(self.object(), Conversion::Call)
    }

    /// `object(*args)`.
    fn invoke1(
        &self,
        args: impl IntoPyObject<'py, Target = PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.invoke(args, None)
    }

    /// `object.name(*args, **kwargs)`.
    fn invoke_method(
        &self,
        name: impl IntoPyObject<'py, Target = PyString>,
        args: impl IntoPyObject<'py, Target = PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.attr(name)?.invoke(args, kwargs)
    }

    /// `object.name()`.
    fn invoke_method0(
        &self,
        name: impl IntoPyObject<'py, Target = PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.attr(name)?.invoke0()
    }

    /// `object.name(*args)`.
    fn invoke_method1(
        &self,
        name: impl IntoPyObject<'py, Target = PyString>,
        args: impl IntoPyObject<'py, Target = PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.invoke_method(name, args, None)
    }

    /// `iter(object)`.
    fn iterate(&self) -> PyResult<Iterated<'py>> {
        Ok(Iterated(converted(self.object(), Conversion::Iter)?))
    }

    /// `object[key]`.
    fn item(&self, key: impl IntoPyObject<'py>) -> PyResult<Bound<'py, PyAny>> {
        let object = self.object();
        let key = converted_into(object.py(), key)?;
        paired(object, key.as_any(), Pair::Item)
    }

    /// `len(object)`.
    fn size(&self) -> PyResult<usize> {
        let object = self.object();
        // SAFETY: it takes any object, on an attached thread.
        let size = numbered(object.py(), || unsafe {
            let size: OfOne<ffi::Py_ssize_t> = unwinding(ffi::PyObject_Size as *const ());
            size(object.as_ptr())
        });
        size.map(isize::unsigned_abs)
    }

    /// `bool(object)`.
    fn truth(&self) -> PyResult<bool> {
        is_true(self.object())
    }

    /// `repr(object)`, as a plain str: `__repr__` may return one of a subclass, which would be asked
    /// for its text again where it is shown.
    fn shown(&self) -> PyResult<Bound<'py, PyString>> {
        plain_str(converted(self.object(), Conversion::Repr)?.cast_into()?)
    }

    /// `str(object)`.
    fn text(&self) -> PyResult<Bound<'py, PyString>> {
        plain_str(converted(self.object(), Conversion::Str)?.cast_into()?)
    }

    /// `object == other`.
    fn equals(&self, other: impl IntoPyObject<'py>) -> PyResult<bool> {
        let object = self.object();
        let other = converted_into(object.py(), other)?;
        is_true(&compare(object, other.as_any(), CompareOp::Eq)?)
    }
}

impl<'py, T> Calling<'py> for Bound<'py, T> {
    fn object(&self) -> &Bound<'py, PyAny> {
        self.as_any()
    }
}

/// A class of this package, which nobody changes from then on.
pub fn class_of_package<'py>(
    py: Python<'py>,
    kept: &'static Once<Py<PyType>>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyType>> {
    let class = kept.get_or_try_init(py, || {
        let class = import(py, module)?.attr(name)?.cast_into::<PyType>()?;
        objects::make_immutable(&class);
        PyResult::Ok(class.unbind())
    })?;
    Ok(class.bind(py))
}
