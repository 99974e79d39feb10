//! The telling of acts of native code: as the audit event that Python raises for the same.

use std::net::SocketAddr;

use pyo3::exceptions::{PyBaseException, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::native::asking::library;
use crate::policy::judge::Act;
use crate::python::callees::caller::{self, Caller};
use crate::python::configuration::approvals;
use crate::python::configuration::live::{Owned, OwnedAct, RefusedAct};
use crate::python::cpython::{ffi as raw, objects};
use crate::python::denials::denial::{self, Denial};
use crate::python::events::hook;
use crate::python::guard::active::Active;
use crate::python::guard::event::{self, CallNote, NOTHING};
use crate::python::guard::scope;
use crate::python::logs::log::Log;

/// Judges an act as its event: the host may be asked, and what is denied is told.
pub fn is_allowed(py: Python<'_>, act: &Act<'_>) -> bool {
    let owned = OwnedAct::of(act, false);
    judge_as_event(py, &owned, Caller::OnStack, |args| hook::check_act(act.event, args))
}

pub fn kept(act: &Act<'_>) -> RefusedAct {
    RefusedAct { act: OwnedAct::of(act, true), library: library() }
}

/// Tells the acts that were refused where no Python could run. Nobody is asked: they have failed.
pub fn tell(py: Python<'_>, active: &Active) {
    scope::judging(active).for_each(|active| tell_of(py, active));
}

fn tell_of(py: Python<'_>, active: &Active) {
    let Some(live) = active.config().map(|config| config.get().live()) else {
        return;
    };
    if !live.refusals.any() || raw::is_finalizing() {
        return;
    }
    for RefusedAct { act, library } in live.refusals.take() {
        let _too_late = approvals::Marked::begin(&approvals::TOO_LATE);
        let caller = library.map_or(Caller::Nobody, Caller::Was);
        judge_as_event(py, &act, caller, |args| hook::check_by_guard(act.event, args, active));
    }
}

/// An error that is pending stays, and one that the judge raises goes.
fn judge_as_event(
    py: Python<'_>,
    act: &OwnedAct,
    caller: Caller,
    judge: impl FnOnce(&Bound<'_, PyTuple>) -> Result<(), ()>,
) -> bool {
    raw::beside_pending(py, || {
        let is_allowed = matches!(with_event(py, act, caller, judge), Ok(Ok(())));
        if !is_allowed {
            drop(PyErr::take(py));
        }
        is_allowed
    })
}

/// Hands on the arguments of an act's event, and notes what the event leaves out.
fn with_event<R>(
    py: Python<'_>,
    act: &OwnedAct,
    caller: Caller,
    judge: impl FnOnce(&Bound<'_, PyTuple>) -> R,
) -> PyResult<R> {
    let values = act.arguments.iter().map(|value| {
        Ok(match value {
            Owned::None => py.None().into_bound(py),
            Owned::Integer(number) => number.into_pyobject(py)?.into_any(),
            Owned::Text(text) => raw::fs_decode(py, text)?.into_any(),
            Owned::Address(address) => socket_address(py, *address)?.into_any(),
            Owned::OtherAddress => PyTuple::empty(py).into_any(),
        })
    });
    let args = PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)?;
    let outer = event::replace_note(CallNote { base: act.base, follows: act.follows, ..NOTHING });
    let caller = caller::replace(caller);
    let result = judge(&args);
    caller::replace(caller);
    event::replace_note(outer);
    Ok(result)
}

/// The address of a socket as Python gives it: the host and the port, and of IPv6 two numbers more.
fn socket_address(py: Python<'_>, address: SocketAddr) -> PyResult<Bound<'_, PyTuple>> {
    let (host, port) = (address.ip().to_canonical().to_string(), address.port());
    match address {
        SocketAddr::V4(_) => (host, port).into_pyobject(py),
        SocketAddr::V6(v6) => (host, port, v6.flowinfo(), v6.scope_id()).into_pyobject(py),
    }
}

// The denial behind a library's own error: native code that is denied gets `EACCES`, and its library
// raises what it raises then.

/// The exceptions of a chain that are looked at, and the denials.
const MOST: usize = 20;

/// Makes the last denial of native code that an error tells of its cause.
pub fn explain(error: &Bound<'_, PyAny>, log: &Log) {
    let error = error.cast::<PyBaseException>().ok();
    let Some(first) = error.and_then(first_of) else {
        return;
    };
    let kept = log.kept(first.py());
    let denials = kept.iter().rev().take(MOST);
    let mut denials = denials.filter_map(|denial| denial.cast_exact::<Denial>().ok());
    let told = denials.find(|denial| tells_of(&first, denial.get()));
    if let Some(denial) = told
        && let Ok(cause) = denial::exception(denial)
    {
        objects::set_cause(&first, cause);
    }
}

/// The exception that a chain began with; `None` of a chain that goes on for ever.
fn first_of<'py>(error: &Bound<'py, PyBaseException>) -> Option<Bound<'py, PyBaseException>> {
    let mut first = error.clone();
    for _ in 0..MOST {
        match objects::before(&first) {
            Some(before) => first = before,
            None => return Some(first),
        }
    }
    None
}

/// Returns whether an error says that permission was denied, or names the path.
fn tells_of(error: &Bound<'_, PyBaseException>, denial: &Denial) -> bool {
    let Some(args) = objects::args(error).filter(|_| denial.is_of_native_code()) else {
        return false;
    };
    let path = denial.path_text(error.py());
    let is_of_system = error.is_instance_of::<PyOSError>();
    args.iter().any(|arg| {
        if is_of_system && raw::int_value(&arg) == Some(i64::from(libc::EACCES)) {
            return true;
        }
        let Ok(text) = arg.cast::<PyString>() else {
            return false;
        };
        let text = text.to_string_lossy();
        text.contains("ermission denied") || path.as_ref().is_some_and(|path| text.contains(path))
    })
}
