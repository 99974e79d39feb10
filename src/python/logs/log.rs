//! The log of one guard, above all of denials: libraries swallow and rewrite exceptions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::prelude::*;

use crate::policy::Why;
use crate::python::logs::recorder::Recorder;
use crate::python::values::addresses::SeenNetwork;

/// The number of denials that are kept; further ones are only counted.
const MAX_KEPT: usize = 1000;

#[derive(Default)]
pub struct Log {
    denials: Mutex<Denials>,
    pub network: SeenNetwork,
    written: AtomicU64,
    recorder: OnceLock<Box<Recorder>>,
}

#[derive(Default)]
struct Denials {
    kept: Vec<Py<PyAny>>,
    total: usize,
    /// The position of the last one by each field of the policy.
    last: Vec<(Why, usize)>,
}

impl Log {
    pub fn recorder(&self) -> &Recorder {
        self.recorder.get_or_init(Box::default)
    }

    /// Counts bytes that are going to be written; returns the count before.
    pub fn add_written(&self, bytes: u64) -> u64 {
        self.written.fetch_add(bytes, Ordering::Relaxed)
    }

    /// Subtracts bytes that were not written after all.
    pub fn take_back(&self, bytes: u64) {
        self.written.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Adds a denial, and returns the last one before that the same field made.
    pub fn add<'py>(
        &self,
        denial: &Bound<'py, PyAny>,
        why: Option<Why>,
    ) -> Option<Bound<'py, PyAny>> {
        let mut denials = self.denials();
        let Denials { kept, total, last } = &mut *denials;
        *total += 1;
        let last_alike = why.and_then(|why| last.iter_mut().find(|(own, _)| own.is_alike(why)));
        let earlier = last_alike.as_ref().and_then(|(_, at)| kept.get(*at));
        let earlier = earlier.map(|earlier| earlier.bind(denial.py()).clone());
        if kept.len() < MAX_KEPT {
            match (last_alike, why) {
                (Some((_, at)), _) => *at = kept.len(),
                (None, Some(why)) => last.push((why, kept.len())),
                (None, None) => {}
            }
            kept.push(denial.clone().unbind());
        }
        earlier
    }

    fn denials(&self) -> MutexGuard<'_, Denials> {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn total(&self) -> usize {
        self.denials().total
    }

    pub fn kept<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyAny>> {
        let denials = self.denials();
        let kept = denials.kept.iter();
        kept.map(|denial| denial.bind(py).clone()).collect()
    }
}
