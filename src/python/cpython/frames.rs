//! Frames, tracebacks and functions, read without the audit events that reading their attributes
//! raises.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use ahash::AHashMap;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{
    PyDict, PyFrame, PyFrameMethods, PyTraceback, PyTuple, PyWeakrefMethods, PyWeakrefReference,
};

#[cfg(not(Py_3_11))]
use crate::python::cpython::calling::Calling;
#[cfg(not(Py_3_11))]
use crate::python::cpython::once::intern;
use crate::python::cpython::once::lock;

/// Returns the frame of the innermost Python code; `None` if there is none.
pub fn current_frame(py: Python<'_>) -> Option<Bound<'_, PyFrame>> {
    // SAFETY: the result is a frame that is borrowed from the running interpreter frame, or null.
    unsafe {
        let frame = Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast());
        frame.map(|frame| frame.cast_into_unchecked())
    }
}

/// The globals of the innermost Python code.
pub fn current_globals(py: Python<'_>) -> Option<Bound<'_, PyDict>> {
    // SAFETY: the result is borrowed from the running frame, or null.
    let globals = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetGlobals()) };
    globals.and_then(|globals| globals.cast_into().ok())
}

pub fn code<'py>(frame: &Bound<'py, PyFrame>) -> Bound<'py, PyAny> {
    PyFrameMethods::code(frame).into_any()
}

pub fn is_code(object: &Bound<'_, PyAny>) -> bool {
    object.get_type_ptr() == &raw mut ffi::PyCode_Type
}

/// The frame that called this one's code.
pub fn outer<'py>(frame: &Bound<'py, PyFrame>) -> Option<Bound<'py, PyFrame>> {
    PyFrameMethods::outer(frame)
}

/// The offset of the instruction that a frame is at, in bytes; `None` before its first.
#[cfg(Py_3_11)]
pub fn last_instruction(frame: &Bound<'_, PyFrame>) -> Option<usize> {
    // SAFETY: the object is a frame.
    let offset = unsafe { PyFrame_GetLasti(frame.as_ptr().cast()) };
    usize::try_from(offset).ok()
}

/// The same, on a Python without this function.
#[cfg(not(Py_3_11))]
pub fn last_instruction(frame: &Bound<'_, PyFrame>) -> Option<usize> {
    let offset = frame.attr(intern!(frame.py(), "f_lasti")).ok()?;
    usize::try_from(crate::python::cpython::ffi::int_value(&offset)?).ok()
}

#[cfg(Py_3_11)]
unsafe extern "C" {
    /// <https://docs.python.org/3/c-api/frame.html#c.PyFrame_GetLasti>
    fn PyFrame_GetLasti(frame: *mut ffi::PyFrameObject) -> c_int;
}

/// Returns the line of an instruction of some code; the code's first line without an instruction.
pub fn line(code: &Bound<'_, PyAny>, instruction: Option<usize>) -> c_int {
    let offset = instruction.map_or(-1, |offset| c_int::try_from(offset).unwrap_or(-1));
    // SAFETY: callers give the code of a frame; its table of lines is read within its bounds.
    unsafe { ffi::PyCode_Addr2Line(code.as_ptr().cast(), offset) }
}

/// The frame of a traceback's entry.
pub fn traceback_frame<'py>(entry: &Bound<'py, PyTraceback>) -> Bound<'py, PyFrame> {
    // SAFETY: the object is a traceback, whose frame is set when it is made and never changed.
    unsafe {
        let entry_ptr = entry.as_ptr().cast::<ffi::PyTracebackObject>();
        let frame = Bound::from_borrowed_ptr(entry.py(), (*entry_ptr).tb_frame.cast());
        frame.cast_into_unchecked()
    }
}

/// The parts of a function made by Python code.
enum Part {
    Code,
    Globals,
    Defaults,
}

/// A part of a function; `None` if the object is not made by Python code, or has no such part.
fn part<'py>(function: &Bound<'py, PyAny>, part: Part) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the object is looked at first; the result is borrowed from it, or null.
    unsafe {
        let object = function.as_ptr();
        let part = match part {
            _ if ffi::PyFunction_Check(object) == 0 => return None,
            Part::Code => ffi::PyFunction_GetCode(object),
            Part::Globals => ffi::PyFunction_GetGlobals(object),
            Part::Defaults => ffi::PyFunction_GetDefaults(object),
        };
        Bound::from_borrowed_ptr_or_opt(function.py(), part)
    }
}

/// The code of a function made by Python code, any other object as it is. Reading `__code__` would
/// raise an audit event.
pub fn function_code<'py>(function: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    part(function, Part::Code).unwrap_or_else(|| function.clone())
}

/// The globals of a function, if it is one made by Python code.
pub fn function_globals<'py>(function: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    part(function, Part::Globals)?.cast_into().ok()
}

/// Returns the number of defaults that a function made by Python code has for positional arguments.
pub fn function_defaults(function: &Bound<'_, PyAny>) -> usize {
    let defaults = part(function, Part::Defaults);
    let defaults = defaults.and_then(|defaults| defaults.cast_into::<PyTuple>().ok());
    defaults.map_or(0, |defaults| defaults.len())
}

// Notes on code objects: small numbers that go when the code does, and keep none alive. Each kind of
// note has bits of its own.
//
// They are kept by the address of the code, with a weak reference that tells whether the code there is
// still the same. The place that CPython has for such (`co_extra`) will not do: for code that has any,
// CPython calls the free functions of all who asked for a place, also those that are gone by then.

/// A kind of note: the bits that it takes.
#[derive(Clone, Copy)]
pub struct NoteKind {
    shift: u32,
    mask: usize,
}

/// Tells whose file the code is from.
pub const ORIGIN: NoteKind = NoteKind { shift: 0, mask: 3 };

/// Tells of which guard's code it is.
pub const GUEST: NoteKind = NoteKind { shift: 2, mask: 0xff };

struct Noted {
    code: Py<PyWeakrefReference>,
    notes: usize,
}

/// By address. Who has it locked does not ask a reference for its code, which may wait.
static NOTED: LazyLock<Mutex<AHashMap<usize, Noted>>> = LazyLock::new(Mutex::default);

/// The number of them at which those of code that is gone are forgotten, 1,024 at least.
static MOST: AtomicUsize = AtomicUsize::new(1024);

fn noted<'py>(py: Python<'py>, address: usize) -> Option<(Bound<'py, PyWeakrefReference>, usize)> {
    let all = lock(&NOTED);
    all.get(&address).map(|noted| (noted.code.bind(py).clone(), noted.notes))
}

/// Returns whether a note is one on this code, which is not gone.
fn is_on(reference: &Bound<'_, PyWeakrefReference>, code: &Bound<'_, PyAny>) -> bool {
    reference.upgrade().is_some_and(|noted| noted.is(code))
}

pub fn get(code: &Bound<'_, PyAny>, kind: NoteKind) -> usize {
    match noted(code.py(), code.as_ptr() as usize) {
        Some((reference, notes)) if is_on(&reference, code) => (notes >> kind.shift) & kind.mask,
        _ => 0,
    }
}

/// Notes a number on some code. Without memory for it there is no note.
pub fn set(code: &Bound<'_, PyAny>, kind: NoteKind, note: usize) {
    let (py, address) = (code.py(), code.as_ptr() as usize);
    let Ok(reference) = PyWeakrefReference::new(code) else {
        return;
    };
    let note = (note & kind.mask) << kind.shift;
    loop {
        let before = noted(py, address);
        let others = match &before {
            Some((known, notes)) if is_on(known, code) => notes & !(kind.mask << kind.shift),
            _ => 0,
        };
        let before_it = before.as_ref().map(|(known, notes)| (known.as_ptr(), *notes));
        let new = Noted { code: reference.clone().unbind(), notes: others | note };
        let mut all = lock(&NOTED);
        let now = all.get(&address).map(|noted| (noted.code.as_ptr(), noted.notes));
        if now == before_it {
            let (gone, is_full) =
                (all.insert(address, new), all.len() > MOST.load(Ordering::Relaxed));
            drop(all);
            drop(gone);
            if is_full {
                forget_gone(py);
            }
            return;
        }
        // Another thread was faster.
        drop(all);
    }
}

#[cold]
fn forget_gone(py: Python<'_>) {
    let references: Vec<_> = {
        let all = lock(&NOTED);
        all.iter().map(|(address, noted)| (*address, noted.code.bind(py).clone())).collect()
    };
    let mut gone = Vec::new();
    for (address, reference) in references {
        if reference.upgrade().is_none() {
            let mut all = lock(&NOTED);
            if all.get(&address).is_some_and(|noted| noted.code.is(&reference)) {
                gone.extend(all.remove(&address));
            }
        }
    }
    MOST.store((2 * lock(&NOTED).len()).max(1024), Ordering::Relaxed);
}
