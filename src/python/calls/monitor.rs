//! The CALL monitor (PEP 669): sees calls while some guard that asks for it is in force.
//!
//! Outside guards its events are off, and code runs at full speed. No call site is switched off
//! because its first callee was harmless, unless the host asks for that: the next callee may not
//! be.

#[cfg(Py_3_12)]
pub use crate::python::calls::monitoring::tool_id;
#[cfg(Py_3_12)]
pub use on::{find_tool_id, holds, install, is_possible, native_code_loads, unwatch, watch};

#[cfg(not(Py_3_12))]
pub use off::{
    find_tool_id, holds, install, is_possible, native_code_loads, tool_id, unwatch, watch,
};

#[cfg(not(Py_3_12))]
mod off {
    use std::sync::atomic::{AtomicBool, Ordering};

    use pyo3::exceptions::PyRuntimeWarning;
    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    use crate::python::configuration::config::AuditCfg;
    use crate::python::cpython::calling;
    use crate::python::guard::turns::Watched;
    use crate::python::values::errors;

    /// True if this process was told that calls are not watched.
    static TOLD: AtomicBool = AtomicBool::new(false);

    /// Reports that calls cannot be watched: to a caller that demands it by an error, to others by
    /// a warning, the first time.
    ///
    /// # Errors
    /// `RuntimeError` for the argument that demands it, and the warning if it is made an error.
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

    /// No guard can ask for monitoring.
    pub fn watch(_py: Python<'_>, _config: &AuditCfg) -> PyResult<Watched> {
        Err(errors::no_monitoring("monitor_calls=True"))
    }

    pub fn unwatch(_watched: Watched) {}

    pub fn native_code_loads(_event: &[u8], _args: &Bound<'_, PyTuple>) -> PyResult<()> {
        Ok(())
    }

    pub fn tool_id() -> Option<i32> {
        None
    }

    pub fn holds() -> usize {
        0
    }

    /// Never made: there are no tool ids.
    #[derive(Clone, Copy)]
    pub enum Free {}

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
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    use crate::python::callees::callee::{self, Native};
    use crate::python::callees::callee_cache as cache;
    use crate::python::calls::ask::{self, NativeCall, Said};
    use crate::python::calls::deferred;
    use crate::python::calls::monitoring::{self, Free, HOLDS, Monitoring};
    use crate::python::calls::named::{self, Found};
    use crate::python::cpython::callbacks::{CallEvent, Forever, Monitor, of_call, of_end};
    use crate::python::cpython::called::Returned;
    use crate::python::cpython::calling::Calling;
    use crate::python::cpython::{attachment, ffi as raw, layout};
    use crate::python::denials::denial;
    use crate::python::importing::loaded;

    use crate::python::callees::caller;
    use crate::python::configuration::approvals;
    use crate::python::configuration::config::AuditCfg;
    use crate::python::guard::scope::{self, Current};
    use crate::python::guard::turns::Watched;

    /// The number of them that let sites be retired.
    static RETIRING: AtomicUsize = AtomicUsize::new(0);
    /// The set of callees that is remembered as safe: that of guards which allow the same set.
    static SAFE_SET: AtomicU64 = AtomicU64::new(0);
    /// The number of them that allow exactly this set.
    static OF_SAFE_SET: AtomicUsize = AtomicUsize::new(0);
    /// True if the events are on. They are off until there is native code to watch.
    static ON: AtomicBool = AtomicBool::new(false);
    /// True if `on_call` had a call site switched off since all were last switched on.
    static SWITCHED_OFF: AtomicBool = AtomicBool::new(false);
    /// True if a call site was retired since all were last switched on.
    static RETIRED: AtomicBool = AtomicBool::new(false);
    /// `sys.monitoring.DISABLE`, kept alive by `MONITORING`.
    static DISABLE: Forever = Forever::unknown();

    /// Returns whether calls can be watched.
    ///
    /// # Errors
    /// None; there are some before Python 3.12.
    #[expect(clippy::unnecessary_wraps, reason = "what it is before Python 3.12")]
    pub fn is_possible(_py: Python<'_>, _demanded_by: Option<&str>) -> PyResult<bool> {
        Ok(true)
    }

    /// Returns a tool id for the monitor, the host's choice if it made one; `None` if the monitor
    /// runs already.
    pub fn find_tool_id(py: Python<'_>, chosen: Option<i32>) -> PyResult<Option<Free>> {
        monitoring::find(py, Monitoring::get(py, of_call::<Ours>)?, chosen)
    }

    /// Takes the tool id and registers the callback.
    pub fn install(py: Python<'_>, free: Free) -> PyResult<()> {
        let monitoring = Monitoring::get(py, of_call::<Ours>)?;
        callee::prepare(py)?;
        loaded::install(py)?;
        deferred::prepare(py, of_end::<Ours>)?;
        DISABLE.set(monitoring.disable.bind(py));
        monitoring::take(py, monitoring, free)?;
        ON.store(false, Ordering::Relaxed);
        if HOLDS.load(Ordering::Relaxed) > 0 {
            // The tool id was freed under a guard that is still in force.
            begin(py, monitoring)?;
        }
        Ok(())
    }

    /// Switches the events on, if there is any native code to watch.
    fn begin(py: Python<'_>, monitoring: &Monitoring) -> PyResult<()> {
        if loaded::foreign() && !ON.load(Ordering::Relaxed) {
            monitoring.set_events(py, true)?;
            ON.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes the tool id again, registers the callback and switches the events on, whatever other
    /// code changed.
    #[cold]
    fn repair(py: Python<'_>, monitoring: &Monitoring) -> PyResult<()> {
        monitoring::take_again(py, monitoring)?;
        ON.store(false, Ordering::Relaxed);
        if HOLDS.load(Ordering::Relaxed) > 0 {
            begin(py, monitoring)?;
        }
        Ok(())
    }

    /// Returns the number of guards that want calls watched.
    pub fn holds() -> usize {
        HOLDS.load(Ordering::Relaxed)
    }

    /// Takes note of an audit event that says that native code is going to be loaded, and begins
    /// to watch if that is the first from outside the standard library.
    ///
    /// # Errors
    /// `RuntimeError` if the tool id is no longer ours: its calls would go unseen.
    pub fn native_code_loads(event: &[u8], args: &Bound<'_, PyTuple>) -> PyResult<()> {
        if !loaded::take_note(event, args) || HOLDS.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let py = args.py();
        let monitoring = Monitoring::get(py, of_call::<Ours>)?;
        if monitoring::was_changed() || !monitoring.is_ours(py)? {
            repair(py, monitoring)?;
        }
        begin(py, monitoring)
    }

    /// Switches the events on, and each call site that was switched off on another's account.
    ///
    /// # Errors
    /// `RuntimeError` if the tool id is no longer ours: calls would go unseen.
    pub fn watch(py: Python<'_>, config: &AuditCfg) -> PyResult<Watched> {
        let retires = config.retire_sites();
        let monitoring = Monitoring::get(py, of_call::<Ours>)?;
        if monitoring::was_changed() || !monitoring.is_ours(py)? {
            repair(py, monitoring)?;
        }
        let blind =
            SWITCHED_OFF.load(Ordering::Relaxed) || (RETIRED.load(Ordering::Relaxed) && !retires);
        if blind {
            monitoring.restart_events.bind(py).invoke0()?;
            SWITCHED_OFF.store(false, Ordering::Relaxed);
            RETIRED.store(false, Ordering::Relaxed);
        }
        let is_of_safe_set = has_safe_set(config.safe_set());
        let watched = Watched {
            retires,
            is_of_safe_set,
        };
        HOLDS.fetch_add(1, Ordering::Relaxed);
        OF_SAFE_SET.fetch_add(is_of_safe_set.into(), Ordering::Relaxed);
        RETIRING.fetch_add(retires.into(), Ordering::Relaxed);
        begin(py, monitoring).inspect_err(|_| unwatch(watched))?;
        Ok(watched)
    }

    /// Undoes `watch`: without a guard that watches, the events are switched off.
    pub fn unwatch(watched: Watched) {
        RETIRING.fetch_sub(watched.retires.into(), Ordering::Relaxed);
        OF_SAFE_SET.fetch_sub(watched.is_of_safe_set.into(), Ordering::Relaxed);
        if HOLDS.fetch_sub(1, Ordering::Relaxed) != 1 || !ON.load(Ordering::Relaxed) {
            return;
        }
        let _ = attachment::if_attached(stop);
    }

    /// Switches the events off.
    fn stop(py: Python<'_>) {
        if raw::is_finalizing(py) {
            return;
        }
        let pending = PyErr::take(py);
        // A tool id that is no longer ours has no events of ours to switch off.
        if let Ok(monitoring) = Monitoring::get(py, of_call::<Ours>)
            && monitoring.is_ours(py).unwrap_or(false)
        {
            let _ = monitoring.set_events(py, false);
        }
        ON.store(false, Ordering::Relaxed);
        if let Some(pending) = pending {
            pending.restore(py);
        }
    }

    /// Returns whether all guards in force allow the callees that are remembered as safe.
    #[inline]
    fn all_have_safe_set() -> bool {
        let same = OF_SAFE_SET.load(Ordering::Relaxed);
        same != 0 && same == HOLDS.load(Ordering::Relaxed)
    }

    /// Returns whether a set of safe callees is the remembered one, or has become it: another set
    /// is forgotten if no guard in force has it. 0 stands for no set.
    fn has_safe_set(set: u64) -> bool {
        if set != 0
            && set != SAFE_SET.load(Ordering::Relaxed)
            && OF_SAFE_SET.load(Ordering::Relaxed) == 0
        {
            cache::forget_safe();
            SAFE_SET.store(set, Ordering::Relaxed);
        }
        set != 0 && set == SAFE_SET.load(Ordering::Relaxed)
    }

    /// The answer to an event whose callee is quiet: its site is watched further, unless every
    /// guard in force lets it be retired.
    #[inline]
    fn quiet_answer(py: Python<'_>) -> Returned {
        let retiring = RETIRING.load(Ordering::Relaxed);
        if retiring != 0 && retiring == HOLDS.load(Ordering::Relaxed) {
            RETIRED.store(true, Ordering::Relaxed);
            return DISABLE.give(py);
        }
        Returned::none(py)
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

    /// Looks at a callee that is not plainly quiet.
    #[inline(never)]
    fn look(event: CallEvent<'_>) -> Returned {
        if all_have_safe_set() && cache::is_plainly_safe(event.callee()) {
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
        let result = catch_unwind(AssertUnwindSafe(|| {
            raw::with_attachment_counted(py, || work().map_err(|error| error.restore(py)))
        }));
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

    /// Handles a call.
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
                    let found = Found::new(native)?;
                    named::remember(callee, key, &found)?;
                    found
                }
                None => return Ok(Answer::Quiet),
            },
        };
        let Found {
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
                && config.is_some_and(|config| is_remembered(config.safe_set()))
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
                // A site that is off is off for every guard, so this is done only if no other guard
                // misses it.
                let off = matches!(said, Said::SwitchOff) && HOLDS.load(Ordering::Relaxed) == 1;
                SWITCHED_OFF.fetch_or(off, Ordering::Relaxed);
                Ok(if off {
                    Answer::SwitchOff
                } else {
                    Answer::Watch
                })
            }
            Err(denial) => deferred::deny(py, &caller, denial).map(|()| Answer::Watch),
        }
    }

    fn is_remembered(set: u64) -> bool {
        set != 0 && set == SAFE_SET.load(Ordering::Relaxed)
    }
}
