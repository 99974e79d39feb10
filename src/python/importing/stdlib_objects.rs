//! The standard library: its modules, and the objects of it that tell what a callee stands for.

use ahash::AHashSet;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::Once;
use crate::python::cpython::{ffi as raw, layout};

/// The package whose own native functions raise events of their own.
const PACKAGE: &str = "fastaudit_rs";

/// Functions and classes of the standard library's native code that call their first argument, by
/// module. CALL events do not show calls that native code makes.
const CALL_THEIR_FIRST: [(&str, &[&str]); 6] = [
    ("builtins", &["map", "filter", "iter"]),
    ("collections", &["defaultdict"]),
    ("functools", &["cmp_to_key", "partial", "reduce"]),
    (
        "itertools",
        &["dropwhile", "filterfalse", "starmap", "takewhile"],
    ),
    ("atexit", &["register"]),
    // Since 3.11.
    ("operator", &["call"]),
];

static KNOWN: Once<StandardLibrary> = Once::new();

/// Objects of the standard library, as they were when the monitor was installed.
pub struct StandardLibrary {
    pub modules: AHashSet<String>,
    pub functions_calling_first: Vec<Py<PyAny>>,
    pub classes_calling_first: Vec<Py<PyType>>,
    pub method: Py<PyType>,
    pub static_method: Py<PyType>,
    pub class_method: Py<PyType>,
    pub method_wrapper: Py<PyType>,
    pub partial: Py<PyType>,
    pub lru_cache: Py<PyType>,
    pub method_caller: Py<PyType>,
    pub generic_alias: Py<PyType>,
    pub type_call: Py<PyAny>,
}

impl StandardLibrary {
    pub fn get(py: Python<'_>) -> PyResult<&Self> {
        KNOWN.get_or_try_init(py, || {
            let modules: AHashSet<String> = calling::import(py, "sys")?
                .attr("stdlib_module_names")?
                .iterate()?
                .map(|name| name?.extract())
                .collect::<PyResult<_>>()?;
            let (mut functions, mut classes) = (Vec::new(), Vec::new());
            for (module, names) in CALL_THEIR_FIRST {
                let module = calling::import(py, module)?;
                for name in names {
                    let Some(found) = module.attr_opt(*name)? else {
                        continue;
                    };
                    match found.cast_into::<PyType>() {
                        Ok(class) => classes.push(class.unbind()),
                        Err(function) => functions.push(function.into_inner().unbind()),
                    }
                }
            }
            let types = calling::import(py, "types")?;
            let functools = calling::import(py, "functools")?;
            let builtins = calling::import(py, "builtins")?;
            let ty = |module: &Bound<'_, PyModule>, name: &str| -> PyResult<Py<PyType>> {
                Ok(module.attr(name)?.cast_into::<PyType>()?.unbind())
            };
            let type_call = py.get_type::<PyType>().attr("__dict__")?;
            Ok(Self {
                modules,
                functions_calling_first: functions,
                classes_calling_first: classes,
                method: ty(&types, "MethodType")?,
                static_method: ty(&builtins, "staticmethod")?,
                class_method: ty(&builtins, "classmethod")?,
                method_wrapper: ty(&types, "MethodWrapperType")?,
                partial: ty(&functools, "partial")?,
                lru_cache: ty(&functools, "_lru_cache_wrapper")?,
                method_caller: ty(&calling::import(py, "operator")?, "methodcaller")?,
                generic_alias: ty(&types, "GenericAlias")?,
                type_call: type_call.item("__call__")?.unbind(),
            })
        })
    }

    /// Returns whether a module of this name is in the standard library, or ours.
    pub fn is_quiet(&self, module: &Bound<'_, PyString>) -> bool {
        // A name that is not UTF-8 text is not in the standard library.
        module.to_str().is_ok_and(|module| {
            let top = module.split('.').next().unwrap_or(module);
            top == PACKAGE || self.is_standard(top)
        })
    }

    pub fn is_standard(&self, module: &str) -> bool {
        self.modules.contains(module)
    }

    /// A class that inherits from one which calls its first argument does so too.
    pub fn calls_its_first(&self, callee: &Bound<'_, PyAny>) -> bool {
        let py = callee.py();
        if let Ok(class) = callee.cast::<PyType>() {
            let mut classes = self.classes_calling_first.iter();
            return classes.any(|known| raw::is_subtype(class, known.bind(py)));
        }
        let mut functions = self.functions_calling_first.iter();
        callee.is(&self.type_call)
            || layout::is_call_of_class(callee.as_borrowed())
            || functions.any(|known| callee.is(known))
    }
}
