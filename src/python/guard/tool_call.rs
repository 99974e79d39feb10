//! A call of a tool: a function of the host that guarded code may call, and that runs with rights of its
//! own.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyString;

pub struct ToolCall {
    name: Py<PyString>,
    /// Grows with tools that are called under a guard that another tool entered.
    depth: usize,
    is_over: AtomicBool,
    /// The address of the frame that called, while its thread is in the call; 0 otherwise.
    caller: AtomicUsize,
}

impl ToolCall {
    pub fn new(name: Py<PyString>, depth: usize) -> Self {
        Self {
            name,
            depth,
            is_over: AtomicBool::new(false),
            caller: AtomicUsize::new(0),
        }
    }

    pub fn name(&self) -> &Py<PyString> {
        &self.name
    }

    /// The level of the code that may be called back: code of this level or a lower one is not the
    /// tool's.
    pub fn depth(&self) -> usize {
        self.depth
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
