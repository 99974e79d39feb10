//! The text of a denial: its first line, and the call chain that it shows.

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTraceback, PyTuple};

use crate::policy::judge::Reason;
use crate::policy::wording::{Line, NamedRoots};
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::frames;
use crate::python::cpython::once::intern;
use crate::python::frames::stack::{self, Site};
use crate::python::guard::entered_at;
use crate::python::values::simple::shown;

// The first line of a denial, or the facts to write it from: most denials are caught, and nobody
// reads their text.

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

// The call chain that a denial shows: the functions that led to it, without those of runners of
// the user's code and of the import system.

/// Packages that run the code of others: their functions lead to every operation.
const RUNNERS: [&str; 9] = [
    "IPython",
    "_pytest",
    "execnet",
    "fastaudit_rs",
    "ipykernel",
    "pluggy",
    "pytest",
    "pytest_asyncio",
    "xdist",
];

/// The runner that starts a process of its own, so that nothing before it is the user's.
const STARTER: &str = "execnet";

/// Modules whose functions stand between those of the user and explain nothing: the import system.
const BETWEEN: [&str; 5] = [
    "_frozen_importlib",
    "_frozen_importlib_external",
    "importlib._bootstrap",
    "importlib._bootstrap_external",
    "runpy",
];

const SCRIPTS: [&str; 2] = ["bin", "Scripts"];

/// The functions that lead to the end of a traceback, or to the running code; the outermost first.
pub fn call_chain(
    py: Python<'_>,
    traceback: Option<Bound<'_, PyTraceback>>,
) -> PyResult<Vec<String>> {
    let frame = match &traceback {
        Some(traceback) => frames::outer(&frames::traceback_frame(traceback)),
        None => frames::current_frame(py),
    };
    let mut sites = stack::sites_of(frame)?;
    sites.reverse();
    let mut entry = traceback;
    while let Some(current) = entry {
        sites.push(stack::site(&frames::traceback_frame(&current))?);
        let next = current.attr(intern!(py, "tb_next"))?;
        entry = next.cast_into().ok();
    }
    let sites = of_the_user(py, &sites)?;
    sites.into_iter().map(|site| site.name(py)).collect()
}

/// The sites without those of runners, and of the libraries that led to a runner.
fn of_the_user<'a>(py: Python<'_>, sites: &'a [Site]) -> PyResult<Vec<&'a Site>> {
    let mut runners_left = sites.iter().filter(|site| is_runner(py, site)).count();
    let mut kept = Vec::with_capacity(sites.len());
    // Sites from here on are dropped with the next runner.
    let mut since_user = 0;
    for site in sites {
        let module = site.module(py);
        if is_runner(py, site) {
            runners_left -= 1;
            if package_of(module) == STARTER {
                since_user = 0;
            }
            kept.truncate(since_user);
            continue;
        }
        if BETWEEN.contains(&module) {
            continue;
        }
        kept.push(site);
        if runners_left > 0 && !is_installed(site.code(py))? {
            since_user = kept.len();
        }
    }
    Ok(kept)
}

fn package_of(module: &str) -> &str {
    module.split('.').next().unwrap_or_default()
}

/// Hooks in a `conftest.py`, which pytest calls, count as pytest's.
fn is_runner(py: Python<'_>, site: &Site) -> bool {
    let module = site.module(py);
    if module.rsplit('.').next() == Some("conftest") {
        return site.name(py).is_ok_and(|name| name.contains(".pytest_"));
    }
    RUNNERS.contains(&package_of(module))
}

fn is_installed(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    if entered_at::is_of_library(code)? {
        return Ok(true);
    }
    let file = entered_at::file_of(code)?;
    let file = file.to_string_lossy();
    let mut parts = file.rsplit(['/', '\\']);
    let is_bare = parts.next().is_some_and(|name| !name.contains('.'));
    Ok(is_bare && parts.next().is_some_and(|parent| SCRIPTS.contains(&parent)))
}
