//! Frames, tracebacks and functions, read without the audit events that reading their attributes
//! raises.

use std::ffi::c_int;
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

impl Noted {
    /// The code; `None` if it is gone.
    fn code_in<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.code.bind(py).upgrade()
    }
}

#[derive(Default)]
struct All {
    by_address: AHashMap<usize, Noted>,
    /// The number of them at which those of code that is gone are looked for.
    most: usize,
}

/// The least such number.
const MOST: usize = 1024;

/// While it is locked no object is made or freed.
static ALL: LazyLock<Mutex<All>> = LazyLock::new(Mutex::default);

pub fn get(code: &Bound<'_, PyAny>, kind: NoteKind) -> usize {
    (notes(&lock(&ALL), code) >> kind.shift) & kind.mask
}

/// Notes a number on some code. Without memory for it there is no note.
pub fn set(code: &Bound<'_, PyAny>, kind: NoteKind, note: usize) {
    let address = code.as_ptr() as usize;
    let Ok(reference) = PyWeakrefReference::new(code) else {
        return;
    };
    let mut all = lock(&ALL);
    let others = notes(&all, code) & !(kind.mask << kind.shift);
    let noted =
        Noted { code: reference.unbind(), notes: others | (note & kind.mask) << kind.shift };
    let mut gone = Vec::from_iter(all.by_address.insert(address, noted));
    if all.by_address.len() > all.most.max(MOST) {
        let is_gone = |_: &usize, noted: &mut Noted| noted.code_in(code.py()).is_none();
        gone.extend(all.by_address.extract_if(is_gone).map(|(_, noted)| noted));
        all.most = 2 * all.by_address.len();
    }
    drop(all);
    drop(gone);
}

/// All notes on some code.
fn notes(all: &All, code: &Bound<'_, PyAny>) -> usize {
    match all.by_address.get(&(code.as_ptr() as usize)) {
        Some(noted) if noted.code_in(code.py()).is_some_and(|noted| noted.is(code)) => noted.notes,
        _ => 0,
    }
}
