//! The functions, methods and classes of native code that there are, and those that come.

use std::ffi::c_ulong;

use ahash::AHashSet;
use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule, PyType};

use super::foreign::is_foreign;
use super::{functions, instances, types};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::{collector, layout, objects};

/// Routes the calls of all native code of others that can be found.
pub fn find_all(py: Python<'_>) -> PyResult<()> {
    let mut found = classes(py)?;
    #[cfg(Py_3_12)]
    collector::each(py, find);
    #[cfg(not(Py_3_12))]
    for object in calling::import(py, "gc")?.invoke_method0("get_objects")?.iterate()? {
        find(object?.as_borrowed());
    }
    // Some objects are none of the collector's, such as functions of numpy.
    let modules = calling::import(py, "sys")?.attr("modules")?;
    for module in modules.cast::<PyDict>().iter().flat_map(|all| all.values()) {
        if let Ok(module) = module.cast::<PyModule>() {
            found.extend(of_module(module));
        }
    }
    find_each(py, &found);
    Ok(())
}

/// Routes the calls of what a module has that was just loaded.
pub fn find_in(module: &Bound<'_, PyModule>) {
    find_each(module.py(), &of_module(module));
}

/// Routes the calls of these, while nobody calls them.
fn find_each(py: Python<'_>, found: &[Bound<'_, PyAny>]) {
    collector::alone(py, || {
        for object in found {
            find(object.as_borrowed());
        }
    });
}

/// Routes the calls of one object: of a class those of itself and of its objects.
fn find(object: Borrowed<'_, '_, PyAny>) {
    let class = object.get_type_ptr();
    if layout::is_class(object) {
        // SAFETY: it is one, and is alive.
        unsafe {
            types::route_metaclass(object.as_ptr().cast());
            instances::route_class(object.as_ptr().cast());
        }
    } else if class == &raw mut ffi::PyCFunction_Type || class == &raw mut ffi::PyCMethod_Type {
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

/// All classes, and what they have.
fn classes(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    let of = py.get_type::<PyType>().attr("__subclasses__")?;
    let (mut seen, mut classes) = (AHashSet::new(), vec![py.get_type::<PyAny>()]);
    let mut found = Vec::new();
    while let Some(class) = classes.pop() {
        if seen.insert(class.as_ptr() as usize) {
            for subclass in of.invoke1((&class,))?.iterate()? {
                classes.extend(subclass?.cast_into::<PyType>());
            }
            found.extend(of_class(&class));
        }
    }
    Ok(found)
}

/// A class, and what it has.
fn of_class<'py>(class: &Bound<'py, PyType>) -> Vec<Bound<'py, PyAny>> {
    let own = objects::dictionary(class).into_iter().flat_map(|own| own.values());
    std::iter::once(class.clone().into_any()).chain(own).collect()
}

/// What a module has, its classes have, and the modules in it.
fn of_module<'py>(module: &Bound<'py, PyModule>) -> Vec<Bound<'py, PyAny>> {
    let mut found = Vec::new();
    for value in module.dict().values() {
        if let Ok(class) = value.cast::<PyType>() {
            found.extend(of_class(class));
        } else if let Ok(inner) = value.cast::<PyModule>() {
            found.extend(inner.dict().values());
        } else {
            found.push(value);
        }
    }
    found
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
        if ffi::PyType_HasFeature(ffi::Py_TYPE(object), CALLED) == 0 {
            return;
        }
        match ffi::PyType_Check(object) {
            0 if is_known(object) => {}
            0 => collector::alone(py, || find(Borrowed::from_ptr(py, object))),
            _ => made_class(py, object.cast()),
        }
    }
}

/// Returns whether a callable is one of Python code, or a function whose calls are routed here.
///
/// # Safety
/// The object is alive.
#[inline]
unsafe fn is_known(object: *mut PyObject) -> bool {
    // SAFETY: by the caller; the layout is read for the type that has it.
    unsafe {
        let class = ffi::Py_TYPE(object);
        class == &raw mut ffi::PyFunction_Type
            || class == &raw mut ffi::PyCFunction_Type && functions::is_routed_function(object)
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
            find_each(py, &of_class(&class.cast_into_unchecked()));
        }
    }
}
