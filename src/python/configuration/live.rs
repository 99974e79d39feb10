//! The configurations of guards in force, as threads see them that do not run Python.

use std::ffi::CStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use arc_swap::ArcSwapOption;

use crate::policy::Policy;
use crate::policy::files::path::Base;
use crate::policy::judge::{Act, Follows, Value};
use crate::python::configuration::temporary::{self, TemporaryDirectories};
use crate::python::cpython::once::lock;
use crate::python::cpython::process;
use crate::python::values::addresses::SeenNetwork;

/// The part of a configuration that is plain values.
pub struct Live {
    pub policy: Arc<Policy>,
    /// The policy that native code is judged by.
    pub native: Arc<Policy>,
    pub directories: Arc<TemporaryDirectories>,
    /// True if what the policy denies goes on all the same.
    pub proceeds: bool,
    /// True if all acts are told.
    pub watches: bool,
    /// The look-ups and connections of all its guards.
    pub network: Arc<SeenNetwork>,
    /// The acts of native code that were refused, and not told yet.
    pub refusals: Refusals,
    guards: AtomicUsize,
    /// Those of them whose block has ended: tasks, threads or contexts still have them.
    left: AtomicUsize,
    /// The threads under them that are in native code, without the interpreter's lock.
    released: AtomicUsize,
    /// The number of copies of the process as the last of them was entered.
    branch: AtomicUsize,
    /// True if it is among all.
    is_listed: AtomicBool,
    /// True if its guard holds in the whole process for good.
    pub is_installed: AtomicBool,
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
        directories: Arc<TemporaryDirectories>,
        (proceeds, watches): (bool, bool),
        network: Arc<SeenNetwork>,
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
            left: AtomicUsize::new(0),
            released: AtomicUsize::new(0),
            branch: AtomicUsize::new(0),
            is_listed: AtomicBool::new(false),
            is_installed: AtomicBool::new(false),
        })
    }

    pub fn with(&self, policy: Arc<Policy>, directories: Arc<TemporaryDirectories>) -> Arc<Self> {
        let kinds = (self.proceeds, self.watches);
        let network = Arc::clone(&self.network);
        Self::new(policy, directories, kinds, network)
    }

    /// Returns whether the process is a copy of the one that a guard was entered in last.
    pub fn is_in_copy(&self) -> bool {
        self.branch.load(Ordering::Relaxed) != process::branch()
    }

    pub fn enter(self: &Arc<Self>) {
        self.guards.fetch_add(1, Ordering::Relaxed);
        self.branch.store(process::branch(), Ordering::Relaxed);
        // Who enters a guard runs Python here, whoever made the copy.
        process::note_python();
        if !self.is_listed.load(Ordering::Relaxed) {
            change(|all| {
                if all.iter().all(|live| !Arc::ptr_eq(live, self)) {
                    all.push(Arc::clone(self));
                }
            });
            self.is_listed.store(true, Ordering::Relaxed);
        }
    }

    /// The end of the block of one of its guards.
    pub fn end_block(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets a guard that nothing has any more.
    pub fn leave(&self, is_left: bool) {
        if is_left {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
        self.guards.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn begin_release(&self) {
        self.released.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end_release(&self) {
        self.released.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_released(&self) -> bool {
        self.released.load(Ordering::Relaxed) != 0
    }

    fn has_open_block(&self) -> bool {
        self.guards.load(Ordering::Relaxed) > self.left.load(Ordering::Relaxed)
    }

    pub fn is_installed(&self) -> bool {
        self.is_installed.load(Ordering::Relaxed)
    }

    fn forget(self: &Arc<Self>) {
        if self.is_listed.load(Ordering::Relaxed) {
            change(|all| all.retain(|live| !Arc::ptr_eq(live, self)));
        }
    }

    /// Hands on those that a thread which Python does not know may act for, the last one last. After
    /// its block, a guard may only be one of them while a thread under it is in native code.
    pub fn with_all<R>(look: impl FnOnce(&mut dyn Iterator<Item = &Arc<Self>>) -> R) -> R {
        let all = ALL.load();
        let all = all.as_deref().map_or(&[][..], |all| all);
        look(&mut all.iter().filter(|live| live.has_open_block() || live.is_released()))
    }
}

fn change(change: impl Fn(&mut Vec<Arc<Live>>)) {
    ALL.rcu(|all| {
        let mut all = all.as_deref().cloned().unwrap_or_default();
        change(&mut all);
        Some(Arc::new(all))
    });
}

// Acts of native code that were refused where no Python could run: they wait until some does.

/// The number of acts that wait; further ones are not told.
const MAX_KEPT: usize = 1000;

const MOST_TRIES: usize = 1000;

pub struct RefusedAct {
    /// The act, its names from the top of the file system.
    pub act: OwnedAct,
    /// The file of the library that it is of.
    pub library: Option<PathBuf>,
}

pub struct OwnedAct {
    pub event: &'static CStr,
    pub arguments: Vec<Owned>,
    pub base: Base,
    pub follows: Follows,
}

pub enum Owned {
    None,
    Integer(i64),
    Text(Vec<u8>),
    Address(SocketAddr),
    OtherAddress,
}

impl OwnedAct {
    /// A copy of an act; if `is_whole`, relative names get the directory that is current now.
    pub fn of(act: &Act<'_>, is_whole: bool) -> Self {
        let mut names = match is_whole {
            true => act.whole_names(),
            false => Default::default(),
        };
        let arguments = act.arguments.0.iter().map(|value| match value {
            Value::None => Owned::None,
            Value::Integer(number) => Owned::Integer(*number),
            Value::Text(text) => Owned::Text(text.to_vec()),
            Value::Address(address) => Owned::Address(*address),
            Value::OtherAddress => Owned::OtherAddress,
        });
        let mut arguments: Vec<_> = arguments.collect();
        for (index, name) in names.drain(..) {
            arguments[index] = Owned::Text(name.to_vec());
        }
        Self { event: act.event, arguments, base: act.base, follows: act.follows }
    }
}

#[derive(Default)]
pub struct Refusals {
    count: AtomicUsize,
    kept: Mutex<Vec<RefusedAct>>,
}

impl Refusals {
    /// Adds one, soon or not at all: in a copy of the process nobody unlocks what was locked.
    pub fn add(&self, act: RefusedAct) {
        let mut tries = 0..MOST_TRIES;
        let kept = tries.find_map(|_| match self.kept.try_lock() {
            Ok(kept) => Some(kept),
            Err(TryLockError::Poisoned(kept)) => Some(kept.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                None
            }
        });
        let Some(mut kept) = kept else {
            return;
        };
        if kept.len() < MAX_KEPT {
            kept.push(act);
        }
        self.count.store(kept.len(), Ordering::Release);
    }

    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    pub fn take(&self) -> Vec<RefusedAct> {
        let mut kept = lock(&self.kept);
        self.count.store(0, Ordering::Relaxed);
        std::mem::take(&mut *kept)
    }
}
