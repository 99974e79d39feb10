//! What is known of what went on under one guard, its denials above all: libraries swallow and
//! rewrite exceptions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;

use super::denied::{self, Denial};
use super::lookups;
use super::recorder::Recorder;

/// Denials that are kept; of further ones only the number is.
const MAX_KEPT: usize = 1000;

/// What is known of what went on under one guard.
#[derive(Default)]
pub struct Log {
    denials: Mutex<Denials>,
    /// What is remembered of the network.
    pub network: lookups::Seen,
    /// How many bytes were written to files.
    written: AtomicU64,
    recorder: OnceLock<Box<Recorder>>,
}

#[derive(Default)]
struct Denials {
    kept: Vec<Py<Denial>>,
    total: usize,
}

impl Log {
    /// What is recorded, under a guard that observes.
    pub fn recorder(&self) -> &Recorder {
        self.recorder.get_or_init(Box::default)
    }

    /// Counts bytes that are going to be written; those before are the result.
    pub fn add_written(&self, bytes: u64) -> u64 {
        self.written.fetch_add(bytes, Ordering::Relaxed)
    }

    /// Counts bytes back that were not written after all.
    pub fn take_back(&self, bytes: u64) {
        self.written.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes note of a denial.
    pub fn add(&self, denial: &Bound<'_, Denial>) {
        let py = denial.py();
        let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
        denials.total += 1;
        if let Some(asked) = &denial.get().asked {
            let mut before = denials.kept.iter().rev();
            if let Some(earlier) = before.find(|earlier| denial.get().is_alike(earlier.get())) {
                asked.follow(earlier, py);
            }
        }
        if denials.kept.len() < MAX_KEPT {
            denials.kept.push(denial.clone().unbind());
        }
    }

    /// How many there were.
    pub fn total(&self) -> usize {
        self.denials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .total
    }

    /// Those that are kept, as exceptions, in their order.
    pub fn exceptions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let kept: Vec<_> = {
            let denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = denials.kept.iter();
            kept.map(|denial| denial.clone_ref(py)).collect()
        };
        let exceptions = kept.iter().map(|denial| denied::exception(denial.bind(py)));
        PyList::new(py, exceptions.collect::<PyResult<Vec<_>>>()?)
    }
}
