//! The code of other libraries than the interpreter, its standard library and ours.

use std::ops::Range;

use crate::python::cpython::once::Published;

/// Where the code of other libraries is, in order.
static FOREIGN: Published<Vec<Range<usize>>> = Published::nothing();

pub fn set_foreign_code(mut code: Vec<Range<usize>>) {
    code.sort_by_key(|range| range.start);
    if FOREIGN.get() != Some(&code) {
        FOREIGN.set(Box::new(code));
    }
}

/// Returns whether a function is of another library than the interpreter, its standard library and
/// ours.
#[inline]
pub(super) fn is_foreign(function: usize) -> bool {
    let Some(code) = FOREIGN.get() else {
        return false;
    };
    let at = code.partition_point(|range| range.end <= function);
    code.get(at).is_some_and(|range| range.contains(&function))
}
