//! Tells whether native code is judged by what it does to files.

use pyo3::prelude::*;

use crate::python::acts;

#[doc = doc!("_native_tables")]
#[pyfunction]
#[pyo3(name = "_native_tables")]
pub fn native_tables() -> Option<(usize, usize, u64)> {
    acts::tables()
}
