//! Native functions of the standard library that are wrapped: each call does something more.
//!
//! Such a function is one object, however it was imported. Its calls are routed to ours, which then
//! does what the function always did. It stays the same object: sets and tables that hold it still
//! find it.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::Mutex;

use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::cpython::arguments::{
    CallArguments, Convention, FoundArgument, Route, WithKeywords,
};
use crate::python::cpython::called::{Called, CalledByTuple, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::functions::{Builtin, MethodDescriptor};
use crate::python::cpython::once::{Published, lock};
use crate::python::cpython::slots::Slot;

pub use crate::python::cpython::arguments::Original;

/// A native function or method that does more: a type without values, of which the compiler makes a
/// function for each convention.
pub trait Wrapped: 'static {
    fn original() -> &'static Original;

    fn call(called: Called<'_>) -> Returned;
}

/// The same for a method or a slot that takes a tuple and a dict.
pub trait WrappedByTuple: 'static {
    fn original() -> &'static Original;

    fn call(called: CalledByTuple<'_>) -> Returned;
}

/// Declares types that are `Wrapped`, or `WrappedByTuple`: each with the function that makes a call.
macro_rules! wrapped {
    ($($name:ident: $of:ident($called:ident) => $call:expr;)*) => {
        $(
            struct $name;

            impl $crate::python::cpython::replace::$of for $name {
                fn original() -> &'static $crate::python::cpython::replace::Original {
                    static ORIGINAL: $crate::python::cpython::replace::Original =
                        $crate::python::cpython::replace::Original::unknown();
                    &ORIGINAL
                }

                fn call(
                    called: $crate::python::cpython::called::$called<'_>,
                ) -> $crate::python::cpython::called::Returned {
                    $call(called)
                }
            }
        )*
    };
}
pub(crate) use wrapped;

/// `function`, with what makes a call. Each place that has it keeps one original: call it for one alone.
macro_rules! wrap_function {
    ($py:expr, $module:expr, $name:expr, $call:expr) => {{
        $crate::python::cpython::replace::wrapped! { Function: Wrapped(Called) => $call; }
        $crate::python::cpython::replace::function::<Function>($py, $module, $name)
    }};
}
pub(crate) use wrap_function;

/// `method`, likewise.
macro_rules! wrap_method {
    ($class:expr, $name:expr, $call:expr) => {{
        $crate::python::cpython::replace::wrapped! { Method: Wrapped(Called) => $call; }
        $crate::python::cpython::replace::method::<Method>($class, $name)
    }};
}
pub(crate) use wrap_method;

/// `slot`, likewise.
macro_rules! wrap_slot {
    ($class:expr, $slot:expr, $call:expr) => {{
        $crate::python::cpython::replace::wrapped! { Held: WrappedByTuple(CalledByTuple) => $call; }
        $crate::python::cpython::replace::slot::<Held>($class, $slot)
    }};
}
pub(crate) use wrap_slot;

/// A function whose calls are routed elsewhere.
struct Replaced {
    name: String,
    /// The address of its C function.
    function: usize,
    route: Route,
}

static REPLACED: Mutex<Vec<Replaced>> = Mutex::new(Vec::new());

/// Routes the calls of such functions elsewhere also in another copy of their module.
pub fn replace_again(module: &Bound<'_, PyAny>) -> PyResult<()> {
    let replaced: Vec<_> = {
        let all = lock(&REPLACED);
        let all = all.iter();
        all.map(|one| (one.name.clone(), one.function, one.route)).collect()
    };
    for (name, own, route) in replaced {
        if let Some(found) = module.attr_opt(name.as_str())?
            && let Some(function) = Builtin::cast(&found)
            && function.function() as usize == own
        {
            function.route(route);
        }
    }
    Ok(())
}

/// Routes every call of `module.name` to `W`, once for the process. Does nothing if there is no
/// such native function.
pub fn function<W: Wrapped>(py: Python<'_>, module: &str, name: &str) -> PyResult<()> {
    if W::original().convention().is_some() {
        return Ok(());
    }
    if let Some(found) = calling::import(py, module)?.attr_opt(name)?
        && let Some(function) = Builtin::cast(&found)
        && let Some(convention) = function.convention()
    {
        let (own, route) = (function.function() as usize, Route(vectorcall::<W>));
        if let FoundArgument::Own = W::original().keep(convention, own, route.address()) {
            let replaced = Replaced { name: name.to_owned(), function: own, route };
            lock(&REPLACED).push(replaced);
            function.route(route);
        }
    }
    Ok(())
}

/// Routes every call of a method of a class to `W`. Returns false if the class has no such method,
/// or one with a convention that is not known here.
pub fn method<W: Wrapped>(class: &Bound<'_, PyType>, name: &str) -> PyResult<bool> {
    replace_method(class, name, W::original(), |convention| match convention {
        Convention::Keywords(_) => Some(keywords::<W> as *mut ()),
        Convention::OfClass(_) => Some(of_class::<W> as *mut ()),
        Convention::Fast(_) => Some(fast::<W> as *mut ()),
        Convention::One(_) => Some(one::<W> as *mut ()),
        Convention::Nothing(_) => Some(nothing::<W> as *mut ()),
        Convention::MethodOfTuple(_) => Some(of_tuple::<W> as *mut ()),
        _ => None,
    })
}

/// The same for a method that takes a tuple and a dict.
pub fn method_by_tuple<W: WrappedByTuple>(class: &Bound<'_, PyType>, name: &str) -> PyResult<bool> {
    replace_method(class, name, W::original(), |convention| match convention {
        Convention::Slot(_) => Some(by_tuple::<W> as *mut ()),
        _ => None,
    })
}

fn replace_method(
    class: &Bound<'_, PyType>,
    name: &str,
    original: &Original,
    by: impl FnOnce(Convention) -> Option<*mut ()>,
) -> PyResult<bool> {
    if let Some(found) = class.attr_opt(name)?
        && let Some(method) = MethodDescriptor::cast(&found)
        && let Some(convention) = method.convention()
        && let Some(ours) = by(convention)
    {
        match original.keep(convention, method.function() as usize, ours as usize) {
            // SAFETY: `by` gives a function of the convention, which calls the original.
            FoundArgument::Own => unsafe { method.set_function(ours) },
            FoundArgument::Ours => {}
            FoundArgument::Other => return Ok(false),
        }
        return Ok(true);
    }
    Ok(false)
}

/// Makes a slot of a class, and of those below it, hold `W`, and the method by which Python code calls
/// it.
pub fn slot<W: WrappedByTuple>(class: &Bound<'_, PyType>, slot: Slot) -> PyResult<()> {
    let ours = match slot {
        Slot::Init => init::<W> as *mut (),
        Slot::New | Slot::Call => by_tuple::<W> as *mut (),
    };
    // SAFETY: both functions are of the slot that they are given for, and call the original.
    unsafe { slot.replace(class, W::original(), ours) }
}

/// # Safety
/// CPython calls, with these arguments, and `original` takes them.
#[inline(always)]
unsafe fn enter<W: Wrapped>(
    object: *mut PyObject,
    class: *mut PyTypeObject,
    (args, nargsf, kwnames): (*const *mut PyObject, usize, *mut PyObject),
) -> *mut PyObject {
    let Some(original) = W::original().convention() else {
        // It was kept before this function was made reachable.
        return std::ptr::null_mut();
    };
    // SAFETY: the caller vouches for it, and the call lasts until this function returns.
    let called =
        unsafe { Called::new(original, object, class, CallArguments::new(args, nargsf, kwnames)) };
    W::call(called).into_ptr()
}

const NO_CLASS: *mut PyTypeObject = std::ptr::null_mut();
const NO_NAMES: *mut PyObject = std::ptr::null_mut();

/// Declares the functions that CPython calls: by a convention, with these arguments, the object, the class
/// and the arguments as a vectorcall has them.
macro_rules! conventions {
    ($($(#[$doc:meta])* $name:ident($($given:ident: $of:ty),*) => $object:expr, $class:expr, $all:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// Called by CPython by that convention.
            unsafe extern "C-unwind" fn $name<W: Wrapped>($($given: $of),*) -> *mut PyObject {
                // SAFETY: CPython passes these by the convention, and they live until this function
                // returns. Where it tells no names there are none.
                unsafe { enter::<W>($object, $class, $all) }
            }
        )*
    };
}

type Object = *mut PyObject;
type Objects = *const *mut PyObject;

conventions! {
    /// A vectorcall.
    vectorcall(callable: Object, args: Objects, nargsf: usize, kwnames: Object) =>
        callable, NO_CLASS, (args, nargsf, kwnames);
    /// `METH_FASTCALL | METH_KEYWORDS`.
    keywords(receiver: Object, args: Objects, count: isize, kwnames: Object) =>
        receiver, NO_CLASS, (args, count as usize, kwnames);
    /// `METH_METHOD | METH_FASTCALL | METH_KEYWORDS`.
    of_class(receiver: Object, class: *mut PyTypeObject, args: Objects, count: isize, kwnames: Object) =>
        receiver, class, (args, count as usize, kwnames);
    /// `METH_FASTCALL`.
    fast(receiver: Object, args: Objects, count: isize) =>
        receiver, NO_CLASS, (args, count as usize, NO_NAMES);
    /// `METH_O`.
    one(receiver: Object, argument: Object) =>
        receiver, NO_CLASS, (&raw const argument, 1, NO_NAMES);
    /// `METH_NOARGS`.
    nothing(receiver: Object, _nothing: Object) =>
        receiver, NO_CLASS, (std::ptr::null(), 0, NO_NAMES);
    /// `METH_VARARGS`: the items of a tuple follow each other in it.
    of_tuple(receiver: Object, tuple: Object) =>
        receiver, NO_CLASS, (
            (&raw const (*tuple.cast::<ffi::PyTupleObject>()).ob_item).cast(),
            ffi::PyTuple_GET_SIZE(tuple) as usize,
            NO_NAMES,
        );
}

/// # Safety
/// Called by CPython by the convention `METH_VARARGS | METH_KEYWORDS`, or as `tp_call` or `tp_new`.
pub(super) unsafe extern "C-unwind" fn by_tuple<W: WrappedByTuple>(
    receiver: *mut PyObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    let original = W::original().convention();
    // SAFETY: CPython passes a tuple, and a dict or null; the call lasts until this function returns.
    W::call(unsafe { CalledByTuple::new(original, receiver, args, kwargs) }).into_ptr()
}

/// # Safety
/// Called by CPython as `tp_init`.
unsafe extern "C-unwind" fn init<W: WrappedByTuple>(
    object: *mut PyObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> std::ffi::c_int {
    let original = W::original().convention();
    // SAFETY: CPython passes a tuple, and a dict or null; the call lasts until this function returns.
    let called = unsafe { CalledByTuple::new(original, object, args, kwargs) };
    let (py, result) = (called.py, W::call(called));
    match result.has_failed() {
        true => -1,
        // The reference to `None` is given up.
        false => {
            drop(result.instead(py, Returned::failed()));
            0
        }
    }
}

/// Functions whose calls are made in one place, each with what is done with its own.
pub struct Table<K: Copy + Send + Sync + 'static> {
    /// They are replaced as a whole.
    all: Published<Vec<Listed<K>>>,
    /// Whoever adds holds this.
    adding: Mutex<()>,
}

#[derive(Clone, Copy)]
struct Listed<K> {
    /// The address of the C function, which all objects have that are made of it, for each copy of its
    /// module.
    function: usize,
    original: Convention,
    kind: K,
}

/// A table, and what makes a call of a function in it.
pub trait Lists: 'static {
    type Kind: Copy + Send + Sync + 'static;

    fn table() -> &'static Table<Self::Kind>;

    fn call(called: Called<'_>, kind: Self::Kind) -> Returned;
}

impl<K: Copy + Send + Sync + 'static> Table<K> {
    pub const fn new() -> Self {
        Self { all: Published::nothing(), adding: Mutex::new(()) }
    }

    #[inline]
    fn all(&self) -> &'static [Listed<K>] {
        self.all.get().map_or(&[], Vec::as_slice)
    }

    fn add(&self, new: Listed<K>) {
        let adding = self.adding.lock();
        if self.all().iter().all(|known| known.function != new.function) {
            let mut all = self.all().to_vec();
            all.push(new);
            self.all.set(Box::new(all));
        }
        drop(adding);
    }
}

/// Routes the calls of a function to the table, if it is a native one.
pub fn list<L: Lists>(object: &Bound<'_, PyAny>, kind: L::Kind) {
    let Some(function) = Builtin::cast(object) else {
        return;
    };
    let route = Route(listed::<L>);
    let original = match function.convention() {
        None => return,
        Some(Convention::Vectorcall(own)) if own as usize == route.address() => return,
        Some(original) => original,
    };
    L::table().add(Listed { function: function.function() as usize, original, kind });
    function.route(route);
}

/// # Safety
/// Called by CPython by the vectorcall convention.
unsafe extern "C-unwind" fn listed<L: Lists>(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: CPython calls on an attached thread, and holds the function.
    let function = unsafe { Borrowed::from_ptr(Python::assume_attached(), callable) };
    let own = Builtin::cast(&function).map(|function| function.function() as usize);
    let mut all = L::table().all().iter();
    let Some(known) = all.find(|known| Some(known.function) == own) else {
        // Only functions that were put there come here.
        return std::ptr::null_mut();
    };
    // SAFETY: the convention was read from the function. The arguments are those of a vectorcall, which
    // lasts until this function returns.
    let called = unsafe {
        let arguments = CallArguments::new(args, nargsf, kwnames);
        Called::new(known.original, callable, NO_CLASS, arguments)
    };
    L::call(called, known.kind).into_ptr()
}

// Methods of our own that are called with nothing of PyO3's on the stack.

/// A method of our own that threads call. PyO3 does not make it, as PyO3 would catch the unwinding
/// that ends a daemon thread: see `Vectorcall`.
pub struct OwnMethod(UnsafeCell<ffi::PyMethodDef>);

// SAFETY: CPython reads it, and nobody writes to it.
unsafe impl Sync for OwnMethod {}

impl OwnMethod {
    pub const fn new<W: WrappedByTuple>(name: &'static CStr) -> Self {
        Self(UnsafeCell::new(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer {
                // SAFETY: the two differ in whether they may be unwound alone.
                PyCFunctionWithKeywords: unsafe {
                    std::mem::transmute::<WithKeywords, ffi::PyCFunctionWithKeywords>(by_tuple::<W>)
                },
            },
            ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
            ml_doc: std::ptr::null(),
        }))
    }

    /// The function object that calls the method of an object, which it keeps alive.
    pub fn bind<'py>(&'static self, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the method lives for ever; a new reference or null.
        unsafe {
            let bound = ffi::PyCFunction_NewEx(self.0.get(), object.as_ptr(), std::ptr::null_mut());
            Bound::from_owned_ptr_or_err(object.py(), bound)
        }
    }

    pub fn is_method_of(&self, function: &Builtin<'_, '_>) -> bool {
        std::ptr::eq(function.method(), self.0.get())
    }
}
