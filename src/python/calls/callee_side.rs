//! Calls that are watched by what is called, and not by the interpreter's events: code that calls no
//! native code of others runs as fast as without a guard.

use pyo3::prelude::*;

use crate::python::callees::callee_cache as cache;
use crate::python::calls::ask::{self, SiteAnswer};
use crate::python::calls::deferred;
use crate::python::calls::judging;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::layout;
use crate::python::cpython::native_calls::{self, NativeAnswer, NativeCallee, NativeCalls};
use crate::python::guard::{holds, scope};
use crate::python::importing::loaded;

pub fn install(py: Python<'_>) -> PyResult<()> {
    loaded::install(py)?;
    if let Some(monitoring) = calling::import(py, "sys")?.attr_opt("monitoring")? {
        ask::DISABLE.set(&monitoring.attr("DISABLE")?);
    }
    native_calls::install::<Ours>(py)
}

struct Ours;

impl NativeCalls for Ours {
    #[inline]
    fn is_quiet(callee: Borrowed<'_, '_, PyAny>) -> bool {
        cache::is_plainly_quiet(callee)
    }

    fn begins(call: NativeCallee<'_>) -> NativeAnswer {
        let callee = call.callee;
        if (holds::all_have_safe_set() && cache::is_plainly_safe(callee))
            || cache::is_plainly_quiet(callee)
            || cache::is_quiet::<{ cache::SECOND }>(callee)
            // Guards are of one interpreter; what is called is of all.
            || !scope::is_ours()
        {
            return NativeAnswer::Make;
        }
        // A class that calls its first argument does so later, which is seen then.
        let first = call.first.filter(|_| !layout::is_class(callee));
        let judge = || judging::judge(None, &callee, first.as_deref());
        match judging::caught(callee.py(), judge) {
            Some(SiteAnswer::Fragile) => NativeAnswer::MakeAndTell,
            Some(_) => NativeAnswer::Make,
            None => NativeAnswer::Fail,
        }
    }

    fn ended(py: Python<'_>) -> bool {
        judging::caught(py, || deferred::ends(py, None)).is_some()
    }
}
