//! The handlers of `logging` that the host made: those that were there while no guard was in force.
//!
//! `logging` lists its handlers in the order in which they were made; the list is looked at when the
//! first guard is entered and when the last one has ended, and is remembered out of reach of Python
//! code.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::{
    PyDict, PyList, PyModule, PyString, PyType, PyWeakrefMethods, PyWeakrefReference,
};

use crate::python::cpython::once::{Once, intern, lock};
use crate::python::cpython::{ffi as raw, frames, objects};
use crate::python::importing::imports;

pub const MODULE: &str = "logging";

/// The attributes that say where a handler of the standard library writes or sends to.
const PLACES: &[&str] =
    &[FILE, "_builtin_open", "namer", "rotator", "host", "port", "address", "mailhost", "url"];

const FILE: &str = "baseFilename";

/// The list of weak references to handlers, once `logging` is imported.
static LIST: Once<Py<PyList>> = Once::new();

/// Its length and the address of its last item when it was looked at last.
static SEEN: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));

/// All handlers that were in the list then.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// A handler, by the weak reference to it that `logging` made.
struct Known {
    reference: Py<PyAny>,
    /// `None` for one that guarded code may have made.
    of_host: Option<Arc<OfHost>>,
}

/// A handler of the host, as it was when it was first seen.
pub struct OfHost {
    class: Py<PyType>,
    /// The code of its method `emit`.
    pub emit: Py<PyAny>,
    /// The code of all methods of its classes that are not in installed modules.
    pub methods: Vec<Py<PyAny>>,
    /// The values of `PLACES`.
    places: Vec<Option<Py<PyAny>>>,
}

/// Notes the handlers that were made since the last call: by the host, or perhaps by guarded code. Called
/// by one thread at a time.
#[inline]
pub fn take_note(py: Python<'_>, by_host: bool) {
    let Some(list) = LIST.get(py).or_else(|| find_list(py)) else {
        return;
    };
    let list = list.bind(py);
    if objects::length_and_last(list)
        != (SEEN.0.load(Ordering::Relaxed), SEEN.1.load(Ordering::Relaxed))
    {
        raw::beside_pending(py, || take_note_of_new(list, by_host));
    }
}

#[cold]
fn find_list(py: Python<'_>) -> Option<&'static Py<PyList>> {
    let module = objects::module_of_name(intern!(py, MODULE))?;
    let module = module.cast_into::<PyModule>().ok()?;
    let list = module.dict().get_item(intern!(py, "_handlerList"));
    let list = list.ok()??.cast_into_exact::<PyList>().ok()?;
    let _ = LIST.set(py, list.unbind());
    LIST.get(py)
}

#[cold]
fn take_note_of_new(list: &Bound<'_, PyList>, by_host: bool) {
    let copy = |known: &Known| Known {
        reference: known.reference.clone_ref(list.py()),
        of_host: known.of_host.clone(),
    };
    let mut before: Vec<_> = lock(&KNOWN).iter().map(copy).collect();
    let mut now = Vec::with_capacity(list.len());
    for reference in list.iter() {
        let position = before.iter().position(|known| known.reference.is(&reference));
        now.push(match position {
            Some(position) => before.swap_remove(position),
            None => Known {
                of_host: by_host.then(|| OfHost::new(&reference)).flatten().map(Arc::new),
                reference: reference.unbind(),
            },
        });
    }
    let (length, last) = objects::length_and_last(list);
    SEEN.0.store(length, Ordering::Relaxed);
    SEEN.1.store(last, Ordering::Relaxed);
    let other = std::mem::replace(&mut *lock(&KNOWN), now);
    drop((before, other));
}

fn handler<'py>(reference: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    reference.cast::<PyWeakrefReference>().ok()?.upgrade()
}

impl OfHost {
    fn new(reference: &Bound<'_, PyAny>) -> Option<Self> {
        let py = reference.py();
        let handler = handler(reference)?;
        let class = handler.get_type();
        let attributes = objects::own_attributes(&handler)?;
        let emit = raw::type_lookup(&class, intern!(py, "emit"))?;
        if !raw::is_python_function(&emit) {
            return None;
        }
        Some(Self {
            emit: frames::function_code(&emit).unbind(),
            methods: methods(&class).ok()?,
            places: places(&attributes).ok()?,
            class: class.unbind(),
        })
    }

    /// Returns whether the handler is unchanged since then.
    pub fn is_as_before(&self, handler: &Bound<'_, PyAny>) -> PyResult<bool> {
        let class = handler.get_type();
        let Some(attributes) = objects::own_attributes(handler).filter(|_| class.is(&self.class))
        else {
            return Ok(false);
        };
        let address = |place: &Option<Py<PyAny>>| place.as_ref().map(Py::as_ptr);
        let now = places(&attributes)?;
        let same = now.iter().map(address).eq(self.places.iter().map(address));
        let hides_a_method = attributes.keys().iter().any(|name| {
            let name = name.cast::<PyString>();
            let of_class = name.ok().and_then(|name| raw::type_lookup(&class, name));
            of_class.is_some_and(|found| raw::is_python_function(&found))
        });
        Ok(same && !hides_a_method)
    }

    pub fn file<'a>(&'a self, py: Python<'a>) -> Option<&'a str> {
        let at = PLACES.iter().position(|place| *place == FILE)?;
        let file = self.places.get(at)?.as_ref()?.bind(py);
        file.cast::<PyString>().ok()?.to_str().ok()
    }
}

fn places(attributes: &Bound<'_, PyDict>) -> PyResult<Vec<Option<Py<PyAny>>>> {
    let values = PLACES.iter().map(|place| attributes.get_item(place));
    values.map(|value| Ok(value?.map(Bound::unbind))).collect()
}

/// The code of all methods of a class and its bases that are not in installed modules.
fn methods(class: &Bound<'_, PyType>) -> PyResult<Vec<Py<PyAny>>> {
    let mut methods = Vec::new();
    for class in class.mro().iter() {
        let dict = class.cast().ok().and_then(objects::dictionary);
        for method in dict.iter().flat_map(|dict| dict.values()) {
            if raw::is_python_function(&method) {
                let code = frames::function_code(&method);
                if !imports::is_installed(&code)? {
                    methods.push(code.unbind());
                }
            }
        }
    }
    Ok(methods)
}

/// Returns a copy of the host's data of a handler: Python code may run as it is looked at.
pub fn known(py: Python<'_>, handler: &Bound<'_, PyAny>) -> Option<Arc<OfHost>> {
    let all = lock(&KNOWN);
    let all = all.iter().filter_map(|known| {
        let of_host = Arc::clone(known.of_host.as_ref()?);
        Some((known.reference.clone_ref(py), of_host))
    });
    let all: Vec<_> = all.collect();
    let is_its = |(reference, _): &(Py<PyAny>, _)| {
        self::handler(reference.bind(py)).is_some_and(|found| found.is(handler))
    };
    all.into_iter().find(is_its).map(|(_, of_host)| of_host)
}

/// Returns whether the code is that of a method of some handler of the host.
pub fn is_any_method(code: &Bound<'_, PyAny>) -> bool {
    let all = lock(&KNOWN);
    let mut of_host = all.iter().filter_map(|known| known.of_host.as_ref());
    of_host.any(|known| known.methods.iter().any(|method| method.is(code)))
}
