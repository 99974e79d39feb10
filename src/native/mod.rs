//! Effects of native code: functions of the C library that native code calls are replaced by
//! functions that ask a judge first.
//!
//! An object reaches the C library by its relocation table, where the loader wrote the addresses of
//! the functions that it imports. [`tables`] writes others there, of [`functions`]: each has the
//! signature of the one that it replaces, says by an [`Act`](crate::policy::judge::Act) what that
//! is about to do, and calls it or fails with `EACCES`. The interpreter and its extension modules
//! keep theirs: what Python does, audit events tell.
#![expect(
    unsafe_code,
    reason = "the second door to C: functions that native code calls, and tables of the loader"
)]

pub mod asking;
mod functions;
pub mod objects;
pub mod tables;

pub use asking::ActJudge;
pub use functions::replacements;
