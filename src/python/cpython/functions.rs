//! Native functions and methods, as the objects that CPython makes of them.

use std::ffi::{CStr, c_int};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use crate::python::cpython::arguments::{Convention, Route, Vectorcall, typed};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::collector;
use crate::python::cpython::ffi::type_lookup;
use crate::python::cpython::once::intern;
use pyo3::types::{PyString, PyType};

/// The layout of a native function object, as in `cpython/methodobject.h`.
#[repr(C)]
pub struct NativeFunction {
    base: PyObject,
    pub method: *mut ffi::PyMethodDef,
    pub receiver: *mut PyObject,
    module: *mut PyObject,
    weakrefs: *mut PyObject,
    pub vectorcall: Option<Vectorcall>,
}

impl NativeFunction {
    pub fn has_no_module(&self) -> bool {
        self.module.is_null()
    }
}

/// A native function (`builtin_function_or_method`).
pub struct Builtin<'a, 'py>(&'a Bound<'py, PyAny>);

impl<'a, 'py> Builtin<'a, 'py> {
    pub fn cast(object: &'a Bound<'py, PyAny>) -> Option<Self> {
        // No other class can derive from the first.
        let class = object.get_type_ptr();
        let is_one =
            class == &raw mut ffi::PyCFunction_Type || class == &raw mut ffi::PyCMethod_Type;
        is_one.then_some(Self(object))
    }

    fn raw(&self) -> *mut NativeFunction {
        self.0.as_ptr().cast()
    }

    pub(super) fn get(&self) -> &NativeFunction {
        // SAFETY: `cast` checked the type, whose layout this is; the object is alive as long as borrowed.
        unsafe { &*self.raw() }
    }

    /// The table entry that the function was made from.
    pub fn method(&self) -> *mut ffi::PyMethodDef {
        self.get().method
    }

    /// Returns whether it was made from this method of a class.
    pub fn is_made_from(&self, descriptor: &Bound<'_, PyAny>) -> bool {
        // What routes their calls gives each an entry of its own.
        let same = |entry: &ffi::PyMethodDef| {
            entry.ml_meth.as_ptr() == self.entry().ml_meth.as_ptr()
                && std::ptr::eq(entry.ml_name, self.entry().ml_name)
        };
        descriptor_entry(descriptor).is_some_and(same)
    }

    fn entry(&self) -> &ffi::PyMethodDef {
        // SAFETY: a method table entry is valid as long as its function.
        unsafe { &*self.get().method }
    }

    /// The C function that it calls, whichever of the union's pointers it is.
    #[inline]
    pub fn function(&self) -> *const () {
        self.entry().ml_meth.as_ptr().cast()
    }

    pub fn name(&self) -> Bound<'py, PyString> {
        PyString::intern(self.0.py(), &name_of(self.entry()).to_string_lossy())
    }

    /// Routes every call of the function, under whatever name, through another vectorcall. It stays
    /// the same object, with the same hash.
    pub(super) fn route(&self, route: Route) {
        let entry = *self.entry();
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
        let (raw, entry) = (self.raw(), Box::leak(Box::new(entry)));
        // SAFETY: `cast` checked the type, whose layout this is, and nobody calls the function meanwhile.
        // The entry lives for ever, and differs in its flags alone, by which the vectorcall is called
        // always; and that passes each call on.
        collector::alone(self.0.py(), || unsafe {
            (*raw).method = entry;
            (*raw).vectorcall = Some(route.0);
        });
    }

    /// Returns another function object that does the same, which the garbage collector shows to
    /// nobody.
    #[cfg(Py_3_12)]
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

    /// Returns the calling convention of the C function; `None` if it is not known here.
    pub(super) fn convention(&self) -> Option<Convention> {
        if let Some(vectorcall) = self.get().vectorcall {
            return Some(Convention::Vectorcall(vectorcall));
        }
        let (function, flags) = (self.function(), self.entry().ml_flags);
        // SAFETY: the flags say which type the function has.
        unsafe {
            match flags & (ffi::METH_VARARGS | ffi::METH_KEYWORDS) {
                ffi::METH_VARARGS => Some(Convention::Tuple(typed(function))),
                flags if flags & ffi::METH_VARARGS != 0 => {
                    Some(Convention::TupleAndDict(typed(function)))
                }
                _ => None,
            }
        }
    }

    pub(super) fn takes_no_names(&self) -> PyErr {
        let name = name_of(self.entry()).to_string_lossy();
        PyTypeError::new_err(format!("{name}() takes no keyword arguments"))
    }

    /// The object it is bound to, or the module it belongs to.
    pub fn receiver(&self) -> Option<Bound<'py, PyAny>> {
        // SAFETY: null, or an object that the function keeps alive.
        unsafe { Bound::from_borrowed_ptr_or_opt(self.0.py(), self.get().receiver) }
    }

    pub fn module(&self) -> Option<Bound<'py, PyAny>> {
        // SAFETY: null, or an object that the function keeps alive.
        unsafe { Bound::from_borrowed_ptr_or_opt(self.0.py(), self.get().module) }
    }
}

fn name_of(entry: &ffi::PyMethodDef) -> &CStr {
    // SAFETY: the entry of a function object has a NUL-terminated name, which lives as long as it.
    unsafe { CStr::from_ptr(entry.ml_name) }
}

/// The entry of a method, of a class or of its instances.
fn descriptor_entry<'a>(descriptor: &'a Bound<'_, PyAny>) -> Option<&'a ffi::PyMethodDef> {
    let ty = descriptor.get_type_ptr();
    let is_method =
        ty == &raw mut ffi::PyMethodDescr_Type || ty == &raw mut ffi::PyClassMethodDescr_Type;
    // SAFETY: the layout is read only for the two types that have it; the entry lives as long as its
    // method.
    is_method
        .then(|| unsafe { &*(*descriptor.as_ptr().cast::<ffi::PyMethodDescrObject>()).d_method })
}

/// Returns whether a class has a native method by this name, and not another one under it.
pub fn is_native_method(descriptor: &Bound<'_, PyAny>, name: &CStr) -> bool {
    descriptor_entry(descriptor).is_some_and(|entry| name_of(entry) == name)
}

pub fn is_slot_of_instances(descriptor: &Bound<'_, PyAny>) -> bool {
    descriptor.get_type_ptr() == &raw mut ffi::PyMemberDescr_Type
}

/// The class that defines a bound native method: a subclass, perhaps of Python, only inherits it.
pub fn definer<'py>(
    function: &Builtin<'_, 'py>,
    receiver: &Bound<'py, PyAny>,
) -> Bound<'py, PyType> {
    let own = receiver.cast::<PyType>().cloned().ok();
    let classes = [own, Some(receiver.get_type())];
    for class in classes.into_iter().flatten() {
        for base in class.mro().iter().filter_map(|base| base.cast_into::<PyType>().ok()) {
            if defines(&base, function) {
                return base;
            }
        }
    }
    receiver.get_type()
}

fn defines(class: &Bound<'_, PyType>, function: &Builtin<'_, '_>) -> bool {
    let found = type_lookup(class, &function.name());
    found.is_some_and(|found| {
        let definer = || found.attr(intern!(class.py(), "__objclass__"));
        function.is_made_from(&found) && definer().is_ok_and(|definer| definer.is(class))
    })
}

/// Returns whether an object is a native method of a class, not bound to an object.
pub fn is_method_descriptor(object: &Bound<'_, PyAny>) -> bool {
    MethodDescriptor::cast(object).is_some()
}

/// A method of a class (`method_descriptor`).
pub struct MethodDescriptor<'a, 'py> {
    object: &'a Bound<'py, PyAny>,
    entry: &'a ffi::PyMethodDef,
}

impl<'a, 'py> MethodDescriptor<'a, 'py> {
    pub fn cast(object: &'a Bound<'py, PyAny>) -> Option<Self> {
        let is_method = object.get_type_ptr() == &raw mut ffi::PyMethodDescr_Type;
        let entry = descriptor_entry(object).filter(|_| is_method)?;
        Some(Self { object, entry })
    }

    pub(super) fn convention(&self) -> Option<Convention> {
        const KEYWORDS: c_int = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
        const OF_CLASS: c_int = ffi::METH_METHOD | KEYWORDS;
        const SLOT: c_int = ffi::METH_VARARGS | ffi::METH_KEYWORDS;
        let (function, flags) = (self.function(), self.entry.ml_flags);
        // SAFETY: the flags say which type the function has.
        unsafe {
            Some(match flags & !(ffi::METH_COEXIST | ffi::METH_CLASS | ffi::METH_STATIC) {
                KEYWORDS => Convention::Keywords(typed(function)),
                OF_CLASS => Convention::OfClass(typed(function)),
                SLOT => Convention::Slot(typed(function)),
                ffi::METH_FASTCALL => Convention::Fast(typed(function)),
                ffi::METH_O => Convention::One(typed(function)),
                ffi::METH_NOARGS => Convention::Nothing(typed(function)),
                ffi::METH_VARARGS => Convention::MethodOfTuple(typed(function)),
                _ => return None,
            })
        }
    }

    pub fn function(&self) -> *const () {
        self.entry.ml_meth.as_ptr().cast()
    }

    /// Routes every call of the method to another function.
    ///
    /// # Safety
    /// The function has the same convention, and does what the method's own does.
    pub(super) unsafe fn set_function(&self, function: *mut ()) {
        // SAFETY: `cast` checked the type. The entry lives for ever, and differs in its function
        // alone, of which the caller vouches.
        unsafe {
            let entry = ffi::PyMethodDef {
                ml_meth: std::mem::transmute::<*mut (), ffi::PyMethodDefPointer>(function),
                ..*self.entry
            };
            let method = self.object.as_ptr().cast::<ffi::PyMethodDescrObject>();
            (*method).d_method = Box::leak(Box::new(entry));
        }
    }
}

/// Returns whether an object is one that the event loop calls for the next step of a task of `_asyncio`:
/// an object of a class that Python code cannot make, or a native method of a task.
pub fn is_step_of_task(function: &Bound<'_, PyAny>) -> bool {
    let of_task = |object: *mut PyObject, name: &[u8]| {
        // SAFETY: the object is alive, and so is its class, whose flags and name are only read; a name is
        // NUL-terminated.
        unsafe {
            let class = ffi::Py_TYPE(object);
            let own = CStr::from_ptr((*class).tp_name).to_bytes();
            own.strip_prefix(b"_asyncio.").unwrap_or(own) == name
                && (ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) == 0
                    || ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_IMMUTABLETYPE) != 0)
        }
    };
    match Builtin::cast(function) {
        Some(method) => {
            method.receiver().is_some_and(|receiver| of_task(receiver.as_ptr(), b"Task"))
        }
        None => of_task(function.as_ptr(), b"TaskStepMethWrapper"),
    }
}
