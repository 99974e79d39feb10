//! Slots of native classes whose calls are routed here: slots of the class, and of those below it,
//! which took the function over when they were made.

use std::ffi::{c_int, c_void};

use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::arguments::{Convention, FoundArgument, Original, typed};
use crate::python::cpython::called::ours;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;

/// A slot that takes a tuple and a dict.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    New,
    Init,
    Call,
}

impl Slot {
    /// The offset of the slot in a class.
    const fn offset(self) -> usize {
        match self {
            Self::New => std::mem::offset_of!(PyTypeObject, tp_new),
            Self::Init => std::mem::offset_of!(PyTypeObject, tp_init),
            Self::Call => std::mem::offset_of!(PyTypeObject, tp_call),
        }
    }

    /// The name of the method by which Python code calls it, where that has a wrapper.
    const fn wrapper(self) -> Option<&'static str> {
        match self {
            Self::New => None,
            Self::Init => Some("__init__"),
            Self::Call => Some("__call__"),
        }
    }

    /// Makes the slot hold another function.
    ///
    /// # Safety
    /// `ours` is a function of the slot, and calls the original.
    pub(super) unsafe fn replace(
        self,
        class: &Bound<'_, PyType>,
        original: &Original,
        ours: *mut (),
    ) -> PyResult<()> {
        let mut classes = vec![class.clone()];
        while let Some(class) = classes.pop() {
            // SAFETY: the class is alive and has the slot, whose function has its type, and is written at
            // once. The two types of functions differ in whether they may be unwound alone.
            unsafe {
                let slot = class.as_type_ptr().byte_add(self.offset()).cast::<*mut ()>();
                let own = *slot;
                if own.is_null() {
                    continue;
                }
                let convention = match self {
                    Self::Init => Convention::Init(typed(own)),
                    _ => Convention::Slot(typed(own)),
                };
                // Python code may give a class its own.
                if let FoundArgument::Own = original.keep(convention, own as usize, ours as usize) {
                    *slot = ours;
                    if self.wrapper().is_some() {
                        ffi::PyType_Modified(class.as_type_ptr());
                    }
                }
            }
            for subclass in class.invoke_method0("__subclasses__")?.iterate()? {
                classes.push(subclass?.cast_into::<PyType>()?);
            }
        }
        // Classes made later, and calls by its name, take the slot from this method.
        let Some(name) = self.wrapper() else {
            return Ok(());
        };
        let wrapper = class.attr(name)?;
        if wrapper.get_type_ptr() == &raw mut ffi::PyWrapperDescr_Type {
            // SAFETY: the layout is read for the type that has it; the function is written at once.
            unsafe {
                let wrapper = wrapper.as_ptr().cast::<ffi::PyWrapperDescrObject>();
                if original.own() == Some((*wrapper).d_wrapped as usize) {
                    (*wrapper).d_wrapped = ours.cast();
                }
            }
        }
        Ok(())
    }
}

/// A native attribute of a class, whatever subclasses have.
pub struct Attribute {
    class: Py<PyType>,
    get: ffi::getter,
    set: Option<ffi::setter>,
}

impl Attribute {
    /// The attribute of this name, if it is one.
    pub fn of(class: &Bound<'_, PyType>, name: &str) -> PyResult<Option<Self>> {
        let found = class.attr_opt(name)?;
        let Some(entry) = found.as_ref().and_then(getset) else {
            return Ok(None);
        };
        // SAFETY: it is such a descriptor, whose entry lives as long as it.
        let (get, set) = unsafe { ((*(*entry).d_getset).get, (*(*entry).d_getset).set) };
        Ok(get.map(|get| Self { class: class.clone().unbind(), get, set }))
    }

    /// Its value; `TypeError` for an object of another class.
    pub fn get<'py>(&self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        self.check(object)?;
        // SAFETY: the function is that of the object's class; a new reference or an error.
        unsafe {
            Bound::from_owned_ptr_or_err(py, (self.get)(object.as_ptr(), std::ptr::null_mut()))
        }
    }

    /// Sets it, or deletes it; `TypeError` for an object of another class.
    pub fn set(&self, object: &Bound<'_, PyAny>, value: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.check(object)?;
        let value = value.map_or(std::ptr::null_mut(), |value| value.as_ptr());
        let Some(set) = self.set else {
            return Err(pyo3::exceptions::PyAttributeError::new_err("read-only"));
        };
        // SAFETY: the function is that of the object's class, and takes an object or null.
        match unsafe { set(object.as_ptr(), value, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    fn check(&self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        match raw::is_subtype(&object.get_type(), self.class.bind(object.py())) {
            true => Ok(()),
            false => Err(pyo3::exceptions::PyTypeError::new_err("another class")),
        }
    }
}

/// An attribute as the descriptor of it.
fn getset(descriptor: &Bound<'_, PyAny>) -> Option<*mut ffi::PyGetSetDescrObject> {
    let is_one = descriptor.get_type_ptr() == &raw mut ffi::PyGetSetDescr_Type;
    is_one.then(|| descriptor.as_ptr().cast())
}

/// A native attribute that is set in another way.
pub trait WrappedSetter: 'static {
    /// Sets it, or deletes it.
    fn set(object: &Bound<'_, PyAny>, value: Option<&Bound<'_, PyAny>>) -> PyResult<()>;
}

/// Makes an attribute of a class be set by `W`, which calls the original.
pub fn setter<W: WrappedSetter>(class: &Bound<'_, PyType>, name: &str) -> PyResult<()> {
    if let Some(descriptor) = class.attr_opt(name)?.as_ref().and_then(getset) {
        // SAFETY: it is such a descriptor. The entry, which is written at once, lives for ever, and
        // differs in how it is set alone.
        unsafe {
            let entry = ffi::PyGetSetDef { set: Some(set::<W>), ..*(*descriptor).d_getset };
            (*descriptor).d_getset = Box::leak(Box::new(entry));
        }
    }
    Ok(())
}

/// # Safety
/// Called by CPython as the setter of an attribute.
unsafe extern "C" fn set<W: WrappedSetter>(
    object: *mut PyObject,
    value: *mut PyObject,
    _closure: *mut c_void,
) -> c_int {
    // SAFETY: CPython calls on an attached thread, and holds the object and the value, which may be null.
    let (py, object, value) = unsafe {
        let py = Python::assume_attached();
        let value = Borrowed::from_ptr_or_opt(py, value);
        (py, Borrowed::from_ptr(py, object), value)
    };
    match ours(py, |_| W::set(&object, value.as_deref())) {
        Some(()) => 0,
        None => -1,
    }
}

/// The truth of a class's objects according to the class, whatever subclasses say.
pub struct Truth {
    class: Py<PyType>,
    asks: ffi::inquiry,
}

impl Truth {
    /// The function of a class, if it has one.
    pub fn of(class: &Bound<'_, PyType>) -> Option<Self> {
        // SAFETY: the class is alive, and so is its table of functions, or null.
        let asks = unsafe { (*class.as_type_ptr()).tp_as_number.as_ref()?.nb_bool? };
        Some(Self { class: class.clone().unbind(), asks })
    }

    pub fn is_true(&self, object: &Bound<'_, PyAny>) -> bool {
        raw::is_subtype(&object.get_type(), self.class.bind(object.py()))
            // SAFETY: the function is that of the object's class.
            && unsafe { (self.asks)(object.as_ptr()) != 0 }
    }
}
