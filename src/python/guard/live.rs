//! The configurations of guards in force, as threads see them that do not run Python.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;

use crate::policy::Policy;
use crate::python::cpython::forks;
use crate::python::guard::refused::Refusals;
use crate::python::guard::temporary::{self, Directories};
use crate::python::values::seen::Seen;

/// The part of a configuration that is plain values.
pub struct Live {
    policy: Arc<Policy>,
    /// The policy that native code is judged by.
    native: Arc<Policy>,
    /// Its directories for temporary files.
    pub directories: Arc<Directories>,
    /// True if what the policy denies goes on all the same.
    pub proceeds: bool,
    /// True if all acts are told.
    pub watches: bool,
    /// The look-ups and connections of all its guards.
    pub network: Arc<Seen>,
    /// The acts of native code that were refused, and not told yet.
    pub refusals: Refusals,
    /// The number of guards in force.
    guards: AtomicUsize,
    /// The number of copies of the process as the last of them was entered.
    generation: AtomicUsize,
    /// True if it is among all.
    is_listed: AtomicBool,
    /// True if its guard holds in the whole process for good.
    is_installed: AtomicBool,
}

/// A configuration's own, which is forgotten with it.
pub struct Own(pub Arc<Live>);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.forget();
    }
}

/// All that had a guard in force. Threads of native code read it without a lock, which a copy of the
/// process might find locked for ever.
static ALL: ArcSwapOption<Vec<Arc<Live>>> = ArcSwapOption::const_empty();

impl Live {
    pub fn new(
        policy: Arc<Policy>,
        directories: Arc<Directories>,
        (proceeds, watches): (bool, bool),
        network: Arc<Seen>,
    ) -> Arc<Self> {
        Arc::new(Self {
            native: policy.for_native_code(temporary::of_machine),
            policy,
            directories,
            proceeds,
            watches,
            network,
            refusals: Refusals::default(),
            guards: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            is_listed: AtomicBool::new(false),
            is_installed: AtomicBool::new(false),
        })
    }

    /// The same with another policy and temporary directories.
    pub fn with(&self, policy: Arc<Policy>, directories: Arc<Directories>) -> Arc<Self> {
        let kinds = (self.proceeds, self.watches);
        let network = Arc::clone(&self.network);
        Self::new(policy, directories, kinds, network)
    }

    /// Returns whether the process is a copy of the one that a guard was entered in last.
    pub fn is_in_copy(&self) -> bool {
        self.generation.load(Ordering::Relaxed) != forks::generation()
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The policy that native code is judged by.
    pub fn policy_for_native_code(&self) -> &Policy {
        &self.native
    }

    /// The policy, to be kept.
    pub fn shared_policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Counts one more guard in force.
    pub fn enter(self: &Arc<Self>) {
        self.guards.fetch_add(1, Ordering::Relaxed);
        self.generation
            .store(forks::generation(), Ordering::Relaxed);
        // Who enters a guard runs Python here, whoever made the copy.
        forks::note_python();
        if !self.is_listed.swap(true, Ordering::Relaxed) {
            change(|all| all.push(Arc::clone(self)));
        }
    }

    /// Counts one guard less.
    pub fn leave(&self) {
        self.guards.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that its guard holds in the whole process for good.
    pub fn note_installed(&self) {
        self.is_installed.store(true, Ordering::Relaxed);
    }

    /// Returns whether its guard holds in the whole process for good.
    pub fn is_installed(&self) -> bool {
        self.is_installed.load(Ordering::Relaxed)
    }

    fn forget(self: &Arc<Self>) {
        if self.is_listed.load(Ordering::Relaxed) {
            change(|all| all.retain(|live| !Arc::ptr_eq(live, self)));
        }
    }

    /// Hands on those that have guards in force, the last one last.
    pub fn with_all<R>(look: impl FnOnce(&mut dyn Iterator<Item = &Arc<Self>>) -> R) -> R {
        let all = ALL.load();
        let all = all.iter().flat_map(|all| all.iter());
        look(&mut all.filter(|live| live.guards.load(Ordering::Relaxed) != 0))
    }
}

fn change(change: impl Fn(&mut Vec<Arc<Live>>)) {
    ALL.rcu(|all| {
        let mut all = all.as_deref().cloned().unwrap_or_default();
        change(&mut all);
        Some(Arc::new(all))
    });
}
