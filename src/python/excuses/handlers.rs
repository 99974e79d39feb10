//! Handlers of `logging` that the host set up before the guard: the host chose the places they
//! write and send to, not the guarded code, which only logs.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::policy::Why;
use crate::policy::events::{self, EventEffect};
use crate::policy::judge::Reason;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::once::intern;
use crate::python::cpython::{frames, objects};
use crate::python::excuses::channels;
use crate::python::frames::stack;
use crate::python::guard::event::Event;
use crate::python::guard::log_handlers::{MODULE, is_any_method, known};
use crate::python::importing::imports;

enum Act<'a> {
    /// Opens, moves, removes or lists this.
    File(&'a str),
    /// Uses the network or calls native code.
    Other,
}

/// True if a handler of the host performs the denied operation, to have something logged.
pub fn does(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    let py = event.args.py();
    let effect = event.name.to_str().ok().and_then(events::known);
    let effect = effect.map(|known| known.effect);
    let path;
    let act = match (reason, effect) {
        (
            Reason::Path(at, Why::Unapproved | Why::Unreadable),
            Some(EventEffect::Open | EventEffect::Read | EventEffect::Write),
        ) => {
            path = event.args.get_item(at)?;
            match path.cast_exact::<PyString>().map(|path| path.to_str()) {
                Ok(Ok(path)) => Act::File(path),
                _ => return Ok(false),
            }
        }
        (Reason::Event | Reason::Switch(_), Some(EventEffect::Network)) => Act::Other,
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
            let is_its = path.strip_prefix(file).is_some_and(|rest| !rest.contains('/'));
            is_its
                || file.rsplit_once('/').is_some_and(|(directory, _)| {
                    directory == path && effect == Some(EventEffect::Read)
                })
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

/// The handler that runs, the code of its method that does, and the code in between and inside that
/// is not of installed modules; `None` if no handler runs, or while it makes a text of a record,
/// for which it calls objects of the guarded code.
type Running<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Vec<Bound<'py, PyAny>>);

fn running(py: Python<'_>) -> PyResult<Option<Running<'_>>> {
    let mut foreign = Vec::new();
    let mut inner: Option<Bound<'_, PyAny>> = None;
    for frame in stack::frames(py) {
        let code = frames::code(&frame);
        if !imports::is_installed(&code)? {
            if !is_any_method(&code) {
                return Ok(None);
            }
            foreign.push(code.clone());
        } else if imports::module_of(&frame)?.is_some_and(|module| module == MODULE) {
            let name = stack::code_name(&code)?;
            if name == "format" {
                return Ok(None);
            }
            if name == "handle" && imports::is_of_imported_module(&frame)? {
                let locals = frame.attr(intern!(py, "f_locals"))?;
                let handler = locals.item(intern!(py, "self"))?;
                return Ok(inner.map(|inner| (handler, inner, foreign)));
            }
        }
        inner = Some(code);
    }
    Ok(None)
}
