//! The functions, methods and classes of native code that there are, and those that come.

use std::ffi::c_ulong;

use ahash::AHashSet;
use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule, PyType};

use super::foreign::is_foreign;
use super::{functions, instances, types};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::{layout, objects};

/// Routes the calls of all native code of others that can be found.
pub fn find_all(py: Python<'_>) -> PyResult<()> {
    find_classes(py)?;
    collected::each(py)?;
    // Some objects are none of the collector's, such as functions of numpy.
    let modules = calling::import(py, "sys")?.attr("modules")?;
    for module in modules.cast::<PyDict>().iter().flat_map(|all| all.values()) {
        if let Ok(module) = module.cast::<PyModule>() {
            find_in(module);
        }
    }
    Ok(())
}

/// All objects of the garbage collector.
#[cfg(Py_3_12)]
mod collected {
    use std::ffi::{c_int, c_void};

    use pyo3::ffi::PyObject;
    use pyo3::prelude::*;

    unsafe extern "C" {
        /// <https://docs.python.org/3/c-api/gcsupport.html#c.PyUnstable_GC_VisitObjects>
        fn PyUnstable_GC_VisitObjects(
            callback: unsafe extern "C" fn(*mut PyObject, *mut c_void) -> c_int,
            arg: *mut c_void,
        );
    }

    #[expect(clippy::unnecessary_wraps, reason = "what it is before Python 3.12")]
    pub fn each(_py: Python<'_>) -> PyResult<()> {
        // SAFETY: the function is of the type; it makes and frees no object.
        unsafe { PyUnstable_GC_VisitObjects(visit, std::ptr::null_mut()) };
        Ok(())
    }

    /// # Safety
    /// Called by CPython with objects that are alive.
    unsafe extern "C" fn visit(object: *mut PyObject, _arg: *mut c_void) -> c_int {
        // SAFETY: by the caller; the collector runs on an attached thread.
        unsafe { super::find(Borrowed::from_ptr(Python::assume_attached(), object)) };
        1
    }
}

#[cfg(not(Py_3_12))]
mod collected {
    use pyo3::prelude::*;

    use crate::python::cpython::calling::{self, Calling};

    pub fn each(py: Python<'_>) -> PyResult<()> {
        for object in calling::import(py, "gc")?.invoke_method0("get_objects")?.iterate()? {
            super::find(object?.as_borrowed());
        }
        Ok(())
    }
}

/// Routes the calls of one object.
fn find(object: Borrowed<'_, '_, PyAny>) {
    let class = object.get_type_ptr();
    if class == &raw mut ffi::PyCFunction_Type || class == &raw mut ffi::PyCMethod_Type {
        functions::route_function(object);
    } else if class == &raw mut ffi::PyMethodDescr_Type
        || class == &raw mut ffi::PyClassMethodDescr_Type
    {
        functions::route_method(object);
    } else if layout::is_call_of_class(object) {
        // SAFETY: it is such a wrapper.
        unsafe { instances::route_wrapper(object.as_ptr()) };
    } else {
        // SAFETY: the object is alive, and so is its class.
        unsafe { instances::route(object.as_ptr()) };
    }
}

/// Routes the calls of all classes, and of what they have.
fn find_classes(py: Python<'_>) -> PyResult<()> {
    let of = py.get_type::<PyType>().attr("__subclasses__")?;
    let (mut seen, mut classes) = (AHashSet::new(), vec![py.get_type::<PyAny>()]);
    while let Some(class) = classes.pop() {
        if seen.insert(class.as_ptr() as usize) {
            find_of_class(&class);
            for subclass in of.invoke1((&class,))?.iterate()? {
                classes.extend(subclass?.cast_into::<PyType>());
            }
        }
    }
    Ok(())
}

fn find_of_class(class: &Bound<'_, PyType>) {
    // SAFETY: the class is alive.
    unsafe {
        types::route_metaclass(class.as_type_ptr());
        instances::route_class(class.as_type_ptr());
    }
    for (_, value) in objects::dictionary(class).iter().flatten() {
        find(value.as_borrowed());
    }
}

/// Routes the calls of what a module has that was just loaded.
pub fn find_in(module: &Bound<'_, PyModule>) {
    for (_, value) in module.dict() {
        if let Ok(class) = value.cast::<PyType>() {
            find_of_class(class);
        } else if let Ok(inner) = value.cast::<PyModule>() {
            for (_, value) in inner.dict() {
                find(value.as_borrowed());
            }
        } else {
            find(value.as_borrowed());
        }
    }
}

/// Routes the calls of what a native call returns.
///
/// # Safety
/// The object is alive, or null.
pub(super) unsafe fn made(py: Python<'_>, object: *mut PyObject) {
    const CALLED: c_ulong = ffi::Py_TPFLAGS_HAVE_VECTORCALL | ffi::Py_TPFLAGS_TYPE_SUBCLASS;
    // SAFETY: by the caller.
    unsafe {
        if object.is_null() {
            return;
        }
        let class = ffi::Py_TYPE(object);
        if (*class).tp_flags & CALLED == 0 {
            return;
        }
        match ffi::PyType_Check(object) {
            0 => find(Borrowed::from_ptr(py, object)),
            _ => made_class(py, object.cast()),
        }
    }
}

/// # Safety
/// It is a type, and is alive.
#[cold]
unsafe fn made_class(py: Python<'_>, class: *mut PyTypeObject) {
    // SAFETY: by the caller.
    unsafe {
        let functions = [
            (*class).tp_new.map(|own| own as usize),
            (*class).tp_dealloc.map(|own| own as usize),
            (*class).tp_call.map(|own| own as usize),
        ];
        if functions.into_iter().flatten().any(is_foreign) {
            let class = Bound::from_borrowed_ptr(py, class.cast());
            find_of_class(&class.cast_into_unchecked());
        }
    }
}
