//! Shared memory of pools, and directories for their sockets, that were made under a guard.

use std::sync::{Mutex, PoisonError};

use crate::policy::files::roots::is_within;

/// The shared memory, and the directories for sockets, that were made under a guard.
#[derive(Default)]
pub struct Memory(Mutex<Vec<Vec<u8>>>);

impl Memory {
    /// Remembers a path.
    pub fn note(&self, path: &[u8]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|own| own == path) {
            all.push(path.to_vec());
        }
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.is_empty()
    }

    /// Returns whether a path is one of them, or below it.
    pub fn holds(&self, path: &[u8]) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|own| is_within(path, own))
    }
}
