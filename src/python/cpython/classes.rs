//! Classes, by the fields of theirs that Python code cannot set.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::Once;

/// The dictionary of a class; `None` for the static ones of the interpreter, which keep it
/// elsewhere.
pub fn dictionary<'py>(class: &Bound<'py, PyType>) -> Option<Bound<'py, PyDict>> {
    // SAFETY: the class is alive, and its dictionary, or null, is borrowed from it.
    let dictionary = unsafe {
        let dictionary = (*class.as_type_ptr()).tp_dict;
        Bound::from_borrowed_ptr_or_opt(class.py(), dictionary)
    };
    dictionary?.cast_into().ok()
}

/// Makes instances of a class possible again. Setting `__abstractmethods__` by its descriptor sets
/// the flag also of a class that is immutable.
pub fn make_concrete(class: &Bound<'_, PyType>) {
    change_flags(class, |flags| flags & !ffi::Py_TPFLAGS_IS_ABSTRACT);
}

pub fn make_immutable(class: &Bound<'_, PyType>) {
    change_flags(class, |flags| flags | ffi::Py_TPFLAGS_IMMUTABLETYPE);
}

/// A class of this package, which nobody changes from then on.
pub fn of_package<'py>(
    py: Python<'py>,
    kept: &'static Once<Py<PyType>>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyType>> {
    let class = kept.get_or_try_init(py, || {
        let class = calling::import(py, module)?.attr(name)?.cast_into::<PyType>()?;
        make_immutable(&class);
        PyResult::Ok(class.unbind())
    })?;
    Ok(class.bind(py))
}

/// Returns whether a class is one that C code declares, and not made while the program runs.
pub fn is_static(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: the class is alive; its flags are only read.
    unsafe { (*class.as_type_ptr()).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE == 0 }
}

/// Changes those flags of a class that say what Python code may do with it.
fn change_flags(class: &Bound<'_, PyType>, change: fn(std::ffi::c_ulong) -> std::ffi::c_ulong) {
    // SAFETY: the class is alive, and the GIL held; CPython is told of the change.
    unsafe {
        let class = class.as_type_ptr();
        (*class).tp_flags = change((*class).tp_flags);
        ffi::PyType_Modified(class);
    }
}

/// Changes of dictionaries, as CPython tells them.
#[cfg(Py_3_12)]
pub mod watched {
    use std::ffi::c_int;
    use std::sync::atomic::{AtomicBool, Ordering};

    use pyo3::ffi::{self, PyObject};
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    type Callback =
        unsafe extern "C" fn(c_int, *mut PyObject, *mut PyObject, *mut PyObject) -> c_int;

    unsafe extern "C" {
        /// <https://docs.python.org/3/c-api/dict.html#c.PyDict_AddWatcher>
        fn PyDict_AddWatcher(callback: Callback) -> c_int;
    }

    static HAS_CHANGED: AtomicBool = AtomicBool::new(false);

    unsafe extern "C" fn note(
        _event: c_int,
        _dictionary: *mut PyObject,
        _key: *mut PyObject,
        _value: *mut PyObject,
    ) -> c_int {
        HAS_CHANGED.store(true, Ordering::Relaxed);
        0
    }

    pub fn install(py: Python<'_>, dictionaries: &[Bound<'_, PyDict>]) -> PyResult<()> {
        // SAFETY: the callback takes all that it is given, and is called by attached threads; the objects
        // are dicts, which the watcher is added to first.
        unsafe {
            let id = PyDict_AddWatcher(note);
            let mut dictionaries = dictionaries.iter();
            if id < 0 || dictionaries.any(|dict| ffi::PyDict_Watch(id, dict.as_ptr()) != 0) {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(())
    }

    #[inline]
    pub fn has_changed() -> bool {
        HAS_CHANGED.load(Ordering::Relaxed)
    }

    pub fn note_restored() {
        HAS_CHANGED.store(false, Ordering::Relaxed);
    }
}

/// Changes of dictionaries, by the version that each has, which no other dictionary ever has.
#[cfg(not(Py_3_12))]
pub mod watched {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use pyo3::ffi;
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    struct Watched {
        dictionary: *mut ffi::PyDictObject,
        version: AtomicU64,
    }

    // SAFETY: the dictionaries live for ever, and are read where the GIL is held alone.
    unsafe impl Send for Watched {}
    // SAFETY: nothing but the version is written, which is atomic.
    unsafe impl Sync for Watched {}

    impl Watched {
        fn current(&self) -> u64 {
            // SAFETY: a dict of a class that lives for ever; callers hold the GIL.
            unsafe { (*self.dictionary).ma_version_tag }
        }
    }

    static WATCHED: OnceLock<Vec<Watched>> = OnceLock::new();

    pub fn install(_py: Python<'_>, dictionaries: &[Bound<'_, PyDict>]) -> PyResult<()> {
        WATCHED.get_or_init(|| {
            let watched = dictionaries.iter().map(|dictionary| Watched {
                dictionary: dictionary.as_ptr().cast(),
                version: AtomicU64::new(0),
            });
            watched.collect()
        });
        note_restored();
        Ok(())
    }

    #[inline]
    pub fn has_changed() -> bool {
        WATCHED.get().is_some_and(|all| {
            all.iter().any(|watched| watched.current() != watched.version.load(Ordering::Relaxed))
        })
    }

    pub fn note_restored() {
        for watched in WATCHED.get().into_iter().flatten() {
            watched.version.store(watched.current(), Ordering::Relaxed);
        }
    }
}
