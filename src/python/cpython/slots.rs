//! Slots of native classes whose calls are routed here: slots of the class, and of those below it,
//! which took the function over when they were made.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi::{self, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// A function of a slot as it was.
pub struct Slot(AtomicPtr<c_void>);

impl Slot {
    /// An original that is not known, as the slot was not replaced yet.
    pub const fn unknown() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The function; null where none was replaced.
    pub fn original(&self) -> *mut c_void {
        self.0.load(Ordering::Acquire)
    }

    /// Makes the slot of a class and of those below it hold another function.
    ///
    /// # Safety
    /// `place` gives where the slot is, and the function is of its type and calls the original.
    pub unsafe fn replace(
        &self,
        class: &Bound<'_, PyType>,
        place: unsafe fn(*mut PyTypeObject) -> *mut *mut c_void,
        function: *mut c_void,
    ) -> PyResult<()> {
        let mut classes = vec![class.clone()];
        while let Some(class) = classes.pop() {
            // SAFETY: the class is alive and has the slot; the GIL is held.
            unsafe {
                let slot = place(class.as_type_ptr());
                if self.original().is_null() && *slot != function {
                    self.0.store(*slot, Ordering::Release);
                }
                if *slot == self.original() {
                    *slot = function;
                }
            }
            for subclass in class.call_method0("__subclasses__")?.try_iter()? {
                classes.push(subclass?.cast_into::<PyType>()?);
            }
        }
        Ok(())
    }

    /// The same for the method of this name, by which classes of Python code call the slot.
    ///
    /// # Safety
    /// As `replace`, which was called before.
    pub unsafe fn replace_wrapper(
        &self,
        class: &Bound<'_, PyType>,
        name: &str,
        function: *mut c_void,
    ) -> PyResult<()> {
        let wrapper = class.getattr(name)?;
        // SAFETY: the layout is read for the type that has it; the GIL is held.
        unsafe {
            if ffi::Py_TYPE(wrapper.as_ptr()) == &raw mut ffi::PyWrapperDescr_Type {
                let wrapper = wrapper.as_ptr().cast::<ffi::PyWrapperDescrObject>();
                if (*wrapper).d_wrapped == self.original() {
                    (*wrapper).d_wrapped = function;
                }
            }
        }
        Ok(())
    }
}
