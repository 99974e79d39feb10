//! The guard that judges an act of native code.

use std::sync::{Arc, LazyLock};

use pyo3::prelude::*;

use crate::native;
use crate::native::tables::{Replacement, Tables, Within};
use crate::policy::judge::Act;
use crate::python::acts::released::{Noted, Released, with_note};
use crate::python::acts::told;
use crate::python::cpython::attachment::{self, Attachment};
use crate::python::cpython::ffi as raw;
use crate::python::guard::active::Active;
use crate::python::guard::live::Live;
use crate::python::guard::scope::{self, Current};

static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables::new(native::replacements::<Ours>()));

/// Replaces functions of the C library in all loaded objects, and in those that are loaded later.
pub fn install() {
    TABLES.replace_in_new();
}

/// Returns how many entries of tables were replaced, and how many could not be; `None` before the
/// first guard.
pub fn tables() -> Option<(usize, usize)> {
    let counts = TABLES.counts();
    (counts != (0, 0)).then_some(counts)
}

/// The judge of all acts.
pub struct Ours;

impl native::Judge for Ours {
    #[inline(always)]
    fn may_judge() -> bool {
        scope::any_guard()
    }

    fn allows(act: &Act<'_>) -> bool {
        if act.only_reads() && !scope::any_guard_restricts_more() {
            return true;
        }
        match attachment::now() {
            Attachment::Attached => raw::attached(|py| allowed_attached(py, act)),
            Attachment::Released => with_note(|note| match note {
                Some(Noted::Unguarded) => is_installed_willing(act),
                Some(Noted::Guarded(active)) => allowed_by(active.get(), act),
                Some(Noted::Tampered) => false,
                None => allowed_anywhere(act),
            }),
            Attachment::Foreign => allowed_anywhere(act),
        }
    }

    fn tables() -> &'static Tables {
        &TABLES
    }

    fn more() -> Vec<Replacement> {
        let within = Within::Extensions;
        let functions = attachment::functions::<Released>();
        functions
            .map(|(name, by)| Replacement { name, by, within })
            .into()
    }
}

/// Judges an act on a thread that holds the lock.
fn allowed_attached(py: Python<'_>, act: &Act<'_>) -> bool {
    if raw::is_finalizing(py) || !scope::is_ours() {
        return is_installed_willing(act);
    }
    match scope::current(py) {
        // A thread of native code that calls native code: it holds the lock, and has no context.
        Ok(Current::Unguarded) if attachment::is_of_native_thread(py) => allowed_anywhere(act),
        Ok(Current::Unguarded) => true,
        Ok(Current::Guarded(active)) => {
            let is_plain =
                each(active.get()).all(|live| !live.watches && act.judge(&**live).is_ok());
            is_plain || told::is_allowed(py, act)
        }
        Ok(Current::Tampered) | Err(_) => false,
    }
}

/// Judges an act by a guard, those beside it, and those that are installed.
fn allowed_by(active: &Active, act: &Act<'_>) -> bool {
    each(active).all(|live| is_allowed(live, act))
}

/// Judges an act on a thread that Python does not know.
fn allowed_anywhere(act: &Act<'_>) -> bool {
    is_installed_willing(act)
        && Live::with_all(|all| {
            let mut other: Option<&Arc<Live>> = None;
            for live in all.filter(|live| !live.is_installed()) {
                if act.judge(&**live).is_ok() {
                    return !live.watches || is_allowed(live, act);
                }
                if live.proceeds || other.is_none_or(|other| !other.proceeds) {
                    other = Some(live);
                }
            }
            other.is_none_or(|live| is_allowed(live, act))
        })
}

/// Judges an act by the guards that are installed alone.
fn is_installed_willing(act: &Act<'_>) -> bool {
    scope::installed()
        .filter_map(|installed| installed.active.get().config())
        .all(|config| is_allowed(config.get().live(), act))
}

/// Judges an act where no Python can run; it is told later.
fn is_allowed(live: &Live, act: &Act<'_>) -> bool {
    let is_allowed = act.judge(live).is_ok();
    if !is_allowed || live.watches {
        live.refusals.add(told::kept(act));
    }
    is_allowed || live.proceeds
}

/// The rules of a guard, of those beside it, and of those that are installed.
fn each(active: &Active) -> impl Iterator<Item = &Arc<Live>> {
    told::each(active).filter_map(|active| Some(active.config()?.get().live()))
}
