//! The question that a replaced function asks.

use std::ffi::CStr;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::tables::{Replacement, Tables};
use crate::policy::judge::Act;

/// A judge of acts: a type without values, so that the compiler makes one function of it and of the
/// one that is replaced.
pub trait Judge: 'static {
    /// Returns whether some guard may be in force. Asked with each call: it is to cost nothing.
    fn may_judge() -> bool;

    /// Returns whether an act may go on. A panic denies it.
    fn allows(act: &Act<'_>) -> bool;

    /// Returns whether a guard is in force on this thread.
    fn is_guarded() -> bool;

    /// Hears of the addresses that a name was looked up to.
    fn found(name: &CStr, addresses: &[IpAddr]);

    /// The tables that replaced functions are in.
    fn tables() -> &'static Tables;

    /// Functions that are replaced beside those of the C library.
    fn more() -> Vec<Replacement> {
        Vec::new()
    }
}

/// Returns whether an act may go on; if not, `errno` is `EACCES`. `act` is `None` for one that needs
/// nobody's leave.
#[inline(always)]
pub fn allows<'a, J: Judge>(act: impl FnOnce() -> Option<Act<'a>>) -> bool {
    !J::may_judge() || is_allowed::<J>(act)
}

#[inline(never)]
fn is_allowed<'a, J: Judge>(act: impl FnOnce() -> Option<Act<'a>>) -> bool {
    let before = errno();
    let allowed = catch_unwind(AssertUnwindSafe(|| match act() {
        Some(act) => J::allows(&act),
        None => true,
    }));
    let allowed = allowed.unwrap_or(false);
    set_errno(if allowed { before } else { libc::EACCES });
    allowed
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub fn set_errno(error: i32) {
    // SAFETY: the thread's own `errno`.
    unsafe { *libc::__errno_location() = error };
}
