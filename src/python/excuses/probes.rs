//! Programs by which an installed library finds out the number of processors. They change nothing.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::policy::files::path;
use crate::python::guard::event::Event;
use crate::python::values::command;
use crate::python::values::imports;

/// The command lines.
const COMMANDS: &[&[&str]] = &[
    &["lscpu", "--parse=core"],
    &["lscpu", "-p=core"],
    &["cat", "/proc/cpuinfo"],
];

/// The functions that start them, by module.
const CALLERS: &[(&str, &str)] = &[
    (
        "joblib.externals.loky.backend.context",
        "_count_physical_cores_linux",
    ),
    ("loky.backend.context", "_count_physical_cores_linux"),
];

/// The directories of the system's own programs.
const DIRECTORIES: &[&[u8]] = &[b"/usr/bin", b"/bin"];

/// Returns whether the event is the start of such a program.
pub fn is_probe(event: &Event<'_, '_>) -> PyResult<bool> {
    let args = event.args;
    let Ok(words) = args
        .get_item(1)
        .and_then(|words| Ok(words.cast_into_exact::<PyList>()?))
    else {
        return Ok(false);
    };
    let is = |command: &&[&str]| {
        words.len() == command.len()
            && words
                .iter()
                .zip(*command)
                .all(|(word, own)| word.cast_exact::<PyString>().is_ok_and(|word| word == *own))
    };
    let is_plain = |index| args.get_item(index).is_ok_and(|given| given.is_none());
    if !COMMANDS.iter().any(is) || !is_plain(2) || !is_plain(3) {
        return Ok(false);
    }
    let found = command::program(event.name, args);
    if !found.is_some_and(|found| DIRECTORIES.contains(&path::split(&found).0)) {
        return Ok(false);
    }
    for (module, function) in CALLERS {
        if imports::is_called_by(args.py(), module, function)? {
            return Ok(true);
        }
    }
    Ok(false)
}
