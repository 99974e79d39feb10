//! Objects of classes of native code that are called: by a vectorcall that each has, or by the `tp_call`
//! of their class. Many share one function, and the function that takes its place has to know it: so there
//! are a number of these, each for one.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3::ffi::{self, PyObject, PyTypeObject};

use super::foreign::is_foreign;
use super::{HOOKS, NativeCalls, around};
use crate::python::cpython::arguments::{Vectorcall, WithKeywords, typed};
use crate::python::cpython::once::lock;

const ROWS: usize = 64;
const IN_ROW: usize = 16;

/// The functions of each kind as they were, by the number of the one in their place.
struct Originals([AtomicUsize; ROWS * IN_ROW]);

static VECTORCALLS: Originals = Originals([const { AtomicUsize::new(0) }; ROWS * IN_ROW]);
static CALLS: Originals = Originals([const { AtomicUsize::new(0) }; ROWS * IN_ROW]);

static ADDING: Mutex<()> = Mutex::new(());

/// False once there was another function than there are places for.
static HAS_ROOM: AtomicBool = AtomicBool::new(true);

/// Returns whether all functions that were found come through here.
pub fn has_room() -> bool {
    HAS_ROOM.load(Ordering::Relaxed)
}

impl Originals {
    /// The number of a function, which is added if it is not there.
    fn number(&self, function: usize) -> Option<usize> {
        let adding = lock(&ADDING);
        let known = |at: &AtomicUsize| [0, function].contains(&at.load(Ordering::Acquire));
        let place = self.0.iter().position(known);
        match place {
            Some(number) => self.0[number].store(function, Ordering::Release),
            None => HAS_ROOM.store(false, Ordering::Relaxed),
        }
        drop(adding);
        place
    }
}

/// The functions in the place of others.
pub(super) struct Stubs {
    vectorcalls: [[Vectorcall; IN_ROW]; ROWS],
    calls: [[WithKeywords; IN_ROW]; ROWS],
}

macro_rules! rows {
    ($stub:ident: $($row:literal)*) => {
        [$(rows!(@ $stub, $row: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)),*]
    };
    (@ $stub:ident, $row:literal: $($at:literal)*) => {
        [$($stub::<W, { $row * IN_ROW + $at }>),*]
    };
}

macro_rules! all {
    ($stub:ident) => {
        rows!($stub:
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
            32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60
            61 62 63)
    };
}

pub(super) fn stubs<W: NativeCalls>() -> Stubs {
    Stubs { vectorcalls: all!(vectorcall), calls: all!(call) }
}

/// Routes the calls of an object here, if it has a foreign vectorcall.
///
/// # Safety
/// The object is alive, and the thread attached.
pub(super) unsafe fn route(object: *mut PyObject) {
    // SAFETY: by the caller; an object of a class with this flag has such a pointer at that offset.
    unsafe {
        let class = ffi::Py_TYPE(object);
        if ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HAVE_VECTORCALL) == 0
            || (*class).tp_vectorcall_offset <= 0
        {
            return;
        }
        let place = object.byte_offset((*class).tp_vectorcall_offset).cast::<*const ()>();
        let own = *place as usize;
        if own != 0
            && is_foreign(own)
            && let (Some(number), Some(hooks)) = (VECTORCALLS.number(own), HOOKS.get())
        {
            *place = hooks.instances.vectorcalls[number / IN_ROW][number % IN_ROW] as *const ();
        }
    }
}

/// Routes the calls of a class's objects here, if it has a foreign `tp_call`, and those of the class
/// itself, if it has a foreign vectorcall.
///
/// # Safety
/// It is a type, and is alive; the thread is attached.
pub(super) unsafe fn route_class(class: *mut PyTypeObject) {
    // SAFETY: by the caller; the functions are of the slots' types.
    unsafe {
        route(class.cast());
        if let Some(ours) = (*class).tp_call.and_then(|own| call_in_place_of(own as usize)) {
            (*class).tp_call = Some(typed(ours));
        }
    }
}

/// Routes the calls here of a wrapper of `tp_call`, from which classes that are made later take it.
///
/// # Safety
/// It is a wrapper of that slot, and is alive.
pub(super) unsafe fn route_wrapper(wrapper: *mut PyObject) {
    let wrapper = wrapper.cast::<ffi::PyWrapperDescrObject>();
    // SAFETY: by the caller; the functions are of the slot's type.
    unsafe {
        if let Some(ours) = call_in_place_of((*wrapper).d_wrapped as usize) {
            (*wrapper).d_wrapped = ours.cast_mut().cast();
        }
    }
}

/// The function in the place of a foreign `tp_call`.
fn call_in_place_of(own: usize) -> Option<*const ()> {
    if !is_foreign(own) {
        return None;
    }
    let (number, hooks) = (CALLS.number(own)?, HOOKS.get()?);
    Some(hooks.instances.calls[number / IN_ROW][number % IN_ROW] as *const ())
}

/// # Safety
/// Called by CPython by the vectorcall convention, with an object that was routed here.
unsafe extern "C-unwind" fn vectorcall<W: NativeCalls, const NUMBER: usize>(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: by the caller.
    unsafe { by_vectorcall::<W>(callable, args, nargsf, kwnames, NUMBER) }
}

/// # Safety
/// The same, with the number of the original.
#[inline(never)]
unsafe extern "C-unwind" fn by_vectorcall<W: NativeCalls>(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
    number: usize,
) -> *mut PyObject {
    // SAFETY: by the caller; the original is of this type.
    unsafe {
        let own = VECTORCALLS.0[number].load(Ordering::Relaxed);
        let own = typed::<Vectorcall>(own as *const ());
        around::<W>(callable, ptr::null_mut(), || own(callable, args, nargsf, kwnames))
    }
}

/// # Safety
/// Called by CPython as the `tp_call` of a class that was routed here.
unsafe extern "C-unwind" fn call<W: NativeCalls, const NUMBER: usize>(
    callable: *mut PyObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: by the caller.
    unsafe { by_call::<W>(callable, args, kwargs, NUMBER) }
}

/// # Safety
/// The same, with the number of the original.
#[inline(never)]
unsafe extern "C-unwind" fn by_call<W: NativeCalls>(
    callable: *mut PyObject,
    args: *mut PyObject,
    kwargs: *mut PyObject,
    number: usize,
) -> *mut PyObject {
    // SAFETY: by the caller; the original is of this type.
    unsafe {
        let own = typed::<WithKeywords>(CALLS.0[number].load(Ordering::Relaxed) as *const ());
        around::<W>(callable, ptr::null_mut(), || own(callable, args, kwargs))
    }
}
