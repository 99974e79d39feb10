//! The CALL monitor (PEP 669): sees calls while some guard that asks for it is in force.
//!
//! Outside guards its events are off, and code runs at full speed. No call site is switched off
//! because its first callee was harmless, unless the host asks for that: the next callee may not
//! be.

#[cfg(Py_3_12)]
pub use crate::python::guard::monitoring::{holds, tool_id};
#[cfg(Py_3_12)]
pub use on::{find_tool_id, install, is_possible, native_code_loads};

#[cfg(not(Py_3_12))]
pub use off::{find_tool_id, holds, install, is_possible, native_code_loads, tool_id};

#[cfg(not(Py_3_12))]
mod off {
    use std::sync::atomic::{AtomicBool, Ordering};

    use pyo3::exceptions::PyRuntimeWarning;
    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    use crate::python::cpython::calling;
    use crate::python::guard::monitoring::Free;
    use crate::python::values::errors;

    /// True if this process was told that calls are not watched.
    static TOLD: AtomicBool = AtomicBool::new(false);

    /// To a caller that demands it by an error, to others by a warning, the first time.
    pub fn is_possible(py: Python<'_>, demanded_by: Option<&str>) -> PyResult<bool> {
        if let Some(argument) = demanded_by {
            return Err(errors::no_monitoring(argument));
        }
        // Before Python code runs, which could come here again.
        if !TOLD.swap(true, Ordering::Relaxed) {
            let class = py.get_type::<PyRuntimeWarning>();
            let text = errors::not_watched(py);
            // Ours has no frame: the innermost one is the caller's.
            calling::warn(&class, &text).inspect_err(|_| TOLD.store(false, Ordering::Relaxed))?;
        }
        Ok(false)
    }

    pub fn native_code_loads(_event: &[u8], _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        Ok(())
    }

    pub fn tool_id() -> Option<i32> {
        None
    }

    pub fn holds() -> usize {
        0
    }

    pub fn find_tool_id(_py: Python<'_>, _chosen: Option<i32>) -> PyResult<Option<Free>> {
        Err(errors::no_monitoring("monitor_calls=True"))
    }

    pub fn install(_py: Python<'_>, _free: Free) -> PyResult<()> {
        Err(errors::no_monitoring("monitor_calls=True"))
    }
}

#[cfg(Py_3_12)]
mod on {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    use crate::python::callees::callee::{self, Native};
    use crate::python::callees::callee_cache as cache;
    use crate::python::calls::ask::{self, NativeCall, Said};
    use crate::python::calls::deferred;
    use crate::python::calls::named::{self, NamedCallee};
    use crate::python::cpython::callbacks::{CallEvent, Forever, Monitor, of_call, of_end};
    use crate::python::cpython::called::Returned;
    use crate::python::cpython::{ffi as raw, layout};
    use crate::python::denials::denial;
    use crate::python::importing::loaded;

    use crate::python::callees::caller;
    use crate::python::configuration::approvals;
    use crate::python::guard::monitoring::{self, Free};
    use crate::python::guard::scope::{self, Current};

    static DISABLE: Forever = Forever::unknown();

    #[expect(clippy::unnecessary_wraps, reason = "what it is before Python 3.12")]
    pub fn is_possible(_py: Python<'_>, _demanded_by: Option<&str>) -> PyResult<bool> {
        Ok(true)
    }

    /// `None` if the monitor runs already.
    pub fn find_tool_id(py: Python<'_>, chosen: Option<i32>) -> PyResult<Option<Free>> {
        monitoring::find(py, of_call::<Ours>, chosen)
    }

    pub fn install(py: Python<'_>, free: Free) -> PyResult<()> {
        callee::prepare(py)?;
        loaded::install(py)?;
        deferred::prepare(py, of_end::<Ours>)?;
        DISABLE.set(monitoring::install(py, free)?);
        Ok(())
    }

    /// Begins to watch if an event says that the first native code from outside the standard library loads.
    pub fn native_code_loads(event: &[u8], args: &Bound<'_, PyTuple>) -> PyResult<()> {
        match loaded::take_note(event, args) {
            true => monitoring::native_code_loads(args.py()),
            false => Ok(()),
        }
    }

    /// The answer to an event whose callee is quiet: its site is watched further, unless every
    /// guard in force lets it be retired.
    #[inline]
    fn quiet_answer(py: Python<'_>) -> Returned {
        match monitoring::retires() {
            true => DISABLE.give(py),
            false => Returned::none(py),
        }
    }

    struct Ours;

    impl Monitor for Ours {
        #[inline(always)]
        fn call(event: CallEvent<'_>) -> Returned {
            if cache::is_plainly_quiet(event.callee()) {
                return quiet_answer(event.py);
            }
            look(event)
        }

        fn ended(py: Python<'_>) -> Returned {
            let ended = || deferred::ends(py, monitoring::id());
            match caught(py, ended) {
                Some(()) => Returned::none(py),
                None => Returned::failed(),
            }
        }
    }

    #[inline(never)]
    fn look(event: CallEvent<'_>) -> Returned {
        if monitoring::all_have_safe_set() && cache::is_plainly_safe(event.callee()) {
            return Returned::none(event.py);
        }
        if cache::is_quiet_in_second_place(event.callee()) {
            return quiet_answer(event.py);
        }
        look_closely(event)
    }

    /// The same for a callee about which nothing is remembered.
    #[inline(never)]
    fn look_closely(event: CallEvent<'_>) -> Returned {
        let (py, [code, offset, callee, first]) = (event.py, event.all());
        match caught(py, || call(py, &code, &offset, &callee, &first)) {
            Some(Answer::Quiet) => quiet_answer(py),
            Some(Answer::Watch) => Returned::none(py),
            Some(Answer::SwitchOff) => DISABLE.give(py),
            None => Returned::failed(),
        }
    }

    /// Runs our own part of an event. `None` if that failed, or panicked: then an exception is set.
    fn caught<T>(py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> Option<T> {
        let result = catch_unwind(AssertUnwindSafe(|| raw::or_set_error(py, work)));
        match result {
            Ok(result) => result.ok(),
            Err(_panic) => {
                denial::deny_by_failure(py, c"fastaudit.call", None, "internal error").restore(py);
                None
            }
        }
    }

    /// The decision on a call site.
    enum Answer {
        /// Its callee is not native code of someone else.
        Quiet,
        /// It stays watched, whatever guards are in force.
        Watch,
        /// The host wants it switched off.
        SwitchOff,
    }

    fn call(
        py: Python<'_>,
        code: &Bound<'_, PyAny>,
        offset: &Bound<'_, PyAny>,
        callee: &Bound<'_, PyAny>,
        first: &Bound<'_, PyAny>,
    ) -> PyResult<Answer> {
        if !scope::may_be_guarded() || approvals::is_asking_host() {
            return Ok(Answer::Watch);
        }
        let mut is_alone = false;
        let config = match scope::own(py)? {
            // The event raised below is denied then, as every other.
            Current::Tampered => None,
            Current::Guarded(active) if active.get().watching().is_some() => {
                is_alone = active.get().other().is_none()
                    && !scope::installed().any(|installed| installed.active.get().watches());
                let active = active.get().watching();
                active.and_then(|active| Some(active.config()?.clone_ref(py)))
            }
            Current::Guarded(_) | Current::Unguarded => {
                let mut installed = scope::installed().map(|installed| installed.active.get());
                match installed.find(|active| active.watches()) {
                    Some(active) => active.config().map(|config| config.clone_ref(py)),
                    None => return Ok(Answer::Watch),
                }
            }
        };
        let config = config.as_ref().map(|config| config.get());
        let key = named::Key::of(callee.as_borrowed());
        let versions = layout::class_versions_of(callee.as_borrowed());
        let found = match named::find(callee, key) {
            Some(found) => found,
            None => match callee::native(callee, Some(first))? {
                Some(native) => {
                    let found = NamedCallee::new(native)?;
                    named::remember(callee, key, &found)?;
                    found
                }
                None => return Ok(Answer::Quiet),
            },
        };
        let NamedCallee {
            native,
            full,
            is_fragile,
        } = &found;
        let Native { name, function } = native;
        let passes = match config {
            Some(config) if is_alone || config.is_strict() => ask::passes(config, native),
            _ => Ok(false),
        };
        if matches!(passes, Ok(true)) {
            // A class that calls its first argument has to be looked at each time.
            if function.is(callee)
                && !is_fragile
                && config.is_some_and(|config| monitoring::is_remembered(config.safe_set))
            {
                cache::remember_safe(callee.as_borrowed(), versions);
                if ask::is_of_its_module(name, callee)? {
                    cache::remember_safe_object(callee.clone().unbind());
                }
            }
            if *is_fragile {
                deferred::begins(py, monitoring::id(), full)?;
            }
            return Ok(Answer::Watch);
        }
        let caller = caller::name(code)?;
        let call = NativeCall {
            caller: &caller,
            name: full,
            native,
            site: (code, offset),
            disable: &DISABLE,
        };
        match passes.and_then(|_| call.ask(config)) {
            Ok(said) => {
                if *is_fragile {
                    deferred::begins(py, monitoring::id(), full)?;
                }
                let off = matches!(said, Said::SwitchOff) && monitoring::switches_off();
                Ok(if off {
                    Answer::SwitchOff
                } else {
                    Answer::Watch
                })
            }
            Err(denial) => deferred::deny(py, &caller, denial).map(|()| Answer::Watch),
        }
    }
}
