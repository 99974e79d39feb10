//! Lazy imports of code under a guard, which become eager ones: a lazy one runs where its name is
//! used first, be it after the guard (PEP 810, Python 3.15).
//!
//! Modules of the standard library and of installed packages keep theirs.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::frames;
use crate::python::cpython::once::Once;
use crate::python::guard::scope;
use crate::python::importing::imports;

/// The functions of `sys` that set and get the filter, and ours: as guarded code cannot have
/// replaced them.
struct Functions {
    set: Py<PyAny>,
    get: Py<PyAny>,
    own: Py<PyAny>,
}

static FUNCTIONS: Once<Option<Functions>> = Once::new();

/// The filter of the host, which is asked as well.
static EARLIER: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Looks the functions up; none are there before 3.15.
///
/// # Errors
/// Errors raised while making the filter.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    FUNCTIONS.get_or_try_init(py, || {
        let sys = calling::import(py, "sys")?;
        let Some(set) = sys.attr_opt("set_lazy_imports_filter")? else {
            return Ok::<_, PyErr>(None);
        };
        Ok(Some(Functions {
            set: set.unbind(),
            get: sys.attr("get_lazy_imports_filter")?.unbind(),
            own: wrap_pyfunction!(may_be_lazy, py)?.into_any().unbind(),
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
    let pending = PyErr::take(py);
    let done = functions.get.bind(py).invoke0();
    if let Err(error) = done.and_then(|present| work(functions, present)) {
        calling::write_unraisable(py, error);
    }
    if let Some(pending) = pending {
        pending.restore(py);
    }
}

/// Exchanges the filter of the host.
fn keep(filter: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
    let mut earlier = EARLIER.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut earlier, filter)
}

/// Returns whether an import that is written as a lazy one is: CPython's filter.
#[pyfunction]
fn may_be_lazy<'py>(
    importer: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
    names: &Bound<'py, PyAny>,
) -> PyResult<bool> {
    let py = importer.py();
    if !scope::in_force(py)?.is_empty() {
        let Some(frame) = frames::current_frame(py) else {
            return Ok(false);
        };
        if !imports::is_installed(&frames::code(frame.cast()?))? {
            return Ok(false);
        }
    }
    let earlier = {
        let earlier = EARLIER.lock().unwrap_or_else(PoisonError::into_inner);
        earlier.as_ref().map(|filter| filter.clone_ref(py))
    };
    let Some(filter) = earlier else {
        return Ok(true);
    };
    let given = PyTuple::new(py, [importer, name, names])?;
    calling::is_true(&calling::call(filter.bind(py), &given, None)?)
}
