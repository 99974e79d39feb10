//! The state of the moment that a denied event is in, and what is known beside it.

use std::net::IpAddr;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::policy::judge::{Knowledge, MOST_PATHS, Moment};
use crate::python::cpython::ffi as raw;
use crate::python::values::call_notes;
use crate::python::values::distributions;
use crate::python::values::seen::Seen;
use crate::python::values::simple;

/// Notes the state while the event is going on.
///
/// # Errors
/// The error that a path-like object raised.
pub fn moment(args: &Bound<'_, PyTuple>) -> PyResult<Moment> {
    let mut opaque = 0;
    for index in 0..args.len().min(MOST_PATHS) {
        let arg = raw::tuple_item(args, index);
        if raw::int_value(&arg).is_none() && !arg.is_none() && simple::text(&arg)?.is_none() {
            opaque |= 1 << index;
        }
    }
    Ok(Moment {
        base: call_notes::base(),
        follows: call_notes::follows(),
        opaque,
    })
}

/// The look-ups of a guard, and the packages that are installed.
pub struct Known<'a>(pub Option<&'a Seen>);

impl Knowledge for Known<'_> {
    fn names_of(&self, address: IpAddr) -> Vec<String> {
        self.0.map_or_else(Vec::new, |seen| seen.names_of(address))
    }

    fn package_of(&self, callee: &str) -> String {
        distributions::package_of(callee)
    }
}
