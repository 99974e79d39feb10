//! The files by which hosts of this process govern code: policies, answers, logs. Each guard keeps
//! those from writing that were named before it was made.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use crate::policy::files::fs::FileSystem;
use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Base};
use crate::policy::files::places::Governing;
use crate::python::cpython::once::lock;
use crate::python::guard::scope;
use crate::python::values::decode;

static FILES: Mutex<Option<Arc<Governing>>> = Mutex::new(None);

pub fn files() -> Arc<Governing> {
    let mut files = lock(&FILES);
    Arc::clone(files.get_or_insert_default())
}

/// Notes a file that a host named; it need not exist yet. Guarded code names none.
pub fn note(py: Python<'_>, name: &[u8]) -> PyResult<()> {
    if scope::may_be_guarded() && !scope::in_force(py)?.is_empty() {
        return Ok(());
    }
    let Some(landing) = path::resolve(&Os, name, Base::CurrentDir) else {
        return Ok(());
    };
    let found = std::fs::metadata(decode::native_path(name.into()));
    if found.as_ref().is_ok_and(|found| !found.is_file()) {
        // A pipe, a terminal, /dev/null.
        return Ok(());
    }
    let mut files = lock(&FILES);
    let files = Arc::make_mut(files.get_or_insert_default());
    // By the name as it was given, by the entry and by the place that they lead to: neither a link
    // nor a directory on the way can be put in the place of another.
    let (dir, last) = path::split(name);
    if let Some(dir) = path::resolve(&Os, dir, Base::CurrentDir) {
        files.add(dir.join(last).to_vec());
    }
    if let Some(given) = path::spelled(&Os, name) {
        files.add(given.to_vec());
    }
    if found.is_ok_and(|found| std::os::unix::fs::MetadataExt::nlink(&found) > 1)
        && let Some(identity) = Os.identity(landing.as_bytes())
    {
        files.add_linked(identity);
    }
    files.add(landing.as_bytes().to_vec());
    Ok(())
}
