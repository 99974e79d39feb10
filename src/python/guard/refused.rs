//! Acts of native code that were refused where no Python could run: they wait until some does.

use std::ffi::CStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use crate::policy::files::path::Base;
use crate::policy::judge::{Act, Follows, Value};

/// The number of acts that wait; further ones are not told.
const MAX_KEPT: usize = 1000;

/// How often a lock is asked for.
const MOST_TRIES: usize = 1000;

/// An act that was refused.
pub struct RefusedAct {
    /// The act, its names from the top of the file system.
    pub act: OwnedAct,
    /// The file of the library that it is of.
    pub library: Option<PathBuf>,
}

/// An act with its texts.
pub struct OwnedAct {
    pub event: &'static CStr,
    pub arguments: Vec<Owned>,
    pub base: Base,
    pub follows: Follows,
}

/// An argument.
pub enum Owned {
    None,
    Integer(i64),
    Text(Vec<u8>),
    Address(SocketAddr),
    OtherAddress,
}

impl OwnedAct {
    /// A copy of an act. `is_whole`: relative names get the directory that they start from, as another
    /// may be the current one when it is told.
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
        Self {
            event: act.event,
            arguments,
            base: act.base,
            follows: act.follows,
        }
    }
}

/// The acts that wait.
#[derive(Default)]
pub struct Refusals {
    count: AtomicUsize,
    kept: Mutex<Vec<RefusedAct>>,
}

impl Refusals {
    /// Adds one. It is not waited for long: in a copy of the process nobody unlocks what another thread
    /// had locked.
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

    /// Returns whether some wait.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Takes those that wait.
    pub fn take(&self) -> Vec<RefusedAct> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        self.count.store(0, Ordering::Relaxed);
        std::mem::take(&mut *kept)
    }
}
