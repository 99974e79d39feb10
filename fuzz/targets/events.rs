//! Any audit event with any arguments, through the hook itself: `tests/support/hostile.py` makes
//! them.
#![no_main]

use std::ffi::CString;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use pyo3::ffi::{PyImport_AppendInittab, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

// The native part of the package, which is linked into this program so that it is instrumented.
extern crate fastaudit_rs;

unsafe extern "C" {
    fn PyInit__native() -> *mut PyObject;
}

static JUDGE: OnceLock<Py<PyAny>> = OnceLock::new();

fn judge(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let path = py.import("sys")?.getattr("path")?;
    path.call_method1("insert", (0, here))?;
    path.call_method1("insert", (0, format!("{here}/tests/support")))?;
    let judge = py.import("hostile")?.getattr("judge")?;
    Ok(judge.unbind())
}

fuzz_target!(
    init: {
        let name = CString::new("fastaudit_rs._native").unwrap();
        // SAFETY: before the interpreter starts; the name is there for as long as the process.
        let added = unsafe { PyImport_AppendInittab(name.into_raw(), Some(PyInit__native)) };
        assert_eq!(added, 0);
        Python::initialize();
        let made = Python::attach(|py| judge(py).inspect_err(|error| error.print(py)));
        assert!(JUDGE.set(made.unwrap()).is_ok());
    },
    |data: &[u8]| {
        Python::attach(|py| {
            let judge = JUDGE.get().unwrap().bind(py);
            if let Err(error) = judge.call1((PyBytes::new(py, data),)) {
                error.print(py);
                panic!("the guard was wrong, or the harness");
            }
        });
    }
);
