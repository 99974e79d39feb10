//! Classes that stay as they were made.
//!
//! No attribute of a native class can be set or deleted: the classes are immutable. The dictionary
//! behind a class can be had all the same (`gc.get_referents`, an operand that `mappingproxy` hands it
//! to), and what is put there is found by whoever looks a method up by its name, as a `with` statement
//! does. So each change of such a dictionary is noted, and undone as a guard is made, entered or left.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// A class and its attributes. They are kept where no Python code finds them.
struct Sealed {
    class: Py<PyType>,
    attributes: Vec<(Py<PyAny>, Py<PyAny>)>,
}

static SEALED: OnceLock<Vec<Sealed>> = OnceLock::new();

/// Seals these classes, once for the process.
///
/// # Errors
/// `MemoryError`, or what refused that dictionaries are watched.
pub fn install(py: Python<'_>, classes: Vec<Bound<'_, PyType>>) -> PyResult<()> {
    if SEALED.get().is_some() {
        return Ok(());
    }
    let mut all = Vec::with_capacity(classes.len());
    for class in classes {
        let attributes = dictionary(&class).iter();
        let attributes = attributes.map(|(name, value)| (name.unbind(), value.unbind()));
        all.push(Sealed {
            attributes: attributes.collect(),
            class: class.unbind(),
        });
    }
    let all = SEALED.get_or_init(|| all);
    let dictionaries: Vec<_> = all
        .iter()
        .map(|sealed| dictionary(sealed.class.bind(py)))
        .collect();
    watched::install(py, &dictionaries)
}

/// Undoes what was done to the classes.
#[inline]
pub fn restore(py: Python<'_>) {
    if watched::has_changed() {
        restore_all(py);
    }
}

#[cold]
fn restore_all(py: Python<'_>) {
    let Some(all) = SEALED.get() else {
        return;
    };
    let mut gone = Vec::new();
    for sealed in all {
        let class = sealed.class.bind(py);
        let dictionary = dictionary(class);
        // What is taken out is freed last: that may run Python code.
        gone.extend(dictionary.iter());
        dictionary.clear();
        for (name, value) in &sealed.attributes {
            // Without memory for it a `with` statement finds no method, and does not go on.
            let _ = dictionary.set_item(name, value);
        }
        // SAFETY: the class is alive, and the GIL held. Setting `__abstractmethods__` by its descriptor
        // sets this flag also of a class that is immutable.
        unsafe {
            let class = class.as_type_ptr();
            (*class).tp_flags &= !ffi::Py_TPFLAGS_IS_ABSTRACT;
            ffi::PyType_Modified(class);
        }
    }
    watched::note_restored();
    drop(gone);
}

/// The dictionary of a class.
fn dictionary<'py>(class: &Bound<'py, PyType>) -> Bound<'py, PyDict> {
    // SAFETY: a class that is ready has one, and these are no static ones, whose place is elsewhere.
    unsafe {
        let dictionary = (*class.as_type_ptr()).tp_dict;
        Bound::from_borrowed_ptr(class.py(), dictionary).cast_into_unchecked()
    }
}

/// Changes of dictionaries, as CPython tells them.
#[cfg(Py_3_12)]
mod watched {
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
        // SAFETY: the callback takes what it is given, and is called by attached threads.
        let id = unsafe { PyDict_AddWatcher(note) };
        if id < 0 {
            return Err(PyErr::fetch(py));
        }
        for dictionary in dictionaries {
            // SAFETY: the watcher was just added, and the object is a dict.
            if unsafe { ffi::PyDict_Watch(id, dictionary.as_ptr()) } != 0 {
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
mod watched {
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
            all.iter()
                .any(|watched| watched.current() != watched.version.load(Ordering::Relaxed))
        })
    }

    pub fn note_restored() {
        for watched in WATCHED.get().into_iter().flatten() {
            watched.version.store(watched.current(), Ordering::Relaxed);
        }
    }
}
