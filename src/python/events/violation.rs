//! A violation of the policy: the host may allow it, and says whether it proceeds; otherwise it is
//! denied.

use pyo3::prelude::*;

use crate::policy::Operation;
use crate::policy::files::os::Os;
use crate::policy::judge::Reason;
use crate::policy::learn::{self, Landing};
use crate::policy::written::spec::OnViolation;
use crate::policy::written::wording::Words;
use crate::python::denials::denial;
use crate::python::events::approval;
use crate::python::events::deny::{self, Refusal};
use crate::python::events::host;
use crate::python::events::outcome;
use crate::python::guard::asking::{Asking, is_asking_host, is_too_late};
use crate::python::guard::config::AuditCfg;
use crate::python::guard::event::Event;
use crate::python::values::process_start;

/// The end of a question about an operation that led to another place by then.
const MOVED: &str = "yes, but the path led to another place when the answer came";

/// The end of a question about an act of native code that could not be put.
const UNASKED: &str = "nobody was asked, because native code did it where no Python code can run";

/// Meets a violation: `Ok` if the event goes on all the same. An answer holds for the place that an
/// operation led to when it was asked.
///
/// # Errors
/// `AuditDenied` when it is denied; otherwise the error that a callback raised.
pub fn meet(
    event: &Event<'_, '_>,
    reason: Reason,
    operation: Option<Operation<'_>>,
) -> PyResult<()> {
    let (py, config, args) = (event.args.py(), event.config, event.args);
    let proceeds = config.on_violation() != OnViolation::Raise;
    if proceeds && is_asking_host() {
        return Ok(());
    }
    let mut approvals = match proceeds || is_asking_host() {
        true => None,
        false => config.approvals(),
    };
    let is_too_late = is_too_late();
    let is_unasked = is_too_late && approvals.is_some();
    if is_too_late {
        approvals = None;
    }
    let is_held = match approvals {
        None => false,
        Some(approvals) => approval::is_held(event, approvals)?,
    };
    let is_refused = match approvals {
        Some(approvals) if !is_held => approval::was_refused(event, approvals)?,
        _ => false,
    };
    if let Some(approvals) = approvals
        && !is_held
        && !is_refused
        && approval::was_given(event, approvals)?
    {
        note_asked(event, "approvals", true);
        process_start::approved(event.name, args);
        return Ok(());
    }
    let landing = || {
        operation.map_or_else(Landing::default, |operation| {
            Os::forget_current_dir();
            learn::landing(&Os, operation)
        })
    };
    let asked_for = landing();
    let refusal = Refusal::new(event, reason, &asked_for)?;
    let mut is_elsewhere = false;
    if (refusal.told.is_some() || config.asks_before_deny().is_some())
        && !is_asking_host()
        && !is_too_late
    {
        let answer = host::is_approved(&refusal)?;
        is_elsewhere = answer && landing() != asked_for;
        let is_approved = answer && !is_elsewhere;
        note_asked(event, "before_deny", is_approved);
        if is_approved {
            process_start::approved(event.name, args);
            return Ok(());
        }
    }
    let denial = refusal.denial()?;
    let exception = denial::exception(&denial)?;
    if is_elsewhere {
        denial.get().note_answer(MOVED.to_owned());
    } else if is_unasked {
        denial.get().note_answer(UNASKED.to_owned());
    } else if is_held {
        denial.get().note_answer(held(config));
    } else if is_refused {
        let answer = "it was answered before: never".to_owned();
        denial.get().note_answer(answer);
        note_asked(event, "approvals", false);
    } else if let Some(approvals) = approvals {
        let answer = approval::ask(config, approvals, &denial, &exception)?;
        let is_approved = answer && landing() == asked_for;
        if answer && !is_approved {
            denial.get().note_answer(MOVED.to_owned());
        }
        note_asked(event, "on_ask", is_approved);
        if is_approved {
            process_start::approved(event.name, args);
            return Ok(());
        }
    }
    deny::log(event.active, &denial);
    host::tell(config, &denial, &exception)?;
    if !proceeds {
        return Err(deny::deny(&exception));
    }
    denial.get().note_chain(py)?;
    let _asking = Asking::begin();
    outcome::tell(config, &denial, &exception)?;
    process_start::approved(event.name, args);
    Ok(())
}

/// The end of a question that is not asked.
fn held(config: &AuditCfg) -> String {
    let up_to = match config.told().map(|told| told.words) {
        Some(Words::SandboxOptions) => "--ask-up-to",
        _ => "ask_up_to= of the sandbox",
    };
    format!(
        "nobody was asked, because the kernel holds this whatever the answer is; {up_to} names \
         what answers may open"
    )
}

/// Notes a question to the host, for a log.
fn note_asked(event: &Event<'_, '_>, callback: &'static str, is_approved: bool) {
    if let Some(probe) = event.probe {
        probe.note_asked(callback, is_approved);
    }
}
