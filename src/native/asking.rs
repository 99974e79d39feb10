//! The question that a replaced function asks.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use super::tables::{Replacement, Tables};
use crate::policy::distributions::SITES;
use crate::policy::judge::Act;

/// A judge of acts: a type without values, so that the compiler makes one function of it and of the
/// one that is replaced.
pub trait ActJudge: 'static {
    /// Asked with each call: it is to cost nothing.
    fn may_judge() -> bool;

    /// A panic denies it.
    fn allows(act: &Act<'_>) -> bool;

    fn is_guarded() -> bool;

    fn found(name: &CStr, addresses: &[IpAddr]);

    fn tables() -> &'static Tables;

    /// Functions that are replaced beside those of the C library.
    fn more() -> Vec<Replacement> {
        Vec::new()
    }
}

/// If not, `errno` is `EACCES`. `act` is `None` for one that needs nobody's leave.
#[inline(always)]
pub fn allows<'a, J: ActJudge>(act: impl FnOnce() -> Option<Act<'a>>) -> bool {
    !J::may_judge() || is_allowed::<J>(act)
}

#[inline(never)]
fn is_allowed<'a, J: ActJudge>(act: impl FnOnce() -> Option<Act<'a>>) -> bool {
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

pub(super) fn set_errno(error: i32) {
    // SAFETY: the thread's own `errno`.
    unsafe { *libc::__errno_location() = error };
}

// The library that called a replaced function: looked up on the stack, once an act is denied.

const MOST_FRAMES: usize = 64;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

#[derive(Default)]
struct Found {
    frames: usize,
    nearest: Option<PathBuf>,
    installed: Option<PathBuf>,
}

/// The innermost library on this thread's stack that a package installed, else beside ours.
pub fn library() -> Option<PathBuf> {
    let mut found = Found::default();
    // SAFETY: `visit` gets what it expects. Where the stack cannot be read, the walk ends.
    unsafe { _Unwind_Backtrace(visit, (&raw mut found).cast()) };
    found.installed.or(found.nearest)
}

/// # Safety
/// Called by `_Unwind_Backtrace`, with `Found`.
unsafe extern "C" fn visit(context: *mut c_void, found: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const END: c_int = 5;
    // SAFETY: by the caller.
    let (found, address) = unsafe { (&mut *found.cast::<Found>(), _Unwind_GetIP(context)) };
    found.frames += 1;
    if found.frames > MOST_FRAMES {
        return END;
    }
    let Some((base, path)) = object_of(address) else {
        return GO_ON;
    };
    if Some(base) == object_of(visit as *const () as usize).map(|(base, _)| base) {
        return GO_ON;
    }
    let is_installed = path.iter().any(|part| SITES.iter().any(|name| part == *name));
    if is_installed {
        found.installed = Some(path);
        return END;
    }
    found.nearest.get_or_insert(path);
    GO_ON
}

pub fn object_of(address: usize) -> Option<(usize, PathBuf)> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: any address may be asked for; the answer is there where it is not zero. The name is
    // NUL-terminated, and lives as long as the object is loaded: its code is on the stack, or in use.
    unsafe {
        if libc::dladdr(address as *const c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        let info = info.assume_init();
        let name = (!info.dli_fname.is_null()).then(|| CStr::from_ptr(info.dli_fname).to_bytes());
        let path = PathBuf::from(OsStr::from_bytes(name.unwrap_or_default()));
        Some((info.dli_fbase as usize, path))
    }
}
