//! Native functions of the standard library that change the world without an audit event of
//! CPython's: under a guard each raises one first.
//!
//! Where what it does is what another operation does that has an event, opening a file for example,
//! it is that one.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::path::Path;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::python::cpython::arguments::Arguments;
use crate::python::cpython::called::Called;
use crate::python::cpython::calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::replace;
use crate::python::guard::scope;
use crate::python::values::library_files::{expanded, groups, in_home, included, settings, users};
use crate::python::wrapped::conditions::{ends_later, waits_by_kind, waits_for_some};
use crate::python::wrapped::kinds::{Call, Mode, Raises, Silent, What};

/// One of them, for the table here, or a method elsewhere.
pub const fn silent(module: &'static str, name: &'static str, raises: Raises) -> Silent {
    Silent {
        module,
        name,
        raises,
    }
}

const fn raises(module: &'static str, name: &'static str, event: &'static CStr) -> Silent {
    silent(module, name, Raises::As(event))
}

/// The endings of the names of files of a `dbm`, of all libraries that there are for it.
const NDBM: &[&str] = &["", ".db", ".dir", ".pag"];

/// The functions.
#[rustfmt::skip]
const FUNCTIONS: &[Silent] = &[
    // Files.
    silent("posix", "mkfifo", Raises::Entry(c"os.mkfifo", &[c"path", c"mode", c"dir_fd"])),
    silent("posix", "mknod", Raises::Entry(c"os.mknod", &[c"path", c"mode", c"device", c"dir_fd"])),
    silent("readline", "write_history_file", Raises::Opens(0, c"filename", Mode::History(c"w"))),
    silent("readline", "append_history_file", Raises::Opens(1, c"filename", Mode::History(c"a"))),
    silent("_dbm", "open", Raises::Opens(0, c"filename", Mode::Dbm(NDBM))),
    silent("_gdbm", "open", Raises::Opens(0, c"filename", Mode::Dbm(&[""]))),
    silent("_posixshmem", "shm_open", Raises::Shared(false)),
    silent("_posixshmem", "shm_unlink", Raises::Shared(true)),
    // Files that are only read.
    silent("posix", "readlink", Raises::Entry(c"os.readlink", &[c"path", c"dir_fd"])),
    silent("readline", "read_history_file", Raises::Opens(0, c"filename", Mode::History(c"r"))),
    silent("readline", "read_init_file", Raises::Opens(0, c"filename", Mode::Settings)),
    silent("readline", "parse_and_bind", Raises::Includes),
    silent("_locale", "bindtextdomain", Raises::Reads(&[(1, c"")])),
    silent("_ssl", "_test_decode_cert", Raises::Reads(&[(0, c"")])),
    silent("spwd", "getspall", Raises::ReadsFile(c"/etc/shadow")),
    silent("spwd", "getspnam", Raises::ReadsFile(c"/etc/shadow")),
    silent("grp", "getgrall", Raises::ReadsForSystem(groups)),
    silent("grp", "getgrgid", Raises::ReadsForSystem(groups)),
    silent("grp", "getgrnam", Raises::ReadsForSystem(groups)),
    silent("pwd", "getpwall", Raises::ReadsForSystem(users)),
    silent("pwd", "getpwnam", Raises::ReadsForSystem(users)),
    silent("pwd", "getpwuid", Raises::ReadsForSystem(users)),
    // Processes.
    #[cfg(not(Py_3_14))]
    silent("_posixsubprocess", "fork_exec", Raises::Starts),
    raises("posix", "_exit", c"os._exit"),
    raises("posix", "abort", c"os.abort"),
    raises("posix", "wait", c"os.wait"),
    raises("posix", "wait3", c"os.wait"),
    silent("posix", "wait4", Raises::When(c"os.wait", waits_for_some)),
    silent("posix", "waitid", Raises::When(c"os.wait", waits_by_kind)),
    raises("_signal", "raise_signal", c"signal.raise_signal"),
    raises("_thread", "interrupt_main", c"_thread.interrupt_main"),
    silent("faulthandler", "dump_traceback_later", Raises::When(c"faulthandler.dump_traceback_later", ends_later)),
    raises("_signal", "pidfd_send_signal", c"signal.pidfd_send_signal"),
    raises("faulthandler", "_sigsegv", c"faulthandler._sigsegv"),
    raises("faulthandler", "_sigabrt", c"faulthandler._sigabrt"),
    raises("faulthandler", "_sigfpe", c"faulthandler._sigfpe"),
    raises("faulthandler", "_read_null", c"faulthandler._read_null"),
    raises("faulthandler", "_stack_overflow", c"faulthandler._stack_overflow"),
    raises("faulthandler", "_fatal_error_c_thread", c"faulthandler._fatal_error_c_thread"),
    // What a process is, for good.
    raises("posix", "chroot", c"os.chroot"),
    raises("posix", "initgroups", c"os.initgroups"),
    raises("posix", "login_tty", c"os.login_tty"),
    raises("posix", "nice", c"os.nice"),
    raises("posix", "sched_setaffinity", c"os.sched_setaffinity"),
    raises("posix", "sched_setparam", c"os.sched_setparam"),
    raises("posix", "sched_setscheduler", c"os.sched_setscheduler"),
    raises("posix", "setegid", c"os.setegid"),
    raises("posix", "seteuid", c"os.seteuid"),
    raises("posix", "setgid", c"os.setgid"),
    raises("posix", "setgroups", c"os.setgroups"),
    raises("posix", "setns", c"os.setns"),
    raises("posix", "setpgid", c"os.setpgid"),
    raises("posix", "setpgrp", c"os.setpgrp"),
    raises("posix", "setpriority", c"os.setpriority"),
    raises("posix", "setregid", c"os.setregid"),
    raises("posix", "setresgid", c"os.setresgid"),
    raises("posix", "setresuid", c"os.setresuid"),
    raises("posix", "setreuid", c"os.setreuid"),
    raises("posix", "setsid", c"os.setsid"),
    raises("posix", "setuid", c"os.setuid"),
    raises("posix", "tcsetpgrp", c"os.tcsetpgrp"),
    raises("posix", "unshare", c"os.unshare"),
    // The machine.
    raises("time", "clock_settime", c"time.clock_settime"),
    raises("time", "clock_settime_ns", c"time.clock_settime_ns"),
    // The interpreter. It writes a file for perf(1); Tcl runs programs and writes files itself; in
    // another interpreter the guard is not in force.
    raises("sys", "activate_stack_trampoline", c"sys.activate_stack_trampoline"),
    raises("_tkinter", "create", c"_tkinter.create"),
    raises("_interpreters", "create", c"cpython.PyInterpreterState_New"),
    raises("_interpreters", "call", c"_interpreters.call"),
    raises("_interpreters", "exec", c"_interpreters.exec"),
    raises("_interpreters", "run_func", c"_interpreters.run_func"),
    raises("_interpreters", "run_string", c"_interpreters.run_string"),
    // Python 3.12 crashes where a hook refuses to have one made: so it is refused before.
    raises("_xxsubinterpreters", "create", c"cpython.PyInterpreterState_New"),
    raises("_xxsubinterpreters", "run_string", c"_interpreters.run_string"),
];

impl Raises {
    /// Tells whether only policies that restrict reading ask.
    fn only_reads(self) -> bool {
        match self {
            Self::Reads(_) | Self::ReadsFile(_) | Self::ReadsForSystem(_) | Self::Includes => true,
            Self::Opens(_, _, Mode::History(mode)) => mode == c"r",
            Self::Opens(_, _, Mode::Settings) => true,
            Self::Entry(event, _) => event == c"os.readlink",
            _ => false,
        }
    }
}

/// The modules that they are in.
pub fn modules() -> Vec<&'static str> {
    let mut modules: Vec<_> = FUNCTIONS.iter().map(|function| function.module).collect();
    modules.sort_unstable();
    modules.dedup();
    modules
}

/// Those of a module.
pub fn of(module: &str) -> impl Iterator<Item = (&'static str, What)> {
    FUNCTIONS
        .iter()
        .filter(move |function| function.module == module)
        .map(|function| match function.raises {
            #[cfg(all(unix, not(Py_3_14)))]
            Raises::Starts => (function.name, What::StartsProgram(Some(function))),
            _ => (function.name, What::Raises(function)),
        })
}

/// Raises the event, and then makes the call.
///
/// # Safety
/// The thread is attached, and the arguments are those of a vectorcall.
pub unsafe fn call(called: Called, silent: &Silent) -> *mut PyObject {
    // SAFETY: as this function's.
    unsafe { call_by(called.arguments, silent, |given| called.make(given)) }
}

/// Raises the event, and then makes the call as `make` does.
///
/// # Safety
/// The thread is attached, and the arguments are those of a vectorcall.
pub unsafe fn call_by(
    arguments: Arguments,
    silent: &Silent,
    make: impl FnOnce(Arguments) -> *mut PyObject,
) -> *mut PyObject {
    if silent.raises.only_reads() && !scope::any_guard_restricts_more() {
        return make(arguments);
    }
    // SAFETY: as this function's.
    unsafe {
        let paths = replace::ours(|py| Call(arguments).raise(py, silent));
        // What was checked is what is used: a path-like object would be asked again.
        match paths {
            None => std::ptr::null_mut(),
            Some([None, None]) => make(arguments),
            Some([Some((at, path)), None] | [None, Some((at, path))]) => {
                arguments.replacing(at, path, make)
            }
            Some([Some((at, path)), Some((next, other))]) => {
                arguments.replacing(at, path, |given| given.replacing(next, other, make))
            }
        }
    }
}

/// A path in place of the argument at a position.
type Replaced = Option<(usize, *mut PyObject)>;

impl Call {
    /// The path at a position, asked of an object for it once.
    fn path<'py>(
        &self,
        py: Python<'py>,
        position: usize,
    ) -> PyResult<(Bound<'py, PyAny>, Replaced)> {
        let given = self.at(py, position);
        if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
            return Ok((given, None));
        }
        match calling::fs_path(&given) {
            Ok(path) => Ok((path.clone(), Some((position, path.into_ptr())))),
            // The function says itself what it takes; nothing is approved by it.
            Err(_) => Ok((given, None)),
        }
    }

    /// Raises the events of a call; the paths that are to be used where those are other objects.
    fn raise(&self, py: Python<'_>, silent: &Silent) -> PyResult<[Replaced; 2]> {
        match silent.raises {
            Raises::Reads(places) => {
                let mut kept = [const { Guarded(None) }; 2];
                for ((index, name), kept) in places.iter().zip(&mut kept) {
                    let Some(position) = self.0.position(*index, Some(name)) else {
                        continue;
                    };
                    if self.at(py, position).is_none() {
                        continue;
                    }
                    let (path, replaced) = self.path(py, position)?;
                    *kept = Guarded(replaced);
                    opened_for_reading(&path)?;
                }
                Ok(kept.map(Guarded::keep))
            }
            _ => Ok([self.raise_one(py, silent)?, None]),
        }
    }

    /// The same for a function that takes one path at most.
    fn raise_one(&self, py: Python<'_>, silent: &Silent) -> PyResult<Replaced> {
        let none = || py.None().into_bound(py);
        match silent.raises {
            Raises::Reads(_) => Ok(None),
            Raises::ReadsFile(path) => {
                let path = PyString::new(py, &path.to_string_lossy());
                opened_for_reading(path.as_any()).map(|()| None)
            }
            Raises::ReadsForSystem(files) => {
                for file in files() {
                    // A policy blocks what a link leads to.
                    let file = file.canonicalize().unwrap_or(file);
                    raw::audit(py, c"fastaudit.read", &[&path_object(py, &file)?])?;
                }
                Ok(None)
            }
            Raises::Includes => {
                let line = self.find(py, 0, c"");
                let line = line.and_then(|line| line.cast_into::<PyString>().ok());
                let Some(line) = line else {
                    return Ok(None);
                };
                match included(raw::fs_encode(line.as_borrowed())?.as_bytes()) {
                    Some(path) => opened_for_reading(&path_object(py, &path)?).map(|()| None),
                    None => Ok(None),
                }
            }
            Raises::When(_, is_so) if !is_so(py, self) => Ok(None),
            Raises::As(event) | Raises::When(event, _) => {
                let given: Vec<_> = (0..self.0.positional())
                    .map(|index| self.at(py, index))
                    .collect();
                raw::audit(py, event, &given.iter().collect::<Vec<_>>())?;
                Ok(None)
            }
            Raises::Entry(event, names) => {
                let Some(position) = self.0.position(0, Some(names[0])) else {
                    return Ok(None);
                };
                let (path, replaced) = self.path(py, position)?;
                let replaced = Guarded(replaced);
                let mut args = vec![path];
                for (index, name) in names.iter().enumerate().skip(1) {
                    let absent = || match *name == c"dir_fd" {
                        true => (-1i32).into_pyobject(py).map(Bound::into_any),
                        false => Ok(none().into_any()),
                    };
                    // A `dir_fd` is given by name alone.
                    let index = if *name == c"dir_fd" {
                        usize::MAX
                    } else {
                        index
                    };
                    args.push(self.find(py, index, name).map_or_else(absent, Ok)?);
                }
                raw::audit(py, event, &args.iter().collect::<Vec<_>>())?;
                Ok(replaced.keep())
            }
            Raises::Opens(index, name, mode) => {
                let (path, replaced) = match self.0.position(index, Some(name)) {
                    Some(position) if !self.at(py, position).is_none() => {
                        self.path(py, position)?
                    }
                    // readline(3) takes these then.
                    _ => match mode {
                        Mode::Dbm(_) => return Ok(None),
                        Mode::History(_) => (path_object(py, &in_home(".history"))?, None),
                        Mode::Settings => (path_object(py, &settings())?, None),
                    },
                };
                let replaced = Guarded(replaced);
                let endings = match mode {
                    Mode::Dbm(endings) => endings,
                    _ => &[""],
                };
                let path = match mode {
                    Mode::Settings => match bytes_of(&path)? {
                        Some(bytes) => path_object(py, &expanded(&bytes))?,
                        None => path,
                    },
                    _ => path,
                };
                let mode = match mode {
                    Mode::History(mode) => PyString::new(py, &mode.to_string_lossy()).into_any(),
                    Mode::Settings => PyString::new(py, "r").into_any(),
                    Mode::Dbm(_) => match self.find(py, 1, c"flags") {
                        None => PyString::new(py, "r").into_any(),
                        Some(flags) if reads(&flags) => flags,
                        Some(_) => PyString::new(py, "w").into_any(),
                    },
                };
                let flags = 0i32.into_pyobject(py)?.into_any();
                for ending in endings {
                    let path = with_ending(&path, ending)?;
                    raw::audit(py, c"open", &[&path, &mode, &flags])?;
                }
                Ok(replaced.keep())
            }
            Raises::Shared(removes) => {
                let Some(given) = self.find(py, 0, c"path") else {
                    return Ok(None);
                };
                let Ok(name) = given.cast::<PyString>() else {
                    return Ok(None);
                };
                let name = name.to_string_lossy();
                let path = PyString::new(py, &format!("/dev/shm/{}", name.trim_start_matches('/')));
                if removes {
                    let no_fd = (-1i32).into_pyobject(py)?.into_any();
                    return raw::audit(py, c"os.remove", &[path.as_any(), &no_fd]).map(|()| None);
                }
                let flags = self.find(py, 1, c"flags").unwrap_or_else(none);
                raw::audit(py, c"open", &[path.as_any(), &none(), &flags]).map(|()| None)
            }
            #[cfg(not(Py_3_14))]
            Raises::Starts => {
                let at = |index| self.find(py, index, c"").unwrap_or_else(none);
                let event = c"_posixsubprocess.fork_exec";
                raw::audit(py, event, &[&at(1), &at(0), &at(5)]).map(|()| None)
            }
        }
    }
}

/// A reference that is dropped unless it is kept.
struct Guarded(Replaced);

impl Guarded {
    fn keep(mut self) -> Replaced {
        self.0.take()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some((_, path)) = self.0.take() {
            // SAFETY: the reference is this one's own; it is dropped while the thread is attached.
            unsafe { ffi::Py_DECREF(path) };
        }
    }
}

/// Whether the flags of a `dbm` open it for reading.
fn reads(flags: &Bound<'_, PyAny>) -> bool {
    let flags = flags.cast_exact::<PyString>();
    flags.is_ok_and(|flags| flags.to_str().is_ok_and(|flags| flags.starts_with('r')))
}

/// Raises the event of a file that is opened for reading.
fn opened_for_reading(path: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = path.py();
    let mode = PyString::new(py, "r").into_any();
    let flags = 0i32.into_pyobject(py)?.into_any();
    raw::audit(py, c"open", &[path, &mode, &flags])
}

/// A path with another ending; the path itself where that is empty, or it is no path.
fn with_ending<'py>(given: &Bound<'py, PyAny>, ending: &str) -> PyResult<Bound<'py, PyAny>> {
    let bytes = match ending {
        "" => None,
        _ => bytes_of(given)?,
    };
    match bytes {
        Some(bytes) => {
            let path = [&bytes[..], ending.as_bytes()].concat();
            Ok(raw::fs_decode(given.py(), &path)?.into_any())
        }
        None => Ok(given.clone()),
    }
}

/// The bytes of a path; `None` where it is none.
fn bytes_of(path: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if let Ok(path) = path.cast::<PyString>() {
        return Ok(Some(
            raw::fs_encode(path.as_borrowed())?.as_bytes().to_vec(),
        ));
    }
    let path = path.cast::<PyBytes>();
    Ok(path.ok().map(|path| path.as_bytes().to_vec()))
}

fn path_object<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyAny>> {
    Ok(path.as_os_str().into_pyobject(py)?.into_any())
}
