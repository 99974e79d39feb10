//! Python frames: the one that a host callback gets, and the names of callers.

use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyBytes, PyDict, PyFrame, PyModule, PyString, PyTuple};

use crate::python::cpython::calling::Calling;
use crate::python::cpython::objects::plain_str;
use crate::python::cpython::once::intern;
use crate::python::cpython::{ffi as raw, frames};

/// This package, whose own native functions raise events of their own.
pub const PACKAGE: &str = "fastaudit_rs";

/// The innermost frame that is not of this package.
pub fn first_foreign(py: Python<'_>) -> PyResult<Option<Bound<'_, PyFrame>>> {
    for frame in frames(py) {
        if !is_of_this_package(&frame)? {
            return Ok(Some(frame));
        }
    }
    Ok(None)
}

/// The frames of this thread, the innermost first.
pub fn frames(py: Python<'_>) -> impl Iterator<Item = Bound<'_, PyFrame>> {
    from(frames::current_frame(py))
}

/// A frame and those that called it.
pub fn from(mut frame: Option<Bound<'_, PyFrame>>) -> impl Iterator<Item = Bound<'_, PyFrame>> {
    // No frame object is made before it is asked for.
    let mut is_first = true;
    std::iter::from_fn(move || {
        if !std::mem::take(&mut is_first) {
            frame = frames::outer(frame.as_ref()?);
        }
        frame.clone()
    })
}

/// The functions that led to this frame, the outermost first, and its own.
pub fn chain_to(frame: &Bound<'_, PyFrame>) -> PyResult<Vec<String>> {
    names(frame.py(), &foreign_sites_of(Some(frame.clone()))?)
}

/// A function that led to an operation: the objects that name it.
pub struct Site {
    code: Py<PyAny>,
    module: Option<Py<PyString>>,
}

/// Most stacks are no deeper than this.
const USUAL_DEPTH: usize = 32;

/// The functions that led to the running code, the innermost first, to be named when somebody asks.
/// Keeps no frame alive.
pub fn sites(py: Python<'_>) -> PyResult<Vec<Site>> {
    foreign_sites_of(frames::current_frame(py))
}

/// The frames that are not of this package.
fn foreign_sites_of(frame: Option<Bound<'_, PyFrame>>) -> PyResult<Vec<Site>> {
    let Some(py) = frame.as_ref().map(Bound::py) else {
        return Ok(Vec::new());
    };
    let mut sites = sites_of(frame)?;
    sites.retain(|site| !is_ours(site.module(py)));
    Ok(sites)
}

/// The functions that led to this frame, the innermost first, and its own.
pub fn sites_of(frame: Option<Bound<'_, PyFrame>>) -> PyResult<Vec<Site>> {
    let mut sites = Vec::with_capacity(USUAL_DEPTH);
    for frame in from(frame) {
        sites.push(site(&frame)?);
    }
    Ok(sites)
}

/// The names of such functions, the outermost first.
pub fn names(py: Python<'_>, sites: &[Site]) -> PyResult<Vec<String>> {
    sites.iter().rev().map(|site| site.name(py)).collect()
}

pub fn site(frame: &Bound<'_, PyFrame>) -> PyResult<Site> {
    let module = globals(frame)?.as_ref().and_then(module_name);
    Ok(Site { code: frames::code(frame).unbind(), module: module.map(Bound::unbind) })
}

impl Site {
    pub fn code<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.code.bind(py)
    }

    /// The name of its module; empty if it has none, or none that is UTF-8.
    pub fn module<'a>(&'a self, py: Python<'a>) -> &'a str {
        let module = self.module.as_ref().map(|module| module.bind(py).to_str());
        module.and_then(Result::ok).unwrap_or_default()
    }

    /// `module.function`.
    pub fn name(&self, py: Python<'_>) -> PyResult<String> {
        let module = self.module.as_ref().map(|module| module.bind(py).to_string_lossy());
        let own = own_name(self.code.bind(py))?;
        let own = own.cast::<PyString>()?.to_string_lossy();
        Ok(format!("{}.{own}", module.unwrap_or("None".into())))
    }
}

/// The name of code, as data: `==` of a subclass is not asked.
pub fn code_name<'py>(code: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    Ok(code.attr(intern!(code.py(), "co_name"))?.cast_into()?)
}

/// The file that code says it is from.
pub fn code_file<'py>(code: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    Ok(code.attr(intern!(code.py(), "co_filename"))?.cast_into()?)
}

/// The qualified name of code; its name if it has no other.
pub fn own_name<'py>(code: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = code.py();
    // It came with 3.11.
    match code.attr_opt(intern!(py, "co_qualname"))? {
        Some(own) => Ok(own),
        None => code.attr(intern!(py, "co_name")),
    }
}

pub fn is_of_this_package(frame: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module = globals(frame)?.as_ref().and_then(module_name);
    Ok(module.is_some_and(|module| module.to_str().is_ok_and(is_ours)))
}

fn is_ours(module: &str) -> bool {
    module.split('.').next() == Some(PACKAGE)
}

/// The globals of a frame's code; `None` if other code put something else in their place.
pub fn globals<'py>(frame: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    let globals = frame.attr(intern!(frame.py(), "f_globals"))?;
    Ok(globals.cast_into().ok())
}

/// The `__name__` of a module, from its globals.
pub fn module_name<'py>(globals: &Bound<'py, PyDict>) -> Option<Bound<'py, PyString>> {
    // A look-up would compare keys that are no texts, or of a subclass, by their own methods. It is
    // the first one, usually.
    let find = || globals.iter().find(|(key, _)| is_its_name(key));
    let (_, name) = with_critical_section(globals.as_any(), find)?;
    plain_str(name.cast_into().ok()?).ok()
}

fn is_its_name(key: &Bound<'_, PyAny>) -> bool {
    let key = key.cast_exact::<PyString>();
    key.is_ok_and(|key| key.is(intern!(key.py(), "__name__")) || key == "__name__")
}

/// Returns whether the innermost Python code is that of the module that it names itself after.
pub fn is_of_its_module(py: Python<'_>) -> PyResult<bool> {
    match frames::current_globals(py) {
        Some(globals) => are_of_their_module(&globals),
        None => Ok(false),
    }
}

/// Returns whether these globals are those of the module that they name themselves after.
pub fn are_of_their_module(globals: &Bound<'_, PyDict>) -> PyResult<bool> {
    let Some(name) = module_name(globals) else {
        return Ok(false);
    };
    let module = raw::imported_module(globals.py(), &name)?;
    let module = module.and_then(|module| module.cast_into::<PyModule>().ok());
    Ok(module.is_some_and(|module| module.dict().is(globals)))
}

// The effect of assigning a function's `__code__`.

/// `CO_ITERABLE_COROUTINE` of `cpython/code.h`: a generator that may be awaited.
const ITERABLE_COROUTINE: i64 = 0x100;

/// The attributes that say how a code object acts and what it is called. Compared one by one, as
/// comparing code objects compares constants by their classes' `==`.
const ATTRIBUTES: &[&str] = &[
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_stacksize",
    "co_code",
    "co_consts",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_filename",
    "co_name",
    "co_firstlineno",
    // Part of the code itself before.
    #[cfg(Py_3_11)]
    "co_exceptiontable",
];

/// Returns whether the assignment only marks a generator function as awaitable, as
/// `types.coroutine` does: `import asyncio` needs this.
pub fn only_marks_awaitable(function: &Bound<'_, PyAny>, new: &Bound<'_, PyAny>) -> bool {
    if !raw::is_python_function(function) {
        return false;
    }
    let flags = |code: &Bound<'_, PyAny>| raw::int_value(&code.attr("co_flags").ok()?);
    let old = frames::function_code(function);
    frames::is_code(new)
        && matches!((flags(&old), flags(new)), (Some(old), Some(new)) if old | ITERABLE_COROUTINE == new && old != new)
        && ATTRIBUTES.iter().all(|name| {
            matches!((old.attr(*name), new.attr(*name)), (Ok(old), Ok(new)) if is_same(&old, &new))
        })
}

/// Returns whether two values are one object or equal plain data.
fn is_same(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> bool {
    if a.is(b) {
        return true;
    }
    if let (Ok(a), Ok(b)) = (a.cast_exact::<PyTuple>(), b.cast_exact::<PyTuple>()) {
        return a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| is_same(&a, &b));
    }
    if let (Ok(a), Ok(b)) = (a.cast_exact::<PyBytes>(), b.cast_exact::<PyBytes>()) {
        return a.as_bytes() == b.as_bytes();
    }
    if let (Ok(a), Ok(b)) = (a.cast_exact::<PyString>(), b.cast_exact::<PyString>()) {
        return a.to_string_lossy() == b.to_string_lossy();
    }
    matches!((raw::int_value(a), raw::int_value(b)), (Some(a), Some(b)) if a == b)
}
