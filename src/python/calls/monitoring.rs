//! The tool id of `sys.monitoring` that the monitor runs under (PEP 669), and who may change it.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};

use crate::python::calls::deferred;
use crate::python::cpython::callbacks::NewCallback;
use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::functions::Builtin;
use crate::python::cpython::once::Once;
use crate::python::guard::scope::{self, Current};
use crate::python::values::errors;

/// The name our tool id is taken under.
const TOOL: &str = "fastaudit_rs";
const NOT_INSTALLED: i32 = -1;

/// The number of guards that want the events on.
pub static HOLDS: AtomicUsize = AtomicUsize::new(0);

/// The default id, and then the others that are tried: by the documentation no tool has these but
/// the last.
const BY_DEFAULT: [i32; 6] = [3, 4, 5, 2, 0, 1];

static TOOL_ID: AtomicI32 = AtomicI32::new(NOT_INSTALLED);
/// True if the host asked for this one.
static IS_CHOSEN: AtomicBool = AtomicBool::new(false);
/// True if other code changed the settings under it.
static CHANGED: AtomicBool = AtomicBool::new(false);
static MONITORING: Once<Monitoring> = Once::new();

/// The functions and objects of `sys.monitoring` that are used, as they were when the monitor was
/// installed.
pub struct Monitoring {
    get_tool: Py<PyAny>,
    use_tool_id: Py<PyAny>,
    free_tool_id: Py<PyAny>,
    register_callback: Py<PyAny>,
    set_events: Py<PyAny>,
    /// Switches on the sites that were switched off.
    pub restart_events: Py<PyAny>,
    /// `sys.monitoring.DISABLE`.
    pub disable: Py<PyAny>,
    call_event: Py<PyAny>,
    callback: Py<PyAny>,
    /// The name that our tool id is taken under: it is compared by identity.
    name: Py<PyString>,
}

impl Monitoring {
    /// Returns the shared `Monitoring`, made the first time with the callback that is called on
    /// each call.
    pub fn get(py: Python<'_>, callback: NewCallback) -> PyResult<&'static Self> {
        let get = || {
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
        };
        MONITORING.get_or_try_init(py, get)
    }

    fn tool<'py>(&self, py: Python<'py>, id: i32) -> PyResult<Bound<'py, PyAny>> {
        self.get_tool.bind(py).invoke1((id,))
    }

    /// Returns whether the tool id is still ours.
    pub fn is_ours(&self, py: Python<'_>) -> PyResult<bool> {
        let id = id();
        Ok(id != NOT_INSTALLED && self.tool(py, id)?.is(&self.name))
    }

    /// Switches the events on or off.
    ///
    /// # Errors
    /// `ValueError` if the tool id is not in use.
    pub fn set_events(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        let set = self.set_events.bind(py);
        if on {
            set.invoke1((id(), &self.call_event))?;
        } else {
            set.invoke1((id(), 0))?;
        }
        Ok(())
    }

    fn register(&self, py: Python<'_>, id: i32) -> PyResult<()> {
        let register = self.register_callback.bind(py);
        let callback = (id, &self.call_event, &self.callback);
        deferred::while_registering(|| register.invoke1(callback)).map(|_| ())
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

    /// The first tool id that is free.
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

/// The tool id that the monitor runs under, once it does.
pub fn tool_id() -> Option<i32> {
    Some(id()).filter(|id| *id != NOT_INSTALLED)
}

/// Returns whether other code changed the settings under the tool id.
pub fn was_changed() -> bool {
    CHANGED.load(Ordering::Relaxed)
}

/// A tool id to take.
#[derive(Clone, Copy)]
pub struct Free {
    id: i32,
    is_chosen: bool,
}

/// Returns the tool id that the host chose, or one that is free; `None` if the monitor runs
/// already.
///
/// # Errors
/// `RuntimeError` if the monitor runs under another id than the host chose, or that id is another
/// tool's, or none is free.
pub fn find(
    py: Python<'_>,
    monitoring: &Monitoring,
    chosen: Option<i32>,
) -> PyResult<Option<Free>> {
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
    Ok(Some(Free {
        id,
        is_chosen: chosen.is_some(),
    }))
}

/// Takes it, and registers the callback.
///
/// # Errors
/// Errors raised by an audit hook; the tool id is then free again.
pub fn take(py: Python<'_>, monitoring: &Monitoring, free: Free) -> PyResult<()> {
    monitoring.take(py, free.id)?;
    IS_CHOSEN.store(free.is_chosen, Ordering::Relaxed);
    Ok(())
}

/// Sets all anew that other code may have changed.
///
/// # Errors
/// `RuntimeError` if the tool id that the host chose is another tool's now, or none is free.
pub fn take_again(py: Python<'_>, monitoring: &Monitoring) -> PyResult<()> {
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

/// The part of a tool that a function changes, by the tool's id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// `set_events(id, events)`
    Events,
    /// `set_local_events(id, code, events)`
    LocalEvents,
    /// `register_callback(id, event, function)`, which has an audit event of its own.
    Callback,
    /// `free_tool_id(id)` and `clear_tool_id(id)`
    All,
}

/// The functions of `sys.monitoring` that change tools, with the events that they raise here.
pub const FUNCTIONS: &[(&str, Changes)] = &[
    ("set_events", Changes::Events),
    ("set_local_events", Changes::LocalEvents),
    ("register_callback", Changes::Callback),
    ("free_tool_id", Changes::All),
    ("clear_tool_id", Changes::All),
];

/// Makes a call, if it is allowed.
pub fn call(called: Called<'_>, changes: Changes) -> Returned {
    let arguments = called.arguments;
    if changes == Changes::Callback && is_for_another(called) {
        return deferred::while_registering(|| called.make());
    }
    let may = arguments.positional() == 0
        || id() == NOT_INSTALLED
        || called
            .ours(|py| {
                let at = |index: usize| arguments.find(py, index, None);
                check(py, changes, at(0), at(1))
            })
            .is_some();
    match may {
        true => called.make(),
        false => Returned::failed(),
    }
}

/// Returns whether a callback is registered for a tool that is not the monitor. The tool and the
/// event have to be plain numbers: objects that compute theirs later run code of their own, and may
/// return ours.
fn is_for_another(called: Called<'_>) -> bool {
    let arguments = called.arguments;
    if arguments.positional() < 2 || arguments.named() != 0 {
        return false;
    }
    let [tool, event] = [0, 1].map(|index| arguments.at(called.py, index));
    tool.is_exact_instance_of::<PyInt>()
        && event.is_exact_instance_of::<PyInt>()
        && raw::int_value(&tool).is_some_and(|tool| tool != i64::from(id()))
}

/// Denies a change that would blind the guards in force.
fn check<'py>(
    py: Python<'py>,
    changes: Changes,
    tool: Option<Bound<'py, PyAny>>,
    what: Option<Bound<'py, PyAny>>,
) -> PyResult<()> {
    let number = |object: &Bound<'py, PyAny>| raw::int_value(object);
    let Some(tool) = tool.filter(|tool| match number(tool) {
        Some(number) => number == i64::from(id()),
        // An object that computes its number later may return ours.
        None => raw::is_index(tool),
    }) else {
        return Ok(());
    };
    let is_guarded = !matches!(scope::own(py)?, Current::Unguarded);
    if is_guarded || scope::installed().next().is_some() {
        let event = match changes {
            Changes::Events => c"sys.monitoring.set_events",
            Changes::LocalEvents => c"sys.monitoring.set_local_events",
            Changes::All => c"sys.monitoring.free_tool_id",
            Changes::Callback => c"sys.monitoring.register_callback",
        };
        raw::audit(py, event, &[&tool])?;
    } else if HOLDS.load(Ordering::Relaxed) > 0 && changes != Changes::LocalEvents {
        let events = what.as_ref().and_then(number).unwrap_or(0);
        let keeps_calls = changes == Changes::Events && events & CALL != 0;
        if !keeps_calls {
            return Err(errors::would_blind());
        }
    }
    CHANGED.store(true, Ordering::Relaxed);
    Ok(())
}

/// `sys.monitoring.events.CALL`
const CALL: i64 = 1 << 4;
