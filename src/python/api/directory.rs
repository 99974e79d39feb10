//! The directory of a sandbox, for a host that does not trust what is in it.

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;

use crate::kernel::beneath::{self, Failure};
use crate::kernel::changes::Changes;
use crate::kernel::disk::{self, Meter};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::lock;
use crate::python::values::errors;

#[doc = doc!("_Directory")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Directory")]
pub struct Directory {
    path: PathBuf,
    open: Mutex<Option<Open>>,
}

#[derive(Clone)]
struct Open {
    root: Arc<OwnedFd>,
    changes: Arc<Mutex<Changes>>,
}

#[pymethods]
impl Directory {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        announce(py, c"os.scandir", &path)?;
        let name = path.as_os_str();
        let root = beneath::directory(&path).map_err(|error| errors::of_file(error, name))?;
        let root = Arc::new(root);
        let changes =
            Changes::new(Arc::clone(&root)).map_err(|error| errors::of_file(error, name))?;
        let open = Open { root, changes: Arc::new(Mutex::new(changes)) };
        Ok(Self { path, open: Mutex::new(Some(open)) })
    }

    #[doc = doc!("_Directory.write")]
    fn write(&self, py: Python<'_>, name: Vec<OsString>, data: &[u8]) -> PyResult<()> {
        let open = self.open()?;
        announce_open(py, &self.full(&name), true)?;
        let written = py.detach(|| beneath::write(open.root.as_fd(), &name, data));
        written.map_err(|failure| failed(py, failure, &name, 0))
    }

    #[doc = doc!("_Directory.read")]
    fn read<'py>(
        &self,
        py: Python<'py>,
        name: Vec<OsString>,
        max_bytes: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let open = self.open()?;
        announce_open(py, &self.full(&name), false)?;
        let read = py.detach(|| beneath::read(open.root.as_fd(), &name, max_bytes));
        let found = read.map_err(|failure| failed(py, failure, &name, max_bytes))?;
        PyBytes::new_with(py, found.len(), |room| {
            room.copy_from_slice(&found);
            Ok(())
        })
    }

    #[doc = doc!("_Directory.names")]
    fn names(&self, py: Python<'_>) -> PyResult<Vec<OsString>> {
        let open = self.open()?;
        announce(py, c"os.scandir", &self.path)?;
        match py.detach(|| beneath::list(open.root.as_fd())) {
            Ok(names) => Ok(names.into_iter().map(OsString::from_vec).collect()),
            Err(Failure::System(error)) => Err(errors::of_file(error, self.path.as_os_str())),
            Err(_) => Err(PyOSError::new_err((
                Errno::TOOBIG.raw_os_error(),
                "the names of its files are longer than 256 MB together",
                self.path.clone(),
            ))),
        }
    }

    #[doc = doc!("_Directory.begin")]
    fn begin(&self, py: Python<'_>) -> PyResult<u64> {
        let open = self.open()?;
        announce(py, c"os.scandir", &self.path)?;
        Ok(py.detach(|| lock(&open.changes).begin()))
    }

    #[doc = doc!("_Directory.end")]
    fn end(&self, py: Python<'_>, run: u64) -> PyResult<Vec<OsString>> {
        let open = self.open()?;
        announce(py, c"os.scandir", &self.path)?;
        let names = py.detach(|| lock(&open.changes).end(run));
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    #[doc = doc!("_Directory.close")]
    fn close(&self, py: Python<'_>) {
        let open = lock(&self.open).take();
        py.detach(|| drop(open));
    }
}

impl Directory {
    fn open(&self) -> PyResult<Open> {
        let open = lock(&self.open).clone();
        open.ok_or_else(|| PyRuntimeError::new_err("the sandbox is closed"))
    }

    fn full(&self, name: &[OsString]) -> PathBuf {
        let mut full = self.path.clone();
        full.extend(name);
        full
    }
}

#[doc = doc!("_DiskWatch")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_DiskWatch")]
pub struct DiskWatch(Mutex<Option<Meter>>);

#[pymethods]
impl DiskWatch {
    #[new]
    fn new(py: Python<'_>, directory: PathBuf, most: u64, process: Option<u32>) -> PyResult<Self> {
        announce(py, c"os.scandir", &directory)?;
        let meter = Meter::start(&directory, most, process)?;
        Ok(Self(Mutex::new(Some(meter))))
    }

    #[doc = doc!("_DiskWatch.used")]
    #[staticmethod]
    fn used(py: Python<'_>, directory: PathBuf) -> PyResult<u64> {
        announce(py, c"os.scandir", &directory)?;
        py.detach(|| disk::used_now(&directory))
            .map_err(|error| errors::of_file(error, directory.as_os_str()))
    }

    #[doc = doc!("_DiskWatch.is_over")]
    fn is_over(&self) -> bool {
        lock(&self.0).as_ref().is_some_and(Meter::is_over)
    }

    #[doc = doc!("_DiskWatch.close")]
    fn close(&self, py: Python<'_>) {
        let meter = lock(&self.0).take();
        py.detach(|| drop(meter));
    }
}

#[doc = doc!("_remove_directory")]
#[pyfunction]
#[pyo3(name = "_remove_directory")]
pub fn remove_directory(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    raw::audit(py, c"shutil.rmtree", (path.as_os_str(), py.None()))?;
    py.detach(|| beneath::remove(&path));
    Ok(())
}

/// Raises the audit event of an act, so that a guard judges it as it does any other.
fn announce(py: Python<'_>, event: &CStr, path: &Path) -> PyResult<()> {
    raw::audit(py, event, (path.as_os_str(),))
}

fn announce_open(py: Python<'_>, path: &Path, writes: bool) -> PyResult<()> {
    use rustix::fs::OFlags;

    let (mode, flags) = if writes {
        ("w", OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)
    } else {
        ("r", OFlags::RDONLY)
    };
    raw::audit(py, c"open", (path.as_os_str(), mode, flags.bits()))
}

fn failed(py: Python<'_>, failure: Failure, name: &[OsString], most: u64) -> PyErr {
    let name = name.join(OsStr::new("/"));
    let says =
        |error: Errno, text: String| PyOSError::new_err((error.raw_os_error(), text, name.clone()));
    match failure {
        Failure::System(error) => errors::of_file(error, &name),
        Failure::Other => says(Errno::INVAL, "it is no regular file".to_owned()),
        Failure::Large => {
            says(Errno::FBIG, format!("it has more than {most} bytes: pass a greater max_bytes"))
        }
        Failure::Link => {
            let shown = match name.as_os_str().into_pyobject(py).map(|name| name.shown()) {
                Ok(Ok(shown)) => shown.to_string(),
                _ => "it".to_owned(),
            };
            PyValueError::new_err(format!(
                "{shown} is not in the directory of the sandbox: a link leads there"
            ))
        }
    }
}
