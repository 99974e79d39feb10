//! CPython's filter of lazy imports (PEP 810, Python 3.15), which is a guard's while one is in force.

use std::sync::Mutex;

use pyo3::prelude::*;

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::{Once, lock};

/// The functions of `sys`, as guarded code cannot have replaced them, and the filter for guards.
struct Functions {
    set: Py<PyAny>,
    get: Py<PyAny>,
    own: Py<PyAny>,
}

static FUNCTIONS: Once<Option<Functions>> = Once::new();

static EARLIER: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Looks the functions up; none are there before 3.15. `own` makes the filter for guards.
pub fn prepare<'py>(
    py: Python<'py>,
    own: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<()> {
    FUNCTIONS.get_or_try_init(py, || {
        let sys = calling::import(py, "sys")?;
        let Some(set) = sys.attr_opt("set_lazy_imports_filter")? else {
            return Ok::<_, PyErr>(None);
        };
        Ok(Some(Functions {
            set: set.unbind(),
            get: sys.attr("get_lazy_imports_filter")?.unbind(),
            own: own()?.unbind(),
        }))
    })?;
    Ok(())
}

/// Sets the filter, as the first guard of the process begins.
pub fn begin(py: Python<'_>) {
    exchange(py, |functions, present| {
        if !present.is(&functions.own) {
            keep((!present.is_none()).then(|| present.unbind()));
            functions.set.bind(py).invoke1((&functions.own,))?;
        }
        Ok(())
    });
}

/// Gives the host its filter back, as the last guard has ended.
pub fn end(py: Python<'_>) {
    exchange(py, |functions, present| {
        // The host may have set another one meanwhile.
        if present.is(&functions.own) {
            functions.set.bind(py).invoke1((keep(None),))?;
        }
        Ok(())
    });
}

/// Runs `work` with the filter that is set, while an exception may be on its way.
fn exchange<'py>(
    py: Python<'py>,
    work: impl FnOnce(&Functions, Bound<'py, PyAny>) -> PyResult<()>,
) {
    let Some(Some(functions)) = FUNCTIONS.get(py) else {
        return;
    };
    raw::beside_pending(py, || {
        let done = functions.get.bind(py).invoke0();
        if let Err(error) = done.and_then(|present| work(functions, present)) {
            calling::write_unraisable(py, error);
        }
    });
}

/// Exchanges the filter of the host.
fn keep(filter: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
    let mut earlier = lock(&EARLIER);
    std::mem::replace(&mut earlier, filter)
}

/// The filter of the host, which is asked as well.
pub fn of_host(py: Python<'_>) -> Option<Py<PyAny>> {
    let earlier = lock(&EARLIER);
    earlier.as_ref().map(|filter| filter.clone_ref(py))
}
