//! A process start that the host approved, and the low-level events that belong to it.
//!
//! `subprocess.Popen` raises its own event and then, on some versions and for some commands,
//! `os.posix_spawn`, `_posixsubprocess.fork_exec` or `_winapi.CreateProcess`. Approving the first
//! covers the second: the same command, started from the same activation of the same function,
//! once.

use std::cell::RefCell;
use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::policy::commands::{self, DEFAULT_PATH, own_path};
use crate::policy::files::fs::PathBuf;
use crate::policy::files::os::Os;
use crate::policy::judge::{self, Arguments};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::cpython::{ffi as raw, frames};
use crate::python::frames::stack;
use crate::python::values::{decode, simple};

struct Approved {
    /// Address of the frame that raised the event. Not a reference, which would keep the function's
    /// objects alive; so another frame may come to lie there, but of the same code only one that
    /// raised the event anew.
    frame: usize,
    code: Py<PyAny>,
    arguments: Vec<Py<PyAny>>,
    executable: Vec<u8>,
    /// The `PATH` by which it was judged, if that could be read.
    search: Option<Vec<u8>>,
}

thread_local! {
    static APPROVED: RefCell<Option<Approved>> = const { RefCell::new(None) };
}

/// Only `subprocess.Popen` has events that follow.
pub fn approved(event: &CStr, args: &Bound<'_, PyTuple>) {
    if event == c"subprocess.Popen" {
        replace(read(args));
    }
}

pub fn forget() {
    // Each guard that is left asks for this, and there is seldom one.
    if APPROVED.with_borrow(Option::is_some) {
        replace(None);
    }
}

/// Returns whether the event belongs to the process start that was approved last on this thread.
pub fn covers(event: &CStr, args: &Bound<'_, PyTuple>) -> bool {
    let Some(approved) = APPROVED.take() else {
        return false;
    };
    let py = args.py();
    let at = |index| args.get_item(index);
    let covered = approved.is_running(py)
        && at(1).is_ok_and(|given| approved.has_arguments(&given))
        && at(0).is_ok_and(|given| match event.to_bytes() {
            b"_posixsubprocess.fork_exec" => approved.is_searched_for(&given),
            _ => file_name(&given).is_some_and(|name| name == approved.executable),
        });
    drop(approved);
    covered
}

fn replace(next: Option<Approved>) {
    // The old one is dropped after the cell is free again: dropping it may run Python code.
    let old = APPROVED.replace(next);
    drop(old);
}

fn read(args: &Bound<'_, PyTuple>) -> Option<Approved> {
    let frame = frames::current_frame(args.py())?;
    Some(Approved {
        frame: frame.as_ptr() as usize,
        code: frames::code(&frame).unbind(),
        arguments: items(&args.get_item(1).ok()?),
        executable: file_name(&args.get_item(0).ok()?)?,
        search: args.search_path(3, &own_path),
    })
}

/// The objects of a command's argument list; a command line is one.
fn items(arguments: &Bound<'_, PyAny>) -> Vec<Py<PyAny>> {
    let items = simple::items(arguments).unwrap_or_else(|| vec![arguments.clone()]);
    items.into_iter().map(Bound::unbind).collect()
}

fn file_name(executable: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    if executable.is_none() {
        return Some(Vec::new());
    }
    let path = calling::fs_path(executable).ok()?;
    Some(decode::root_name(&path).ok()?.to_vec())
}

impl Approved {
    /// Returns whether the function that raised the event is the innermost one, or called it.
    fn is_running(&self, py: Python<'_>) -> bool {
        stack::frames(py).take(2).any(|frame| {
            frame.as_ptr() as usize == self.frame && frames::code(&frame).is(&self.code)
        })
    }

    fn has_arguments(&self, given: &Bound<'_, PyAny>) -> bool {
        let given = items(given);
        let mut pairs = given.iter().zip(&self.arguments);
        given.len() == self.arguments.len() && pairs.all(|(given, approved)| given.is(approved))
    }

    /// Returns whether these are the places on the `PATH` that was judged: `fork_exec` gets each where
    /// the executable might be, by functions that guarded code may have replaced.
    fn is_searched_for(&self, places: &Bound<'_, PyAny>) -> bool {
        let given = items(places).into_iter().map(|place| file_name(place.bind(places.py())));
        match &self.search {
            _ if self.executable.contains(&b'/') => given.eq([Some(self.executable.clone())]),
            Some(search) => given
                .eq(commands::places(&self.executable, search).map(|place| Some(place.to_vec()))),
            None => false,
        }
    }
}

// The program that an event is going to start.

pub fn program(event: &CStr, args: &Bound<'_, PyTuple>) -> Option<PathBuf> {
    judge::program(&Os, event.to_bytes(), args, &own_path)
}

/// The `PATH` for a child: that of `os.environ` itself is `own`; else that of a plain `dict`.
pub fn path_of(environment: &Bound<'_, PyAny>, own: &dyn Fn() -> Vec<u8>) -> Option<Vec<u8>> {
    let py = environment.py();
    let os = raw::imported_module(py, intern!(py, "os")).ok()??;
    let own_environment = os.attr(intern!(py, "environ"));
    if own_environment.is_ok_and(|own| own.is(environment)) {
        return Some(own());
    }
    let environment = environment.cast_exact::<PyDict>().ok()?;
    let found = match environment.get_item("PATH").ok()? {
        Some(path) => Some(path),
        None => environment.get_item(PyBytes::new(py, b"PATH")).ok()?,
    };
    match found {
        Some(path) => bytes(&path).map(|path| path.to_vec()),
        None => Some(DEFAULT_PATH.to_vec()),
    }
}

/// The bytes of a `str`, `bytes` or path-like of the standard library.
pub fn bytes(object: &Bound<'_, PyAny>) -> Option<PathBuf> {
    let text = simple::text(object).ok()??;
    decode::root_name(text.as_any()).ok()
}

pub fn each(items: &Bound<'_, PyAny>) -> Option<Vec<PathBuf>> {
    let items = simple::items(items)?;
    Some(items.iter().map_while(bytes).collect())
}
