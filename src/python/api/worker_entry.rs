//! The first line of a worker that is started anew: it enters the policy.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::python::api::policy::PyPolicy;
use crate::python::api::{installed, setup};
use crate::python::configuration::temporary;
use crate::python::cpython::calling::Calling;
use crate::python::excuses::pool_files;
use crate::python::wrapped::workers;

#[doc = doc!("_enter_worker")]
#[pyfunction]
#[pyo3(name = "_enter_worker")]
pub fn enter_worker(policy: &Bound<'_, PyPolicy>, monitor_calls: bool, mark: &str) -> PyResult<()> {
    let py = policy.py();
    setup::install(py)?;
    installed::check_none(py)?;
    let options = PyDict::new(py);
    options.set_item("monitor_calls", monitor_calls)?;
    policy.invoke_method("install", (), Some(&options))?;
    temporary::enter(mark);
    pool_files::note_worker();
    workers::note_worker();
    Ok(())
}
