//! Every raw C-API call that PyO3 does not wrap, each behind a small safe function.

use std::ffi::{CStr, c_char, c_int, c_ulong};
use std::ptr;

use pyo3::BoundObject;
use pyo3::exceptions::{PyPermissionError, PyTypeError};
use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple, PyTupleMethods, PyType};

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::objects::plain_str;
use crate::python::cpython::once::intern;

unsafe extern "C" {
    #[cfg(Py_3_13)]
    fn _PyType_LookupRef(ty: *mut PyTypeObject, name: *mut PyObject) -> *mut PyObject;
    #[cfg(not(Py_3_13))]
    fn _PyType_Lookup(ty: *mut PyTypeObject, name: *mut PyObject) -> *mut PyObject;
    #[cfg(not(Py_3_13))]
    fn _Py_IsFinalizing() -> c_int;
    fn PyThread_get_thread_ident() -> c_ulong;
}

unsafe extern "C-unwind" {
    // Runs the hooks of others: see `calling`.
    fn PySys_Audit(event: *const c_char, format: *const c_char, ...) -> c_int;
}

/// Sets the exception for an event in an interpreter that is not ours, with nothing of ours.
pub fn refuse_elsewhere() {
    // SAFETY: the class is one of CPython's own, and the text NUL-terminated; called by CPython,
    // so the thread is attached.
    unsafe {
        ffi::PyErr_SetString(
            ffi::PyExc_PermissionError,
            c"Audit: denied in another interpreter by the installed policy".as_ptr(),
        );
    }
}

/// Raises an audit event, as `sys.audit` does, whatever object that name stands for now.
pub fn audit<'py>(
    py: Python<'py>,
    event: &CStr,
    args: impl IntoPyObject<'py, Target = PyTuple>,
) -> PyResult<()> {
    let args = args.into_pyobject(py).map_err(Into::into)?.into_bound();
    // SAFETY: the interpreter is attached, the texts are NUL-terminated, and the tuple, which stands for
    // the arguments themselves, lives for the duration of the call.
    let result =
        calling::held(|| unsafe { PySys_Audit(event.as_ptr(), c"O".as_ptr(), args.as_ptr()) });
    match result {
        0 => Ok(()),
        _ => Err(PyErr::fetch(py)),
    }
}

/// Runs `work`, on an attached thread that CPython called us on directly, with PyO3 knowing that
/// it is attached. References that are dropped meanwhile are given back at once; otherwise PyO3
/// would keep them until it is next entered.
pub fn with_attachment_counted<R>(_py: Python<'_>, work: impl FnOnce() -> R) -> R {
    // SAFETY: the thread is attached, by its token.
    unsafe { Python::attach_unchecked(|_| work()) }
}

/// The same for work that may fail: its error is set, and there is no result.
pub fn or_set_error<T>(py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> Result<T, ()> {
    with_attachment_counted(py, || work().map_err(|error| error.restore(py)))
}

/// Returns whether the interpreter is about to end. The thread need not be attached.
pub fn is_finalizing() -> bool {
    // SAFETY: it may be called at any time, by the name that it has in this version.
    unsafe {
        #[cfg(Py_3_13)]
        let finalizing = ffi::Py_IsFinalizing();
        #[cfg(not(Py_3_13))]
        let finalizing = _Py_IsFinalizing();
        finalizing != 0
    }
}

/// The interpreter of this thread; null when the thread has none.
pub fn current_interpreter() -> *mut ffi::PyInterpreterState {
    // SAFETY: asks for the thread state without requiring one, and only uses it when there is.
    unsafe {
        let state = ffi::compat::PyThreadState_GetUnchecked();
        if state.is_null() { ptr::null_mut() } else { ffi::PyThreadState_GetInterpreter(state) }
    }
}

/// Raises an exception of a class in a thread as soon as it runs Python code, in the place of one that
/// waits there. Returns whether there is such a thread.
#[allow(irrefutable_let_patterns, reason = "it has 32 bits on some platforms")]
pub fn raise_in_thread(py: Python<'_>, thread: u64, class: &Bound<'_, PyAny>) -> bool {
    let Ok(thread) = c_ulong::try_from(thread) else {
        return false;
    };
    let _attached = py;
    // SAFETY: this thread is attached; the function takes its own reference of the class.
    unsafe { ffi::PyThreadState_SetAsyncExc(thread as _, class.as_ptr()) != 0 }
}

/// The identifier of this thread, as `threading.get_ident` gives it.
#[allow(clippy::useless_conversion, reason = "it has 32 bits on some platforms")]
pub fn thread_ident() -> u64 {
    // SAFETY: takes nothing, and asks the system alone.
    u64::from(unsafe { PyThread_get_thread_ident() })
}

/// A context that is entered for as long as this lives.
pub struct EnteredContext<'a, 'py>(&'a Bound<'py, PyAny>);

impl<'a, 'py> EnteredContext<'a, 'py> {
    /// Enters a context; `None` if the object is not a context.
    ///
    /// # Errors
    /// `RuntimeError` if it is entered already.
    pub fn new(context: &'a Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        // SAFETY: only the type is read, and then a context entered.
        unsafe {
            if ffi::PyContext_CheckExact(context.as_ptr()) == 0 {
                return Ok(None);
            }
            if ffi::PyContext_Enter(context.as_ptr()) != 0 {
                return Err(PyErr::fetch(context.py()));
            }
        }
        Ok(Some(Self(context)))
    }
}

impl Drop for EnteredContext<'_, '_> {
    fn drop(&mut self) {
        // SAFETY: it was entered on this thread, and what was entered later was left.
        unsafe { ffi::PyContext_Exit(self.0.as_ptr()) };
    }
}

pub fn is_context(object: &Bound<'_, PyAny>) -> bool {
    object.get_type_ptr() == &raw mut ffi::PyContext_Type
}

/// A copy of a context, or a new one that is empty.
pub fn copy_context<'py>(
    py: Python<'py>,
    context: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: callers give a context; a new reference or null.
    unsafe {
        let copy = match context {
            Some(context) => ffi::PyContext_Copy(context.as_ptr()),
            None => ffi::PyContext_New(),
        };
        Bound::from_owned_ptr_or_err(py, copy)
    }
}

pub fn new_context_var<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let class = calling::import(py, "_contextvars")?.attr("ContextVar")?;
    class.invoke1((name,))
}

/// Returns the context variable's value in the current context; `None` if it is not set there.
pub fn context_var_get<'py>(
    py: Python<'py>,
    var: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut value = ptr::null_mut();
    // SAFETY: `var` is a context variable (only this crate passes one), `value` a place for a new
    // reference, which stays null when the variable is not set.
    unsafe {
        if ffi::PyContextVar_Get(var.as_ptr(), ptr::null_mut(), &raw mut value) < 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(Bound::from_owned_ptr_or_opt(py, value))
    }
}

/// Sets the context variable in the current context; returns the token to undo it.
pub fn context_var_set<'py>(
    var: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `var` is a context variable; the result is a new reference or an error.
    unsafe {
        let token = ffi::PyContextVar_Set(var.as_ptr(), value.as_ptr());
        Bound::from_owned_ptr_or_err(var.py(), token)
    }
}

/// Undoes the `context_var_set` that gave the token.
///
/// # Errors
/// `ValueError` in another context than the one it was set in.
pub fn context_var_reset(var: &Bound<'_, PyAny>, token: &Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: `var` is a context variable and `token` one of its tokens.
    let result = unsafe { ffi::PyContextVar_Reset(var.as_ptr(), token.as_ptr()) };
    match result {
        0 => Ok(()),
        _ => Err(PyErr::fetch(var.py())),
    }
}

pub fn imported_module<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    // SAFETY: the result is a new reference, or null with or without an exception set.
    unsafe {
        let module = ffi::PyImport_GetModule(name.as_ptr());
        match Bound::from_owned_ptr_or_opt(py, module) {
            None => PyErr::take(py).map_or(Ok(None), Err),
            module => Ok(module),
        }
    }
}

/// The name in the C code of a native module; `None` if it has none.
pub fn module_definition_name(module: &Bound<'_, PyAny>) -> Option<String> {
    // SAFETY: only a module is asked; the definition of one lives for ever, and its name, which is
    // NUL-terminated, with it.
    unsafe {
        if ffi::PyModule_Check(module.as_ptr()) == 0 {
            return None;
        }
        let definition = ffi::PyModule_GetDef(module.as_ptr());
        if definition.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        let name = (*definition).m_name;
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}

/// Returns whether nothing else holds the object.
pub fn is_only_reference<T>(object: &Py<T>) -> bool {
    // SAFETY: the object is alive; its count is only read.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) == 1 }
}

/// Looks an attribute up on a type and its bases, without running any code of a metaclass.
pub fn type_lookup<'py>(
    ty: &Bound<'py, PyType>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: a type and a str. The result is a new reference, before 3.13 a borrowed one, or null
    // without an exception set.
    unsafe {
        #[cfg(Py_3_13)]
        let found = _PyType_LookupRef(ty.as_type_ptr(), name.as_ptr());
        #[cfg(not(Py_3_13))]
        let found = ffi::Py_XNewRef(_PyType_Lookup(ty.as_type_ptr(), name.as_ptr()));
        Bound::from_owned_ptr_or_opt(ty.py(), found)
    }
}

/// Returns whether a class is another one or derives from it, by its actual bases.
pub fn is_subtype(class: &Bound<'_, PyType>, base: &Bound<'_, PyType>) -> bool {
    class.mro().iter().any(|own| own.is(base))
}

#[inline]
pub fn is_python_function(object: &Bound<'_, PyAny>) -> bool {
    object.get_type_ptr() == &raw mut ffi::PyFunction_Type
}

/// `module.name`, whatever characters they have.
pub fn dotted<'py>(
    module: &Bound<'py, PyString>,
    name: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyString>> {
    let py = module.py();
    let dot = intern!(py, ".");
    // SAFETY: the arguments of both are objects; what is not a str is an error. The results are
    // new references or errors.
    unsafe {
        let head = ffi::PyUnicode_Concat(module.as_ptr(), dot.as_ptr());
        let head = Bound::from_owned_ptr_or_err(py, head)?;
        let whole = ffi::PyUnicode_Concat(head.as_ptr(), name.as_ptr());
        Ok(Bound::from_owned_ptr_or_err(py, whole)?.cast_into()?)
    }
}

/// The bytes of a `str` in the file system encoding, without a copy when it is plain ASCII.
///
/// # Errors
/// `UnicodeEncodeError` for a text that no file name can hold.
pub fn fs_encode<'a, 'py>(text: Borrowed<'a, 'py, PyString>) -> PyResult<FsBytes<'a, 'py>> {
    // SAFETY: `text` is a str. Its UTF-8 form is kept by the object, so it lives as long; of an
    // ASCII str it is the text's own buffer, and ASCII is the same in every file system encoding.
    unsafe {
        let mut len = 0;
        let data = ffi::PyUnicode_AsUTF8AndSize(text.as_ptr(), &raw mut len);
        if data.is_null() {
            // Surrogates, which the file system encoding may have a meaning for.
            ffi::PyErr_Clear();
        } else {
            let len = usize::try_from(len).unwrap_or(0);
            let bytes = std::slice::from_raw_parts(data.cast::<u8>(), len);
            if bytes.is_ascii() {
                return Ok(FsBytes::Shared(bytes));
            }
        }
        let bytes = ffi::PyUnicode_EncodeFSDefault(text.as_ptr());
        Ok(FsBytes::Owned(Bound::from_owned_ptr_or_err(text.py(), bytes)?.cast_into()?))
    }
}

/// A file name's bytes.
pub enum FsBytes<'a, 'py> {
    /// The buffer of the object they came from.
    Shared(&'a [u8]),
    /// A `bytes` made of it.
    Owned(Bound<'py, PyBytes>),
}

impl FsBytes<'_, '_> {
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Owned(bytes) => bytes.as_bytes(),
        }
    }
}

/// The part of a `str` up to and including its last slash, read from the actual text.
pub fn up_to_last_slash<'py>(text: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyString>> {
    // SAFETY: `text` is a str, and the bounds lie within it: FindChar gives -1 for "not there".
    unsafe {
        let len = ffi::PyUnicode_GetLength(text.as_ptr());
        let slash = ffi::PyUnicode_FindChar(text.as_ptr(), u32::from(b'/'), 0, len, -1);
        let head = ffi::PyUnicode_Substring(text.as_ptr(), 0, slash + 1);
        Ok(Bound::from_owned_ptr_or_err(text.py(), head)?.cast_into()?)
    }
}

/// An item of a tuple.
///
/// # Panics
/// If there is no item at that index.
#[inline]
pub fn tuple_item<'a, 'py>(
    tuple: &'a Bound<'py, PyTuple>,
    index: usize,
) -> Borrowed<'a, 'py, PyAny> {
    tuple.as_slice()[index].as_borrowed()
}

/// Runs `work` while an exception may be on its way, as when a guard is freed.
pub fn beside_pending<R>(py: Python<'_>, work: impl FnOnce() -> R) -> R {
    let pending = PyErr::take(py);
    let result = work();
    if let Some(pending) = pending {
        pending.restore(py);
    }
    result
}

/// The value of an `int`; `None` for another object or a value out of range.
pub fn int_value(object: &Bound<'_, PyAny>) -> Option<i64> {
    // SAFETY: an int is checked for. Its own value is read: no `__index__` runs. On overflow
    // the exception is cleared.
    unsafe {
        if ffi::PyLong_Check(object.as_ptr()) == 0 {
            return None;
        }
        let value = ffi::PyLong_AsLongLong(object.as_ptr());
        if value == -1 && !ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(value)
    }
}

/// The same as an `i32`.
pub fn i32_value(object: &Bound<'_, PyAny>) -> Option<i32> {
    int_value(object)?.try_into().ok()
}

/// Returns whether the object is an `int` or can be turned into one, as a file descriptor is taken.
pub fn is_index(object: &Bound<'_, PyAny>) -> bool {
    let name = intern!(object.py(), "__index__");
    type_lookup(&object.get_type(), name).is_some()
}

/// `str.__repr__` of the actual text, whatever a subclass makes of it.
pub fn str_repr<'py>(text: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyString>> {
    plain_str(text.clone())?.shown()
}

/// The name of an object's class as it was made, whatever a metaclass makes of it.
pub fn class_name(object: &Bound<'_, PyAny>) -> String {
    // SAFETY: each type has a name, which is NUL-terminated and lives as long as the type.
    let name = unsafe { CStr::from_ptr((*ffi::Py_TYPE(object.as_ptr())).tp_name) };
    let name = name.to_string_lossy();
    name.rsplit('.').next().unwrap_or(&name).to_owned()
}

/// Returns whether an object is an exception, by its actual class.
pub fn is_exception(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: only the flags of its type are read.
    unsafe { ffi::PyExceptionInstance_Check(object.as_ptr()) != 0 }
}

/// Raises an exception as `raise` does: its context is the exception that is being handled.
pub fn raise(exception: &Bound<'_, PyAny>) {
    // SAFETY: CPython looks whether the type is one of exceptions.
    unsafe { ffi::PyErr_SetObject(exception.get_type().as_ptr(), exception.as_ptr()) }
}

/// Makes a `PermissionError`, or one of a subclass, without arguments. Runs `OSError`'s own code
/// alone.
pub fn new_permission_error<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let args = PyTuple::empty(py);
    if !is_subtype(class, &py.get_type::<PyPermissionError>()) {
        return Err(PyTypeError::new_err("class must derive from PermissionError"));
    }
    // SAFETY: the exception type is static, and has `tp_new`, which makes subclasses of it as well.
    unsafe {
        let base = ffi::PyExc_PermissionError.cast::<PyTypeObject>();
        let Some(new) = (*base).tp_new else {
            return Err(PyErr::fetch(py));
        };
        let made = new(class.as_type_ptr(), args.as_ptr(), ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, made)
    }
}

/// `os.fsdecode(path)`.
pub fn fs_decode<'py>(py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyString>> {
    let len = ffi::Py_ssize_t::try_from(path.len()).unwrap_or(0);
    // SAFETY: the bytes are valid for `len`; the result is a new reference or an error.
    unsafe {
        let text = ffi::PyUnicode_DecodeFSDefaultAndSize(path.as_ptr().cast(), len);
        Ok(Bound::from_owned_ptr_or_err(py, text)?.cast_into()?)
    }
}
