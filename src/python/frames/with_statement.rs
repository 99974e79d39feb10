//! Tells whether a frame enters a context manager by a `with` statement, and leaves it where the
//! statement ends: its own instructions say so.
//!
//! The innermost frame may be that of the statement also when one of its guards runs, or native
//! code calls back: as an object goes away, by a trace function or a signal handler. The
//! instruction is then one in the body of the statement.

use std::sync::Mutex;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFrame};

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::frames;
use crate::python::cpython::once::{Once, intern, lock};

/// The instructions that call `__enter__` or `__aenter__`, up to 3.13.
const ENTERING: &[&str] = &["SETUP_WITH", "BEFORE_WITH", "BEFORE_ASYNC_WITH"];
/// Since then it is a call of the object that this one looked up.
const LOOKING_UP: &str = "LOAD_SPECIAL";
/// The instruction that calls `__exit__` or `__aexit__` after the body raised an exception.
const LEAVING_BY_EXCEPTION: &str = "WITH_EXCEPT_START";

struct Opcodes {
    entering: Vec<u8>,
    looking_up: Option<u8>,
    leaving_by_exception: u8,
    #[cfg(not(Py_3_11))]
    blocks: blocks::Opcodes,
}

static OPCODES: Once<Opcodes> = Once::new();

/// Reads the numbers of the instructions, before anybody may change them.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    OPCODES.get_or_try_init(py, || {
        let opmap = calling::import(py, "opcode")?.attr("opmap")?;
        #[cfg(not(Py_3_11))]
        let blocks = blocks::Opcodes::read(&opmap)?;
        let number = |name: &str| match opmap.item(name) {
            // Opcodes that only the compiler uses are larger, and in no code.
            Ok(number) => Ok(number.extract::<u32>().map(u8::try_from)?.ok()),
            Err(error) if error.is_instance_of::<PyKeyError>(py) => Ok(None),
            Err(error) => Err(error),
        };
        let mut entering = Vec::new();
        for name in ENTERING {
            entering.extend(number(name)?);
        }
        Ok::<_, PyErr>(Opcodes {
            entering,
            looking_up: number(LOOKING_UP)?,
            leaving_by_exception: number(LEAVING_BY_EXCEPTION)?.unwrap_or(0),
            #[cfg(not(Py_3_11))]
            blocks,
        })
    })?;
    // Its objects are made now: later there may be no memory.
    WithPlace::here(py);
    Ok(())
}

/// An instruction at which a statement was found to end, or a place that no `with` statement
/// entered.
struct Known {
    code: Py<PyAny>,
    from: usize,
    to: usize,
}

/// The latest ones: a statement in a loop is not looked at again.
static KNOWN: Mutex<[Option<Known>; 4]> = Mutex::new([const { None }; 4]);

/// The most blocks inside each other that CPython compiles; a handler may have one of its own.
#[cfg(Py_3_11)]
const MOST_BLOCKS: usize = 2 * 20;

#[cfg(Py_3_11)]
struct Handled {
    start: usize,
    end: usize,
    handler: usize,
}

/// The parts of code that have handlers:
/// <https://github.com/python/cpython/blob/3.13/InternalDocs/exception_handling.md>.
#[cfg(Py_3_11)]
fn handled(table: &[u8]) -> impl Iterator<Item = Handled> {
    let mut bytes = table.iter();
    // Six bits in each byte, and one that says whether more follow.
    let mut number = move || {
        let mut value = 0;
        loop {
            let byte = usize::from(*bytes.next()?);
            value = (value << 6) | (byte & 0x3f);
            if byte & 0x40 == 0 {
                return Some(value);
            }
        }
    };
    std::iter::from_fn(move || {
        // In units of two bytes; the last is the depth of the stack.
        let [start, size, handler, _] = [number()?, number()?, number()?, number()?];
        Some(Handled { start: start * 2, end: (start + size) * 2, handler: handler * 2 })
    })
}

/// Blocks of instructions, which code before 3.11 sets up itself.
#[cfg(not(Py_3_11))]
mod blocks {
    use pyo3::prelude::*;

    use crate::python::cpython::calling::Calling;

    pub struct Opcodes {
        setting_up: [u8; 2],
        extended: u8,
        duplicating: u8,
        calling: u8,
    }

    impl Opcodes {
        pub fn read(opmap: &Bound<'_, PyAny>) -> PyResult<Self> {
            let number = |name: &str| opmap.item(name)?.extract::<u8>();
            Ok(Self {
                setting_up: [number("SETUP_WITH")?, number("SETUP_ASYNC_WITH")?],
                extended: number("EXTENDED_ARG")?,
                duplicating: number("DUP_TOP")?,
                calling: number("CALL_FUNCTION")?,
            })
        }

        /// The target of an exception that is set at or after an instruction.
        pub fn handler(&self, code: &[u8], from: usize) -> Option<usize> {
            let mut instructions = (from..code.len()).step_by(2);
            let at = instructions.find(|at| self.setting_up.contains(&code[*at]))?;
            let mut argument = usize::from(*code.get(at + 1)?);
            let (mut before, mut shift) = (at, 8);
            while before >= 2 && code[before - 2] == self.extended {
                before -= 2;
                argument |= usize::from(code[before + 1]) << shift;
                shift += 8;
            }
            Some(at + 2 + 2 * argument)
        }

        /// Returns whether an instruction calls with `None` three times, as the end of a `with`
        /// statement does and nothing else.
        pub fn calls_with_nones(&self, code: &[u8], at: usize) -> bool {
            let same = [self.duplicating, 0, self.duplicating, 0, self.calling, 3];
            at >= 4
                && code.get(at - 4..at + 2).is_some_and(|own| {
                    own[0] == same[0] && own[2] == same[2] && own[4..] == same[4..]
                })
        }
    }
}

pub struct WithPlace {
    frame: Py<PyFrame>,
    instruction: usize,
}

impl WithPlace {
    /// The position of the innermost Python code; `None` if there is no Python code.
    pub fn here(py: Python<'_>) -> Option<Self> {
        let frame = frames::current_frame(py)?;
        Some(Self { instruction: frames::last_instruction(&frame)?, frame: frame.unbind() })
    }

    /// Returns whether the running code may leave the guard that was entered here: if a `with`
    /// statement entered it, the end of the statement alone.
    pub fn may_be_left_here(&self, py: Python<'_>) -> PyResult<bool> {
        let frame = frames::current_frame(py).filter(|frame| frame.is(&self.frame));
        let Some(frame) = frame else {
            return Ok(!self.is_with_statement(py)?);
        };
        let Some(at) = frames::last_instruction(&frame) else {
            return Ok(true);
        };
        let code = frames::code(&frame);
        let is_known = |known: &Known| known.code.is(&code) && known.from == self.instruction;
        let known = lock(&KNOWN);
        let found = known.iter().flatten().find(|known| is_known(known));
        if found.is_some_and(|known| known.to == at) {
            return Ok(true);
        }
        drop(known);
        let Some(opcodes) = OPCODES.get(py) else {
            return Ok(true);
        };
        let may = !self.is_with_statement(py)? || self.is_left_at(opcodes, &code, at)?;
        if may {
            let mut known = lock(&KNOWN);
            known.rotate_right(1);
            let last =
                known[0].replace(Known { code: code.unbind(), from: self.instruction, to: at });
            drop(known);
            drop(last);
        }
        Ok(may)
    }

    /// Returns whether an instruction is not in the body of the `with` statement that begins here.
    /// An exception in the body comes to the handler of this statement.
    #[cfg(Py_3_11)]
    fn is_left_at(&self, opcodes: &Opcodes, code: &Bound<'_, PyAny>, at: usize) -> PyResult<bool> {
        let py = code.py();
        let table = code.attr(intern!(py, "co_exceptiontable"))?;
        let table = table.cast_into::<PyBytes>()?;
        let code = code.attr(intern!(py, "co_code"))?;
        let code = code.cast_into::<PyBytes>()?;
        let begins_handler = |target: usize| {
            let leaving = code.as_bytes().get(target + 2);
            leaving == Some(&opcodes.leaving_by_exception)
        };
        let handler = |at: usize| {
            handled(table.as_bytes())
                .find(|part| (part.start..part.end).contains(&at))
                .map(|part| part.handler)
        };
        // That of a statement around this one also handles the wait for `__aenter__`.
        let around = handler(self.instruction);
        let own = handled(table.as_bytes())
            .filter(|part| part.start > self.instruction && begins_handler(part.handler))
            .filter(|part| Some(part.handler) != around)
            .min_by_key(|part| part.start);
        let Some(own) = own else {
            return Ok(true);
        };
        // A statement in the body has a handler of its own, which this one handles in turn.
        let mut inner = Some(at);
        for _ in 0..=MOST_BLOCKS {
            let Some(reached) = inner else {
                break;
            };
            inner = handler(reached);
            if inner == Some(own.handler) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same before 3.11.
    #[cfg(not(Py_3_11))]
    fn is_left_at(&self, opcodes: &Opcodes, code: &Bound<'_, PyAny>, at: usize) -> PyResult<bool> {
        let py = code.py();
        let code = code.attr(intern!(py, "co_code"))?;
        let code = code.cast_into::<PyBytes>()?;
        let code = code.as_bytes();
        if code.get(at) == Some(&opcodes.leaving_by_exception) {
            return Ok(opcodes.blocks.handler(code, self.instruction).is_none_or(|own| own == at));
        }
        Ok(opcodes.blocks.calls_with_nones(code, at))
    }

    pub fn is_with_statement(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(opcodes) = OPCODES.get(py) else {
            return Ok(false);
        };
        let code = frames::code(self.frame.bind(py)).attr(intern!(py, "co_code"))?;
        let code = code.cast_into::<PyBytes>()?;
        let at = |index: usize| code.as_bytes().get(index).copied();
        let calls_looked_up = || {
            let before = self.instruction.checked_sub(2).and_then(at);
            opcodes.looking_up.is_some() && before == opcodes.looking_up
        };
        let enters = at(self.instruction).is_some_and(|own| opcodes.entering.contains(&own));
        Ok(enters || calls_looked_up())
    }

    pub fn traverse(&self, visit: &pyo3::gc::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.frame)
    }
}
