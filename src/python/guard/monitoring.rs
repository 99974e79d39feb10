//! The tool id of `sys.monitoring` that the CALL monitor runs under (PEP 669), and its events.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::cpython::callbacks::NewCallback;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::fork_safe_lock::ForkSafeLock;
use crate::python::cpython::functions::Builtin;
use crate::python::cpython::once::Once;
use crate::python::cpython::{attachment, ffi as raw};
use crate::python::guard::own_events::{REGISTERS, while_raising};
use crate::python::importing::loaded;
use crate::python::values::errors;

const TOOL: &str = "fastaudit_rs";
const NOT_INSTALLED: i32 = -1;

/// The number of guards that want the events on.
static HOLDS: AtomicUsize = AtomicUsize::new(0);

/// False without the interpreter's lock. Then no site is switched off: another thread may enter a guard
/// that needs it, before CPython switches it off and after the sites were switched on for that guard.
const HAS_LOCK: bool = cfg!(not(Py_GIL_DISABLED));

/// The ids to try, the default one first: by the documentation no tool has these but the last.
const BY_DEFAULT: [i32; 6] = [3, 4, 5, 2, 0, 1];

static TOOL_ID: AtomicI32 = AtomicI32::new(NOT_INSTALLED);
/// True if the host asked for this one.
static IS_CHOSEN: AtomicBool = AtomicBool::new(false);
/// True if other code changed the settings under it.
static CHANGED: AtomicBool = AtomicBool::new(false);
static MONITORING: Once<Monitoring> = Once::new();
/// The number of guards that watch calls and let sites be retired.
static RETIRING: AtomicUsize = AtomicUsize::new(0);
/// True if the events are on. They are off until there is native code to watch.
static ON: AtomicBool = AtomicBool::new(false);
/// Whoever switches them on or off has this.
static SWITCHING: ForkSafeLock = ForkSafeLock::new();
/// True if `on_call` had a call site switched off since all were last switched on.
static SWITCHED_OFF: AtomicBool = AtomicBool::new(false);
/// True if a call site was retired since all were last switched on.
static RETIRED: AtomicBool = AtomicBool::new(false);

/// What is used of `sys.monitoring`, as it was when the monitor was installed.
struct Monitoring {
    get_tool: Py<PyAny>,
    use_tool_id: Py<PyAny>,
    free_tool_id: Py<PyAny>,
    register_callback: Py<PyAny>,
    set_events: Py<PyAny>,
    /// Switches on the sites that were switched off.
    restart_events: Py<PyAny>,
    disable: Py<PyAny>,
    call_event: Py<PyAny>,
    callback: Py<PyAny>,
    /// The name that our tool id is taken under: it is compared by identity.
    name: Py<PyString>,
}

impl Monitoring {
    /// The shared one, made the first time with the callback of each call.
    fn get(py: Python<'_>, callback: NewCallback) -> PyResult<&'static Self> {
        MONITORING.get_or_try_init(py, || {
            let monitoring = calling::import(py, "sys")?.attr("monitoring")?;
            // Functions of our own, which are exempt from the checks on those that others call.
            let function = |name| -> PyResult<Py<PyAny>> {
                let found = monitoring.attr(name)?;
                let copy = Builtin::cast(&found).map(|function| function.copy());
                Ok(copy.transpose()?.unwrap_or(found).unbind())
            };
            Ok::<_, PyErr>(Self {
                get_tool: function("get_tool")?,
                use_tool_id: function("use_tool_id")?,
                free_tool_id: function("free_tool_id")?,
                register_callback: function("register_callback")?,
                set_events: function("set_events")?,
                restart_events: function("restart_events")?,
                disable: monitoring.attr("DISABLE")?.unbind(),
                call_event: monitoring.attr("events")?.attr("CALL")?.unbind(),
                callback: callback(py)?.unbind(),
                name: PyString::new(py, TOOL).unbind(),
            })
        })
    }

    /// The shared one, once a tool id was looked for.
    fn known(py: Python<'_>) -> PyResult<&'static Self> {
        MONITORING.get(py).ok_or_else(errors::no_tool_id)
    }

    /// The same, with all as it was that other code changed.
    fn repaired(py: Python<'_>) -> PyResult<&'static Self> {
        let monitoring = Self::known(py)?;
        if CHANGED.load(Ordering::Relaxed) || !monitoring.is_ours(py)? {
            take_again(py, monitoring)?;
            begin_again(py, monitoring)?;
        }
        Ok(monitoring)
    }

    fn tool<'py>(&self, py: Python<'py>, id: i32) -> PyResult<Bound<'py, PyAny>> {
        self.get_tool.bind(py).invoke1((id,))
    }

    fn is_ours(&self, py: Python<'_>) -> PyResult<bool> {
        let id = id();
        Ok(id != NOT_INSTALLED && self.tool(py, id)?.is(&self.name))
    }

    fn set_events(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        let set = self.set_events.bind(py);
        let done = match on {
            true => set.invoke1((id(), &self.call_event)),
            false => set.invoke1((id(), 0)),
        };
        done.map(|_| ())
    }

    fn register(&self, py: Python<'_>, id: i32) -> PyResult<()> {
        let register = self.register_callback.bind(py);
        let callback = (id, &self.call_event, &self.callback);
        while_raising(REGISTERS, || register.invoke1(callback)).map(|_| ())
    }

    fn take(&self, py: Python<'_>, id: i32) -> PyResult<()> {
        self.use_tool_id.bind(py).invoke1((id, &self.name))?;
        if let Err(error) = self.register(py, id) {
            // An audit hook refused it.
            self.free_tool_id.bind(py).invoke1((id,))?;
            return Err(error);
        }
        TOOL_ID.store(id, Ordering::Relaxed);
        CHANGED.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn first_free(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        for id in BY_DEFAULT {
            if self.tool(py, id)?.is_none() {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }
}

/// The tool id, -1 before there is one.
pub fn id() -> i32 {
    TOOL_ID.load(Ordering::Relaxed)
}

pub fn tool_id() -> Option<i32> {
    Some(id()).filter(|id| *id != NOT_INSTALLED)
}

#[derive(Clone, Copy)]
pub struct Free {
    id: i32,
    is_chosen: bool,
}

/// The tool id that the host chose, or a free one; `None` if the monitor runs already.
pub fn find(py: Python<'_>, callback: NewCallback, chosen: Option<i32>) -> PyResult<Option<Free>> {
    let monitoring = Monitoring::get(py, callback)?;
    if monitoring.is_ours(py)? {
        return match chosen {
            Some(chosen) if chosen != id() => Err(errors::other_tool_id(id())),
            _ => Ok(None),
        };
    }
    let id = match chosen {
        Some(id) => {
            let tool = monitoring.tool(py, id)?;
            if !tool.is_none() {
                return Err(errors::tool_id_taken(id, &tool));
            }
            id
        }
        None => monitoring.first_free(py)?.ok_or_else(errors::no_tool_id)?,
    };
    Ok(Some(Free { id, is_chosen: chosen.is_some() }))
}

/// Takes it, and registers the callback; returns `sys.monitoring.DISABLE`.
pub fn install(py: Python<'_>, free: Free) -> PyResult<&Bound<'_, PyAny>> {
    let monitoring = Monitoring::known(py)?;
    monitoring.take(py, free.id)?;
    IS_CHOSEN.store(free.is_chosen, Ordering::Relaxed);
    begin_again(py, monitoring)?;
    Ok(monitoring.disable.bind(py))
}

/// Takes the tool id again, and registers the callback.
#[cold]
fn take_again(py: Python<'_>, monitoring: &Monitoring) -> PyResult<()> {
    if monitoring.is_ours(py)? {
        monitoring.register(py, id())?;
        CHANGED.store(false, Ordering::Relaxed);
        return Ok(());
    }
    let lost = || errors::tool_id_lost(id());
    if id() != NOT_INSTALLED && monitoring.tool(py, id())?.is_none() {
        return monitoring.take(py, id());
    }
    if IS_CHOSEN.load(Ordering::Relaxed) {
        return Err(lost());
    }
    let free = monitoring.first_free(py)?.ok_or_else(lost)?;
    monitoring.take(py, free)
}

/// Makes ready for a guard that watches: takes the tool id again where it was lost, and switches on each
/// call site that was switched off on another's account.
pub fn prepare_for(py: Python<'_>, retires: bool) -> PyResult<()> {
    let monitoring = Monitoring::repaired(py)?;
    let blind =
        SWITCHED_OFF.load(Ordering::Relaxed) || (RETIRED.load(Ordering::Relaxed) && !retires);
    if blind {
        monitoring.restart_events.bind(py).invoke0()?;
        SWITCHED_OFF.store(false, Ordering::Relaxed);
        RETIRED.store(false, Ordering::Relaxed);
    }
    Ok(())
}

/// Switches the events on for one more guard.
pub fn hold(py: Python<'_>, retires: bool) -> PyResult<()> {
    HOLDS.fetch_add(1, Ordering::Relaxed);
    RETIRING.fetch_add(retires.into(), Ordering::Relaxed);
    begin(py, Monitoring::known(py)?)
}

/// A guard has ended: without one that watches, the events are switched off.
pub fn release(retires: bool) {
    RETIRING.fetch_sub(retires.into(), Ordering::Relaxed);
    if HOLDS.fetch_sub(1, Ordering::Relaxed) == 1 && ON.load(Ordering::Relaxed) {
        let _ = attachment::if_attached(stop);
    }
}

/// Switches the events on, if there is any native code to watch.
fn begin(py: Python<'_>, monitoring: &Monitoring) -> PyResult<()> {
    if loaded::foreign() {
        let _switching = SWITCHING.lock_without_gil();
        if !ON.load(Ordering::Relaxed) {
            monitoring.set_events(py, true)?;
            ON.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The same where they may have been switched off, under guards that are still in force.
fn begin_again(py: Python<'_>, monitoring: &Monitoring) -> PyResult<()> {
    ON.store(false, Ordering::Relaxed);
    match HOLDS.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => begin(py, monitoring),
    }
}

pub fn holds() -> usize {
    HOLDS.load(Ordering::Relaxed)
}

fn stop(py: Python<'_>) {
    if raw::is_finalizing() {
        return;
    }
    let _switching = SWITCHING.lock_without_gil();
    // Another thread may have entered one meanwhile.
    if HOLDS.load(Ordering::Relaxed) != 0 {
        return;
    }
    raw::beside_pending(py, || {
        // A tool id that is no longer ours has no events of ours to switch off.
        if let Ok(monitoring) = Monitoring::known(py)
            && monitoring.is_ours(py).unwrap_or(false)
        {
            let _ = monitoring.set_events(py, false);
        }
    });
    ON.store(false, Ordering::Relaxed);
}

/// True if the site of a call that needs nothing is switched off: each guard that watches lets it.
#[inline]
pub fn retires() -> bool {
    let retiring = RETIRING.load(Ordering::Relaxed);
    let retires = HAS_LOCK && retiring != 0 && retiring == HOLDS.load(Ordering::Relaxed);
    if retires {
        RETIRED.store(true, Ordering::Relaxed);
    }
    retires
}

/// Switches the site of a call off, as the host wants. A site that is off is off for every guard:
/// returns false, and leaves it on, if another guard would miss it.
pub fn switches_off() -> bool {
    let off = HAS_LOCK && HOLDS.load(Ordering::Relaxed) == 1;
    SWITCHED_OFF.fetch_or(off, Ordering::Relaxed);
    off
}

/// Returns whether there is native code to watch, and the events are off.
pub fn is_late() -> bool {
    loaded::foreign() && holds() != 0 && !ON.load(Ordering::Relaxed)
}

/// Watches calls from now on: the first native code that is no standard library's will be loaded.
pub fn native_code_loads(py: Python<'_>) -> PyResult<()> {
    if HOLDS.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    begin(py, Monitoring::repaired(py)?)
}

pub fn note_changed() {
    CHANGED.store(true, Ordering::Relaxed);
}
