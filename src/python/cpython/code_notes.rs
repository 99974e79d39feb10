//! Notes on code objects: small numbers that go when the code does, and keep none alive. Each kind of
//! note has bits of its own.
//!
//! They are kept by the address of the code, with a weak reference that tells whether the code there is
//! still the same. The place that CPython has for such (`co_extra`) will not do: for code that has any,
//! CPython calls the free functions of all who asked for a place, also those that are gone by then.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use ahash::AHashMap;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

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

static ALL: LazyLock<Mutex<All>> = LazyLock::new(Mutex::default);

/// While it is locked no object is made or freed.
fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The note of a kind on some code; 0 if there is none.
pub fn get(code: &Bound<'_, PyAny>, kind: Kind) -> usize {
    (notes(&all(), code) >> kind.shift) & kind.mask
}

/// Notes a number on some code. Without memory for it there is no note.
pub fn set(code: &Bound<'_, PyAny>, kind: Kind, note: usize) {
    let address = code.as_ptr() as usize;
    let Ok(reference) = PyWeakrefReference::new(code) else {
        return;
    };
    let mut all = all();
    let others = notes(&all, code) & !(kind.mask << kind.shift);
    let noted = Noted {
        code: reference.unbind(),
        notes: others | (note & kind.mask) << kind.shift,
    };
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
