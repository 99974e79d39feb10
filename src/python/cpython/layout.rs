//! Fields of CPython's objects that are read in place, to tell callees without taking a reference
//! or running anything.

use std::ptr;
#[cfg(not(Py_3_11))]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::functions::{Builtin, NativeFunction};

unsafe extern "C" {
    static mut PyMethod_Type: PyTypeObject;
}

/// The start of `PyMethodObject` in `cpython/classobject.h`.
#[repr(C)]
struct BoundMethod {
    base: PyObject,
    function: *mut PyObject,
}

/// The start of `wrapperobject` in `Objects/descrobject.c`.
#[repr(C)]
struct MethodWrapper {
    base: PyObject,
    descriptor: *mut ffi::PyWrapperDescrObject,
}

/// The C function that every native `__new__` shares, whatever class it makes instances of.
static NEW: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Returns whether a native function is a `__new__`.
#[inline]
fn makes_instances(function: &NativeFunction) -> bool {
    // SAFETY: the table entry of a function is valid as long as it.
    let code = unsafe { (*function.method).ml_meth.as_ptr() };
    ptr::eq(code.cast(), NEW.load(Ordering::Relaxed))
}

/// The type of bound slot wrappers (`types.MethodWrapperType`), which is not exported.
static METHOD_WRAPPER: AtomicPtr<PyTypeObject> = AtomicPtr::new(ptr::null_mut());

/// Reads the objects that have no name in C.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    let wrapper = calling::import(py, "types")?.attr("MethodWrapperType")?;
    METHOD_WRAPPER.store(wrapper.as_ptr().cast(), Ordering::Relaxed);
    let new = py.get_type::<PyAny>().attr("__new__")?;
    let code = Builtin::cast(&new).map(|new| new.function().cast_mut());
    NEW.store(code.unwrap_or(ptr::null_mut()), Ordering::Relaxed);
    Ok(())
}

/// A callee while its call is looked at.
pub type Callee<'a, 'py> = Borrowed<'a, 'py, PyAny>;

/// The identity of a native callable's C function.
pub enum NativeEntry<'a, 'py> {
    /// The address of one function of C code: no other callable that runs another one has it.
    Function(usize),
    /// A native `__new__`: it runs the constructor of this class.
    New(Option<Callee<'a, 'py>>),
}

/// The address of the table entry of a native function or a method descriptor; 0 for other objects.
#[inline]
pub fn method_entry(object: Callee<'_, '_>) -> usize {
    let ptr = object.as_ptr();
    // SAFETY: the object is alive; the layouts are read for the types that have them.
    unsafe {
        let ty = ffi::Py_TYPE(ptr);
        if ty == &raw mut ffi::PyCFunction_Type {
            (*ptr.cast::<NativeFunction>()).method as usize
        } else if ty == &raw mut ffi::PyMethodDescr_Type {
            (*ptr.cast::<ffi::PyMethodDescrObject>()).d_method as usize
        } else {
            0
        }
    }
}

/// Returns the versions of an object that is a class; 0 for others.
pub fn class_versions_of(object: Callee<'_, '_>) -> u64 {
    as_class(object).map_or(0, class_versions)
}

/// The C function of a native function, bound or not, of a method descriptor or a slot wrapper,
/// bound or not; `None` for other objects.
#[inline]
pub fn native_entry<'a, 'py>(object: Callee<'a, 'py>) -> Option<NativeEntry<'a, 'py>> {
    let ptr = object.as_ptr();
    // SAFETY: the object is alive, and a function keeps its receiver; the layouts are read for the
    // types that have them.
    unsafe {
        let ty = ffi::Py_TYPE(ptr);
        if ty == &raw mut ffi::PyCFunction_Type || ty == &raw mut ffi::PyCMethod_Type {
            let function = &*ptr.cast::<NativeFunction>();
            Some(if makes_instances(function) {
                NativeEntry::New(Callee::from_ptr_or_opt(object.py(), function.receiver))
            } else {
                NativeEntry::Function(function.method as usize)
            })
        } else if ty == &raw mut ffi::PyMethodDescr_Type {
            let descriptor = ptr.cast::<ffi::PyMethodDescrObject>();
            Some(NativeEntry::Function((*descriptor).d_method as usize))
        } else if ty == &raw mut ffi::PyWrapperDescr_Type {
            let descriptor = ptr.cast::<ffi::PyWrapperDescrObject>();
            Some(NativeEntry::Function((*descriptor).d_wrapped as usize))
        } else if ty == METHOD_WRAPPER.load(Ordering::Relaxed) {
            let descriptor = (*ptr.cast::<MethodWrapper>()).descriptor;
            Some(NativeEntry::Function((*descriptor).d_wrapped as usize))
        } else {
            None
        }
    }
}

/// Returns whether the object is the `__call__` of a native class, which calls its first argument.
pub fn is_call_of_class(object: Callee<'_, '_>) -> bool {
    let ptr = object.as_ptr();
    // SAFETY: the object is alive; the layout is read for the type that has it, whose name is a str.
    unsafe {
        ffi::Py_TYPE(ptr) == &raw mut ffi::PyWrapperDescr_Type && {
            let name = (*ptr.cast::<ffi::PyWrapperDescrObject>()).d_common.d_name;
            ffi::PyUnicode_CompareWithASCIIString(name, c"__call__".as_ptr()) == 0
        }
    }
}

/// Returns whether `code_of` knows the code of such an object: a class, or a native function of a
/// kind of CPython's own.
pub fn has_code(object: Callee<'_, '_>) -> bool {
    is_class(object) || native_entry(object).is_some()
}

/// Returns addresses by which the shared object of a native callable is found: its C function; for
/// a class the constructors of it and its bases.
pub fn code_of<'py>(object: &Bound<'py, PyAny>) -> impl Iterator<Item = usize> + use<'py> {
    let mut codes = Vec::new();
    // SAFETY: the object is alive, and the layouts are read for the types that have them; a method
    // table entry is valid as long as the object that was made from it. The fields of a class are read
    // alone, and a class keeps its bases.
    unsafe {
        let ptr = object.as_ptr();
        let ty = ffi::Py_TYPE(ptr);
        let mut class = ptr::null_mut();
        if is_class(object.as_borrowed()) {
            class = ptr;
        } else if ffi::PyCFunction_Check(ptr) != 0 {
            let function = &*ptr.cast::<NativeFunction>();
            if makes_instances(function) {
                class = function.receiver;
            } else {
                codes.push((*function.method).ml_meth.as_ptr() as usize);
            }
        } else if ty == &raw mut ffi::PyMethodDescr_Type
            || ty == &raw mut ffi::PyClassMethodDescr_Type
        {
            let descriptor = ptr.cast::<ffi::PyMethodDescrObject>();
            codes.push((*(*descriptor).d_method).ml_meth.as_ptr() as usize);
        } else if let Some(NativeEntry::Function(function)) = native_entry(object.as_borrowed()) {
            // Of slot wrappers it is the C function itself.
            codes.push(function);
        }
        let mut class = class.cast::<PyTypeObject>();
        while !class.is_null() {
            if ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) == 0 {
                codes.push(class as usize);
            }
            let slots = [
                (*class).tp_dealloc.map(|slot| slot as usize),
                (*class).tp_new.map(|slot| slot as usize),
                (*class).tp_init.map(|slot| slot as usize),
                (*class).tp_traverse.map(|slot| slot as usize),
                (*class).tp_call.map(|slot| slot as usize),
            ];
            codes.extend(slots.into_iter().flatten());
            class = (*class).tp_base;
        }
    }
    codes.into_iter()
}

pub fn is_new(object: Callee<'_, '_>) -> bool {
    matches!(native_entry(object), Some(NativeEntry::New(_)))
}

/// The function of a bound method (`types.MethodType`).
#[inline]
pub fn bound_function<'a, 'py>(object: Callee<'a, 'py>) -> Option<Callee<'a, 'py>> {
    // SAFETY: the object is alive, and keeps its function; the layout is that of the type.
    unsafe {
        (object.get_type_ptr() == &raw mut PyMethod_Type).then(|| {
            let function = (*object.as_ptr().cast::<BoundMethod>()).function;
            Callee::from_ptr_or_opt(object.py(), function).unwrap_unchecked()
        })
    }
}

/// Returns the method table entry of a native method that is bound to an object, and that object;
/// `None` for methods that are bound to a class or of a module, that were given another module's
/// name, and for other objects.
pub fn bound_method<'a, 'py>(object: Callee<'a, 'py>) -> Option<(usize, Callee<'a, 'py>)> {
    if object.get_type_ptr() != &raw mut ffi::PyCFunction_Type {
        return None;
    }
    // SAFETY: the object is alive, and keeps what it is bound to; the layout is that of the type.
    unsafe {
        let function = &*object.as_ptr().cast::<NativeFunction>();
        let receiver = Callee::from_ptr_or_opt(object.py(), function.receiver)?;
        let is_method = function.has_no_module()
            && !makes_instances(function)
            && ffi::PyModule_Check(receiver.as_ptr()) == 0
            && !is_class(receiver);
        is_method.then_some((function.method as usize, receiver))
    }
}

#[inline]
pub fn is_class(object: Callee<'_, '_>) -> bool {
    // SAFETY: the object is alive; only flags of its type are read.
    unsafe { ffi::PyType_Check(object.as_ptr()) != 0 }
}

#[inline]
pub fn as_class<'a, 'py>(object: Callee<'a, 'py>) -> Option<Borrowed<'a, 'py, PyType>> {
    // SAFETY: it is one.
    is_class(object).then(|| unsafe { object.cast_unchecked() })
}

/// True once versions may be given again (`sys._clear_type_cache` of Python 3.10).
#[cfg(not(Py_3_11))]
static VERSIONS_REPEAT: AtomicBool = AtomicBool::new(false);

/// Has classes without a version from now on.
#[cfg(not(Py_3_11))]
pub fn versions_repeat() {
    VERSIONS_REPEAT.store(true, Ordering::Relaxed);
}

/// The version of a class: CPython gives it anew, and never again, when the class or one of its
/// bases was changed. 0 while it has none.
///
/// # Safety
/// `class` must point to a type that is alive.
unsafe fn version(class: *mut PyTypeObject) -> u64 {
    #[cfg(not(Py_3_11))]
    if VERSIONS_REPEAT.load(Ordering::Relaxed) {
        return 0;
    }
    // SAFETY: by the caller. Other threads write the field at once, if they do.
    let tag = unsafe { AtomicU32::from_ptr(&raw mut (*class).tp_version_tag) };
    u64::from(tag.load(Ordering::Relaxed))
}

/// The versions of a class and of its metaclass, as one number; 0 if either has none. The version
/// of `type` itself, which cannot be changed, is left out.
#[inline]
pub fn class_versions(class: Borrowed<'_, '_, PyType>) -> u64 {
    // SAFETY: the class is alive, and keeps its metaclass.
    unsafe {
        let (metaclass, own) = (ffi::Py_TYPE(class.as_ptr()), version(class.as_type_ptr()));
        if metaclass == &raw mut ffi::PyType_Type {
            return own;
        }
        match version(metaclass) {
            0 => 0,
            _ if own == 0 => 0,
            above => above << 32 | own,
        }
    }
}

/// The version of an object's class; 0 while it has none.
#[inline]
pub fn version_of_type(object: Callee<'_, '_>) -> u64 {
    // SAFETY: the object is alive, and keeps its class.
    unsafe { version(object.get_type_ptr()) }
}
