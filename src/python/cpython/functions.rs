//! Native functions and methods, as the objects that CPython makes of them.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

pub use crate::python::cpython::calling::Vectorcall;
#[cfg(Py_3_12)]
use pyo3::types::PyString;
use pyo3::types::PyType;

/// The C function of a method with `METH_FASTCALL | METH_KEYWORDS`. As `Vectorcall`.
pub type Keywords = unsafe extern "C-unwind" fn(
    *mut PyObject,
    *const *mut PyObject,
    isize,
    *mut PyObject,
) -> *mut PyObject;

/// `METH_FASTCALL | METH_KEYWORDS`: the flags of a method that takes keywords.
pub const KEYWORDS: c_int = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;

/// The layout of a native function object, as in `cpython/methodobject.h`.
#[repr(C)]
pub struct NativeFunction {
    base: PyObject,
    pub method: *mut ffi::PyMethodDef,
    pub receiver: *mut PyObject,
    module: *mut PyObject,
    weakrefs: *mut PyObject,
    vectorcall: Option<Vectorcall>,
}

impl NativeFunction {
    /// Returns whether it names no module as its own.
    #[cfg(Py_3_12)]
    pub fn has_no_module(&self) -> bool {
        self.module.is_null()
    }
}

/// A native function (`builtin_function_or_method`).
pub struct Builtin<'a, 'py>(&'a Bound<'py, PyAny>);

impl<'a, 'py> Builtin<'a, 'py> {
    /// The object as a native function, if it is one.
    pub fn cast(object: &'a Bound<'py, PyAny>) -> Option<Self> {
        // SAFETY: only the type is read.
        (unsafe { ffi::PyCFunction_Check(object.as_ptr()) } != 0).then_some(Self(object))
    }

    fn raw(&self) -> *mut NativeFunction {
        self.0.as_ptr().cast()
    }

    /// The table entry that the function was made from.
    pub fn method(&self) -> *mut ffi::PyMethodDef {
        // SAFETY: `cast` checked the type, whose layout this is.
        unsafe { (*self.raw()).method }
    }

    /// The C function that it calls.
    pub fn function(&self) -> *const () {
        // SAFETY: `cast` checked the type.
        unsafe { Self::function_of(self.0.as_ptr()) }
    }

    /// The same of an object that is known to be a native function.
    ///
    /// # Safety
    /// It is one, and alive.
    #[inline]
    pub unsafe fn function_of(object: *mut PyObject) -> *const () {
        // SAFETY: as this function's; a method table entry is valid as long as its function. A
        // pointer to a function, whichever of the union's it is.
        unsafe {
            let function = object.cast::<NativeFunction>();
            (*(*function).method).ml_meth.as_ptr().cast()
        }
    }

    /// Its `__name__`.
    #[cfg(Py_3_12)]
    pub fn name(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        // SAFETY: the entry of a function object has a NUL-terminated name.
        let name = unsafe { CStr::from_ptr((*self.method()).ml_name) };
        Ok(PyString::intern(py, &name.to_string_lossy()))
    }

    /// Returns the function that calls the function object: its vectorcall (PEP 590).
    pub fn vectorcall(&self) -> Option<Vectorcall> {
        // SAFETY: as for `method`.
        unsafe { (*self.raw()).vectorcall }
    }

    /// Routes every call of the function, under whatever name, through another vectorcall. It stays
    /// the same object, with the same hash.
    ///
    /// # Safety
    /// `vectorcall` calls the function as its own vectorcall would.
    pub unsafe fn set_vectorcall(&self, vectorcall: Vectorcall) {
        // SAFETY: a method table entry is valid as long as its function.
        let entry = unsafe { *self.method() };
        // The interpreter's specialized call instructions (3.11, 3.12) pass keywords straight to
        // the method unless its flags are just these. METH_COEXIST has a meaning only for methods
        // of a type, and only while that is made. A slot call (`f.__call__()`) passes its tuple
        // straight to the method where the flags say that it takes one, else it makes a vectorcall.
        let entry = ffi::PyMethodDef {
            ml_flags: if entry.ml_flags & ffi::METH_VARARGS == 0 {
                entry.ml_flags | ffi::METH_COEXIST
            } else {
                ffi::METH_COEXIST
            },
            ..entry
        };
        // SAFETY: `cast` checked the type, whose layout this is. The entry lives for ever, and
        // differs in its flags alone, by which the vectorcall is called always; of that the caller
        // vouches.
        unsafe {
            (*self.raw()).method = Box::leak(Box::new(entry));
            (*self.raw()).vectorcall = Some(vectorcall);
        }
    }

    /// Returns another function object that does the same, which the garbage collector shows to
    /// nobody.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn copy(&self) -> PyResult<Bound<'py, PyAny>> {
        let raw = self.raw();
        // SAFETY: `cast` checked the type, whose layout this is. The function is of the standard
        // library, whose method tables live for ever: no native module is unloaded. The result is a
        // new reference or null; what it refers to lives as long as the interpreter, so that the
        // collector need not know.
        unsafe {
            let copy = ffi::PyCFunction_NewEx((*raw).method, (*raw).receiver, (*raw).module);
            let copy = Bound::from_owned_ptr_or_err(self.0.py(), copy)?;
            ffi::PyObject_GC_UnTrack(copy.as_ptr().cast());
            Ok(copy)
        }
    }

    /// The C function, and the object that it is called with.
    ///
    /// # Safety
    /// The object is a native function, and alive.
    pub unsafe fn parts(function: *mut PyObject) -> (*const (), *mut PyObject) {
        // SAFETY: as this function's.
        unsafe {
            let receiver = (*function.cast::<NativeFunction>()).receiver;
            (Self::function_of(function), receiver)
        }
    }

    /// Returns the calling convention of the C function; `None` if it is not known here.
    pub fn convention(&self) -> Option<Convention> {
        if let Some(vectorcall) = self.vectorcall() {
            return Some(Convention::Vectorcall(vectorcall));
        }
        // SAFETY: a method table entry is valid as long as its function.
        match unsafe { (*self.method()).ml_flags } & (ffi::METH_VARARGS | ffi::METH_KEYWORDS) {
            ffi::METH_VARARGS => Some(Convention::Tuple),
            flags if flags & ffi::METH_VARARGS != 0 => Some(Convention::TupleAndDict),
            _ => None,
        }
    }

    /// The error for keyword arguments of a function that takes none.
    ///
    /// # Safety
    /// The object is a native function, and alive.
    pub unsafe fn takes_no_names(function: *mut PyObject) -> PyErr {
        // SAFETY: as this function's; the entry of a function object has a NUL-terminated name.
        let name =
            unsafe { CStr::from_ptr((*(*function.cast::<NativeFunction>()).method).ml_name) };
        let name = name.to_string_lossy();
        PyTypeError::new_err(format!("{name}() takes no keyword arguments"))
    }

    /// The object it is bound to, or the module it belongs to.
    #[cfg(Py_3_12)]
    pub fn receiver(&self) -> Option<Bound<'py, PyAny>> {
        // SAFETY: as for `method`; the field is null or an object the function keeps alive.
        unsafe { Bound::from_borrowed_ptr_or_opt(self.0.py(), (*self.raw()).receiver) }
    }

    /// Its `__module__`.
    #[cfg(Py_3_12)]
    pub fn module(&self) -> Option<Bound<'py, PyAny>> {
        // SAFETY: as for `receiver`.
        unsafe { Bound::from_borrowed_ptr_or_opt(self.0.py(), (*self.raw()).module) }
    }
}

/// Returns the method definition of a descriptor, of a class or of its instances.
pub fn descriptor_method(descriptor: &Bound<'_, PyAny>) -> Option<*mut ffi::PyMethodDef> {
    // SAFETY: the layout is read only for the two types that have it.
    unsafe {
        let ty = ffi::Py_TYPE(descriptor.as_ptr());
        let is_method =
            ty == &raw mut ffi::PyMethodDescr_Type || ty == &raw mut ffi::PyClassMethodDescr_Type;
        is_method.then(|| (*descriptor.as_ptr().cast::<ffi::PyMethodDescrObject>()).d_method)
    }
}

/// Returns whether a class has a native method by this name, and not another one under it.
pub fn is_native_method(descriptor: &Bound<'_, PyAny>, name: &CStr) -> bool {
    descriptor_method(descriptor).is_some_and(|method| {
        // SAFETY: the entry of a method has a NUL-terminated name, and lives as long as it.
        unsafe { CStr::from_ptr((*method).ml_name) == name }
    })
}

/// Returns whether it is a place that each instance of a class has, as one of `__slots__`.
pub fn is_slot_of_instances(descriptor: &Bound<'_, PyAny>) -> bool {
    // SAFETY: only the type is read.
    unsafe { ffi::Py_TYPE(descriptor.as_ptr()) == &raw mut ffi::PyMemberDescr_Type }
}

/// The class that defines a bound native method: a subclass, perhaps of Python, only inherits it.
#[cfg(Py_3_12)]
pub fn definer<'py>(
    function: &Builtin<'_, 'py>,
    receiver: &Bound<'py, PyAny>,
) -> Bound<'py, PyType> {
    let own = receiver.cast::<PyType>().cloned().ok();
    let classes = [own, Some(receiver.get_type())];
    for class in classes.into_iter().flatten() {
        for base in class
            .mro()
            .iter()
            .filter_map(|base| base.cast_into::<PyType>().ok())
        {
            if defines(&base, function) {
                return base;
            }
        }
    }
    receiver.get_type()
}

#[cfg(Py_3_12)]
fn defines(class: &Bound<'_, PyType>, function: &Builtin<'_, '_>) -> bool {
    let Ok(name) = function.name(class.py()) else {
        return false;
    };
    let Some(found) = crate::python::cpython::ffi::type_lookup(class, &name) else {
        return false;
    };
    descriptor_method(&found) == Some(function.method())
        && found
            .getattr(pyo3::intern!(class.py(), "__objclass__"))
            .is_ok_and(|definer| definer.is(class))
}

/// A method of a class (`method_descriptor`).
pub struct MethodDescriptor<'a, 'py>(&'a Bound<'py, PyAny>);

impl<'a, 'py> MethodDescriptor<'a, 'py> {
    /// The object as a method, if it is one.
    pub fn cast(object: &'a Bound<'py, PyAny>) -> Option<Self> {
        // SAFETY: only the type is read.
        let is_method =
            unsafe { ffi::Py_TYPE(object.as_ptr()) == &raw mut ffi::PyMethodDescr_Type };
        is_method.then_some(Self(object))
    }

    fn raw(&self) -> *mut ffi::PyMethodDescrObject {
        self.0.as_ptr().cast()
    }

    /// Returns the calling convention of its function, a combination of `METH_` flags.
    pub fn convention(&self) -> c_int {
        // SAFETY: `cast` checked the type; a method table entry is valid as long as its method.
        let flags = unsafe { (*(*self.raw()).d_method).ml_flags };
        flags & !(ffi::METH_COEXIST | ffi::METH_CLASS | ffi::METH_STATIC)
    }

    /// Its function.
    pub fn function(&self) -> *mut () {
        // SAFETY: as above; a pointer to a function, whichever of the union's it is.
        unsafe { (*(*self.raw()).d_method).ml_meth.as_ptr().cast() }
    }

    /// Routes every call of the method to another function.
    ///
    /// # Safety
    /// The function has the same convention, and does what the method's own does.
    pub unsafe fn set_function(&self, function: *mut ()) {
        // SAFETY: `cast` checked the type. The entry lives for ever, and differs in its function
        // alone, of which the caller vouches.
        unsafe {
            let entry = ffi::PyMethodDef {
                ml_meth: std::mem::transmute::<*mut (), ffi::PyMethodDefPointer>(function),
                ..*(*self.raw()).d_method
            };
            (*self.raw()).d_method = Box::leak(Box::new(entry));
        }
    }
}

/// A method's own function, before its calls went to another one.
pub struct Method(*mut ());

// SAFETY: it is the address of a function.
unsafe impl Send for Method {}
// SAFETY: as above.
unsafe impl Sync for Method {}

impl Method {
    /// Routes every call of a method of a class to another function. Returns false if the class has
    /// no such method, or if `by` does not know its calling convention.
    ///
    /// # Safety
    /// `by` gives a function of the convention that it is given, which calls the one in `slot`.
    pub unsafe fn replace(
        class: &Bound<'_, PyType>,
        name: &str,
        slot: &OnceLock<Self>,
        by: impl Fn(c_int) -> Option<*mut ()>,
    ) -> PyResult<bool> {
        let Some(found) = class.getattr_opt(name)? else {
            return Ok(false);
        };
        let Some(method) = MethodDescriptor::cast(&found) else {
            return Ok(false);
        };
        let Some(function) = by(method.convention()) else {
            return Ok(false);
        };
        // A class that is made anew has the same function again.
        let own = method.function();
        if own != function {
            if slot.get_or_init(|| Self(own)).0 != own {
                return Ok(false);
            }
            // SAFETY: the caller vouches for it.
            unsafe { method.set_function(function) };
        }
        Ok(true)
    }

    /// Its function.
    pub fn function(&self) -> *mut () {
        self.0
    }
}

/// The calling convention of a function's C function.
#[derive(Clone, Copy)]
pub enum Convention {
    /// By the vectorcall of the function.
    Vectorcall(Vectorcall),
    /// With a tuple alone.
    Tuple,
    /// With a tuple and a dict.
    TupleAndDict,
}

/// The C function of a method that takes a tuple (`METH_VARARGS`).
pub type WithTuple = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;

/// The C function of a method that takes a tuple and a dict (`METH_VARARGS | METH_KEYWORDS`).
pub type WithKeywords =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;
type WithKeywordsC =
    unsafe extern "C" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;

/// A method of our own that threads call. PyO3 does not make it, as PyO3 would catch the unwinding
/// that ends a daemon thread: see `Vectorcall`.
pub struct OwnMethod(UnsafeCell<ffi::PyMethodDef>);

// SAFETY: CPython reads it, and nobody writes to it.
unsafe impl Sync for OwnMethod {}

impl OwnMethod {
    /// The method of this name.
    pub const fn new(name: &'static CStr, function: WithKeywords) -> Self {
        Self(UnsafeCell::new(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer {
                // SAFETY: the two differ in whether they may be unwound alone.
                PyCFunctionWithKeywords: unsafe {
                    std::mem::transmute::<WithKeywords, WithKeywordsC>(function)
                },
            },
            ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
            ml_doc: std::ptr::null(),
        }))
    }

    /// The function object that calls the method of an object, which it keeps alive.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn bind<'py>(&'static self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the method lives for ever; a new reference or null.
        unsafe {
            let bound = ffi::PyCFunction_NewEx(self.0.get(), object.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(object.py(), bound)
        }
    }

    /// Returns whether the function object calls it.
    pub fn is_method_of(&self, function: &Builtin<'_, '_>) -> bool {
        std::ptr::eq(function.method(), self.0.get())
    }
}
