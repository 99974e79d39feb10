//! Acts of ordinary code that a rule denies though they harm nothing here.
//!
//! Asked once an event is about to be denied, so that allowed events cost nothing. Each excuse is a
//! narrow rule with a file of its own, and a row in `docs/limits.md` or `docs/policy.md` that says
//! why it does no harm.

use pyo3::prelude::*;

use crate::policy::Why;
use crate::policy::judge::Reason;
use crate::python::excuses::acts_of_packages;
use crate::python::excuses::channels;
#[cfg(unix)]
use crate::python::excuses::children_signals;
use crate::python::excuses::handlers;
use crate::python::excuses::hooks;
#[cfg(unix)]
use crate::python::excuses::pool_files;
use crate::python::excuses::probes;
use crate::python::excuses::shared_values;
#[cfg(unix)]
use crate::python::excuses::unchanging;
use crate::python::excuses::variables;
use crate::python::guard::asking;
use crate::python::guard::event::Event;
use crate::python::guard::tempfile;
#[cfg(unix)]
use crate::python::guard::workers;
use crate::python::wrapped::threads;

/// Returns whether an event that is about to be denied may pass all the same.
///
/// # Errors
/// Errors raised while looking at frames or arguments. The event is denied then.
#[cold]
pub fn excuse(event: &Event<'_, '_>, reason: Reason) -> PyResult<bool> {
    if event.name.to_bytes().starts_with(b"_thread.") {
        return Ok(threads::is_feeder(event.args));
    }
    if event.name == c"subprocess.Popen" {
        return probes::is_probe(event);
    }
    if hooks::announces(event) {
        return hooks::passes(event);
    }
    #[cfg(unix)]
    match event.name.to_bytes() {
        b"os.kill" | b"os.killpg" | b"signal.pidfd_send_signal" => {
            return Ok(children_signals::passes(event));
        }
        b"os.wait" => return Ok(children_signals::waits_for_own(event)),
        b"signal.raise_signal"
        | b"os.nice"
        | b"os.sched_setaffinity"
        | b"os.setpriority"
        | b"resource.setrlimit"
        | b"resource.prlimit" => {
            return Ok(unchanging::changes_nothing(event));
        }
        // What is told later may have made it.
        b"os.mkdir" if !asking::is_too_late() && unchanging::is_there(event, reason)? => {
            return Ok(true);
        }
        b"open" if unchanging::is_source_of_text(event, reason)? => return Ok(true),
        b"ctypes.dlopen" if unchanging::changes_nothing(event) => return Ok(true),
        // Since 3.14 each call of a function of a library tells of itself.
        b"ctypes.call_function" if cfg!(Py_3_14) && event.config.policy().calls_all_native() => {
            return Ok(true);
        }
        b"os.fork" => return workers::is_copied(event),
        b"_posixsubprocess.fork_exec" => return Ok(workers::is_starting(event)),
        _ if pool_files::passes(event, reason)? => return Ok(true),
        _ => {}
    }
    if tempfile::is_changing()
        || shared_values::is_made_by(event, reason)?
        || acts_of_packages::is_one(event)?
    {
        return Ok(true);
    }
    match reason {
        Reason::Switch(Why::Environment) if variables::excuse(event)? => Ok(true),
        Reason::Switch(Why::Native)
            if event.name == channels::CALL && channels::makes_call(event)? =>
        {
            Ok(true)
        }
        _ => handlers::does(event, reason),
    }
}
