//! Lists, dictionaries, buffers, code and classes, read or made without code of their classes.

use std::ffi::{CStr, c_ulong};
#[cfg(Py_GIL_DISABLED)]
use std::sync::atomic::Ordering;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBaseException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::types::{PyDict, PyInt, PyList, PyString, PyTuple, PyType, PyWeakrefProxy};

use crate::python::cpython::collector;

/// The length of a list, and its last item as an address to compare.
#[inline]
pub fn length_and_last(list: &Bound<'_, PyList>) -> (usize, usize) {
    let last = list.len().checked_sub(1);
    let last = last.and_then(|last| list.get_item(last).ok());
    (list.len(), last.map_or(0, |last| last.as_ptr() as usize))
}

/// The items of a dictionary as they are now, whatever other threads do to it.
pub fn items<'py>(
    dictionary: &Bound<'py, PyDict>,
) -> impl Iterator<Item = (Bound<'py, PyAny>, Bound<'py, PyAny>)> + use<'py> {
    // Each is a pair, which `PyDict_Items` made.
    dictionary.items().into_iter().filter_map(|pair| pair.extract().ok())
}

/// The attributes that are an object's own, read without code of its class.
pub fn own_attributes<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    let py = object.py();
    // SAFETY: the result is a new reference, or null with an exception set.
    let dict = unsafe {
        let dict = ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_opt(py, dict)
    };
    if dict.is_none() {
        drop(PyErr::take(py));
    }
    dict?.cast_into().ok()
}

/// The object as a weak proxy, if it is one. PyO3's own check imports a module the first time, under a
/// lock that a copy of the process, made meanwhile, would wait for without end.
pub fn weak_proxy<'a, 'py>(
    object: &'a Bound<'py, PyAny>,
) -> Option<&'a Bound<'py, PyWeakrefProxy>> {
    // SAFETY: the object is alive, and its type is what the check says.
    unsafe {
        (ffi::PyWeakref_CheckProxy(object.as_ptr()) != 0)
            .then(|| object.cast_unchecked::<PyWeakrefProxy>())
    }
}

/// Returns the module of this name, if it is imported: the entry of `sys.modules`, or of a
/// dictionary that took its place. Runs none of its code.
pub fn module_of_name<'py>(name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    let mut found = std::ptr::null_mut();
    // SAFETY: the dictionary of modules is borrowed from the interpreter, and a dict; what is found is a
    // new reference, or null.
    unsafe {
        let modules = ffi::PyImport_GetModuleDict();
        ffi::compat::PyDict_GetItemRef(modules, name.as_ptr(), &raw mut found);
        Bound::from_owned_ptr_or_opt(name.py(), found)
    }
}

/// Returns the number of bytes in an object's buffer; `None` if it has no buffer.
pub fn buffer_length(object: &Bound<'_, PyAny>) -> Option<u64> {
    PyUntypedBuffer::get(object).ok().and_then(|buffer| u64::try_from(buffer.len_bytes()).ok())
}

pub fn is_sequence(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: it takes any object, and runs none of its code.
    unsafe { ffi::PySequence_Check(object.as_ptr()) != 0 }
}

/// The code of a module with this text. No audit event is raised.
///
/// # Errors
/// `SyntaxError`, `MemoryError`.
pub fn compile<'py>(py: Python<'py>, source: &CStr) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: both texts are NUL-terminated; the result is a new reference, or null with an
    // exception set.
    unsafe {
        let code = ffi::Py_CompileString(source.as_ptr(), c"".as_ptr(), ffi::Py_file_input);
        Bound::from_owned_ptr_or_err(py, code)
    }
}

/// A function of this code.
///
/// # Errors
/// `MemoryError`; `SystemError` if it is not code.
pub fn new_function<'py>(
    code: &Bound<'py, PyAny>,
    globals: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the first is looked at; the result is a new reference, or null with an exception set.
    unsafe {
        if ffi::PyCode_Check(code.as_ptr()) == 0 {
            return Err(pyo3::exceptions::PySystemError::new_err("no code"));
        }
        let function = ffi::PyFunction_New(code.as_ptr(), globals.as_ptr());
        Bound::from_owned_ptr_or_err(code.py(), function)
    }
}

// Exceptions, read and chained without their own methods.

/// The arguments that an exception was made with.
pub fn args<'py>(error: &Bound<'py, PyBaseException>) -> Option<Bound<'py, PyTuple>> {
    let object = error.as_ptr().cast::<ffi::PyBaseExceptionObject>();
    // SAFETY: the object is an exception, and its arguments are null or a tuple, which other threads change
    // in a critical section alone.
    let args = with_critical_section(error.as_any(), || unsafe {
        Bound::from_borrowed_ptr_or_opt(error.py(), (*object).args)
    });
    args?.cast_into().ok()
}

/// The exception that led to one: its cause, or the one that was handled as it was raised.
pub fn before<'py>(error: &Bound<'py, PyBaseException>) -> Option<Bound<'py, PyBaseException>> {
    // SAFETY: the object is an exception; both functions return a new reference, or null.
    let before = unsafe {
        let cause = ffi::PyException_GetCause(error.as_ptr());
        let before = match cause.is_null() {
            true => ffi::PyException_GetContext(error.as_ptr()),
            false => cause,
        };
        Bound::from_owned_ptr_or_opt(error.py(), before)?
    };
    before.cast_into().ok()
}

pub fn set_cause(error: &Bound<'_, PyBaseException>, cause: Bound<'_, PyAny>) {
    // SAFETY: both are exceptions, and the function takes the reference.
    unsafe { ffi::PyException_SetCause(error.as_ptr(), cause.into_ptr()) };
}

// The values of a `str`, an `int` or a `float`, whatever a subclass makes of them.

/// The actual text as a plain str, whose methods are CPython's own.
pub fn plain_str<'py>(text: Bound<'py, PyString>) -> PyResult<Bound<'py, PyString>> {
    if text.is_exact_instance_of::<PyString>() {
        return Ok(text);
    }
    // SAFETY: takes any str, and copies the text of one of a subclass.
    unsafe {
        let plain = ffi::PyUnicode_FromObject(text.as_ptr());
        Ok(Bound::from_owned_ptr_or_err(text.py(), plain)?.cast_into_unchecked())
    }
}

/// The actual number as a plain int.
pub fn plain_int<'py>(number: &Bound<'py, PyInt>) -> PyResult<Bound<'py, PyInt>> {
    if number.is_exact_instance_of::<PyInt>() {
        return Ok(number.clone());
    }
    // SAFETY: the slot of `int` itself, which every interpreter has, takes any int, and makes a plain
    // one of one of a subclass; a new reference or null.
    unsafe {
        let slots = ffi::PyLong_Type.tp_as_number;
        let Some(as_int) = (*slots).nb_int else {
            return Err(pyo3::exceptions::PySystemError::new_err("int has no nb_int"));
        };
        let plain = Bound::from_owned_ptr_or_err(number.py(), as_int(number.as_ptr()))?;
        Ok(plain.cast_into_unchecked())
    }
}

// Classes, by the fields of theirs that Python code cannot set.

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
    change_flags(class, !ffi::Py_TPFLAGS_IS_ABSTRACT, 0);
}

pub fn make_immutable(class: &Bound<'_, PyType>) {
    change_flags(class, !0, ffi::Py_TPFLAGS_IMMUTABLETYPE);
}

/// Returns whether a class is one that C code declares, and not made while the program runs.
pub fn is_static(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: the class is alive; its flags are only read.
    unsafe { ffi::PyType_HasFeature(class.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) == 0 }
}

/// Changes those flags of a class that say what Python code may do with it: keeps some, and adds others.
fn change_flags(class: &Bound<'_, PyType>, keeps: c_ulong, adds: c_ulong) {
    let raw = class.as_type_ptr();
    // SAFETY: the class is alive, and no other thread changes it meanwhile; CPython is told of the change.
    unsafe {
        collector::alone(class.py(), || {
            #[cfg(Py_GIL_DISABLED)]
            {
                let flags = &(*raw).tp_flags;
                flags.store(flags.load(Ordering::Relaxed) & keeps | adds, Ordering::Relaxed);
            }
            #[cfg(not(Py_GIL_DISABLED))]
            {
                (*raw).tp_flags = (*raw).tp_flags & keeps | adds;
            }
        });
        ffi::PyType_Modified(raw);
    }
}

/// Changes of dictionaries, as CPython tells them.
#[cfg(Py_3_12)]
pub mod watched {
    use std::cell::Cell;
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

    thread_local! {
        static RESTORES: Cell<bool> = const { Cell::new(false) };
    }

    unsafe extern "C" fn note(
        _event: c_int,
        _dictionary: *mut PyObject,
        _key: *mut PyObject,
        _value: *mut PyObject,
    ) -> c_int {
        HAS_CHANGED.fetch_or(!RESTORES.get(), Ordering::Relaxed);
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

    /// Undoes all changes by `restore`. Those that other threads make meanwhile are new ones.
    pub fn restore(restore: impl FnOnce()) {
        HAS_CHANGED.store(false, Ordering::Relaxed);
        RESTORES.set(true);
        restore();
        RESTORES.set(false);
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
        restore(|| {});
        Ok(())
    }

    #[inline]
    pub fn has_changed() -> bool {
        WATCHED.get().is_some_and(|all| {
            all.iter().any(|watched| watched.current() != watched.version.load(Ordering::Relaxed))
        })
    }

    /// Undoes all changes by `restore`.
    pub fn restore(restore: impl FnOnce()) {
        restore();
        for watched in WATCHED.get().into_iter().flatten() {
            watched.version.store(watched.current(), Ordering::Relaxed);
        }
    }
}
