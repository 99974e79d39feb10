//! Acts on the process that change nothing: a signal that it ignores, the priority and the limits
//! that it has.
#![allow(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::event::Event;
use super::ffi as raw;

/// Signals that do nothing where the process does not handle them: signal(7).
const IGNORED: [i32; 4] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];

/// Tells that the act changes nothing.
pub fn changes_nothing(event: &Event<'_, '_>) -> bool {
    let number = |index| {
        let number = raw::int_value(&event.args.get_item(index).ok()?)?;
        i32::try_from(number).ok()
    };
    match event.name.to_bytes() {
        b"signal.raise_signal" => number(0).is_some_and(is_ignored),
        b"os.nice" => number(0) == Some(0),
        b"resource.setrlimit" => is_limit(number(0), event.args.get_item(1)),
        b"resource.prlimit" => {
            let own = i32::try_from(std::process::id()).ok();
            number(0).is_some_and(|pid| pid == 0 || Some(pid) == own)
                && is_limit(number(1), event.args.get_item(2))
        }
        _ => false,
    }
}

/// Tells that a signal to this process does nothing now.
fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is set; where it succeeds the kernel has filled in what is set.
    let handler = unsafe {
        if libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return false;
        }
        action.assume_init().sa_sigaction
    };
    handler == libc::SIG_IGN || (handler == libc::SIG_DFL && IGNORED.contains(&signal))
}

/// Tells that the limits are those that this process has. A tuple of two: what else there is may be
/// another the next time it is looked at.
fn is_limit(resource: Option<i32>, limits: PyResult<Bound<'_, PyAny>>) -> bool {
    let limits = limits.and_then(|limits| Ok(limits.cast_into_exact::<PyTuple>()?));
    let (Some(resource), Ok(limits)) = (resource, limits) else {
        return false;
    };
    let mut now = std::mem::MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: where it succeeds the kernel has filled in the limits.
    let now = unsafe {
        if libc::getrlimit(resource as _, now.as_mut_ptr()) != 0 {
            return false;
        }
        now.assume_init()
    };
    // As CPython tells and takes them, "no limit" by a negative number.
    let told = [now.rlim_cur as i64, now.rlim_max as i64];
    limits.len() == told.len()
        && limits
            .iter()
            .zip(told)
            .all(|(given, told)| raw::int_value(&given) == Some(told))
}
