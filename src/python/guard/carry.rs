//! Carries the active guard into contexts that guarded code enters, until it leaves them; and says
//! what guarded code may do with the guards' context variable.

use std::mem::ManuallyDrop;

use pyo3::prelude::*;

use crate::python::cpython::called::{Returned, ours};
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::functions;
use crate::python::cpython::once::intern;
use crate::python::guard::active::{Active, relink};
use crate::python::guard::scope::{self, Current};
use crate::python::guard::tool_rights;

/// A guard that was put in force in a context for as long as it is entered.
pub struct Lent {
    active: Py<Active>,
    token: Py<PyAny>,
    before: Option<Py<Active>>,
}

/// Puts the active guard in force in a context that is about to be entered to call a function, if it is
/// not yet. A task that a tool started keeps the rights of the tool until that returns.
pub fn lend(
    py: Python<'_>,
    context: &Bound<'_, PyAny>,
    function: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Lent>> {
    let Some(active) = scope::guard(py)? else {
        return Ok(None);
    };
    // A context that is entered already cannot be entered again: CPython says so.
    let Ok(Some(_entered)) = raw::EnteredContext::new(context) else {
        return Ok(None);
    };
    if tool_rights::any_tool()
        && function.is_some_and(functions::is_step_of_task)
        && let Some(tool) = scope::tool_in_force(py)?
        && let Some((_, guest)) = tool.get().tool()
        && Active::is_within(guest.bind(py), &active)
    {
        return Ok(None);
    }
    lend_here(&active)
}

/// Puts a guard in force in the current context, beside the active one.
pub fn lend_here(active: &Bound<'_, Active>) -> PyResult<Option<Lent>> {
    let py = active.py();
    let (lent, before) = match scope::own(py)? {
        Current::Tampered => return Ok(None),
        Current::Unguarded => (active.clone().unbind(), None),
        Current::Guarded(before) if Active::is_within(&before, active) => return Ok(None),
        Current::Guarded(before) => {
            let both = Active::beside(py, &before, active)?;
            (both, Some(before.unbind()))
        }
    };
    let token = raw::context_var_set(scope::var(py)?, lent.bind(py).as_any())?;
    Ok(Some(Lent { active: lent, token: token.unbind(), before }))
}

/// Puts the guard of the guest in the place of a tool's rights, where code of the guest runs in the course
/// of the tool: things that it starts there do not get the rights.
pub fn lend_guest(py: Python<'_>) -> PyResult<Option<Lent>> {
    if !scope::may_be_guarded() || !tool_rights::any_tool() {
        return Ok(None);
    }
    let Some(value) = raw::context_var_get(py, scope::var(py)?)? else {
        return Ok(None);
    };
    match scope::own(py)? {
        Current::Guarded(active) if !active.is(&value) => replace_here(&active).map(Some),
        _ => Ok(None),
    }
}

/// A copy of a context, or a new one, with the guard in force; `None` if this one has it already.
pub fn with_guard<'py>(
    context: Option<&Bound<'py, PyAny>>,
    active: &Bound<'py, Active>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = active.py();
    let copy = raw::copy_context(py, context)?;
    let has_it = {
        let Some(_entered) = raw::EnteredContext::new(&copy)? else {
            return Ok(None);
        };
        match scope::own(py)? {
            // An object that is not a guard is dropped.
            Current::Tampered => {
                raw::context_var_set(scope::var(py)?, active.as_any())?;
                false
            }
            _ => lend_here(active)?.is_none(),
        }
    };
    Ok((!has_it).then_some(copy))
}

/// Puts a guard in force in the current context in the place of the active one.
pub fn replace_here(active: &Bound<'_, Active>) -> PyResult<Lent> {
    let token = raw::context_var_set(scope::var(active.py())?, active.as_any())?;
    Ok(Lent { active: active.clone().unbind(), token: token.unbind(), before: None })
}

/// Undoes `lend`. An error if the context is entered: the guard then stays in force in it.
pub fn take_back(context: &Bound<'_, PyAny>, lent: Lent) -> PyResult<()> {
    let py = context.py();
    let Some(_entered) = raw::EnteredContext::new(context)? else {
        return Ok(());
    };
    take_back_here(py, lent)
}

/// Undoes `lend_here`, in the same context.
pub fn take_back_here(py: Python<'_>, lent: Lent) -> PyResult<()> {
    let Lent { active, token, before } = lent;
    // If it was left meanwhile, another link took its place.
    let was_left = active.get().has_another_outer();
    let old = before.as_ref().and_then(|_| active.get().outer(py));
    match raw::context_var_get(py, scope::var(py)?)? {
        Some(now) if !now.is(&active) => {
            // A guard that was entered and not left: it goes on without this one.
            if let Ok(inner) = now.cast_into_exact::<Active>() {
                relink(py, inner.unbind(), &active, old);
            }
        }
        _ if before.is_some() && was_left => scope::put_back(py, old)?,
        _ => raw::context_var_reset(scope::var(py)?, token.bind(py))?,
    }
    Ok(())
}

pub fn is_var(object: &Bound<'_, PyAny>) -> bool {
    scope::var(object.py()).is_ok_and(|var| object.is(var))
}

/// Code in the current context may give the variable any value but another guard.
pub fn may_set(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_guard = value.cast_exact::<Active>().is_ok();
    Ok(!is_guard || matches!(scope::own(value.py())?, Current::Unguarded))
}

/// The variable may get back its value from before, if the guard in force put this one there.
pub fn may_reset(token: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = token.py();
    Ok(match scope::own(py)? {
        Current::Unguarded => true,
        Current::Guarded(_) => false,
        Current::Tampered => {
            let old = token.attr_opt(intern!(py, "old_value"))?;
            let old = old.and_then(|old| old.cast_into_exact::<Active>().ok());
            old.is_some_and(|old| old.get().config().is_some() && !old.get().is_left())
        }
    })
}

/// Makes a call, and takes the guard back that was lent for it; no result if that raises.
pub fn during(
    py: Python<'_>,
    lent: Option<Lent>,
    make: impl FnOnce() -> Returned,
    take_back: impl FnOnce(Python<'_>, Lent) -> PyResult<()>,
) -> Returned {
    let lent = ManuallyDrop::new(lent);
    let result = make();
    let Some(lent) = ManuallyDrop::into_inner(lent) else {
        return result;
    };
    let taken_back = ours(py, |py| {
        let pending = PyErr::take(py);
        let taken = take_back(py, lent);
        match pending {
            Some(pending) => Err(pending),
            None => taken,
        }
    });
    result.if_done(py, taken_back)
}
