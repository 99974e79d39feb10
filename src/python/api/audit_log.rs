//! `AuditLog`: the log of decisions, as hosts make it.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Once};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString};
use rustix::fs::OFlags;

use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Base};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::{ffi as raw, process};
use crate::python::guard::governing;
use crate::python::guard::scope::{self, Current};
use crate::python::logs::audit_log::{self, LogFile, Sink};
use crate::python::values::{decode, errors};

const FILES: &str = "a path, a file descriptor or a function that takes lines";

#[doc = doc!("AuditLog")]
#[pyclass(frozen, immutable_type, module = "fastaudit_rs")]
pub struct AuditLog {
    log: audit_log::DecisionLog,
}

#[pymethods]
impl AuditLog {
    #[new]
    #[pyo3(signature = (file, *, name=None))]
    fn new(file: &Bound<'_, PyAny>, name: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let py = file.py();
        check_unguarded(py, "an AuditLog is made")?;
        let name = name.map(read_name).transpose()?;
        let is_function = file.is_callable();
        let log_file = match is_function {
            true => None,
            false => Some(open(file)?),
        };
        let log = Self::made(log_file, name, true);
        if is_function {
            let sharing = Py::new(py, log.sharing(None))?;
            let reader = calling::import(py, "fastaudit_rs._log_reader")?;
            reader.invoke_method1("start", (sharing, file))?;
        }
        Ok(log)
    }

    #[doc = doc!("AuditLog.named")]
    #[pyo3(signature = (name, /))]
    fn named(&self, name: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(self.sharing(Some(read_name(name)?)))
    }

    #[doc = doc!("AuditLog.name")]
    #[getter]
    fn name(&self) -> Option<&str> {
        self.log.name.as_deref()
    }

    #[doc = doc!("AuditLog.path")]
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        let path = self.log.sink.file.as_ref();
        let path = path.and_then(|file| file.path.as_deref());
        path.map(|path| raw::fs_decode(py, path)).transpose()
    }

    #[doc = doc!("AuditLog.lost")]
    #[getter]
    fn lost(&self) -> u64 {
        self.log.sink.lost()
    }

    #[doc = doc!("AuditLog.head")]
    #[getter]
    fn head(&self) -> Option<(u64, String)> {
        self.log.sink.head()
    }

    #[doc = doc!("AuditLog.flush")]
    fn flush(&self) {
        self.log.sink.flush();
    }

    #[doc = doc!("AuditLog.close")]
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        check_unguarded(py, "an AuditLog is closed")?;
        py.detach(|| self.log.sink.close());
        Ok(())
    }

    #[doc = doc!("AuditLog._of_guest")]
    #[staticmethod]
    #[pyo3(name = "_of_guest", signature = (descriptor, /))]
    fn of_guest(descriptor: &Bound<'_, PyAny>) -> PyResult<Self> {
        check_unguarded(descriptor.py(), "an AuditLog is made")?;
        Ok(Self::made(Some(share(descriptor)?), None, false))
    }

    #[doc = doc!("AuditLog._add")]
    #[pyo3(name = "_add")]
    fn add(&self, py: Python<'_>, lines: &[u8]) -> PyResult<()> {
        if scope::may_be_guarded() && !matches!(scope::own(py)?, Current::Unguarded) {
            return Err(PyRuntimeError::new_err("lines are added outside of guards alone"));
        }
        self.log.sink.add(lines, audit_log::now().0, true);
        Ok(())
    }

    #[doc = doc!("AuditLog._wake")]
    #[pyo3(name = "_wake")]
    fn wake(&self) {
        self.log.sink.wake();
    }

    #[doc = doc!("AuditLog._take")]
    #[pyo3(name = "_take")]
    fn take<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if !self.log.sink.may_take() {
            return Err(PyRuntimeError::new_err("the log's own thread alone takes lines"));
        }
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let sink = Arc::clone(&self.log.sink);
        let lines = py.detach(move || sink.take(wait));
        Ok(lines.map(|lines| PyBytes::new(py, &lines)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let file = match self.path(py)? {
            Some(path) => path.shown()?.to_string(),
            None if self.log.sink.file.is_some() => "a descriptor".to_owned(),
            None => "a function".to_owned(),
        };
        Ok(match &self.log.name {
            Some(name) => format!("<AuditLog {file} of {name:?}>"),
            None => format!("<AuditLog {file}>"),
        })
    }
}

impl AuditLog {
    fn made(file: Option<LogFile>, name: Option<Arc<str>>, linked: bool) -> Self {
        let sink = Sink::new(file, linked);
        static AT_END: Once = Once::new();
        AT_END.call_once(|| process::at_end(audit_log::flush_all));
        Self { log: audit_log::DecisionLog { sink, name } }
    }

    fn sharing(&self, name: Option<Arc<str>>) -> Self {
        let sink = Arc::clone(&self.log.sink);
        Self { log: audit_log::DecisionLog { sink, name } }
    }
}

/// The argument `log` of guards: a log, or the path of one.
///
/// # Errors
/// `TypeError` for anything else, and the errors of `AuditLog`.
pub fn read(given: &Bound<'_, PyAny>) -> PyResult<audit_log::DecisionLog> {
    if let Ok(log) = given.cast::<AuditLog>() {
        return Ok(log.get().log.clone());
    }
    if given.is_instance_of::<PyInt>() || calling::fs_path(given).is_err() {
        return Err(errors::wrong_type("log", "None, an AuditLog or a path", given));
    }
    Ok(AuditLog::new(given, None)?.log)
}

/// Refuses what only the host may do: a file is opened without asking a guard, and a closed log tells
/// nothing more.
fn check_unguarded(py: Python<'_>, what: &str) -> PyResult<()> {
    match scope::may_be_guarded() && !scope::in_force(py)?.is_empty() {
        true => Err(PyRuntimeError::new_err(format!("{what} outside of guards alone"))),
        false => Ok(()),
    }
}

fn read_name(given: &Bound<'_, PyAny>) -> PyResult<Arc<str>> {
    let name = given.cast::<PyString>().map_err(|_| errors::wrong_type("name", "a str", given))?;
    Ok(name.to_string_lossy().as_ref().into())
}

fn open(given: &Bound<'_, PyAny>) -> PyResult<LogFile> {
    if given.is_instance_of::<PyInt>() && !given.is_instance_of::<PyBool>() {
        return share(given);
    }
    open_path(given, "file", FILES)
}

/// Opens the file that an argument of this name is the path of.
///
/// # Errors
/// `TypeError` if it is none of what is `accepted`, `OSError` if it cannot be opened.
pub fn open_path(given: &Bound<'_, PyAny>, name: &str, accepted: &str) -> PyResult<LogFile> {
    let path = calling::fs_path(given).map_err(|_| errors::wrong_type(name, accepted, given))?;
    let name = decode::root_name(&path)?;
    let landing = path::resolve(&Os, &name, Base::CurrentDir);
    let native = decode::native_path(name.clone());
    let opened = audit_log::open_to_append(&native);
    let (file, is_readable) = opened.map_err(|error| errors::of_file(error, native.as_os_str()))?;
    governing::note(given.py(), &name)?;
    let path = landing.map_or_else(|| name.to_vec(), |landing| landing.as_bytes().to_vec());
    Ok(LogFile::new(file, Some(path), is_readable))
}

/// A copy of a descriptor, which programs do not inherit.
fn share(given: &Bound<'_, PyAny>) -> PyResult<LogFile> {
    let number = raw::int_value(given).and_then(|number| i32::try_from(number).ok());
    let copy = |descriptor: BorrowedFd<'_>| descriptor.try_clone_to_owned();
    let Some(copy) = number.and_then(|number| process::with_descriptor(number, copy)) else {
        return Err(PyValueError::new_err(format!(
            "file must be a file descriptor from 0, not {}",
            errors::shown(given)
        )));
    };
    let copy = File::from(copy?);
    Ok(match opened_again(&copy) {
        Some(again) => LogFile::new(again, None, true),
        None => LogFile::new(copy, None, false),
    })
}

/// The file of a descriptor that appends to it, opened for the log alone.
fn opened_again(file: &File) -> Option<File> {
    let appends = rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    let is_file = file.metadata().is_ok_and(|told| told.is_file());
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    (appends && is_file).then(|| OpenOptions::new().read(true).append(true).open(path).ok())?
}
