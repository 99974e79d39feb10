//! What a CALL event calls: Python code, the standard library, or native code of someone else.

use std::sync::atomic::{AtomicPtr, Ordering};

use ahash::AHashSet;
use pyo3::exceptions::PyException;
use pyo3::ffi::{PyMethodDef, PyObject};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

use super::ffi::{self as raw, Builtin};

/// Callables that stand for another are followed this far.
const MAX_WRAPPERS: usize = 32;

/// The package whose own native functions raise events of their own.
const PACKAGE: &str = "fastaudit_rs";

static KNOWN: PyOnceLock<Known> = PyOnceLock::new();

/// Method table entries of standard library functions that were called before, each in the place
/// that its address has here. The tables of the standard library are static, so that no other
/// function ever has the address.
static QUIET_ENTRIES: [AtomicPtr<PyMethodDef>; 1024] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 1024];

fn place(entry: *mut PyMethodDef) -> &'static AtomicPtr<PyMethodDef> {
    &QUIET_ENTRIES[(entry as usize / size_of::<PyMethodDef>()) % QUIET_ENTRIES.len()]
}

/// Whether the callee is Python code, a class, or a standard library function that was called
/// before: what nearly every call is. Takes no reference and runs nothing.
pub fn is_plainly_quiet(callee: *mut PyObject) -> bool {
    if raw::is_python_function(callee) || raw::is_class(callee) {
        return true;
    }
    let entry = raw::method_entry(callee);
    !entry.is_null() && std::ptr::eq(place(entry).load(Ordering::Relaxed), entry)
}

/// What is needed of the standard library, as it was when the monitor was installed.
struct Known {
    modules: AHashSet<String>,
    method: Py<PyType>,
    static_method: Py<PyType>,
    class_method: Py<PyType>,
    method_wrapper: Py<PyType>,
    partial: Py<PyType>,
    lru_cache: Py<PyType>,
}

impl Known {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        KNOWN.get_or_try_init(py, || {
            let modules: AHashSet<String> = py
                .import("sys")?
                .getattr("stdlib_module_names")?
                .try_iter()?
                .map(|name| name?.extract())
                .collect::<PyResult<_>>()?;
            let (types, functools) = (py.import("types")?, py.import("functools")?);
            let builtins = py.import("builtins")?;
            let ty = |module: &Bound<'_, PyModule>, name: &str| -> PyResult<Py<PyType>> {
                Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
            };
            Ok(Self {
                modules,
                method: ty(&types, "MethodType")?,
                static_method: ty(&builtins, "staticmethod")?,
                class_method: ty(&builtins, "classmethod")?,
                method_wrapper: ty(&types, "MethodWrapperType")?,
                partial: ty(&functools, "partial")?,
                lru_cache: ty(&functools, "_lru_cache_wrapper")?,
            })
        })
    }

    fn is_quiet(&self, module: &Bound<'_, PyString>) -> bool {
        // A name that is not UTF-8 text is none of the standard library's.
        module.to_str().is_ok_and(|module| {
            let top = module.split('.').next().unwrap_or(module);
            top == PACKAGE || self.modules.contains(top)
        })
    }
}

/// Reads what is needed of the standard library, before any call is seen.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    Known::get(py).map(|_| ())
}

fn remember_quiet(callee: &Bound<'_, PyAny>) {
    let entry = raw::method_entry(callee.as_ptr());
    if !entry.is_null() {
        place(entry).store(entry, Ordering::Relaxed);
    }
}

/// The qualified name of a callee that is native code and not of the standard library; `None` for
/// Python code, classes, the standard library, and what has no name.
pub fn native_name<'py>(callee: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyString>>> {
    let py = callee.py();
    let known = Known::get(py)?;
    let mut callee = callee.clone();
    for _ in 0..MAX_WRAPPERS {
        if raw::is_python_function(callee.as_ptr()) || callee.is_instance_of::<PyType>() {
            return Ok(None);
        }
        callee = match stands_for(known, &callee)? {
            Some(inner) => inner,
            None => return name_native(known, &callee),
        };
    }
    name_native(known, &callee)
}

/// What a callable passes its call on to.
fn stands_for<'py>(
    known: &Known,
    callee: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = callee.py();
    let ty = callee.get_type();
    if Builtin::cast(callee).is_some() {
        return Ok(None);
    }
    if ty.is(&known.method) || ty.is(&known.static_method) || ty.is(&known.class_method) {
        return callee.getattr(pyo3::intern!(py, "__func__")).map(Some);
    }
    if ty.is(&known.method_wrapper) {
        let name = callee.getattr(pyo3::intern!(py, "__name__"))?;
        let is_call = name.cast::<PyString>().is_ok_and(|name| name == "__call__");
        return if is_call {
            callee.getattr(pyo3::intern!(py, "__self__")).map(Some)
        } else {
            Ok(None)
        };
    }
    if ty.is_subclass(known.partial.bind(py))? {
        return callee.getattr(pyo3::intern!(py, "func")).map(Some);
    }
    if ty.is(&known.lru_cache) {
        return attribute(callee, pyo3::intern!(py, "__wrapped__"));
    }
    // An instance: calling it calls what its class has for `__call__`.
    let call = raw::type_lookup(&ty, pyo3::intern!(py, "__call__"));
    Ok(call.filter(|call| raw::is_python_function(call.as_ptr()) || !is_slot(call)))
}

/// Whether a class's `__call__` is its own native code, not an object put there by Python code.
fn is_slot(call: &Bound<'_, PyAny>) -> bool {
    let py = call.py();
    raw::type_lookup(&call.get_type(), pyo3::intern!(py, "__objclass__")).is_some()
}

fn name_native<'py>(
    known: &Known,
    callee: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyString>>> {
    let py = callee.py();
    // Cython functions carry code objects; the contract counts them as Python code.
    if raw::type_lookup(&callee.get_type(), pyo3::intern!(py, "__code__")).is_some() {
        return Ok(None);
    }
    let Some(module) = module(callee)? else {
        return Ok(None);
    };
    if known.is_quiet(&module) {
        remember_quiet(callee);
        return Ok(None);
    }
    let mut name = string_attribute(callee, pyo3::intern!(py, "__qualname__"))?;
    if name.is_none() {
        name = string_attribute(callee, pyo3::intern!(py, "__name__"))?;
    }
    match name {
        Some(name) => PyString::from_fmt(py, format_args!("{module}.{name}")).map(Some),
        None => name_instance(known, callee),
    }
}

/// An instance of a native class has no name; its class has.
fn name_instance<'py>(
    known: &Known,
    callee: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyString>>> {
    let py = callee.py();
    let Some(call) = raw::type_lookup(&callee.get_type(), pyo3::intern!(py, "__call__")) else {
        return Ok(None);
    };
    let Some(class) = attribute(&call, pyo3::intern!(py, "__objclass__"))? else {
        return Ok(None);
    };
    let (Some(module), Some(name)) = (
        string_attribute(&class, pyo3::intern!(py, "__module__"))?,
        string_attribute(&class, pyo3::intern!(py, "__qualname__"))?,
    ) else {
        return Ok(None);
    };
    if known.is_quiet(&module) {
        return Ok(None);
    }
    PyString::from_fmt(py, format_args!("{module}.{name}.__call__")).map(Some)
}

/// The module that a native callable comes from.
fn module<'py>(callee: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyString>>> {
    let py = callee.py();
    let dunder_module = pyo3::intern!(py, "__module__");
    if let Some(function) = Builtin::cast(callee) {
        if let Some(module) = function.module().and_then(|module| module.cast_into().ok()) {
            return Ok(Some(module));
        }
        let Some(receiver) = function.receiver() else {
            return Ok(None);
        };
        return string_attribute(definer(&function, &receiver).as_any(), dunder_module);
    }
    if let Some(module) = string_attribute(callee, dunder_module)? {
        return Ok(Some(module));
    }
    match attribute(callee, pyo3::intern!(py, "__objclass__"))? {
        Some(class) => string_attribute(&class, dunder_module),
        None => Ok(None),
    }
}

/// The class that defines a bound native method: a subclass, perhaps of Python, only inherits it.
fn definer<'py>(function: &Builtin<'_, 'py>, receiver: &Bound<'py, PyAny>) -> Bound<'py, PyType> {
    let own = receiver.cast::<PyType>().cloned().ok();
    let classes = [own, Some(receiver.get_type())];
    for class in classes.into_iter().flatten() {
        for base in class
            .mro()
            .iter()
            .filter_map(|base| base.cast_into::<PyType>().ok())
        {
            if defines(&base, function) {
                return base;
            }
        }
    }
    receiver.get_type()
}

fn defines(class: &Bound<'_, PyType>, function: &Builtin<'_, '_>) -> bool {
    let Ok(name) = function.name(class.py()) else {
        return false;
    };
    let Some(found) = raw::type_lookup(class, &name) else {
        return false;
    };
    raw::descriptor_method(&found) == Some(function.method())
        && found
            .getattr(pyo3::intern!(class.py(), "__objclass__"))
            .is_ok_and(|definer| definer.is(class))
}

fn string_attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyString>>> {
    Ok(attribute(object, name)?.and_then(|value| value.cast_into().ok()))
}

/// An attribute, `None` where there is none or reading it fails.
///
/// # Errors
/// What reading it raised, if that is no `Exception` (`KeyboardInterrupt`, say).
fn attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match object.getattr(name) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyException>(object.py()) => Ok(None),
        Err(error) => Err(error),
    }
}
