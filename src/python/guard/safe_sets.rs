//! Sets of native code that may be called without asking, identified by numbers: cached callees
//! hold for the guards of one set.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::policy::RuleSet;
use crate::policy::written::values::Choice;
use crate::python::guard::allowed::Allowed;

/// Sets beyond this number are not told apart: their calls are looked at each time.
const MAX_SETS: usize = 1024;

/// The key of a set: the rules, the packages, the modules.
type Key = (bool, Vec<String>, Vec<String>);

static NUMBERS: Mutex<BTreeMap<Key, u64>> = Mutex::new(BTreeMap::new());

/// Returns the number of the allowed set; 0 if nothing is allowed, or the host is asked about all
/// calls but those of packages (`is_asked`).
pub fn number(allowed: &Allowed, is_asked: bool) -> u64 {
    let policy = &allowed.policy;
    let is_strict = policy.rules() == RuleSet::Strict;
    let packages = &policy.rest().packages;
    if allowed.records.is_some() {
        return 0;
    }
    let modules = match policy.native() {
        Some(Choice::Named(names)) if !is_asked => names.clone(),
        _ => Vec::new(),
    };
    if !is_strict && packages.is_empty() && modules.is_empty() {
        return 0;
    }
    let key = (is_strict, packages.imports().to_vec(), modules);
    let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(number) = numbers.get(&key) {
        return *number;
    }
    if numbers.len() >= MAX_SETS {
        return 0;
    }
    let number = numbers.len() as u64 + 1;
    numbers.insert(key, number);
    number
}
