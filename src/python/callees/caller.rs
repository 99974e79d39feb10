//! The caller of a call, as hosts are told it: the name of the module, and of the code in it.
//!
//! The text is made of two strings that live as long as the code does; a text made of the same two
//! objects before is used again. Each thread remembers a few.

use std::cell::RefCell;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::native::asking;
use crate::python::callees::distributions;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::once::intern;
use crate::python::cpython::{ffi as raw, frames};
use crate::python::frames::stack;

const PLACES: usize = 256;
/// The length up to which a name is remembered: guarded code may have names of any length.
const LONGEST: usize = 200;

struct Joined {
    module: Py<PyString>,
    own: Py<PyString>,
    whole: Py<PyString>,
}

thread_local! {
    static JOINED: RefCell<Vec<Option<Joined>>> = const { RefCell::new(Vec::new()) };
}

/// Names the code that makes a call.
pub fn name<'py>(code: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let py = code.py();
    let globals = frames::current_globals(py);
    let module = globals.as_ref().and_then(stack::module_name);
    let module = module.unwrap_or_else(|| intern!(py, "None").clone());
    let own = stack::own_name(code)?;
    let Ok(own) = own.cast_exact::<PyString>() else {
        return raw::dotted(&module, &own);
    };
    if !module.is_exact_instance_of::<PyString>() {
        return raw::dotted(&module, own);
    }
    let place = (own.as_ptr() as usize >> 4) % PLACES;
    let known = JOINED.with_borrow(|joined| {
        let known = joined.get(place)?.as_ref()?;
        let is_it = known.own.is(own) && known.module.is(&module);
        is_it.then(|| known.whole.bind(py).clone())
    });
    if let Some(whole) = known {
        return Ok(whole);
    }
    let whole = raw::dotted(&module, own)?;
    if whole.size()? <= LONGEST {
        let made = Joined {
            module: module.unbind(),
            own: own.clone().unbind(),
            whole: whole.clone().unbind(),
        };
        let before = JOINED.with_borrow_mut(|joined| {
            if joined.is_empty() {
                joined.resize_with(PLACES, || None);
            }
            joined.get_mut(place).and_then(|known| known.replace(made))
        });
        drop(before);
    }
    Ok(whole)
}

// The library of native code that acts, noted while its act is judged.

/// The library of native code that acts.
#[derive(Default)]
pub enum Caller {
    #[default]
    Nobody,
    /// The innermost one on this thread's stack: it is looked for once somebody asks.
    OnStack,
    /// This file, as it acted on another thread, or before.
    Was(PathBuf),
}

thread_local! {
    static CALLER: RefCell<Caller> = const { RefCell::new(Caller::Nobody) };
}

pub fn replace(library: Caller) -> Caller {
    let before = CALLER.try_with(|caller| caller.replace(library));
    before.unwrap_or_default()
}

/// A library, and the package that installed it by the name that one imports.
pub struct Library {
    pub file: String,
    pub package: Option<String>,
}

/// `None` for Python's own.
pub fn now() -> Option<Library> {
    let file = CALLER.with_borrow(|caller| match caller {
        Caller::Nobody => None,
        Caller::OnStack => asking::library(),
        Caller::Was(file) => Some(file.clone()),
    })?;
    let module = distributions::module_of_file(&file);
    let package =
        module.map(|module| distributions::installed().found().package_of(&module).to_owned());
    Some(Library { package, file: file.to_string_lossy().into_owned() })
}
