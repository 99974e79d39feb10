//! Native functions, bound and not, and methods of classes.

use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{LazyLock, Mutex};

use ahash::AHashMap;
use pyo3::ffi::{self, PyMethodDef, PyObject};
use pyo3::prelude::*;

use super::foreign::is_foreign;
use super::{HOOKS, NativeCalls, around};
use crate::python::cpython::arguments::{CallArguments, Convention, Vectorcall};
use crate::python::cpython::called::Called;
use crate::python::cpython::functions::{Builtin, NativeFunction};
use crate::python::cpython::layout;
use crate::python::cpython::once::lock;

/// The table entry of functions or methods whose calls come through here, which has their own. It
/// lives for ever.
#[repr(C)]
struct Entry {
    /// First: objects point to it.
    method: PyMethodDef,
    convention: Convention,
    /// The entry of functions that are bound from this method.
    bound: AtomicPtr<Entry>,
}

/// Entries by the addresses of those that they take the place of, and whether for a method.
static ENTRIES: LazyLock<Mutex<AHashMap<(usize, bool), &'static Entry>>> =
    LazyLock::new(Mutex::default);

// SAFETY: nobody writes to an entry, but to its atomic part.
unsafe impl Send for Entry {}
// SAFETY: the same.
unsafe impl Sync for Entry {}

/// The entry in the place of another one. Where memory of one that is gone was used again there is a new
/// one.
fn entry(own: &PyMethodDef, convention: Convention, is_method: bool) -> &'static Entry {
    let takes_tuple = own.ml_flags & ffi::METH_VARARGS != 0;
    let mut method = *own;
    // With METH_COEXIST, which has a meaning only while a type is made, the flags are none that the
    // interpreter calls directly. A slot call (`f.__call__()`) passes its tuple straight to a function
    // where the flags say that it takes one, else it makes a vectorcall.
    method.ml_flags |= ffi::METH_COEXIST;
    if takes_tuple && !is_method {
        method.ml_flags &= !(ffi::METH_VARARGS | ffi::METH_KEYWORDS);
    }
    let is_same = |known: &Entry| {
        let known = &known.method;
        known.ml_flags == method.ml_flags
            && known.ml_name == method.ml_name
            && known.ml_doc == method.ml_doc
            && known.ml_meth.as_ptr() == method.ml_meth.as_ptr()
    };
    let key = (ptr::from_ref(own) as usize, is_method);
    let mut all = lock(&ENTRIES);
    if let Some(known) = all.get(&key).filter(|known| is_same(known)) {
        return known;
    }
    let new = Box::leak(Box::new(Entry { method, convention, bound: AtomicPtr::default() }));
    all.insert(key, new);
    new
}

/// Returns whether the calls of a native function come through here.
///
/// # Safety
/// It is a native function, and is alive.
#[inline]
pub(super) unsafe fn is_routed_function(object: *mut PyObject) -> bool {
    // SAFETY: by the caller.
    let own = unsafe { (*object.cast::<NativeFunction>()).vectorcall };
    HOOKS.get().is_some_and(|hooks| own.is_some_and(|own| own as usize == hooks.function as usize))
}

/// Routes the calls of a native function here, if its code is foreign. No other thread calls it
/// meanwhile.
pub(super) fn route_function(object: Borrowed<'_, '_, PyAny>) {
    let Some(function) = Builtin::cast(&object) else {
        return;
    };
    let (Some(hooks), raw) = (HOOKS.get(), object.as_ptr().cast::<NativeFunction>()) else {
        return;
    };
    // SAFETY: it is such an object, and its entry lives as long as it; a native `__new__` is bound to
    // its class.
    unsafe {
        let code = match layout::is_new(object) {
            true => {
                (*(*raw).receiver.cast::<ffi::PyTypeObject>()).tp_new.map_or(0, |new| new as usize)
            }
            false => function.function() as usize,
        };
        if is_routed_function(object.as_ptr()) || !is_foreign(code) {
            return;
        }
        let Some(convention) = function.convention() else {
            return;
        };
        let entry = entry(&*(*raw).method, convention, false);
        (*raw).method = ptr::from_ref(&entry.method).cast_mut();
        (*raw).vectorcall = Some(hooks.function);
    }
}

/// Routes the calls of a method of a class here, and those of functions that are bound from it. No other
/// thread calls it meanwhile.
pub(super) fn route_method(object: Borrowed<'_, '_, PyAny>) {
    let Some(hooks) = HOOKS.get() else {
        return;
    };
    let raw = object.as_ptr().cast::<ffi::PyMethodDescrObject>();
    // SAFETY: callers give such objects, whose entry lives as long as they. The two types of functions
    // differ in whether they may be unwound alone. A method of a class itself has no vectorcall, and
    // the interpreter does not look for one: it is a mark there.
    unsafe {
        let own = (*raw).d_method;
        if is_routed(raw) || !is_foreign((*own).ml_meth.as_ptr() as usize) {
            return;
        }
        let by = transmute::<Vectorcall, ffi::vectorcallfunc>(hooks.descriptor);
        let vectorcall = (*raw).vectorcall.replace(by).unwrap_or(by);
        let vectorcall = transmute::<ffi::vectorcallfunc, Vectorcall>(vectorcall);
        let entry = entry(&*own, Convention::Vectorcall(vectorcall), true);
        (*raw).d_method = ptr::from_ref(&entry.method).cast_mut();
    }
}

/// Returns whether the calls of a method come through here: then its entry is one of ours.
///
/// # Safety
/// It is a method of a class, and is alive.
unsafe fn is_routed(method: *const ffi::PyMethodDescrObject) -> bool {
    // SAFETY: by the caller.
    let own = unsafe { (*method).vectorcall };
    HOOKS
        .get()
        .is_some_and(|hooks| own.is_some_and(|own| own as usize == hooks.descriptor as usize))
}

/// Routes the calls of a function here that was just bound from a method of a class.
///
/// # Safety
/// `bound` was just made by the `__get__` of `method`, which is a method of a class, and is alive; or
/// it is null.
pub(super) unsafe fn route_bound(method: *mut PyObject, bound: *mut PyObject) {
    let method = method.cast::<ffi::PyMethodDescrObject>();
    // SAFETY: by the caller. The layouts are read for the types that have them.
    unsafe {
        // Most methods are the interpreter's.
        if bound.is_null() || !is_foreign((*(*method).d_method).ml_meth.as_ptr() as usize) {
            return;
        }
        let object = Borrowed::from_ptr(Python::assume_attached(), bound);
        let (Some(function), Some(hooks)) = (Builtin::cast(&object), HOOKS.get()) else {
            return;
        };
        let raw = bound.cast::<NativeFunction>();
        if (*raw).method != (*method).d_method || !is_routed(method) {
            route_function(object);
            return;
        }
        let known = (*method).d_method.cast::<Entry>();
        let mut bound = (*known).bound.load(Ordering::Acquire);
        if bound.is_null() {
            let Some(convention) = function.convention() else {
                return;
            };
            bound = ptr::from_ref(entry(&(*known).method, convention, false)).cast_mut();
            (*known).bound.store(bound, Ordering::Release);
        }
        (*raw).method = &raw mut (*bound).method;
        (*raw).vectorcall = Some(hooks.function);
    }
}

/// Declares vectorcalls: of what, and where that has its entry.
macro_rules! vectorcalls {
    ($($(#[$doc:meta])* $name:ident($callable:ident) => $entry:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// Called by CPython, with one that was routed here.
            pub(super) unsafe extern "C-unwind" fn $name<W: NativeCalls>(
                $callable: *mut PyObject,
                args: *const *mut PyObject,
                nargsf: usize,
                kwnames: *mut PyObject,
            ) -> *mut PyObject {
                // SAFETY: by the caller; what was routed has an entry of ours.
                unsafe {
                    let convention = (*$entry.cast::<Entry>()).convention;
                    around::<W>($callable, ptr::null_mut(), || {
                        let arguments = CallArguments::new(args, nargsf, kwnames);
                        let called =
                            Called::new(convention, $callable, ptr::null_mut(), arguments);
                        called.make().into_ptr()
                    })
                }
            }
        )*
    };
}

vectorcalls! {
    /// That of a function.
    function(callable) => (*callable.cast::<NativeFunction>()).method;
    /// That of a method of a class.
    descriptor(callable) => (*callable.cast::<ffi::PyMethodDescrObject>()).d_method;
}
