//! The first line of a denial, or the facts to write it from: most denials are caught, and nobody
//! reads their text.

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::policy::judge::Reason;
use crate::policy::wording::{Line, NamedRoots};
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::calling::{self, Calling};
use crate::python::values::simple::shown;

const USUAL_MESSAGE: usize = 160;
/// The places that a line names; of many, as in a sandbox, the first ones.
const NAMED_PLACES: usize = 4;

pub struct FirstLine {
    line: Line,
    /// The position of the path that it shows; `None` if it shows all arguments.
    pub path: Option<usize>,
    count: usize,
    roots: Option<Py<PyTuple>>,
}

impl FirstLine {
    /// Notes the facts. `count` is the number of arguments that are shown, if they are.
    pub fn of(config: &AuditCfg, py: Python<'_>, reason: Reason, count: usize) -> Self {
        let line = Line::of(
            reason,
            // fastaudit writes the empty tuple, and so does `mk_audit`.
            || !(config.is_of_policy() && config.oks(py).is_empty()),
            || !config.readable(py).is_empty(),
        );
        Self {
            line,
            path: match reason {
                Reason::Event | Reason::Switch(_) => None,
                Reason::Path(index, _) => Some(index),
            },
            count,
            roots: line.roots().map(|roots| match roots {
                NamedRoots::Write => config.oks(py).unbind(),
                NamedRoots::Read => config.readable(py).unbind(),
            }),
        }
    }

    pub fn write<'py>(
        &self,
        event: &str,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyString>> {
        let py = args.py();
        let given = match self.path {
            Some(index) => shown(&args.get_item(index)?)?,
            None if self.count < args.len() => shown_all(&args.get_slice(0, self.count))?,
            None => shown_all(args)?,
        };
        let roots = match (&self.roots, self.line.roots()) {
            (Some(roots), Some(NamedRoots::Read)) => shown_places(roots.bind(py))?,
            (Some(roots), _) => roots.bind(py).shown()?,
            (None, _) => given.clone(),
        };
        // In one piece of memory if it is no longer than most.
        let mut text = String::with_capacity(USUAL_MESSAGE);
        match self.line.write(&mut text, &event, &given, &roots) {
            Ok(()) => Ok(PyString::new(py, &text)),
            Err(_) => Err(PyRuntimeError::new_err("the message could not be written")),
        }
    }
}

fn shown_places<'py>(places: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyString>> {
    if places.len() <= 2 * NAMED_PLACES {
        return places.shown();
    }
    let first = joined(places.iter().take(NAMED_PLACES).map(|place| place.shown()))?;
    let more = places.len() - NAMED_PLACES;
    PyString::from_fmt(places.py(), format_args!("({first}, … {more} more)"))
}

/// Returns `repr(args)`, item by item if that fails.
fn shown_all<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyString>> {
    let py = args.py();
    match calling::repr(args) {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            let mut items = joined(args.iter().map(|item| shown(&item)))?;
            if args.len() == 1 {
                items.push(',');
            }
            PyString::from_fmt(py, format_args!("({items})"))
        }
        repr => repr,
    }
}

fn joined<'py>(items: impl Iterator<Item = PyResult<Bound<'py, PyString>>>) -> PyResult<String> {
    let items = items.map(|item| Ok(item?.to_string_lossy().into_owned()));
    Ok(items.collect::<PyResult<Vec<_>>>()?.join(", "))
}
