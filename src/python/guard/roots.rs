//! The roots that a host approves, read and resolved.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::policy::Roots;
use crate::policy::files::fs::PathBuf;
use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Base};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::intern;
use crate::python::values::decode;
use crate::python::values::errors;

/// The roots a host approved, and the names that messages give them.
pub struct ApprovedRoots {
    pub roots: Roots,
    pub names: Py<PyTuple>,
    /// True if each was seen to be there.
    pub are_there: bool,
}

/// Reads the `oks` argument.
///
/// # Errors
/// `TypeError` for one path in place of an iterable of them and for a value that is not a path,
/// `ValueError` for a path that no file can have, `OSError` if it cannot be resolved.
pub fn read_oks(oks: &Bound<'_, PyAny>) -> PyResult<ApprovedRoots> {
    let py = oks.py();
    if oks.is_instance_of::<PyString>()
        || oks.is_instance_of::<PyBytes>()
        || decode::is_path_like(oks)
    {
        return Err(errors::oks_is_one_path(oks));
    }
    if oks.is_instance_of::<PyDict>() {
        return Err(errors::oks_not_paths(oks));
    }
    let items = oks
        .iterate()
        .map_err(|error| errors::oks_not_iterable(oks, error))?;
    let mut roots = Roots::new();
    let mut names = Vec::new();
    let mut are_there = true;
    for (index, item) in items.enumerate() {
        let item = item?;
        if let Ok(text) = item.cast::<PyString>()
            && raw::fs_encode(text.as_borrowed()).is_ok_and(|name| name.as_bytes() == b".")
        {
            roots.follow_current_dir();
            names.push(PyString::new(py, "."));
            continue;
        }
        let mut path = calling::fs_path(&item)
            .map_err(|error| errors::root_not_a_path(index, &item, error))?;
        let read = |path: &Bound<'_, PyAny>| {
            decode::root_name(path).map_err(|error| errors::root_unreadable(index, path, error))
        };
        let mut name = read(&path)?;
        if name.is_empty() {
            return Err(errors::root_empty(index));
        }
        if name.starts_with(b"~") {
            path = expand(&path)?;
            name = read(&path)?;
        }
        let (root, is_there) = path::resolve_and_look(&Os, &name, Base::CurrentDir)
            .ok_or_else(|| errors::root_unresolvable(index, &path, &name))?;
        are_there &= is_there;
        roots.add(&root);
        names.push(raw::fs_decode(py, root.as_bytes())?);
    }
    Ok(ApprovedRoots {
        roots,
        names: PyTuple::new(py, names)?.unbind(),
        are_there,
    })
}

/// The path, a `str` or `bytes`, with `~` and `~user` at its beginning expanded.
pub fn expand<'py>(path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let ospath = calling::import(path.py(), intern!(path.py(), "os.path"))?;
    ospath.invoke_method1(intern!(path.py(), "expanduser"), (path,))
}

/// The name that a path of a policy has, with `~` expanded.
pub fn expanded(py: Python<'_>, path: &str) -> PyResult<PathBuf> {
    let path = PyString::new(py, path).into_any();
    decode::root_name(&match path.to_string().starts_with('~') {
        true => expand(&path)?,
        false => path,
    })
}
