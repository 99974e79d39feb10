//! Fields of CPython's objects that are read in place, to tell callees without taking a reference
//! or running anything.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi::{self, PyMethodDef, PyObject, PyTypeObject};
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

/// The entry that every native `__new__` shares, whatever class it makes instances of.
static NEW: AtomicPtr<PyMethodDef> = AtomicPtr::new(ptr::null_mut());

/// The type of bound slot wrappers (`types.MethodWrapperType`), which is not exported.
static METHOD_WRAPPER: AtomicPtr<PyTypeObject> = AtomicPtr::new(ptr::null_mut());

/// Reads the objects that have no name in C.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    let wrapper = calling::import(py, "types")?.attr("MethodWrapperType")?;
    METHOD_WRAPPER.store(wrapper.as_ptr().cast(), Ordering::Relaxed);
    let new = py.get_type::<PyAny>().attr("__new__")?;
    let entry = Builtin::cast(&new).map(|new| new.method());
    NEW.store(entry.unwrap_or(ptr::null_mut()), Ordering::Relaxed);
    Ok(())
}

/// The identity of a native callable's C function.
pub enum Entry {
    /// One function of C code: no other callable that runs another one has it.
    Function(*mut ()),
    /// A native `__new__`: it runs the constructor of this class.
    New(*mut PyObject),
}

/// The table entry of a native function or a method descriptor; null for other objects.
#[inline]
pub fn method_entry(object: *mut PyObject) -> *mut () {
    // SAFETY: callers hold the object alive; the layouts are read for the types that have them.
    unsafe {
        let ty = ffi::Py_TYPE(object);
        if ty == &raw mut ffi::PyCFunction_Type {
            (*object.cast::<NativeFunction>()).method.cast()
        } else if ty == &raw mut ffi::PyMethodDescr_Type {
            (*object.cast::<ffi::PyMethodDescrObject>()).d_method.cast()
        } else {
            ptr::null_mut()
        }
    }
}

/// Returns the versions of an object that is a class; 0 for others.
pub fn class_versions_of(object: *mut PyObject) -> u64 {
    if is_class(object) {
        class_versions(object)
    } else {
        0
    }
}

/// The C function of a native function, bound or not, of a method descriptor or a slot wrapper,
/// bound or not; `None` for other objects.
#[inline]
pub fn native_entry(object: *mut PyObject) -> Option<Entry> {
    // SAFETY: callers hold the object alive; the layouts are read for the types that have them.
    unsafe {
        let ty = ffi::Py_TYPE(object);
        if ty == &raw mut ffi::PyCFunction_Type || ty == &raw mut ffi::PyCMethod_Type {
            let function = &*object.cast::<NativeFunction>();
            Some(if function.method == NEW.load(Ordering::Relaxed) {
                Entry::New(function.receiver)
            } else {
                Entry::Function(function.method.cast())
            })
        } else if ty == &raw mut ffi::PyMethodDescr_Type {
            let descriptor = object.cast::<ffi::PyMethodDescrObject>();
            Some(Entry::Function((*descriptor).d_method.cast()))
        } else if ty == &raw mut ffi::PyWrapperDescr_Type {
            let descriptor = object.cast::<ffi::PyWrapperDescrObject>();
            Some(Entry::Function((*descriptor).d_wrapped.cast()))
        } else if ty == METHOD_WRAPPER.load(Ordering::Relaxed) {
            let descriptor = (*object.cast::<MethodWrapper>()).descriptor;
            Some(Entry::Function((*descriptor).d_wrapped.cast()))
        } else {
            None
        }
    }
}

/// Returns whether the object is the `__call__` of a native class, which calls its first argument.
pub fn is_call_of_class(object: *mut PyObject) -> bool {
    // SAFETY: callers hold the object alive; the layout is read for the type that has it, whose
    // name is a str.
    unsafe {
        ffi::Py_TYPE(object) == &raw mut ffi::PyWrapperDescr_Type && {
            let name = (*object.cast::<ffi::PyWrapperDescrObject>())
                .d_common
                .d_name;
            ffi::PyUnicode_CompareWithASCIIString(name, c"__call__".as_ptr()) == 0
        }
    }
}

/// Returns whether `code_of` knows the code of such an object: a class, or a native function of a
/// kind of CPython's own.
pub fn has_code(object: *mut PyObject) -> bool {
    is_class(object) || native_entry(object).is_some()
}

/// Returns addresses by which the shared object of a native callable is found: its C function; for
/// a class the constructors of it and its bases.
pub fn code_of<'py>(object: &Bound<'py, PyAny>) -> impl Iterator<Item = *const ()> + use<'py> {
    let mut codes = Vec::new();
    // SAFETY: the object is alive, and the layouts are read for the types that have them; a method
    // table entry is valid as long as the object that was made from it. The fields of a class are read
    // alone, and a class keeps its bases.
    unsafe {
        let ptr = object.as_ptr();
        let ty = ffi::Py_TYPE(ptr);
        let mut class = ptr::null_mut();
        if is_class(ptr) {
            class = ptr;
        } else if ffi::PyCFunction_Check(ptr) != 0 {
            let function = &*ptr.cast::<NativeFunction>();
            if function.method == NEW.load(Ordering::Relaxed) {
                class = function.receiver;
            } else {
                codes.push((*function.method).ml_meth.as_ptr().cast());
            }
        } else if ty == &raw mut ffi::PyMethodDescr_Type
            || ty == &raw mut ffi::PyClassMethodDescr_Type
        {
            let descriptor = ptr.cast::<ffi::PyMethodDescrObject>();
            codes.push((*(*descriptor).d_method).ml_meth.as_ptr().cast());
        } else if let Some(Entry::Function(function)) = native_entry(ptr) {
            // Of slot wrappers it is the C function itself.
            codes.push(function);
        }
        let mut class = class.cast::<PyTypeObject>();
        while !class.is_null() {
            if ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) == 0 {
                codes.push(class.cast());
            }
            let slots = [
                (*class).tp_dealloc.map(|slot| slot as *mut ()),
                (*class).tp_new.map(|slot| slot as *mut ()),
                (*class).tp_init.map(|slot| slot as *mut ()),
                (*class).tp_traverse.map(|slot| slot as *mut ()),
                (*class).tp_call.map(|slot| slot as *mut ()),
            ];
            codes.extend(slots.into_iter().flatten());
            class = (*class).tp_base;
        }
    }
    codes.into_iter().map(<*mut ()>::cast_const)
}

/// Returns whether the object is a native `__new__`.
pub fn is_new(object: *mut PyObject) -> bool {
    matches!(native_entry(object), Some(Entry::New(_)))
}

/// The function of a bound method (`types.MethodType`).
#[inline]
pub fn bound_function(object: *mut PyObject) -> Option<*mut PyObject> {
    // SAFETY: callers hold the object alive, and it its function; the layout is that of the type.
    unsafe {
        (ffi::Py_TYPE(object) == &raw mut PyMethod_Type)
            .then(|| (*object.cast::<BoundMethod>()).function)
    }
}

/// Returns the method table entry of a native method that is bound to an object, and that object;
/// `None` for methods that are bound to a class or of a module, that were given another module's
/// name, and for other objects.
pub fn bound_method(object: *mut PyObject) -> Option<(*mut (), *mut PyObject)> {
    // SAFETY: callers hold the object alive, and it what it is bound to; the layout is that of the
    // type.
    unsafe {
        if ffi::Py_TYPE(object) != &raw mut ffi::PyCFunction_Type {
            return None;
        }
        let function = &*object.cast::<NativeFunction>();
        let receiver = function.receiver;
        let is_method = !receiver.is_null()
            && function.has_no_module()
            && function.method != NEW.load(Ordering::Relaxed)
            && ffi::PyModule_Check(receiver) == 0
            && !is_class(receiver);
        is_method.then(|| (function.method.cast(), receiver))
    }
}

/// Returns whether the object is a class.
#[inline]
pub fn is_class(object: *mut PyObject) -> bool {
    // SAFETY: callers hold the object alive; only flags of its type are read.
    unsafe { ffi::PyType_Check(object) != 0 }
}

/// Returns whether the object is a function made by Python code.
#[inline]
pub fn is_python_function(object: *mut PyObject) -> bool {
    class_of(object) == &raw mut ffi::PyFunction_Type
}

/// Returns whether the class is a static one of C code.
pub fn is_static_class(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: the class is alive; only its flags are read.
    unsafe { ffi::PyType_HasFeature(class.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) == 0 }
}

/// The version of a class: CPython gives it anew, and never again, when the class or one of its
/// bases was changed. 0 while it has none.
fn version(class: *mut PyTypeObject) -> u64 {
    // SAFETY: callers pass a type that is alive.
    unsafe { u64::from((*class).tp_version_tag) }
}

/// The versions of a class and of its metaclass, as one number; 0 if either has none. The version
/// of `type` itself, which cannot be changed, is left out. `class` must be a class.
#[inline]
pub fn class_versions(class: *mut PyObject) -> u64 {
    let (metaclass, own) = (class_of(class), version(class.cast()));
    if metaclass == &raw mut ffi::PyType_Type {
        return own;
    }
    match version(metaclass) {
        0 => 0,
        _ if own == 0 => 0,
        above => above << 32 | own,
    }
}

/// The version of an object's class; 0 while it has none.
#[inline]
pub fn version_of_type(object: *mut PyObject) -> u64 {
    version(class_of(object))
}

/// The class of an object.
#[inline]
fn class_of(object: *mut PyObject) -> *mut PyTypeObject {
    // SAFETY: callers hold the object alive, and it its class.
    unsafe { ffi::Py_TYPE(object) }
}
