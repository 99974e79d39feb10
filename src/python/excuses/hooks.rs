//! The hooks that Python calls for an exception which nobody caught, or nobody can catch: one in
//! `__del__`, in the callback of a weak reference, in a thread of `_thread`.
//!
//! Python's own hooks write the traceback. Another is Python code, which is judged by what it does;
//! native code that is not of the standard library would go unseen, as Python calls the hook.

use pyo3::prelude::*;

use crate::python::guard::event::Event;
#[cfg(Py_3_12)]
use crate::python::values::callee;

/// Returns whether an event announces the call of such a hook.
pub fn announces(event: &Event<'_, '_>) -> bool {
    matches!(
        event.name.to_bytes(),
        b"sys.excepthook" | b"sys.unraisablehook"
    )
}

/// Returns whether a policy lets the hook be called. `mk_audit` denies it, as fastaudit does.
///
/// # Errors
/// Errors raised while looking at the hook.
pub fn passes(event: &Event<'_, '_>) -> PyResult<bool> {
    let Ok(hook) = event.args.get_item(0) else {
        return Ok(false);
    };
    #[cfg(Py_3_12)]
    let is_foreign = callee::native(&hook, event.args.get_item(1).ok().as_ref())?.is_some();
    #[cfg(not(Py_3_12))]
    let is_foreign = !hook.is_callable();
    Ok(event.config.is_of_policy() && !is_foreign)
}
