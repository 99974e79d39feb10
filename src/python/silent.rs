//! Native functions of the standard library that change the world without an audit event of
//! CPython's: under a guard each raises one first.
//!
//! Where what it does is what another operation does that has an event, opening a file for example,
//! it is that one.
#![allow(unsafe_code)]

use std::ffi::CStr;

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::arguments::Arguments;
use super::natives::{Called, What};
use super::{ffi as raw, intercept};

/// A function without an event.
pub struct Silent {
    module: &'static str,
    name: &'static str,
    raises: Raises,
}

/// What it raises.
#[derive(Clone, Copy)]
enum Raises {
    /// This event, with the arguments as they are given.
    As(&'static CStr),
    /// This event, with the arguments of these names, -1 for a `dir_fd` that is not given, `None` for
    /// another. The first is a path.
    Entry(&'static CStr, &'static [&'static CStr]),
    /// `open`, with the argument at this place, of this name, as a path, and with this mode.
    Opens(usize, &'static CStr, Mode),
    /// `open` of a shared memory object, or `os.remove` of it: shm_overview(7).
    Shared(bool),
    /// `_posixsubprocess.fork_exec`, which CPython raises since 3.14.
    #[cfg(not(Py_3_14))]
    Starts,
}

/// How a file is opened.
#[derive(Clone, Copy)]
enum Mode {
    /// In this way.
    Is(&'static CStr),
    /// As the flags of a `dbm` say, the second argument: reading by default.
    Dbm,
}

const fn silent(module: &'static str, name: &'static str, raises: Raises) -> Silent {
    Silent {
        module,
        name,
        raises,
    }
}

const fn raises(module: &'static str, name: &'static str, event: &'static CStr) -> Silent {
    silent(module, name, Raises::As(event))
}

/// The functions.
#[rustfmt::skip]
const FUNCTIONS: &[Silent] = &[
    // Files.
    silent("posix", "mkfifo", Raises::Entry(c"os.mkfifo", &[c"path", c"mode", c"dir_fd"])),
    silent("posix", "mknod", Raises::Entry(c"os.mknod", &[c"path", c"mode", c"device", c"dir_fd"])),
    silent("readline", "write_history_file", Raises::Opens(0, c"filename", Mode::Is(c"w"))),
    silent("readline", "append_history_file", Raises::Opens(1, c"filename", Mode::Is(c"a"))),
    silent("_dbm", "open", Raises::Opens(0, c"filename", Mode::Dbm)),
    silent("_gdbm", "open", Raises::Opens(0, c"filename", Mode::Dbm)),
    silent("_posixshmem", "shm_open", Raises::Shared(false)),
    silent("_posixshmem", "shm_unlink", Raises::Shared(true)),
    // Processes.
    #[cfg(not(Py_3_14))]
    silent("_posixsubprocess", "fork_exec", Raises::Starts),
    raises("posix", "_exit", c"os._exit"),
    raises("posix", "abort", c"os.abort"),
    raises("_signal", "raise_signal", c"signal.raise_signal"),
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
    let call = Call(called.arguments);
    // SAFETY: as this function's.
    unsafe {
        let path = intercept::ours(|py| call.raise(py, silent));
        match path {
            None => std::ptr::null_mut(),
            Some(None) => called.make(called.arguments),
            // What was checked is what is used: a path-like object would be asked again.
            Some(Some((at, path))) => {
                let make = |arguments| called.make(arguments);
                called.arguments.replacing(at, path, make)
            }
        }
    }
}

/// The arguments of a call that is being made: only `call` makes one.
struct Call(Arguments);

/// A path in place of the argument at a position.
type Replaced = Option<(usize, *mut PyObject)>;

impl Call {
    fn find<'py>(&self, py: Python<'py>, index: usize, name: &CStr) -> Option<Bound<'py, PyAny>> {
        // SAFETY: the call is being made.
        unsafe { self.0.find(py, index, Some(name)) }
    }

    fn at<'py>(&self, py: Python<'py>, position: usize) -> Bound<'py, PyAny> {
        // SAFETY: the call is being made; callers ask for what `position` gave.
        unsafe { self.0.at(py, position) }
    }

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
        match raw::fs_path(&given) {
            Ok(path) => Ok((path.clone(), Some((position, path.into_ptr())))),
            // The function says itself what it takes; nothing is approved by it.
            Err(_) => Ok((given, None)),
        }
    }

    /// Raises the event of a call; the path that is to be used where that is another object.
    fn raise(&self, py: Python<'_>, silent: &Silent) -> PyResult<Replaced> {
        let none = || py.None().into_bound(py);
        match silent.raises {
            Raises::As(event) => {
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
                    _ if matches!(mode, Mode::Dbm) => return Ok(None),
                    // readline(3) takes this one then.
                    _ => (home_history(py)?, None),
                };
                let replaced = Guarded(replaced);
                let mode = match mode {
                    Mode::Is(mode) => PyString::new(py, &mode.to_string_lossy()).into_any(),
                    Mode::Dbm => match self.find(py, 1, c"flags") {
                        None => PyString::new(py, "r").into_any(),
                        Some(flags) if reads(&flags) => flags,
                        Some(_) => PyString::new(py, "w").into_any(),
                    },
                };
                let flags = 0i32.into_pyobject(py)?.into_any();
                raw::audit(py, c"open", &[&path, &mode, &flags])?;
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

/// The history file that readline(3) takes when it is told none.
fn home_history<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let path = std::path::Path::new(&home).join(".history");
    Ok(path.into_os_string().into_pyobject(py)?.into_any())
}
