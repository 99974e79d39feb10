//! Calls with unpacked arguments, `f(*x)`, that a callback of `sys.monitoring` denies.
//!
//! CPython 3.12 and 3.13 (`CALL_FUNCTION_EX` in `Python/bytecodes.c`) make a tuple of what is
//! unpacked, give up their reference to the former, and call the callback with the former still on
//! the frame's stack. If the callback raises, the stack is cleared, which gives up that reference
//! again: a list that the code still has is freed, and the process crashes later. 3.14 does not.
//! The tuple is never freed in either case.

use std::ffi::{c_char, c_int};
use std::{mem, ptr};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::frames;
use crate::python::cpython::once::{Once, intern};

/// `_PyInterpreterFrame` in `internal/pycore_frame.h`.
#[repr(C)]
struct InterpreterFrame {
    objects: [*mut PyObject; 8],
    stacktop: c_int,
    return_offset: u16,
    owner: c_char,
    /// The variables, and the stack behind them.
    slots: [*mut PyObject; 0],
}

/// The start of `PyFrameObject`.
#[repr(C)]
struct FrameObject {
    base: PyObject,
    back: *mut PyObject,
    frame: *mut InterpreterFrame,
}

/// The start of `PyTupleObject`, with its first item.
#[repr(C)]
struct Tuple {
    base: ffi::PyVarObject,
    first: *mut PyObject,
}

static OPCODE: Once<u8> = Once::new();

pub fn prepare(py: Python<'_>) -> PyResult<()> {
    OPCODE
        .get_or_try_init(py, || {
            let opcodes = calling::import(py, "opcode")?.attr("opmap")?;
            let opcode = opcodes.invoke_method1("__getitem__", ("CALL_FUNCTION_EX",))?;
            opcode.extract()
        })
        .map(|_| ())
}

/// Takes what was unpacked from the stack of the innermost frame, if its instruction at `offset`
/// unpacks arguments for `callee`. To be called before the callback of that event raises; `first` is
/// the argument that it was told of.
#[cold]
pub fn forget(
    code: &Bound<'_, PyAny>,
    offset: &Bound<'_, PyAny>,
    callee: &Bound<'_, PyAny>,
    first: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = code.py();
    let instructions = code.attr(intern!(py, "co_code"))?;
    let instruction = instructions.cast::<PyBytes>()?.as_bytes().get(offset.extract::<usize>()?);
    if instruction != OPCODE.get(py) {
        return Ok(());
    }
    let Some(frame) = frames::current_frame(py) else {
        return Ok(());
    };
    if !frames::code(&frame).is(code) {
        return Ok(());
    }
    let variables = variables(code)?;
    let stack = code.attr(intern!(py, "co_stacksize"))?.extract::<usize>()?;
    // SAFETY: a frame object has an interpreter frame, which is that of the running code, with the
    // layout that these versions have. Its slots are those of the variables and the stack.
    let slots = unsafe {
        let frame = (*frame.as_ptr().cast::<FrameObject>()).frame;
        let slots = (&raw mut (*frame).slots).cast::<*mut PyObject>();
        std::slice::from_raw_parts_mut(slots.add(variables), stack)
    };
    // The callee has a null before it or behind it. Two places may look the same: one above the top
    // of the stack, which nobody reads, and a call of the same callee whose arguments are not
    // complete, of which one is then never freed.
    let callee = callee.as_ptr();
    for at in 2..slots.len() {
        let pair = [slots[at - 2], slots[at - 1]];
        let is_callee = pair.contains(&callee) && pair.contains(&ptr::null_mut());
        if is_callee && slots[at] != callee && !is_tuple_of(slots[at] as usize, first) {
            slots[at] = ptr::null_mut();
        }
    }
    Ok(())
}

/// The number of slots of a code's variables.
fn variables(code: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = code.py();
    let own = code.attr(intern!(py, "co_varnames"))?.cast_into::<PyTuple>()?;
    let cells = code.attr(intern!(py, "co_cellvars"))?.cast_into::<PyTuple>()?;
    let free = code.attr(intern!(py, "co_freevars"))?.cast_into::<PyTuple>()?;
    let mut count = own.len() + free.len();
    for cell in cells {
        // An argument that is a cell has one slot.
        count += usize::from(!own.iter().any(|name| name.is(&cell)));
    }
    Ok(count)
}

/// Returns whether at an address is a tuple whose first item is this. An object there may be freed
/// already: the memory is read by a system call, which fails where there is none.
fn is_tuple_of(address: usize, first: &Bound<'_, PyAny>) -> bool {
    let mut found = mem::MaybeUninit::<Tuple>::zeroed();
    let into = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: size_of::<Tuple>() };
    let from =
        libc::iovec { iov_base: ptr::without_provenance_mut(address), iov_len: size_of::<Tuple>() };
    // SAFETY: it writes to `found`, as much as that holds.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const into, 1, &raw const from, 1, 0)
    };
    if usize::try_from(read) != Ok(size_of::<Tuple>()) {
        return false;
    }
    // SAFETY: any bits are valid for its fields.
    let found = unsafe { found.assume_init() };
    found.base.ob_base.ob_type == &raw mut ffi::PyTuple_Type
        && found.base.ob_size > 0
        && found.first == first.as_ptr()
}
