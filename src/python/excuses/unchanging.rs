//! Acts that change nothing: a signal that the process ignores, its current priority, processors
//! and limits, its own program opened as a library, an existing directory made; a look for the
//! source of text. And those that change a copy of the process alone, or fail without a guard too, and
//! signals to processes that were started under the guard.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pyo3::exceptions::{PyFileNotFoundError, PyProcessLookupError};
use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple};
use rustix::io::Errno;
use rustix::process::{Pid, getpgrp, test_kill_process};

use crate::kernel::descriptors;
use crate::policy::Why;
use crate::policy::commands::{self, own_path};
use crate::policy::files::os::Os;
use crate::policy::files::path::{self, Name};
use crate::policy::judge::{Arguments, Named, PathLikes, Reason};
use crate::python::callees::distributions;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::{ffi as raw, process};
use crate::python::guard::copies;
use crate::python::guard::event::Event;
use crate::python::importing::imports;
use crate::python::values::decode;
use crate::python::wrapped::callbacks_later;

/// Signals that do nothing if the process does not handle them: signal(7).
const IGNORED: [i32; 4] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];

pub fn changes_nothing(event: &Event<'_, '_>) -> bool {
    let number = |index| event.number(index);
    match event.name.to_bytes() {
        // What `preexec_fn` does. Guards of `mk_audit` deny it, as `fastaudit` does.
        b"os.setsid" | b"os.setpgrp" if is_copy(event) => true,
        b"os.nice" if is_copy(event) => number(0).is_some_and(|more| more >= 0),
        b"resource.setrlimit" if is_copy(event) => {
            is_limit(number(0), event.argument(1), |given, now| given <= now)
        }
        b"os.nice" => number(0) == Some(0),
        b"os.setuid" | b"os.seteuid" | b"os.setreuid" | b"os.setresuid" => {
            let user = rustix::process::getuid();
            user == rustix::process::geteuid() && are_all(event, user.as_raw())
        }
        b"os.setgid" | b"os.setegid" | b"os.setregid" | b"os.setresgid" => {
            let group = rustix::process::getgid();
            group == rustix::process::getegid() && are_all(event, group.as_raw())
        }
        b"os.setpriority" => is_priority(number(0), number(1), number(2)),
        b"os.sched_setaffinity" => are_processors(number(0), event.argument(1)),
        // As `import ctypes` does. The program is loaded as it is; finding a function in it has an
        // event of its own.
        b"ctypes.dlopen" => event.args.len() == 1 && event.is_none(0),
        b"resource.setrlimit" => is_limit(number(0), event.argument(1), |given, now| given == now),
        b"resource.prlimit" => {
            number(0).is_some_and(is_own)
                && is_limit(number(1), event.argument(2), |given, now| given == now)
        }
        _ => false,
    }
}

/// Returns whether nothing is there that is to be removed, so that removing it fails: code that
/// cleans up goes on then. Guards of `mk_audit` deny it, as `fastaudit` does.
pub fn is_missing(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    if !matches!(reason, Reason::Path(0, Why::Unapproved)) || !event.config.is_of_policy() {
        return Ok(false);
    }
    let name = decode::name_at(event.args, 0, false, PathLikes::AskedLater)?;
    let Name::Path(name) = name.name() else {
        return Ok(false);
    };
    // A link is removed itself.
    let entry = path::entry(&Os, name, event.args.base(Some(1)));
    Ok(entry.is_some_and(|entry| matches!(rustix::fs::lstat(&entry[..]), Err(Errno::NOENT))))
}

/// Returns whether a protected name is to be removed from a directory that was made for the guard:
/// nothing of the user's is in it, and it goes with the guard. A clone there is cleaned up so.
pub fn is_fleeting(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    if !matches!(reason, Reason::Path(0, Why::Protected)) {
        return Ok(false);
    }
    let name = decode::name_at(event.args, 0, false, PathLikes::AskedLater)?;
    let Name::Path(name) = name.name() else {
        return Ok(false);
    };
    let is_named = !path::is_unnamed(path::split(name).1);
    let dir = path::parent(&Os, name, event.args.base(Some(1)));
    Ok(is_named && dir.is_some_and(|dir| event.config.policy().is_temporary(&dir)))
}

/// Returns whether something is there already where a directory is to be made, so that making it
/// fails: libraries go on then, and would get a denial in its place. Guards of `mk_audit` deny it,
/// as `fastaudit` does.
pub fn is_there(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    if !matches!(reason, Reason::Path(0, Why::Unapproved)) || !event.config.is_of_policy() {
        return Ok(false);
    }
    Ok(leads_to_file(event, Some(2), |_| true)? == Some(true))
}

/// Returns whether the source of text that has no file is to be read, such as `<unknown>`. CPython
/// opens a file of that name to show the line of a syntax error, also where `ast.parse` is only
/// tried, as by tracebacks since 3.11. Opening it fails, as there is no such file.
pub fn is_source_of_text(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    if !matches!(reason, Reason::Path(0, Why::Unreadable)) {
        return Ok(false);
    }
    let is_source = |name: &[u8]| {
        let (directory, last) = path::split(name);
        // 3.11 and before look for it in each directory of `sys.path`.
        let may_be_sought = directory.is_empty() || !cfg!(Py_3_12);
        may_be_sought && last.starts_with(b"<") && last.ends_with(b">")
    };
    Ok(leads_to_file(event, None, is_source)? == Some(false))
}

/// Returns whether the import system lists a directory of the host's `sys.path`. Denied, it would
/// take the directory for an empty one from then on, and the host would find no module there.
pub fn finds_modules(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    if !matches!(reason, Reason::Path(0, Why::Unreadable)) {
        return Ok(false);
    }
    let name = decode::name_at(event.args, 0, false, PathLikes::AskedLater)?;
    let Name::Path(name) = name.name() else {
        return Ok(false);
    };
    let directory = Path::new(OsStr::from_bytes(name));
    Ok(imports::is_listing(event.args.py())
        && distributions::imported_from().iter().any(|own| own == directory))
}

/// Returns whether a terminal is to be opened whose other end this process has: what is written to
/// it is read here, as by `pty.openpty`.
pub fn is_own_terminal(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    if !matches!(reason, Reason::Path(0, Why::Unapproved)) || !event.config.is_of_policy() {
        return Ok(false);
    }
    let name = decode::name_at(event.args, 0, false, PathLikes::AskedLater)?;
    let Name::Path(name) = name.name() else {
        return Ok(false);
    };
    let number = name.strip_prefix(b"/dev/pts/").and_then(|number| str::from_utf8(number).ok());
    Ok(number.is_some_and(descriptors::has_other_end))
}

/// Returns whether there is a file where the name leads to that is the first argument; `None` if it is
/// not one of those, or leads nowhere.
fn leads_to_file(
    event: &Event<'_, '_>,
    dir_fd: Option<usize>,
    is_one: impl Fn(&[u8]) -> bool,
) -> PyResult<Option<bool>> {
    let name = decode::name_at(event.args, 0, false, PathLikes::AskedLater)?;
    let Name::Path(name) = name.name() else {
        return Ok(None);
    };
    let landing = match is_one(name) {
        true => path::resolve(&Os, name, event.args.base(dir_fd)),
        false => None,
    };
    Ok(landing.map(|landing| rustix::fs::lstat(landing.as_bytes()).is_ok()))
}

fn is_copy(event: &Event<'_, '_>) -> bool {
    event.config.is_of_policy() && copies::is_copy_under(event.active)
}

/// Returns whether all arguments are this number, or -1, which stands for the present one.
fn are_all(event: &Event<'_, '_>, id: u32) -> bool {
    let is_it = |number: i32| number == -1 || u32::try_from(number) == Ok(id);
    let count = event.args.len();
    count > 0 && (0..count).all(|index| event.number(index).is_some_and(is_it))
}

/// Raises the error that a denied act would have without a guard, if what it is done to is not there:
/// a program, a process. Code that tries whether it is goes on. Guards of `mk_audit` deny it, as
/// `fastaudit` does.
#[cold]
pub fn fail_without_target(event: &Event<'_, '_>) -> PyResult<()> {
    if !event.config.is_of_policy() {
        return Ok(());
    }
    match event.name.to_bytes() {
        b"os.kill" if event.number(0).is_some_and(|pid| pid > 0 && is_gone(pid)) => {
            Err(PyProcessLookupError::new_err((libc::ESRCH, "No such process")))
        }
        // In the environment and the directory of this process.
        b"subprocess.Popen" if event.is_none(2) && event.is_none(3) => match event.argument(0) {
            Some(name) if name.cast_exact::<PyString>().is_ok_and(is_no_program) => {
                let text = "No such file or directory";
                Err(PyFileNotFoundError::new_err((libc::ENOENT, text, name.unbind())))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Returns whether there is no file of this name, or none on `PATH` if it has no slash.
fn is_no_program(name: &Bound<'_, PyString>) -> bool {
    let Ok(name) = decode::root_name(name.as_any()) else {
        return false;
    };
    let is_missing = |path: &[u8]| matches!(rustix::fs::lstat(path), Err(Errno::NOENT));
    if name.is_empty() || name.contains(&b'/') {
        return is_missing(&name);
    }
    commands::places(&name, &own_path()).all(|place| is_missing(&place))
}

fn is_own(pid: i32) -> bool {
    pid == 0 || i32::try_from(std::process::id()) == Ok(pid)
}

/// True for this process's own priority. Those of a group or a user may be several.
fn is_priority(which: Option<i32>, who: Option<i32>, priority: Option<i32>) -> bool {
    which == Some(libc::PRIO_PROCESS as i32)
        && who.is_some_and(is_own)
        && priority.is_some_and(|now| rustix::process::getpriority_process(None) == Ok(now))
}

/// True for the processors of this process. Objects but plain numbers may differ the next time.
fn are_processors(pid: Option<i32>, given: Option<Bound<'_, PyAny>>) -> bool {
    let (Some(pid), Some(given)) = (pid.filter(|pid| is_own(*pid)), given) else {
        return false;
    };
    let is_plain = given.is_exact_instance_of::<PySet>()
        || given.is_exact_instance_of::<PyFrozenSet>()
        || given.is_exact_instance_of::<PyList>()
        || given.is_exact_instance_of::<PyTuple>();
    if !is_plain {
        return false;
    }
    let Ok(items) = given.iterate().and_then(Iterator::collect::<PyResult<Vec<_>>>) else {
        return false;
    };
    let number = |item: &Bound<'_, PyAny>| match item.is_exact_instance_of::<PyInt>() {
        true => usize::try_from(raw::int_value(item)?).ok(),
        false => None,
    };
    let Some(mut given) = items.iter().map(number).collect::<Option<Vec<_>>>() else {
        return false;
    };
    given.sort_unstable();
    given.dedup();
    let pid = rustix::process::Pid::from_raw(pid);
    rustix::thread::sched_getaffinity(pid).is_ok_and(|now| {
        let is_on = |processor: &usize| {
            *processor < rustix::thread::CpuSet::MAX_CPU && now.is_set(*processor)
        };
        given.len() == now.count() as usize && given.iter().all(is_on)
    })
}

fn is_ignored(signal: i32) -> bool {
    let Some(handler) = process::signal_handler(signal) else {
        return false;
    };
    handler == libc::SIG_IGN || (handler == libc::SIG_DFL && IGNORED.contains(&signal))
}

/// True if each of two limits in a tuple is as it may be beside this process's own: other objects may
/// differ the next time.
fn is_limit(
    resource: Option<i32>,
    limits: Option<Bound<'_, PyAny>>,
    may_be: fn(libc::rlim_t, libc::rlim_t) -> bool,
) -> bool {
    let limits = limits.and_then(|limits| limits.cast_into_exact::<PyTuple>().ok());
    let (Some(told), Some(limits)) = (resource.and_then(process::limits), limits) else {
        return false;
    };
    limits.len() == told.len()
        && limits
            .iter()
            .zip(told)
            .all(|(given, own)| limit(&given).is_some_and(|it| may_be(it, own)))
}

/// A limit as CPython returns and takes it: no limit is -1, and the greatest number from 3.15 on.
fn limit(given: &Bound<'_, PyAny>) -> Option<libc::rlim_t> {
    let given = given.cast_exact::<PyInt>().ok()?;
    match raw::int_value(given) {
        Some(number) => Some(number as libc::rlim_t),
        None => given.extract().ok(),
    }
}

// Signals to processes that were started under the guard, and those without effect; and waiting for
// such processes.

/// A signal may be sent that only asks, goes to a process that was started under the guard, or to
/// this one, which ignores or handles it.
pub fn signals_own(event: &Event<'_, '_>) -> PyResult<bool> {
    let is_raised = event.name == c"signal.raise_signal";
    // The arguments are `int`s: of another object the event has the number that is used.
    let Some(signal) = event.number(usize::from(!is_raised)) else {
        return Ok(false);
    };
    let is_of_policy = event.config.is_of_policy();
    if signal == 0 || is_of_policy && !is_signal(signal) {
        return Ok(true);
    }
    // Guards of `mk_audit` deny it, as `fastaudit` does.
    let to_itself = || match is_of_policy {
        true => is_met(event, signal),
        false => Ok(is_raised && is_ignored(signal)),
    };
    // A thread's identifier is no `i32`, and always one of this process.
    if is_raised || event.name == c"signal.pthread_kill" {
        return to_itself();
    }
    let Some(target) = event.number(0) else {
        return Ok(false);
    };
    match event.name.to_bytes() {
        b"os.kill" if target > 0 && is_own(target) => to_itself(),
        b"os.kill" if target > 0 => Ok(is_started(event, target)),
        b"os.kill" if target < -1 => Ok(leads_group(event, target.checked_neg())),
        b"os.killpg" => Ok(leads_group(event, Some(target))),
        b"signal.pidfd_send_signal" => match crate::kernel::started::process_of(target) {
            Some(pid) if is_own(pid.as_raw_nonzero().get()) => to_itself(),
            pid => Ok(pid.is_some_and(|pid| event.config.started.started(pid))),
        },
        _ => Ok(false),
    }
}

/// The same for `_thread.interrupt_main`, which calls the handler of a signal without sending it.
pub fn interrupts_main(event: &Event<'_, '_>) -> PyResult<bool> {
    let signal = match event.args.len() {
        0 => Some(libc::SIGINT),
        _ => event.number(0),
    };
    match signal {
        Some(signal) if event.config.is_of_policy() => {
            Ok(!is_signal(signal) || callbacks_later::is_handled(event.args.py(), signal)?)
        }
        _ => Ok(false),
    }
}

/// Returns false for a number that is no signal: sending it is an error, and nothing else.
fn is_signal(number: i32) -> bool {
    (1..=libc::SIGRTMAX()).contains(&number)
}

fn is_gone(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Returns whether a signal to this process is ignored, or calls a function of guarded code.
fn is_met(event: &Event<'_, '_>, signal: i32) -> PyResult<bool> {
    Ok(is_ignored(signal) || callbacks_later::is_handled(event.args.py(), signal)?)
}

/// Returns whether each child of this process was started under the guard, so that the status of no
/// other child is taken from whoever waits for it.
pub fn waits_for_own(event: &Event<'_, '_>) -> bool {
    let children = crate::kernel::started::children();
    children.is_some_and(|all| all.into_iter().all(|child| event.config.started.has(child)))
}

fn is_started(event: &Event<'_, '_>, pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| {
        event.config.started.started(pid) || is_ended_worker(event.args.py(), pid)
    })
}

/// Returns whether `multiprocessing` signals a worker of its own that has ended: once the server
/// that started it has waited for it, nothing tells whose it was, and nothing can get the signal.
fn is_ended_worker(py: Python<'_>, pid: Pid) -> bool {
    is_gone(pid.as_raw_nonzero().get())
        && imports::is_called_by(py, "multiprocessing.popen_fork", &["_send_signal"])
            .unwrap_or(false)
}

/// True for the group of a process that was started under the guard, but for this one's.
fn leads_group(event: &Event<'_, '_>, group: Option<i32>) -> bool {
    let group = group.filter(|group| *group > 0).and_then(Pid::from_raw);
    group.is_some_and(|group| group != getpgrp() && event.config.started.has(group))
}
