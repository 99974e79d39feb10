//! Handlers of `logging` that the host set up before the guard: the host chose the places they
//! write and send to, not the guarded code, which only logs.
//!
//! A handler is the host's if it was made while no guard was in force. `logging` lists its handlers
//! in the order in which they were made; the list is looked at when the first guard is entered and
//! when the last one has ended, and is remembered out of reach of Python code.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{
    PyDict, PyList, PyModule, PyString, PyType, PyWeakrefMethods, PyWeakrefReference,
};

use crate::policy::Why;
use crate::policy::events::{self, Effect};
use crate::policy::judge::Reason;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::once::{Once, intern};
use crate::python::cpython::{classes, ffi as raw, frames, objects};
use crate::python::excuses::channels;
use crate::python::frames::stack;
use crate::python::guard::event::Event;
use crate::python::importing::imports;

const MODULE: &str = "logging";

/// The attributes that say where a handler of the standard library writes or sends to.
const PLACES: &[&str] = &[
    FILE,
    "_builtin_open",
    "namer",
    "rotator",
    "host",
    "port",
    "address",
    "mailhost",
    "url",
];

/// The file of a `FileHandler`.
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
    of_host: Option<OfHost>,
}

/// A handler of the host, as it was when it was first seen.
struct OfHost {
    class: Py<PyType>,
    /// The code of its method `emit`.
    emit: Py<PyAny>,
    /// The code of all methods of its classes that are not in installed modules.
    methods: Vec<Py<PyAny>>,
    /// The values of `PLACES`.
    places: Vec<Option<Py<PyAny>>>,
}

/// Takes note of the handlers that were made since it was last called: by the host, or by code
/// under a guard perhaps.
#[inline]
pub fn take_note(py: Python<'_>, by_host: bool) {
    let Some(list) = LIST.get(py).or_else(|| find_list(py)) else {
        return;
    };
    let list = list.bind(py);
    if objects::length_and_last(list)
        != (
            SEEN.0.load(Ordering::Relaxed),
            SEEN.1.load(Ordering::Relaxed),
        )
    {
        beside_pending(py, || take_note_of_new(list, by_host));
    }
}

/// Runs `work` while an exception may be on its way, as when a guard is freed.
fn beside_pending<R>(py: Python<'_>, work: impl FnOnce() -> R) -> R {
    let pending = PyErr::take(py);
    let result = work();
    if let Some(pending) = pending {
        pending.restore(py);
    }
    result
}

/// Finds the list, if `logging` is imported.
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
    let mut before = std::mem::take(&mut *KNOWN.lock().unwrap_or_else(PoisonError::into_inner));
    let mut now = Vec::with_capacity(list.len());
    for reference in list.iter() {
        let position = before
            .iter()
            .position(|known| known.reference.is(&reference));
        now.push(match position {
            Some(position) => before.swap_remove(position),
            None => Known {
                of_host: by_host.then(|| OfHost::new(&reference)).flatten(),
                reference: reference.unbind(),
            },
        });
    }
    let (length, last) = objects::length_and_last(list);
    SEEN.0.store(length, Ordering::Relaxed);
    SEEN.1.store(last, Ordering::Relaxed);
    let other = std::mem::replace(
        &mut *KNOWN.lock().unwrap_or_else(PoisonError::into_inner),
        now,
    );
    drop((before, other));
}

/// The handler that a weak reference is to.
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
    fn is_as_before(&self, handler: &Bound<'_, PyAny>) -> PyResult<bool> {
        let class = handler.get_type();
        let Some(attributes) = objects::own_attributes(handler).filter(|_| class.is(&self.class))
        else {
            return Ok(false);
        };
        let now = places(&attributes)?;
        let same = now.iter().zip(&self.places).all(|both| match both {
            (None, None) => true,
            (Some(now), Some(before)) => now.is(before),
            _ => false,
        });
        let hides_a_method = attributes.keys().iter().any(|name| {
            let name = name.cast::<PyString>();
            let of_class = name.ok().and_then(|name| raw::type_lookup(&class, name));
            of_class.is_some_and(|found| raw::is_python_function(&found))
        });
        Ok(same && !hides_a_method)
    }

    /// The file of a `FileHandler`.
    fn file<'a>(&'a self, py: Python<'a>) -> Option<&'a str> {
        let at = PLACES.iter().position(|place| *place == FILE)?;
        let file = self.places.get(at)?.as_ref()?.bind(py);
        file.cast::<PyString>().ok()?.to_str().ok()
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        let own = |all: &[Py<PyAny>]| all.iter().map(|one| one.clone_ref(py)).collect();
        let places = self.places.iter();
        Self {
            class: self.class.clone_ref(py),
            emit: self.emit.clone_ref(py),
            methods: own(&self.methods),
            places: places
                .map(|place| place.as_ref().map(|place| place.clone_ref(py)))
                .collect(),
        }
    }
}

/// The values of `PLACES`.
fn places(attributes: &Bound<'_, PyDict>) -> PyResult<Vec<Option<Py<PyAny>>>> {
    let values = PLACES.iter().map(|place| attributes.get_item(place));
    values.map(|value| Ok(value?.map(Bound::unbind))).collect()
}

/// The code of all methods of a class and its bases that are not in installed modules.
fn methods(class: &Bound<'_, PyType>) -> PyResult<Vec<Py<PyAny>>> {
    let mut methods = Vec::new();
    for class in class.mro().iter() {
        let dict = class.cast().ok().and_then(classes::dictionary);
        let Some(dict) = dict else {
            continue;
        };
        for method in dict.values() {
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

enum Act<'a> {
    /// Opens, moves, removes or lists this.
    File(&'a str),
    /// Uses the network or calls native code.
    Other,
}

/// Returns whether a handler of the host is about to perform the denied operation, to have
/// something logged.
pub fn does(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    let py = event.args.py();
    let effect = event.name.to_str().ok().and_then(events::known);
    let effect = effect.map(|known| known.effect);
    let path;
    let act = match (reason, effect) {
        (
            Reason::Path(at, Why::Unapproved | Why::Unreadable),
            Some(Effect::Open | Effect::Read | Effect::Write),
        ) => {
            path = event.args.get_item(at)?;
            match path.cast_exact::<PyString>().map(|path| path.to_str()) {
                Ok(Ok(path)) => Act::File(path),
                _ => return Ok(false),
            }
        }
        (Reason::Event | Reason::Switch(_), Some(Effect::Network)) => Act::Other,
        (Reason::Switch(Why::Native), _) if event.name == channels::CALL => Act::Other,
        _ => return Ok(false),
    };
    let Some((handler, inner, foreign)) = running(py)? else {
        return Ok(false);
    };
    let Some(known) = known(py, &handler) else {
        return Ok(false);
    };
    let is_own = |code: &Bound<'_, PyAny>| known.methods.iter().any(|own| own.is(code));
    if !inner.is(&known.emit) || !foreign.iter().all(is_own) || !known.is_as_before(&handler)? {
        return Ok(false);
    }
    let is_custom = is_own(&inner);
    Ok(match (act, known.file(py)) {
        (Act::File(path), Some(file)) => {
            let is_its = path
                .strip_prefix(file)
                .is_some_and(|rest| !rest.contains('/'));
            is_its
                || file
                    .rsplit_once('/')
                    .is_some_and(|(directory, _)| directory == path && effect == Some(Effect::Read))
        }
        (Act::File(_), None) => is_custom,
        // The acts of a stream are not the handler's.
        (Act::Other, _) => {
            let attributes = objects::own_attributes(&handler);
            let has_stream = match attributes {
                Some(attributes) => attributes.contains(intern!(py, "stream"))?,
                None => true,
            };
            is_custom || !has_stream
        }
    })
}

/// Returns a copy of the host's data of a handler: Python code may run as it is looked at.
fn known(py: Python<'_>, handler: &Bound<'_, PyAny>) -> Option<OfHost> {
    let all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.iter().filter_map(|known| {
        let of_host = known.of_host.as_ref()?.clone_ref(py);
        Some((known.reference.clone_ref(py), of_host))
    });
    let all: Vec<_> = all.collect();
    let is_its = |reference: &Py<PyAny>| {
        self::handler(reference.bind(py)).is_some_and(|found| found.is(handler))
    };
    let mut all = all.into_iter();
    all.find_map(|(reference, of_host)| is_its(&reference).then_some(of_host))
}

/// The handler that runs, the code of its method that does, and the code in between and inside that
/// is not of installed modules; `None` if no handler runs, or while it makes a text of a record,
/// for which it calls objects of the guarded code.
type Running<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>);

fn running(py: Python<'_>) -> PyResult<Option<Running<'_>>> {
    let mut foreign = Vec::new();
    let mut inner: Option<Bound<'_, PyAny>> = None;
    let mut frame = frames::current_frame(py);
    while let Some(current) = frame {
        let code = frames::code(current.cast()?);
        if !imports::is_installed(&code)? {
            if !is_any_method(&code) {
                return Ok(None);
            }
            foreign.push(code.clone());
        } else if imports::module_of(&current)?.is_some_and(|module| module == MODULE) {
            let name = code.attr(intern!(py, "co_name"))?;
            if name.equals(intern!(py, "format"))? {
                return Ok(None);
            }
            if name.equals(intern!(py, "handle"))? && imports::is_of_imported_module(&current)? {
                let locals = current.attr(intern!(py, "f_locals"))?;
                let handler = locals.item(intern!(py, "self"))?;
                return Ok(inner.map(|inner| (handler, inner, foreign)));
            }
        }
        inner = Some(code);
        frame = stack::outer(&current)?;
    }
    Ok(None)
}

/// Returns whether the code is that of a method of some handler of the host.
fn is_any_method(code: &Bound<'_, PyAny>) -> bool {
    let all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut of_host = all.iter().filter_map(|known| known.of_host.as_ref());
    of_host.any(|known| known.methods.iter().any(|method| method.is(code)))
}
