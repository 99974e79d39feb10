//! Notes on code objects: small numbers that go when the code does, and keep none alive. Each kind of
//! note has bits of its own.

use std::ffi::c_void;
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;

/// The place for our notes, as CPython numbered it; `None` if it has no more.
static PLACE: OnceLock<Option<ffi::Py_ssize_t>> = OnceLock::new();

/// Called by CPython with the note of code that is freed: there is nothing to free.
unsafe extern "C" fn forget(_note: *mut c_void) {}

fn place() -> Option<ffi::Py_ssize_t> {
    *PLACE.get_or_init(|| {
        // SAFETY: callers are attached, as they have an object; the function takes all that it is
        // given, and lives for ever.
        let place = unsafe { ffi::PyUnstable_Eval_RequestCodeExtraIndex(forget) };
        (place >= 0).then_some(place)
    })
}

/// A kind of note: the bits that it takes.
#[derive(Clone, Copy)]
pub struct Kind {
    shift: u32,
    mask: usize,
}

/// Tells whose file the code is from.
pub const ORIGIN: Kind = Kind { shift: 0, mask: 3 };

/// Tells of which guard's code it is.
pub const GUEST: Kind = Kind {
    shift: 2,
    mask: 0xff,
};

/// The note of a kind on some code; 0 if there is none.
pub fn get(code: &Bound<'_, PyAny>, kind: Kind) -> usize {
    (all(code) >> kind.shift) & kind.mask
}

/// Notes a number on some code. Without memory for it there is no note.
pub fn set(code: &Bound<'_, PyAny>, kind: Kind, note: usize) {
    let others = all(code) & !(kind.mask << kind.shift);
    set_all(code, others | (note & kind.mask) << kind.shift);
}

/// All notes on some code.
fn all(code: &Bound<'_, PyAny>) -> usize {
    let Some(place) = place() else {
        return 0;
    };
    let mut note = std::ptr::null_mut();
    // SAFETY: CPython looks whether the object is code, and writes to `note` only; notes are our
    // own numbers, which nobody follows as addresses.
    let result = unsafe { ffi::PyUnstable_Code_GetExtra(code.as_ptr(), place, &raw mut note) };
    if result != 0 {
        drop(PyErr::take(code.py()));
        return 0;
    }
    note as usize
}

fn set_all(code: &Bound<'_, PyAny>, note: usize) {
    let Some(place) = place() else {
        return;
    };
    let note = std::ptr::without_provenance_mut(note);
    // SAFETY: CPython looks whether the object is code; the number is never followed as an address.
    if unsafe { ffi::PyUnstable_Code_SetExtra(code.as_ptr(), place, note) } != 0 {
        drop(PyErr::take(code.py()));
    }
}
