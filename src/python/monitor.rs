//! The CALL monitor (PEP 669): sees calls while some guard that asks for it is in force.
//!
//! Outside guards its events are off, and code runs at full speed. No call site is switched off
//! because its first callee was harmless: the next one need not be.

#[cfg(Py_3_12)]
pub use on::{Hold, check_available, install};

#[cfg(not(Py_3_12))]
pub use off::{Hold, check_available, install};

#[cfg(not(Py_3_12))]
mod off {
    use pyo3::prelude::*;

    use crate::python::errors;

    /// Never made: no guard can ask for monitoring.
    pub enum Hold {}

    impl Hold {
        pub fn new(_py: Python<'_>) -> PyResult<Self> {
            Err(errors::no_monitoring())
        }
    }

    pub fn check_available(_py: Python<'_>, _tool_id: i32) -> PyResult<()> {
        Err(errors::no_monitoring())
    }

    pub fn install(_py: Python<'_>, _tool_id: i32) -> PyResult<()> {
        Err(errors::no_monitoring())
    }
}

#[cfg(Py_3_12)]
mod on {
    #![allow(unsafe_code)]

    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

    use pyo3::exceptions::PyRuntimeError;
    use pyo3::ffi::{Py_ssize_t, PyObject};
    use pyo3::prelude::*;
    use pyo3::sync::PyOnceLock;
    use pyo3::types::{PyBool, PyString};

    use crate::python::context::{self, Current};
    use crate::python::{callee, denial, errors, ffi as raw, frames, hook};

    /// The name our tool id is taken under.
    const TOOL: &str = "fastaudit_rs";
    const NOT_INSTALLED: i32 = -1;

    static TOOL_ID: AtomicI32 = AtomicI32::new(NOT_INSTALLED);
    /// How many guards want the events on.
    static HOLDS: AtomicUsize = AtomicUsize::new(0);
    /// Whether `on_call` has had a call site switched off since all were last switched on.
    static SITES_OFF: AtomicBool = AtomicBool::new(false);
    static MONITORING: PyOnceLock<Monitoring> = PyOnceLock::new();

    /// What is used of `sys.monitoring`, as it was when the monitor was installed.
    struct Monitoring {
        get_tool: Py<PyAny>,
        use_tool_id: Py<PyAny>,
        free_tool_id: Py<PyAny>,
        register_callback: Py<PyAny>,
        set_events: Py<PyAny>,
        restart_events: Py<PyAny>,
        disable: Py<PyAny>,
        call_event: Py<PyAny>,
        callback: Py<PyAny>,
    }

    impl Monitoring {
        fn get(py: Python<'_>) -> PyResult<&Self> {
            MONITORING.get_or_try_init(py, || {
                let monitoring = py.import("sys")?.getattr("monitoring")?;
                let function = |name| monitoring.getattr(name).map(Bound::unbind);
                Ok(Self {
                    get_tool: function("get_tool")?,
                    use_tool_id: function("use_tool_id")?,
                    free_tool_id: function("free_tool_id")?,
                    register_callback: function("register_callback")?,
                    set_events: function("set_events")?,
                    restart_events: function("restart_events")?,
                    disable: function("DISABLE")?,
                    call_event: monitoring.getattr("events")?.getattr("CALL")?.unbind(),
                    callback: raw::new_fast_function(py, c"fastaudit_rs_call", call_event)?
                        .unbind(),
                })
            })
        }

        fn tool<'py>(&self, py: Python<'py>, id: i32) -> PyResult<Bound<'py, PyAny>> {
            self.get_tool.bind(py).call1((id,))
        }

        fn is_ours(&self, py: Python<'_>, id: i32) -> PyResult<bool> {
            Ok(self
                .tool(py, id)?
                .cast::<PyString>()
                .is_ok_and(|name| name == TOOL))
        }
    }

    /// Checks that the monitor can run under a tool id, or does.
    ///
    /// # Errors
    /// `RuntimeError` when it runs under another one, or the tool id is another tool's.
    pub fn check_available(py: Python<'_>, tool_id: i32) -> PyResult<()> {
        let monitoring = Monitoring::get(py)?;
        let ours = TOOL_ID.load(Ordering::Relaxed);
        if ours != NOT_INSTALLED && monitoring.is_ours(py, ours)? {
            return if ours == tool_id {
                Ok(())
            } else {
                Err(errors::other_tool_id(ours))
            };
        }
        let tool = monitoring.tool(py, tool_id)?;
        if tool.is_none() {
            Ok(())
        } else {
            Err(errors::tool_id_taken(tool_id, &tool))
        }
    }

    /// Takes the tool id and registers the callback, unless that was done before.
    ///
    /// # Errors
    /// As [`check_available`].
    pub fn install(py: Python<'_>, tool_id: i32) -> PyResult<()> {
        check_available(py, tool_id)?;
        let monitoring = Monitoring::get(py)?;
        if monitoring.is_ours(py, tool_id)? {
            return Ok(());
        }
        callee::prepare(py)?;
        monitoring.use_tool_id.bind(py).call1((tool_id, TOOL))?;
        let register = monitoring.register_callback.bind(py);
        let callback = (tool_id, &monitoring.call_event, &monitoring.callback);
        if let Err(error) = register.call1(callback) {
            // An audit hook refused it.
            monitoring.free_tool_id.bind(py).call1((tool_id,))?;
            return Err(error);
        }
        TOOL_ID.store(tool_id, Ordering::Relaxed);
        if HOLDS.load(Ordering::Relaxed) > 0 {
            // The tool id was freed under a guard that is still in force.
            monitoring
                .set_events
                .bind(py)
                .call1((tool_id, &monitoring.call_event))?;
        }
        Ok(())
    }

    /// Keeps the events on for as long as it lives.
    pub struct Hold(());

    impl Hold {
        /// Switches the events on, and each call site that a callback switched off.
        ///
        /// # Errors
        /// `RuntimeError` when the tool id is no longer ours: calls would go unseen.
        pub fn new(py: Python<'_>) -> PyResult<Self> {
            let monitoring = Monitoring::get(py)?;
            let id = TOOL_ID.load(Ordering::Relaxed);
            if !monitoring.is_ours(py, id)? {
                return Err(errors::tool_id_lost(id));
            }
            if SITES_OFF.swap(false, Ordering::Relaxed) {
                monitoring.restart_events.bind(py).call0()?;
            }
            // Dropped, and so counted back, if the events cannot be set.
            let hold = Self(());
            if HOLDS.fetch_add(1, Ordering::Relaxed) == 0 {
                monitoring
                    .set_events
                    .bind(py)
                    .call1((id, &monitoring.call_event))?;
            }
            Ok(hold)
        }
    }

    impl Drop for Hold {
        fn drop(&mut self) {
            if HOLDS.fetch_sub(1, Ordering::Relaxed) != 1 {
                return;
            }
            // SAFETY: a hold is part of a pyclass or a local of an attached function.
            let py = unsafe { Python::assume_attached() };
            if raw::is_finalizing(py) {
                return;
            }
            let pending = PyErr::take(py);
            // A tool id that is no longer ours has no events of ours to switch off.
            let id = TOOL_ID.load(Ordering::Relaxed);
            if let Ok(monitoring) = Monitoring::get(py)
                && monitoring.is_ours(py, id).unwrap_or(false)
            {
                let _ = monitoring.set_events.bind(py).call1((id, 0));
            }
            if let Some(pending) = pending {
                pending.restore(py);
            }
        }
    }

    /// # Safety
    /// Called by CPython with the code object, the offset, the callee and its first argument.
    unsafe extern "C" fn call_event(
        _slf: *mut PyObject,
        args: *mut *mut PyObject,
        nargs: Py_ssize_t,
    ) -> *mut PyObject {
        // SAFETY: the monitor calls attached; anyone may call with other arguments, so they are
        // counted.
        let py = unsafe { Python::assume_attached() };
        if nargs != 4 {
            PyRuntimeError::new_err("called by sys.monitoring only").restore(py);
            return std::ptr::null_mut();
        }
        // SAFETY: there are four arguments, which live for the duration of the call.
        let (code, offset, callee) = unsafe {
            let at = |index: usize| Borrowed::from_ptr(py, *args.add(index));
            (at(0), at(1), at(2))
        };
        if callee::is_plainly_quiet(callee.as_ptr()) {
            return py.None().into_ptr();
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            raw::with_attachment_counted(|| {
                call(py, &code, &offset, &callee).map_err(|error| error.restore(py))
            })
        }));
        match result {
            Ok(Ok(disable)) => {
                let answer = if disable { disable_object(py) } else { None };
                answer.map_or_else(|| py.None().into_ptr(), Bound::into_ptr)
            }
            Ok(Err(())) => std::ptr::null_mut(),
            Err(_panic) => {
                denial::deny_by_failure(py, c"fastaudit.call", "internal error").restore(py);
                std::ptr::null_mut()
            }
        }
    }

    fn disable_object(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
        MONITORING
            .get(py)
            .map(|monitoring| monitoring.disable.bind(py).clone())
    }

    /// Handles a call; whether its site is to be switched off.
    fn call(
        py: Python<'_>,
        code: &Bound<'_, PyAny>,
        offset: &Bound<'_, PyAny>,
        callee: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        if !context::may_be_guarded() || denial::is_asking_host() {
            return Ok(false);
        }
        let active = match context::current(py)? {
            Current::Guarded(active) => active,
            // The event raised below is denied then, as every other.
            Current::Tampered => return raise(py, code, callee).map(|()| false),
            Current::Unguarded => return Ok(false),
        };
        let Some(config) = active.get().config().map(|config| config.get()) else {
            return Ok(false);
        };
        if !config.monitor_calls() {
            return Ok(false);
        }
        let Some(name) = callee::native_name(callee)? else {
            return Ok(false);
        };
        let caller = frames::caller(code)?;
        if let Some(on_call) = config.on_call(py) {
            let answer = on_call.call1((&caller, &name, callee, code, offset, config.data(py)))?;
            if denial::is_awaitable(&answer) {
                return Err(errors::returned_awaitable("on_call", &answer));
            }
            if disable_object(py).is_some_and(|disable| answer.is(&disable)) {
                // A site that is off is off for every guard, so only where no other could miss it.
                let alone = HOLDS.load(Ordering::Relaxed) == 1;
                SITES_OFF.fetch_or(alone, Ordering::Relaxed);
                return Ok(alone);
            }
            if answer
                .cast::<PyBool>()
                .is_ok_and(|answer| !answer.is_true())
            {
                return Ok(false);
            }
        }
        hook::audit(py, c"fastaudit.call", &[caller.as_any(), name.as_any()]).map(|()| false)
    }

    fn raise(py: Python<'_>, code: &Bound<'_, PyAny>, callee: &Bound<'_, PyAny>) -> PyResult<()> {
        match callee::native_name(callee)? {
            Some(name) => hook::audit(
                py,
                c"fastaudit.call",
                &[frames::caller(code)?.as_any(), name.as_any()],
            ),
            None => Ok(()),
        }
    }
}
