//! Whether a frame enters a context manager by a `with` statement: its own instructions say so.

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

use super::raw_frames;

/// The instructions that call `__enter__` or `__aenter__`, up to 3.13.
const ENTERING: &[&str] = &["SETUP_WITH", "BEFORE_WITH", "BEFORE_ASYNC_WITH"];
/// Since then it is a call of what this one looked up.
const LOOKING_UP: &str = "LOAD_SPECIAL";

struct Opcodes {
    entering: Vec<u8>,
    looking_up: Option<u8>,
}

static OPCODES: PyOnceLock<Opcodes> = PyOnceLock::new();

/// Reads the numbers of the instructions, before anybody may change them.
///
/// # Errors
/// What importing `opcode` raises.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    OPCODES.get_or_try_init(py, || {
        let opmap = py.import("opcode")?.getattr("opmap")?;
        let number = |name: &str| match opmap.get_item(name) {
            // Those of the compiler alone are larger, and in no code.
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
        })
    })?;
    // What it takes is made now: later there may be no memory.
    Place::here(py);
    Ok(())
}

/// A place in the code of a frame.
pub struct Place {
    frame: Py<PyAny>,
    instruction: usize,
}

impl Place {
    /// Where the innermost Python code is; `None` where there is none.
    pub fn here(py: Python<'_>) -> Option<Self> {
        let frame = raw_frames::current_frame(py)?;
        Some(Self {
            instruction: raw_frames::last_instruction(&frame)?,
            frame: frame.unbind(),
        })
    }

    /// Whether the innermost Python code is that of this frame.
    pub fn is_current_frame(&self, py: Python<'_>) -> bool {
        raw_frames::current_frame(py).is_some_and(|frame| frame.is(&self.frame))
    }

    /// Whether a `with` statement is there.
    ///
    /// # Errors
    /// What reading the code raises.
    pub fn is_with_statement(&self, py: Python<'_>) -> PyResult<bool> {
        let (Some(opcodes), Ok(frame)) = (OPCODES.get(py), self.frame.bind(py).cast()) else {
            return Ok(false);
        };
        let code = raw_frames::code(frame).getattr(pyo3::intern!(py, "co_code"))?;
        let code = code.cast_into::<PyBytes>()?;
        let at = |index: usize| code.as_bytes().get(index).copied();
        let calls_looked_up = || {
            let before = self.instruction.checked_sub(2).and_then(at);
            opcodes.looking_up.is_some() && before == opcodes.looking_up
        };
        let enters = at(self.instruction).is_some_and(|own| opcodes.entering.contains(&own));
        Ok(enters || calls_looked_up())
    }

    /// Shows the garbage collector what is held.
    pub fn traverse(&self, visit: &pyo3::gc::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.frame)
    }
}
