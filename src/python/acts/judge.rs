//! The guard that judges an act of native code.

use std::cell::Cell;
use std::ffi::CStr;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use pyo3::prelude::*;

use crate::native;
use crate::native::tables::{Replacement, Tables, Within};
use crate::policy::judge::{Act, Host};
use crate::python::acts::told;
use crate::python::configuration::live::Live;
use crate::python::cpython::attachment::{self, Attachment, Notes, Release};
use crate::python::cpython::{ffi as raw, process};
use crate::python::guard::active::{Active, InForce};
use crate::python::guard::scope::{self, Current};

static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables::new(native::replacements::<Ours>()));

/// Replaces functions of the C library in all loaded objects, and in those that are loaded later.
pub fn install() {
    TABLES.replace_in_new();
}

#[doc = doc!("_native_tables")]
#[pyfunction]
#[pyo3(name = "_native_tables")]
pub fn tables() -> Option<(usize, usize, u64)> {
    let counts = TABLES.counts();
    (counts.0 + counts.1 != 0).then_some(counts)
}

pub struct Ours;

impl native::ActJudge for Ours {
    #[inline(always)]
    fn may_judge() -> bool {
        scope::any_guard()
    }

    fn allows(act: &Act<'_>) -> bool {
        if (act.only_reads() && !scope::any_guard_restricts_more()) || act.is_of_uuids() {
            return true;
        }
        attachment::with(|now| match now {
            Attachment::Attached(py) => allowed_attached(py, act),
            Attachment::Released => with_note(|note| match note {
                Some(ReleasedGuard::Unguarded) => is_installed_willing(act),
                Some(ReleasedGuard::Guarded(noted)) => {
                    noted.active().is_some_and(|active| allowed_by(active, act))
                }
                Some(ReleasedGuard::Tampered) => false,
                None => allowed_anywhere(act),
            }),
            Attachment::Foreign => allowed_anywhere(act),
        })
    }

    fn is_guarded() -> bool {
        let is_guarded = Cell::new(false);
        each_of_thread(|_| is_guarded.set(true));
        is_guarded.get()
    }

    fn found(name: &CStr, addresses: &[IpAddr]) {
        let Host::Name(name) = Host::of(&name.to_string_lossy()) else {
            return;
        };
        each_of_thread(|own| own.remember(&name, addresses));
    }

    fn tables() -> &'static Tables {
        &TABLES
    }

    fn more() -> Vec<Replacement> {
        let within = Within::Extensions;
        let functions = attachment::functions::<Released>();
        let replacement =
            |(name, by): (_, *const ())| Replacement { name, by: by as usize, within };
        functions.map(replacement).into()
    }
}

fn each_of_thread(look: impl Fn(InForce<'_>)) {
    let is_known = attachment::with(|now| match now {
        Attachment::Attached(py) => match scope::current(py) {
            _ if raw::is_finalizing() || !scope::is_ours() => look_at(installed(), &look),
            Ok(Current::Guarded(active)) => look_at(each(active.get()), &look),
            Ok(Current::Unguarded) => !attachment::is_of_native_thread(py),
            _ => false,
        },
        Attachment::Released => with_note(|note| match note {
            Some(ReleasedGuard::Unguarded) => look_at(installed(), &look),
            Some(ReleasedGuard::Guarded(noted)) => {
                noted.active().is_some_and(|active| look_at(each(active), &look))
            }
            _ => false,
        }),
        Attachment::Foreign => false,
    });
    if !is_known {
        Live::with_all(|all| all.map(InForce::of_all).for_each(look));
    }
}

fn look_at<'a>(all: impl Iterator<Item = InForce<'a>>, look: &impl Fn(InForce<'_>)) -> bool {
    all.for_each(look);
    true
}

fn allowed_attached(py: Python<'_>, act: &Act<'_>) -> bool {
    if raw::is_finalizing() || !scope::is_ours() {
        return is_installed_willing(act);
    }
    match scope::current(py) {
        // A thread of native code that calls native code: it holds the lock, and has no context.
        Ok(Current::Unguarded) if attachment::is_of_native_thread(py) => allowed_anywhere(act),
        Ok(Current::Unguarded) => true,
        Ok(Current::Guarded(active)) if process::is_of_native_code() => {
            allowed_by(active.get(), act)
        }
        Ok(Current::Guarded(active)) => {
            let is_plain =
                each(active.get()).all(|own| !own.live.watches && act.judge(&own).is_ok());
            is_plain || told::is_allowed(py, act)
        }
        Ok(Current::Tampered) | Err(_) => false,
    }
}

fn allowed_by(active: &Active, act: &Act<'_>) -> bool {
    each(active).all(|own| is_allowed(&own, act))
}

fn allowed_anywhere(act: &Act<'_>) -> bool {
    is_installed_willing(act)
        && Live::with_all(|all| {
            let mut other: Option<&Arc<Live>> = None;
            for live in all.filter(|live| !live.is_installed()) {
                let own = InForce::of_all(live);
                if !own.judges() {
                    return true;
                }
                if act.judge(&own).is_ok() {
                    return !live.watches || is_allowed(&own, act);
                }
                if live.proceeds || other.is_none_or(|other| !other.proceeds) {
                    other = Some(live);
                }
            }
            other.is_none_or(|live| is_allowed(&InForce::of_all(live), act))
        })
}

fn is_installed_willing(act: &Act<'_>) -> bool {
    installed().all(|own| is_allowed(&own, act))
}

fn installed() -> impl Iterator<Item = InForce<'static>> {
    let installed = scope::installed();
    installed.filter_map(|installed| InForce::of(installed.active.get())).filter(InForce::judges)
}

/// Judges an act where no Python can run; it is told later.
fn is_allowed(own: &InForce<'_>, act: &Act<'_>) -> bool {
    let (live, is_allowed) = (own.live, act.judge(own).is_ok());
    if (!is_allowed || live.watches) && !process::is_of_native_code() {
        live.refusals.add(told::kept(act));
    }
    is_allowed || live.proceeds
}

fn each(active: &Active) -> impl Iterator<Item = InForce<'_>> {
    scope::judging(active).filter_map(InForce::of).filter(InForce::judges)
}

// The guard of a thread that let the interpreter's lock go.
//
// A thread's context changes only while it holds the lock, so that the guard which is noted as it
// lets go stays the one in force until it holds the lock again.

/// What the context had as the lock was let go.
pub enum ReleasedGuard {
    Unguarded,
    Guarded(GuardInRelease),
    /// An object that is no guard.
    Tampered,
}

/// The guard of a thread in native code: threads of the library may act for it.
pub struct GuardInRelease(Option<Py<Active>>);

impl GuardInRelease {
    fn new(active: Py<Active>) -> Self {
        lives(active.get()).for_each(Live::begin_release);
        Self(Some(active))
    }

    /// None once it has ended.
    fn active(&self) -> Option<&Active> {
        self.0.as_ref().map(Py::get)
    }

    /// Tells what was refused. The reference is given back here: elsewhere PyO3 would take a lock
    /// for it, and memory.
    fn end(mut self, py: Python<'_>) {
        if let Some(active) = self.0.take() {
            let active = active.into_bound(py);
            told::tell(py, active.get());
            lives(active.get()).for_each(Live::end_release);
        }
    }
}

impl Drop for GuardInRelease {
    fn drop(&mut self) {
        self.active().into_iter().flat_map(lives).for_each(Live::end_release);
    }
}

fn lives(active: &Active) -> impl Iterator<Item = &Live> {
    let configs = active.each().filter_map(Active::config);
    configs.map(|config| &**config.get().live())
}

thread_local! {
    static NOTES: Notes<ReleasedGuard> = const { Notes::none() };
}

pub struct Released;

impl Release for Released {
    type Note = ReleasedGuard;

    #[inline(always)]
    fn may_note() -> bool {
        scope::any_guard()
    }

    fn note(py: Python<'_>) -> ReleasedGuard {
        if !scope::is_ours() {
            return ReleasedGuard::Unguarded;
        }
        match scope::current(py) {
            Ok(Current::Unguarded) => ReleasedGuard::Unguarded,
            Ok(Current::Guarded(active)) => {
                ReleasedGuard::Guarded(GuardInRelease::new(active.unbind()))
            }
            Ok(Current::Tampered) | Err(_) => ReleasedGuard::Tampered,
        }
    }

    fn ends(py: Python<'_>, note: ReleasedGuard) {
        if let ReleasedGuard::Guarded(noted) = note {
            noted.end(py);
        }
    }

    fn with_notes<R>(look: impl FnOnce(&Notes<ReleasedGuard>) -> R) -> Option<R> {
        NOTES.try_with(look).ok()
    }
}

/// Looks at the note of this thread; there is none if code let the lock go that has no notes.
pub fn with_note<R>(look: impl Fn(Option<&ReleasedGuard>) -> R) -> R {
    let looked = NOTES.try_with(|notes| notes.with_last(&look));
    // A thread that ends has none any more.
    looked.unwrap_or_else(|_| look(None))
}
