//! A guard in force: an opaque object, which cannot be made or changed from Python.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::policy::Policy;
use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::os::Os;
use crate::policy::judge::ActRules;
use crate::python::configuration::approvals::Marked;
use crate::python::configuration::config::{AuditCfg, Side};
use crate::python::configuration::live::Live;
use crate::python::cpython::fork_safe_lock::ForkSafeLock;
use crate::python::cpython::once::lock;
use crate::python::cpython::{attachment, ffi as raw, process};
use crate::python::guard::entered_at::Origin;
use crate::python::guard::environment::Before;
use crate::python::guard::holds::Hold;
use crate::python::guard::log_handlers;
use crate::python::importing::imports;
use crate::python::logs::log::Log;
use crate::python::values::addresses::SeenNetwork;

/// The number of guards in force anywhere in the process. At 0, the hook returns at once, whatever
/// the context holds.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// True once what the first guard begins with was done, until what the last one ends with was.
static GUARDED: AtomicBool = AtomicBool::new(false);

/// The number of them that restrict more than fastaudit 0.1 does, or are installed.
static RESTRICTING: AtomicUsize = AtomicUsize::new(0);

#[inline]
pub fn any_guard() -> bool {
    LIVE.load(Ordering::Relaxed) != 0
}

#[inline]
pub fn any_guard_restricts_more() -> bool {
    RESTRICTING.load(Ordering::Relaxed) != 0
}

/// Counts one more that restricts more, for good.
pub fn restrict_more() {
    RESTRICTING.fetch_add(1, Ordering::Relaxed);
}

/// A guard in force: what a `with` block puts into the context.
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Active")]
pub struct Active {
    /// `None` marks a context that all guards have left, or a tool with the host's rights.
    config: Option<Py<AuditCfg>>,
    /// The call of a tool that it is in force for.
    tool: Tool,
    /// True if it may be another guard that is in force, or none.
    pub looks_further: bool,
    /// The guard that is in force again when this one is left.
    outer: Mutex<Option<Py<Active>>>,
    /// True if `outer` is not the guard that was in force on entry.
    outer_changed: AtomicBool,
    first_dir: OnceLock<Option<PathBuf>>,
    /// The environment before the guarded code first removed a variable.
    pub environment: OnceLock<Box<Before>>,
    /// The denials, once there are any or somebody asks.
    log: OnceLock<Arc<Log>>,
    /// The place where it was entered, if denials elsewhere report it.
    pub origin: Option<Box<Origin>>,
    is_left: AtomicBool,
    /// How often the process had been copied when it was entered.
    pub branch: usize,
    /// A guard that is in force as well, though the context is not its own.
    pub beside: Option<Py<Active>>,
    /// Keeps CALL monitoring on for as long as any context can see this guard.
    _monitoring: Option<Hold>,
}

/// The call of a tool that a guard is in force for.
enum Tool {
    Nothing,
    /// The call that it was made for, and the guard of the code that called.
    Called(Box<ToolCall>, Py<Active>),
    /// It was entered in the course of this call.
    Within(Py<Active>),
}

impl Active {
    pub fn config(&self) -> Option<&Py<AuditCfg>> {
        self.config.as_ref()
    }

    pub fn tool(&self) -> Option<(&ToolCall, &Py<Active>)> {
        match &self.tool {
            Tool::Nothing => None,
            Tool::Called(call, guest) => Some((call, guest)),
            Tool::Within(active) => active.get().tool(),
        }
    }

    /// The rights of a tool: a policy's, or the host's without one.
    pub fn of_tool(
        config: Option<Py<AuditCfg>>,
        monitoring: Option<Hold>,
        call: ToolCall,
        guest: Py<Self>,
    ) -> Self {
        let mut active = Self::new(config, None, monitoring, None);
        active.tool = Tool::Called(Box::new(call), guest);
        active.looks_further = true;
        active
    }

    /// The same, entered in the course of a tool's call.
    pub fn within(mut self, tool: Option<Bound<'_, Self>>) -> Self {
        if let Some(tool) = tool {
            self.tool = Tool::Within(tool.unbind());
            self.looks_further = true;
        }
        self
    }

    #[inline]
    pub fn is_strict(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.get().is_strict())
    }

    /// The directory that was current when the guarded code first asked to change it.
    pub fn first_dir(&self) -> Option<&[u8]> {
        self.first_dir.get_or_init(|| Os.current_dir()).as_deref()
    }

    pub fn log(&self) -> &Arc<Log> {
        self.log.get_or_init(Arc::default)
    }

    pub fn detached() -> Self {
        Self::new(None, None, None, None)
    }

    pub fn new(
        config: Option<Py<AuditCfg>>,
        outer: Option<Py<Self>>,
        monitoring: Option<Hold>,
        origin: Option<Box<Origin>>,
    ) -> Self {
        if let Some(config) = &config {
            config.get().live().enter();
            LIVE.fetch_add(1, Ordering::SeqCst);
            if !GUARDED.load(Ordering::SeqCst) {
                let _ = attachment::if_attached(note_turn);
            }
            if config.get().restricts_more {
                RESTRICTING.fetch_add(1, Ordering::Relaxed);
            }
        }
        Self {
            looks_further: config.is_none(),
            config,
            tool: Tool::Nothing,
            outer: Mutex::new(outer),
            outer_changed: AtomicBool::new(false),
            first_dir: OnceLock::new(),
            environment: OnceLock::new(),
            log: OnceLock::new(),
            origin,
            is_left: AtomicBool::new(false),
            branch: process::branch(),
            beside: None,
            _monitoring: monitoring,
        }
    }

    /// The same, with its earlier log.
    pub fn going_on(mut self, log: Option<Arc<Log>>) -> Self {
        if let Some(log) = log {
            self.log = OnceLock::from(log);
        }
        self
    }

    /// A guard in force beside which another is in force too: events are judged by both.
    pub fn beside(
        py: Python<'_>,
        own: &Bound<'_, Self>,
        other: &Bound<'_, Self>,
    ) -> PyResult<Py<Self>> {
        let other = match &own.get().beside {
            Some(beside) => Self::beside(py, beside.bind(py), other)?,
            None => other.clone().unbind(),
        };
        let config = own.get().config.as_ref();
        let config = config.map(|config| config.clone_ref(py));
        let mut active = Self::new(config, Some(own.clone().unbind()), None, None);
        active.log = OnceLock::from(Arc::clone(own.get().log()));
        active.beside = Some(other);
        // Counted as restricting more, so that events are judged by all guards in force.
        RESTRICTING.fetch_add(1, Ordering::Relaxed);
        Py::new(py, active)
    }

    /// Returns whether it has this configuration, or a guard beside it.
    pub fn has_config(&self, config: &Py<AuditCfg>) -> bool {
        self.each().any(|active| active.config.as_ref().is_some_and(|own| own.is(config)))
    }

    #[inline]
    pub fn other(&self) -> Option<&Self> {
        self.beside.as_ref().map(Py::get)
    }

    /// The guard, and those beside it.
    pub fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |active| active.other())
    }

    /// Returns whether it wants to see calls, from this side.
    pub fn watches(&self, side: Side) -> bool {
        let config = self.config.as_ref().map(Py::get);
        config.is_some_and(|config| config.monitor_calls && config.side == side)
    }

    /// The first of this guard and those beside it that wants to see calls.
    pub fn watching(&self, side: Side) -> Option<&Self> {
        self.each().find(|active| active.watches(side))
    }

    pub fn is_in_copy(&self) -> bool {
        self.branch != process::branch()
    }

    /// Returns whether another guard took the place of the one that it was entered under.
    pub fn has_another_outer(&self) -> bool {
        self.outer_changed.load(Ordering::Relaxed)
    }

    pub fn known_log(&self) -> Option<Arc<Log>> {
        self.log.get().cloned()
    }

    pub fn note_left(&self) {
        if !self.is_left.swap(true, Ordering::Relaxed)
            && let Some(config) = &self.config
        {
            config.get().live().end_block();
        }
    }

    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
    }

    /// Returns whether it was entered under that guard, or is it.
    pub fn is_within(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) -> bool {
        let (py, own) = (slf.py(), slf.clone().unbind());
        let mut chain = std::iter::successors(Some(own), |active| active.get().outer(py));
        chain.any(|active| active.is(other))
    }

    pub fn outer(&self, py: Python<'_>) -> Option<Py<Self>> {
        lock(&self.outer).as_ref().map(|active| active.clone_ref(py))
    }

    fn set_outer(&self, outer: Option<Py<Self>>) {
        let old = std::mem::replace(&mut *lock(&self.outer), outer);
        self.outer_changed.store(true, Ordering::Relaxed);
        drop(old);
    }
}

#[pymethods]
impl Active {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.config)?;
        visit.call(&self.beside)?;
        match &self.tool {
            Tool::Nothing => {}
            Tool::Called(_, active) | Tool::Within(active) => visit.call(active)?,
        }
        if let Some(origin) = &self.origin {
            origin.traverse(&visit)?;
        }
        match self.outer.try_lock() {
            Ok(outer) => visit.call(&*outer),
            Err(_) => Ok(()),
        }
    }
}

/// Does what the first guard of the process begins with, or the last one ends with.
fn note_turn(py: Python<'_>) {
    static TURN: ForkSafeLock = ForkSafeLock::new();
    thread_local! {
        static TURNS: Cell<bool> = const { Cell::new(false) };
    }
    // An object that is freed in here may enter a guard, or leave one: that turn is looked at then.
    let locks = cfg!(Py_GIL_DISABLED);
    if locks && TURNS.get() {
        return;
    }
    let _turns = locks.then(|| Marked::begin(&TURNS));
    loop {
        let turn = TURN.lock_without_gil();
        let guarded = any_guard();
        if guarded == GUARDED.load(Ordering::Relaxed) {
            return;
        }
        log_handlers::take_note(py, guarded);
        match guarded {
            true => imports::set_filter(py),
            false => imports::unset_filter(py),
        }
        GUARDED.store(guarded, Ordering::SeqCst);
        drop(turn);
        // Another thread that enters counts itself first, and then looks whether this was done.
        if (LIVE.load(Ordering::SeqCst) != 0) == guarded {
            return;
        }
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if let Some(config) = &self.config {
            config.get().live().leave(*self.is_left.get_mut());
            if LIVE.fetch_sub(1, Ordering::SeqCst) == 1 && !raw::is_finalizing() {
                let _ = attachment::if_attached(note_turn);
            }
            if config.get().restricts_more {
                RESTRICTING.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if self.beside.is_some() {
            RESTRICTING.fetch_sub(1, Ordering::Relaxed);
        }
        // Guards nested a thousand deep are freed one by one, not by recursion.
        let outer = self.outer.get_mut();
        let mut next = outer.unwrap_or_else(PoisonError::into_inner).take();
        while let Some(active) = next {
            next = match raw::is_only_reference(&active) {
                true => lock(&active.get().outer).take(),
                false => None,
            };
            drop(active);
        }
    }
}

/// Puts another guard, or none, in the place of one in the chain that begins at `inner`.
pub fn relink(py: Python<'_>, inner: Py<Active>, left: &Py<Active>, by: Option<Py<Active>>) {
    let mut link = Some(inner);
    while let Some(active) = link {
        let outer = active.get().outer(py);
        if outer.as_ref().is_some_and(|outer| outer.is(left)) {
            active.get().set_outer(by);
            return;
        }
        link = outer;
    }
}

/// A call of a function of the host that runs with rights of its own.
pub struct ToolCall {
    pub name: Py<PyString>,
    /// Code of this level or a lower one, which may be called back, is not the tool's. It grows with
    /// tools that are called under a guard that another tool entered.
    pub depth: usize,
    is_over: AtomicBool,
    /// The address of the frame that called, while its thread is in the call; 0 otherwise.
    caller: AtomicUsize,
}

impl ToolCall {
    pub fn new(name: Py<PyString>, depth: usize) -> Self {
        Self { name, depth, is_over: AtomicBool::new(false), caller: AtomicUsize::new(0) }
    }

    /// Returns whether it has returned: its rights are over, wherever they were carried.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub fn caller(&self) -> usize {
        self.caller.load(Ordering::Relaxed)
    }

    pub fn set_caller(&self, frame: usize) {
        self.caller.store(frame, Ordering::Relaxed);
    }
}

// The rules of a guard in force, with the look-ups and connections that it remembers.

pub struct InForce<'a> {
    pub live: &'a Arc<Live>,
    /// `None` on threads that nobody knows the guard of: all of the configuration.
    active: Option<&'a Active>,
}

impl<'a> InForce<'a> {
    /// A guard that was entered; `None` in a context that all guards have left.
    pub fn of(active: &'a Active) -> Option<Self> {
        Some(Self { live: active.config()?.get().live(), active: Some(active) })
    }

    /// All guards of a configuration, for threads that nobody knows the guard of.
    pub fn of_all(live: &'a Arc<Live>) -> Self {
        Self { live, active: None }
    }

    pub fn judges(&self) -> bool {
        !self.live.policy.rest().native_unjudged
    }

    fn network(&self) -> &SeenNetwork {
        match self.active {
            Some(active) => &active.log().network,
            None => &self.live.network,
        }
    }

    /// Remembers the addresses of a name, if the rules depend on them.
    pub fn remember(&self, name: &str, addresses: &[IpAddr]) {
        if self.live.watches || !self.policy().network().is_open() {
            self.network().remember(name, addresses);
            self.live.network.remember(name, addresses);
        }
    }
}

impl ActRules for InForce<'_> {
    #[inline]
    fn policy(&self) -> &Policy {
        self.live.native.as_ref()
    }

    fn is_in_copy(&self) -> bool {
        self.live.is_in_copy()
    }

    fn names_of(&self, address: IpAddr) -> Vec<String> {
        self.network().names_of(address)
    }

    fn may_connect(&self, socket: i32, most: u32) -> bool {
        // The guard's own number decides, and all of the configuration hear of it.
        self.network().may_connect(socket, most)
            && (self.active.is_none() || self.live.network.may_connect(socket, u32::MAX))
    }
}
