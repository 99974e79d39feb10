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
use pyo3::types::{PyDict, PyModule, PyString, PyTuple};

#[cfg(Py_3_12)]
use crate::python::cpython::arguments::Vectorcall;
use crate::python::cpython::arguments::{WithKeywords, typed};
use crate::python::cpython::objects::plain_str;

type Convert = unsafe extern "C-unwind" fn(*mut PyObject) -> *mut PyObject;
type Test = unsafe extern "C-unwind" fn(*mut PyObject) -> c_int;
type Attribute = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
type SetAttribute =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> c_int;
#[cfg(Py_3_13)]
type OptionalAttribute =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut *mut PyObject) -> c_int;
type Warn = unsafe extern "C-unwind" fn(*mut PyObject, *const c_char, ffi::Py_ssize_t) -> c_int;
type Tell = unsafe extern "C-unwind" fn(*mut PyObject);
type Size = unsafe extern "C-unwind" fn(*mut PyObject) -> ffi::Py_ssize_t;
type IsInstance = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> c_int;
type Compare = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, c_int) -> *mut PyObject;
type Hash = unsafe extern "C-unwind" fn(*mut PyObject) -> ffi::Py_hash_t;

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
#[cfg(Py_3_12)]
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
        let convert: Convert = unwinding(function);
        let result = held(|| convert(object.as_ptr()));
        Bound::from_owned_ptr_or_err(object.py(), result)
    }
}

/// `repr(object)`, as a plain str: `__repr__` may return one of a subclass, which would be asked
/// for its text again where it is shown.
pub fn repr<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    plain_str(converted(object, Conversion::Repr)?.cast_into()?)
}

/// `str(object)`.
pub fn str<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    plain_str(converted(object, Conversion::Str)?.cast_into()?)
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

/// The answer of a function of C, which is -1 for an error.
fn checked(py: Python<'_>, answer: c_int) -> PyResult<c_int> {
    match answer {
        -1 => Err(PyErr::fetch(py)),
        answer => Ok(answer),
    }
}

/// Returns whether an object is true.
pub fn is_true(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: it takes any object, on an attached thread.
    let answer = held(|| unsafe {
        let is_true: Test = unwinding(ffi::PyObject_IsTrue as *const ());
        is_true(object.as_ptr())
    });
    Ok(checked(object.py(), answer)? != 0)
}

pub fn getattr<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    paired(object, name, Pair::Attribute)
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
        let (found, value) = unsafe {
            let get: OptionalAttribute = unwinding(ffi::PyObject_GetOptionalAttr as *const ());
            let found = held(|| get(object.as_ptr(), name.as_ptr(), &raw mut value));
            (found, Bound::from_owned_ptr_or_opt(object.py(), value))
        };
        match found {
            -1 => Err(PyErr::fetch(object.py())),
            _ => Ok(value),
        }
    }
    #[cfg(not(Py_3_13))]
    match getattr(object, name) {
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
    paired(one, other, Pair::Compare(how))
}

/// Functions of CPython that make one object of two.
enum Pair {
    Attribute,
    Item,
    Compare(CompareOp),
}

#[inline(always)]
fn paired<'py>(
    one: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
    pair: Pair,
) -> PyResult<Bound<'py, PyAny>> {
    let objects = (one.as_ptr(), other.as_ptr());
    let by = |function| {
        // SAFETY: both functions take two objects.
        let function: Attribute = unsafe { unwinding(function) };
        // SAFETY: both objects are alive.
        held(|| unsafe { function(objects.0, objects.1) })
    };
    let result = match pair {
        Pair::Attribute => by(ffi::PyObject_GetAttr as *const ()),
        Pair::Item => by(ffi::PyObject_GetItem as *const ()),
        Pair::Compare(how) => {
            // SAFETY: it takes two objects, and a number.
            let compare: Compare = unsafe { unwinding(ffi::PyObject_RichCompare as *const ()) };
            // SAFETY: both objects are alive.
            held(|| unsafe { compare(objects.0, objects.1, how as c_int) })
        }
    };
    // SAFETY: each of them gives a new reference, or null with an error.
    unsafe { Bound::from_owned_ptr_or_err(one.py(), result) }
}

/// `hash(object)`.
pub fn hash(object: &Bound<'_, PyAny>) -> PyResult<isize> {
    // SAFETY: it takes any object, on an attached thread.
    let answer = held(|| unsafe {
        let hash: Hash = unwinding(ffi::PyObject_Hash as *const ());
        hash(object.as_ptr())
    });
    match answer {
        -1 => Err(PyErr::fetch(object.py())),
        hash => Ok(hash),
    }
}

/// A text in the bytes of an encoding, which may be Python code.
pub fn encode<'py>(text: &Bound<'py, PyString>, encoding: &str) -> PyResult<Bound<'py, PyAny>> {
    let encode = text.attr("encode")?;
    call(&encode, &PyTuple::new(text.py(), [encoding])?, None)
}

fn set_attribute(
    object: &Bound<'_, PyAny>,
    name: &Bound<'_, PyString>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    // SAFETY: it takes three objects, on an attached thread.
    let answer = held(|| unsafe {
        let set: SetAttribute = unwinding(ffi::PyObject_SetAttr as *const ());
        set(object.as_ptr(), name.as_ptr(), value.as_ptr())
    });
    checked(object.py(), answer).map(drop)
}

/// `isinstance(object, class)`.
pub fn is_instance(object: &Bound<'_, PyAny>, class: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: it takes two objects, on an attached thread.
    let answer = held(|| unsafe {
        let is_instance: IsInstance = unwinding(ffi::PyObject_IsInstance as *const ());
        is_instance(object.as_ptr(), class.as_ptr())
    });
    Ok(checked(object.py(), answer)? != 0)
}

/// Issues a warning of the innermost frame.
pub fn warn(category: &Bound<'_, PyAny>, text: &CStr) -> PyResult<()> {
    // SAFETY: it takes a class, a text that ends with a null, and the number of frames to go up.
    let answer = held(|| unsafe {
        let warn: Warn = unwinding(ffi::PyErr_WarnEx as *const ());
        warn(category.as_ptr(), text.as_ptr(), 1)
    });
    checked(category.py(), answer).map(drop)
}

/// Hands an error that nobody can catch to `sys.unraisablehook`.
pub fn write_unraisable(py: Python<'_>, error: PyErr) {
    error.restore(py);
    // SAFETY: it takes an object or null, while an error is set.
    held(|| unsafe {
        let tell: Tell = unwinding(ffi::PyErr_WriteUnraisable as *const ());
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
            let next: Convert = unwinding(ffi::PyIter_Next as *const ());
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
        getattr(object, &converted_into(object.py(), name)?)
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
        set_attribute(object, &name, value.as_any())
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
        let size = held(|| unsafe {
            let size: Size = unwinding(ffi::PyObject_Size as *const ());
            size(object.as_ptr())
        });
        usize::try_from(size).map_err(|_| PyErr::fetch(object.py()))
    }

    /// `bool(object)`.
    fn truth(&self) -> PyResult<bool> {
        is_true(self.object())
    }

    /// `repr(object)`.
    fn shown(&self) -> PyResult<Bound<'py, PyString>> {
        repr(self.object())
    }

    /// `str(object)`.
    fn text(&self) -> PyResult<Bound<'py, PyString>> {
        str(self.object())
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
