//! The denials under one guard: libraries swallow and rewrite exceptions.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;

use super::denied::{self, Denial};

/// Denials that are kept; of further ones only the number is.
const MAX_KEPT: usize = 1000;

/// What was denied under one guard.
#[derive(Default)]
pub struct Log(Mutex<Denials>);

#[derive(Default)]
struct Denials {
    kept: Vec<Py<Denial>>,
    total: usize,
}

impl Log {
    /// Takes note of a denial.
    pub fn add(&self, denial: Py<Denial>) {
        let mut denials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        denials.total += 1;
        if denials.kept.len() < MAX_KEPT {
            denials.kept.push(denial);
        }
    }

    /// How many there were.
    pub fn total(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    /// Those that are kept, as exceptions, in their order.
    pub fn exceptions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let kept: Vec<_> = {
            let denials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = denials.kept.iter();
            kept.map(|denial| denial.clone_ref(py)).collect()
        };
        let exceptions = kept.iter().map(|denial| denied::exception(denial.bind(py)));
        PyList::new(py, exceptions.collect::<PyResult<Vec<_>>>()?)
    }
}
