//! From the rules of a policy to the permissions of its guards: paths are resolved, programs found.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::policy::commands::{self, own_path};
use crate::policy::files::current;
use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Base};
use crate::policy::network::NetworkRules;
use crate::policy::written::landings::Landings;
use crate::policy::written::lint;
use crate::policy::written::spec::{NetworkUse, Spec};
use crate::policy::written::values::{Choice, Where};
use crate::policy::written::wording::HintStyle;
use crate::policy::{Blocked, Roots};
use crate::python::configuration::allowed::{Allowed, ApprovedRoots, expanded, packages, read_oks};
use crate::python::cpython::ffi as raw;
use crate::python::importing::imports;

pub fn allowed(py: Python<'_>, spec: &Spec, told: Arc<HintStyle>) -> PyResult<Allowed> {
    let write = match &spec.write {
        Where::Anywhere => roots(py, &["/".to_owned()])?,
        Where::Below(paths) => roots(py, paths)?,
    };
    let (read, readable) = match &spec.read {
        Where::Anywhere => (None, None),
        Where::Below(paths) => {
            // Imports read the places after the policy's own.
            let mut all = paths.clone();
            all.extend(imports::library_paths(py)?);
            // Places that may be written may be read. If everything may be written, reading alone
            // is restricted.
            if let Where::Below(written) = &spec.write {
                all.extend(written.iter().filter(|root| *root != "/").cloned());
            }
            let all = roots(py, &all)?;
            let own = all.names.bind(py).get_slice(0, paths.len());
            (Some(all.roots), Some(own.unbind()))
        }
    };
    let mut blocked = Blocked::default();
    let mut resolved_blocks = Vec::with_capacity(spec.block.len());
    for (index, path) in spec.block.iter().enumerate() {
        let name = whole(py, path)?;
        let resolved = path::resolve(&Os, &name, Base::CurrentDir).ok_or_else(|| {
            PyValueError::new_err(format!("block[{index}] cannot be resolved: {path:?}"))
        })?;
        blocked.add(&resolved);
        resolved_blocks.push(String::from_utf8(resolved.as_bytes().to_vec()).ok());
    }
    let unix = match &spec.network {
        NetworkUse::Rules(rules) => unix_roots(py, rules)?,
        NetworkUse::All(_) => None,
    };
    let programs = match &spec.commands {
        Choice::Named(names) => {
            let names = names.iter().map(|name| expanded(py, name));
            names.collect::<PyResult<_>>()?
        }
        Choice::All(_) => Vec::new(),
    };
    let packages = packages(py, &spec.packages)?;
    let absolute = absolute(py, spec, &write.names, readable.as_ref(), resolved_blocks);
    let landings = Landings {
        write: write.roots,
        read,
        block: blocked,
        unix,
        programs,
        search: own_path(),
        packages,
    };
    let mut allowed = Allowed::of(spec.policy(&Os, landings), write.are_there, write.names);
    allowed.stated.readable = readable;
    allowed.stated.told = Some(told);
    allowed.stated.spec = absolute.map(Arc::new);
    allowed.stated.on_violation = spec.on_violation;
    Ok(allowed)
}

/// The same with its paths resolved; `None` if one of them is not text.
fn absolute(
    py: Python<'_>,
    spec: &Spec,
    write: &Py<PyTuple>,
    read: Option<&Py<PyTuple>>,
    block: Vec<Option<String>>,
) -> Option<Spec> {
    let mut spec = spec.clone();
    if let Where::Below(paths) = &mut spec.write {
        *paths = write.extract(py).ok()?;
    }
    if let (Where::Below(paths), Some(read)) = (&mut spec.read, read) {
        *paths = read.extract(py).ok()?;
    }
    spec.block = block.into_iter().collect::<Option<_>>()?;
    Some(spec)
}

/// The roots of Unix sockets that are files; `None` for all.
pub fn unix_roots(py: Python<'_>, rules: &NetworkRules) -> PyResult<Option<Roots>> {
    let Where::Below(paths) = &rules.unix else {
        return Ok(None);
    };
    let files = paths.iter().filter(|path| !path.starts_with('@'));
    Ok(Some(roots(py, &files.cloned().collect::<Vec<_>>())?.roots))
}

pub fn roots(py: Python<'_>, paths: &[String]) -> PyResult<ApprovedRoots> {
    let path = |path: &String| match path.is_empty() {
        true => Ok(PyString::new(py, "")),
        false => raw::fs_decode(py, &whole(py, path)?),
    };
    let paths = paths.iter().map(path).collect::<PyResult<Vec<_>>>()?;
    read_oks(PyList::new(py, paths)?.as_any())
}

/// A path of a policy from the root on, if the current directory was not removed.
fn whole(py: Python<'_>, path: &str) -> PyResult<PathBuf> {
    let name = expanded(py, path)?;
    Ok(match current::directory(&Os) {
        Some(mut whole) if !name.starts_with(b"/") => {
            whole.push(b'/');
            whole.extend_from_slice(&name);
            whole
        }
        _ => name,
    })
}

/// The programs that do not exist, by their places among the names.
pub fn missing_programs(py: Python<'_>, names: &[String]) -> PyResult<Vec<usize>> {
    let mut missing = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let name = expanded(py, name)?;
        let is_there = match name.contains(&b'/') {
            true => Os.is_executable(&name),
            false => {
                commands::is_python(&name) || commands::find(&Os, &name, &own_path()).is_some()
            }
        };
        if !is_there {
            missing.push(index);
        }
    }
    Ok(missing)
}

pub fn resolved(py: Python<'_>, spec: &Spec) -> PyResult<Spec> {
    let mut resolved = spec.clone();
    let absolute = |paths: &mut Vec<String>| -> PyResult<()> {
        for path in paths.iter_mut() {
            let name = whole(py, path)?;
            if let Some(landing) = path::resolve(&Os, &name, Base::CurrentDir)
                && let Ok(text) = String::from_utf8(landing.as_bytes().to_vec())
            {
                *path = text;
            }
        }
        Ok(())
    };
    for place in [&mut resolved.write, &mut resolved.read] {
        if let Where::Below(paths) = place {
            absolute(paths)?;
        }
    }
    absolute(&mut resolved.block)?;
    Ok(resolved)
}

/// The rules of a policy that never apply.
pub fn lint(py: Python<'_>, spec: &Spec) -> PyResult<Vec<String>> {
    let missing_programs = match &spec.commands {
        Choice::Named(names) => missing_programs(py, names)?,
        Choice::All(_) => Vec::new(),
    };
    Ok(lint::lint(&lint::LintFinding { spec: &resolved(py, spec)?, missing_programs }))
}
