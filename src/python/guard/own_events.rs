//! Events that acts of our own raise under a guard, which are not judged.

use std::cell::Cell;
use std::ffi::CStr;

/// `register_callback(id, event, function)` of `sys.monitoring`.
pub const REGISTERS: &CStr = c"sys.monitoring.register_callback";
/// `gc.get_objects()`
pub const FINDS_OBJECTS: &CStr = c"gc.get_objects";

thread_local! {
    static RAISED: Cell<Option<&'static CStr>> = const { Cell::new(None) };
}

/// Returns whether an act of our own raises this event.
#[inline]
pub fn is_raised(event: &CStr) -> bool {
    RAISED.get().is_some_and(|raised| raised == event)
}

/// Acts, and lets this event pass meanwhile.
pub fn while_raising<R>(event: &'static CStr, act: impl FnOnce() -> R) -> R {
    let before = RAISED.replace(Some(event));
    let result = act();
    RAISED.set(before);
    result
}
