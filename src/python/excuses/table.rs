//! Acts of ordinary code that a rule denies though they harm nothing here.
//!
//! Asked once an event is about to be denied, so that allowed events cost nothing. Each excuse is a
//! narrow rule with a file of its own, and a row in `docs/limits.md` or `docs/policy.md` that says
//! why it does no harm.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use crate::policy::Why;
use crate::policy::files::path;
use crate::policy::judge::Reason;
use crate::python::callees::callee;
use crate::python::configuration::approvals;
use crate::python::excuses::{
    acts_of_packages, channels, handlers, pool_files, unchanging, variables,
};
use crate::python::guard::event::Event;
use crate::python::guard::tempfile;
use crate::python::importing::imports;
use crate::python::values::process_start;
use crate::python::wrapped::{threads, workers};

/// Returns whether a recording sees the start of a worker: guards take it for one of a thread.
pub fn is_recorded_worker(event: &Event<'_, '_>) -> PyResult<bool> {
    Ok(event.observes()
        && event.name == c"_posixsubprocess.fork_exec"
        && workers::starts_worker(event)?)
}

#[cold]
pub fn excuse(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    match event.name.to_bytes() {
        b"_thread.interrupt_main" => return unchanging::interrupts_main(event),
        name if name.starts_with(b"_thread.") => return Ok(threads::is_feeder(event.args)),
        b"subprocess.Popen" => return is_probe(event),
        b"sys.excepthook" | b"sys.unraisablehook" => return may_be_called(event),
        b"os.kill"
        | b"os.killpg"
        | b"signal.pidfd_send_signal"
        | b"signal.pthread_kill"
        | b"signal.raise_signal" => return unchanging::signals_own(event),
        b"os.wait" => return Ok(unchanging::waits_for_own(event)),
        // What is told later may have made it.
        b"os.mkdir" if !approvals::TOO_LATE.get() && unchanging::is_there(event, reason)? => {
            return Ok(true);
        }
        b"os.remove" | b"os.rmdir" | b"shutil.rmtree"
            if unchanging::is_fleeting(event, reason)?
                || (!approvals::TOO_LATE.get() && unchanging::is_missing(event, reason)?) =>
        {
            return Ok(true);
        }
        b"open"
            if unchanging::is_source_of_text(event, reason)?
                || unchanging::is_own_terminal(event, reason)? =>
        {
            return Ok(true);
        }
        b"os.listdir" if unchanging::finds_modules(event, reason)? => return Ok(true),
        // Since 3.14 each call of a function of a library tells of itself.
        b"ctypes.call_function" if cfg!(Py_3_14) && event.config.policy().calls_all_native() => {
            return Ok(true);
        }
        // What `python -m asyncio` tells of itself.
        b"cpython.run_stdin" | b"cpython.run_startup" if event.config.is_of_policy() => {
            return Ok(true);
        }
        b"os.fork" => return workers::is_copied(event),
        b"_posixsubprocess.fork_exec" => {
            return Ok(workers::is_starting(event) || is_recorded_worker(event)?);
        }
        _ => {}
    }
    if unchanging::changes_nothing(event)
        || pool_files::passes(event, reason)?
        || tempfile::is_changing()
        || channels::is_made_by(event, reason)?
        || acts_of_packages::is_one(event)?
    {
        return Ok(true);
    }
    match reason {
        Reason::Switch(Why::Environment) if variables::excuse(event)? => Ok(true),
        Reason::Switch(Why::Native) if channels::makes_call(event)? => Ok(true),
        _ => handlers::does(event, reason),
    }
}

// Programs by which an installed library finds out the number of processors. They change nothing.

const COMMANDS: &[&[&str]] =
    &[&["lscpu", "--parse=core"], &["lscpu", "-p=core"], &["cat", "/proc/cpuinfo"]];

/// The functions that start them, by module.
const CALLERS: &[(&str, &str)] = &[
    ("joblib.externals.loky.backend.context", "_count_physical_cores_linux"),
    ("loky.backend.context", "_count_physical_cores_linux"),
];

const DIRECTORIES: &[&[u8]] = &[b"/usr/bin", b"/bin"];

fn is_probe(event: &Event<'_, '_>) -> PyResult<bool> {
    let args = event.args;
    let words = event.argument(1);
    let Some(Ok(words)) = words.map(Bound::cast_into_exact::<PyList>) else {
        return Ok(false);
    };
    let is = |command: &&[&str]| {
        words.len() == command.len()
            && words
                .iter()
                .zip(*command)
                .all(|(word, own)| word.cast_exact::<PyString>().is_ok_and(|word| word == *own))
    };
    if !COMMANDS.iter().any(is) || !event.is_none(2) || !event.is_none(3) {
        return Ok(false);
    }
    let found = process_start::program(event.name, args);
    if !found.is_some_and(|found| DIRECTORIES.contains(&path::split(&found).0)) {
        return Ok(false);
    }
    for (module, function) in CALLERS {
        if imports::is_called_by(args.py(), module, &[function])? {
            return Ok(true);
        }
    }
    Ok(false)
}

// The hooks that Python calls for an exception which nobody caught, or nobody can catch: one in
// `__del__`, in the callback of a weak reference, in a thread of `_thread`.
//
// Python's own hooks write the traceback. Another is Python code, which is judged by what it does;
// native code that is not of the standard library would go unseen, as Python calls the hook.

/// Returns whether a policy lets the hook be called. `mk_audit` denies it, as fastaudit does.
fn may_be_called(event: &Event<'_, '_>) -> PyResult<bool> {
    let Some(hook) = event.argument(0) else {
        return Ok(false);
    };
    let is_foreign = callee::native(&hook, event.argument(1).as_ref())?.is_some();
    Ok(event.config.is_of_policy() && !is_foreign)
}
