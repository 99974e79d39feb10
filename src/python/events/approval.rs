//! A question to the host before an operation is denied, and its answers that are kept.

use std::ffi::CString;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use pyo3::exceptions::{PyException, PyRuntimeWarning};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::policy::written::approved::{Extent, Kept};
use crate::policy::written::spec::Spec;
use crate::policy::{Policy, Why, events, judge};
use crate::python::configuration::approvals::{self, Approvals, is_awaitable};
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::denials::denial::Denial;
use crate::python::denials::hint::Answer;
use crate::python::guard::event::{Event, Probe, Purpose};
use crate::python::values::errors;

/// Returns whether answers that were kept allow an event, or those that deny it without a question.
#[inline(never)]
pub fn allows(event: &Event<'_, '_>, kept: &ArcSwapOption<Policy>) -> PyResult<bool> {
    let Some(policy) = kept.load_full() else {
        return Ok(false);
    };
    // Nothing is denied or logged by the judge, which tells here how it decides.
    Ok(denied_by(event, policy, Purpose::Observes)?.is_none())
}

/// Returns whether the kernel denies an event whatever the host answers.
#[inline(never)]
pub fn is_held(event: &Event<'_, '_>, approvals: &Approvals) -> PyResult<bool> {
    let Some(policy) = approvals.held.clone() else {
        return Ok(false);
    };
    // A recording lets look-ups pass that lead to a connection alone.
    let denied = denied_by(event, policy, Purpose::Judges)?;
    Ok(denied.flatten().is_some_and(Why::is_held_by_kernel))
}

fn denied_by(
    event: &Event<'_, '_>,
    policy: Arc<Policy>,
    purpose: Purpose<'_>,
) -> PyResult<Option<Option<Why>>> {
    let config = event.config.judging_by(event.args.py(), policy);
    let probe = Probe::new(purpose);
    let event = Event { config: &config, probe: Some(&probe), ..*event };
    judge::judge_any(&event, events::lookup(event.name.to_bytes()))?;
    Ok(probe.denied.get())
}

/// Asks the host, and keeps its answer where it says so. An `Exception` that the callback raises
/// becomes the cause of the denial; any other error is raised.
#[inline(never)]
pub fn ask(
    config: &AuditCfg,
    approvals: &Approvals,
    denial: &Bound<'_, Denial>,
    exception: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let py = denial.py();
    let told = denial.get();
    told.note_chain(py)?;
    // An answer that is kept is for the place that the question is about.
    if let Some(asked) = &told.decision.asked {
        asked.lacks(py, told);
    }
    let _asking = approvals::Marked::begin(&approvals::ASKING_HOST);
    let answer = match approvals.ask.call(&(exception,).into_pyobject(py)?) {
        Ok(answer) if answer.is_none() => {
            told.note_answer("there was no answer".to_owned());
            return Ok(false);
        }
        Ok(answer) => read(&answer),
        Err(error) if error.is_instance_of::<PyException>(py) => {
            told.note_answer(format!("on_ask raised {}", one_line(py, &error)));
            exception.set_attr(intern!(py, "__cause__"), error.into_value(py))?;
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let extent = match answer {
        Ok(None) => {
            told.note_answer("the answer was no".to_owned());
            return Ok(false);
        }
        Ok(Some(Answer::Once)) => return Ok(true),
        Ok(Some(Answer::Kept(extent))) => extent,
        Ok(Some(Answer::Never)) => {
            told.note_answer("the answer was never".to_owned());
            let widest = told.offer(py, Extent::Pattern);
            match widest.or_else(|| told.offer(py, Extent::Alone)) {
                Some(never) => {
                    approvals::widen(py, &approvals.never, &never, config.policy())?;
                    keep(py, approvals, &Kept { allowed: Spec::default(), never })?;
                }
                None => warn_unkept(told, py, "deny")?,
            }
            return Ok(false);
        }
        Err(given) => {
            told.note_answer(format!(
                "on_ask must return 'once', 'guard', 'pattern', 'deny' or 'never', not {given}"
            ));
            return Ok(false);
        }
    };
    match told.offer(py, extent) {
        Some(allowed) => {
            approvals::widen(py, &approvals.policy, &allowed, config.policy())?;
            keep(py, approvals, &Kept { allowed, never: Spec::default() })?;
        }
        None => warn_unkept(told, py, "once")?,
    }
    Ok(true)
}

fn keep(py: Python<'_>, approvals: &Approvals, kept: &Kept) -> PyResult<()> {
    match approvals.keep(kept) {
        Ok(()) => Ok(()),
        Err(problem) => warn(py, format!("an answer was not written to {problem}")),
    }
}

fn warn_unkept(told: &Denial, py: Python<'_>, counts_as: &str) -> PyResult<()> {
    let text = format!(
        "an answer to {} cannot be kept: it counts as '{counts_as}' (AuditDenied.answers has the \
         answers that can be given)",
        told.event
    );
    warn(py, text)
}

fn warn(py: Python<'_>, text: String) -> PyResult<()> {
    let text = CString::new(text).unwrap_or_default();
    calling::warn(&py.get_type::<PyRuntimeWarning>(), &text)
}

/// Reads an answer; `Err` has another value, as messages show it.
fn read(answer: &Bound<'_, PyAny>) -> Result<Option<Answer>, String> {
    if let Ok(answer) = answer.cast::<PyBool>() {
        return Ok(answer.is_true().then_some(Answer::Once));
    }
    if is_awaitable(answer) {
        return Err(format!("an awaitable of type {}", errors::type_name(answer)));
    }
    // An `Enum` of texts is one as well.
    if let Ok(text) = answer.cast::<PyString>()
        && let Ok(answer) = Answer::read(&text.to_string_lossy())
    {
        return Ok(answer);
    }
    Err(errors::shown(answer))
}

fn one_line(py: Python<'_>, error: &PyErr) -> String {
    let value = error.value(py);
    let class = errors::type_name(value.as_any());
    let text = value.text();
    let text = text.map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned());
    match text.lines().next() {
        None => class,
        Some(line) => format!("{class}: {line}"),
    }
}
