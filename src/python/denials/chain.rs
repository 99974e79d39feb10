//! The call chain that a denial shows: the functions that led to it, without those of runners of
//! the user's code and of the import system.

use pyo3::prelude::*;
use pyo3::types::PyTraceback;

use crate::python::cpython::calling::Calling;
use crate::python::cpython::frames;
use crate::python::cpython::once::intern;
use crate::python::frames::stack::{self, Site};
use crate::python::guard::entered_at;

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
pub fn shown(py: Python<'_>, traceback: Option<Bound<'_, PyTraceback>>) -> PyResult<Vec<String>> {
    let frame = match &traceback {
        Some(traceback) => stack::outer(&frames::traceback_frame(traceback))?,
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
