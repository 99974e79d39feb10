//! The functions that take the place of the C library's: each says what it is about to do, and
//! does it if the judge lets it.

mod files;
mod loading;
mod network;
mod processes;
mod system_calls;

use std::ffi::{CStr, c_char, c_int};

use super::asking::ActJudge;
use super::tables::Replacement;
use crate::policy::files::path::Base;
use crate::policy::judge::{Act, Value};

type Path = *const c_char;

const CWD: c_int = libc::AT_FDCWD;

/// Functions of the C library, as in their man pages, with the act that they announce.
macro_rules! replaced {
    (
        $table:ident;
        $(
            $(#[doc = $doc:literal])*
            [$($name:literal),+]
            fn $function:ident($($argument:ident: $type:ty),*) -> $result:ty
            = $act:expr, $(do $real:expr,)? else $failure:expr;
        )*
    ) => {
        $(
            $(#[doc = $doc])*
            unsafe extern "C" fn $function<J: ActJudge>($($argument: $type),*) -> $result {
                // SAFETY: native code calls it as the function that it replaces, by whose rules the
                // arguments hold; they are handed on as they are.
                unsafe {
                    match crate::native::asking::allows::<J>(|| $act) {
                        true => crate::native::functions::replaced!(@real $function($($argument),*) $($real)?),
                        false => $failure,
                    }
                }
            }
        )*
        pub(super) fn $table<J: ActJudge>() -> impl Iterator<Item = (&'static std::ffi::CStr, *const ())> {
            [$($(($name, $function::<J> as *const ())),+),*].into_iter()
        }
    };
    (@real $function:ident($($argument:ident),*)) => { libc::$function($($argument),*) };
    (@real $function:ident($($argument:ident),*) $real:expr) => { $real };
}
use replaced;

pub fn replacements<J: ActJudge>() -> Vec<Replacement> {
    use super::tables::Within::{Everything, Libraries};

    let of_libraries = files::table::<J>()
        .chain(network::table::<J>())
        .chain(processes::table::<J>())
        .chain(system_calls::table::<J>())
        .map(|(name, by)| (name, by, Libraries));
    let of_all = loading::table::<J>().map(|(name, by)| (name, by, Everything));
    let ours = of_libraries.chain(of_all);
    let ours = ours.map(|(name, by, within)| Replacement { name, by: by as usize, within });
    ours.chain(J::more()).collect()
}

/// A text of the caller's; `None` for a null pointer, which the C library answers.
///
/// # Safety
/// The text is NUL-terminated and lives as long as the call, or is null.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: by the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// An event whose only argument is a text.
fn with_text<'a>(event: &'static CStr, given: Option<&'a CStr>) -> Option<Act<'a>> {
    Some(Act::new(event, &[value(given?)]))
}

fn value(text: &CStr) -> Value<'_> {
    Value::Text(text.to_bytes())
}

fn number(number: impl Into<i64>) -> Value<'static> {
    Value::Integer(number.into())
}

/// The descriptor of a directory, as an argument of an event.
fn dir(descriptor: i32) -> Value<'static> {
    match descriptor {
        CWD => number(-1),
        descriptor => number(descriptor),
    }
}

/// The same, as the start of a relative name.
fn base(descriptor: i32) -> Base {
    match descriptor {
        CWD => Base::CurrentDir,
        descriptor => Base::Descriptor(descriptor),
    }
}
