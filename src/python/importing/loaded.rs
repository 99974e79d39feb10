//! The standard library's modules and objects, and whether native code from outside it is loaded.

use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ahash::AHashSet;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::Once;
use crate::python::cpython::{ffi as raw, layout};
use crate::python::frames::stack;
use crate::python::importing::stdlib::extension_directory;

// Tells whether native code from outside the standard library is loaded.
//
// Until some is, no call can reach any, and there is nothing to watch. Libraries that were loaded
// before the monitor was installed are found among the process's shared objects; loading one later
// raises an audit event before.

static FOREIGN: AtomicBool = AtomicBool::new(false);
static EXTENSIONS: Once<PathBuf> = Once::new();

/// Once true, this stays true.
pub fn foreign() -> bool {
    FOREIGN.load(Ordering::Relaxed)
}

pub fn install(py: Python<'_>) -> PyResult<()> {
    let known = StandardLibrary::get(py)?;
    let extensions = EXTENSIONS.get_or_try_init(py, || extension_directory(py))?;
    let builtin: Vec<String> =
        calling::import(py, "sys")?.attr("builtin_module_names")?.extract()?;
    let foreign = builtin.iter().any(|name| !known.is_standard(name))
        || any_foreign(|path| is_standard_extension(known, extensions, path));
    FOREIGN.fetch_or(foreign, Ordering::Relaxed);
    Ok(())
}

fn is_standard_extension(known: &StandardLibrary, directory: &Path, path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    let module = name.and_then(|name| name.split('.').next());
    path.parent() == Some(directory)
        && module.is_some_and(|module| known.is_standard(module) || module == INTERPRETERS)
}

/// Also CPython's own, though `sys.stdlib_module_names` leaves it out.
const INTERPRETERS: &str = "_xxsubinterpreters";

/// Where the code of objects is that are no part of the interpreter, its standard library or this
/// package.
pub fn foreign_code(py: Python<'_>) -> PyResult<Vec<Range<usize>>> {
    let known = StandardLibrary::get(py)?;
    let extensions = EXTENSIONS.get_or_try_init(py, || extension_directory(py))?;
    Ok(code_unless(|path| is_standard_extension(known, extensions, path)))
}

/// The extension module of a native function, by its shared object; `None` of a standard one.
pub fn foreign_module(known: &StandardLibrary, function: usize) -> Option<String> {
    let object = holding(function)?;
    let name = Path::new(&object).file_name()?.to_str()?;
    let module = name.split('.').next().unwrap_or(name);
    (!known.is_standard(module) && module != INTERPRETERS).then(|| module.to_owned())
}

/// Returns whether the event says that the first native code of others is going to be loaded.
pub fn take_note(event: &[u8], args: &Bound<'_, PyTuple>) -> bool {
    let place = match event {
        // The name and, for an extension module, the file.
        b"import" => 1,
        b"ctypes.dlopen" => 0,
        _ => return false,
    };
    // `None` names no file: for a module that is searched for, or for the process itself.
    let file = args.get_borrowed_item(place);
    if foreign() || file.is_ok_and(|file| file.is_none()) {
        return false;
    }
    let py = args.py();
    let is_standard = || -> Option<bool> {
        let file = args.get_item(place).ok()?.cast_into::<PyString>().ok()?;
        let file = raw::fs_encode(file.as_borrowed()).ok()?;
        let path = Path::new(std::str::from_utf8(file.as_bytes()).ok()?);
        let known = StandardLibrary::get(py).ok()?;
        Some(is_standard_extension(known, EXTENSIONS.get(py)?, path))
    };
    let foreign = EXTENSIONS.get(py).is_some() && !is_standard().unwrap_or(false);
    FOREIGN.fetch_or(foreign, Ordering::Relaxed);
    foreign
}

// The standard library: its modules, and the objects of it that tell what a callee stands for.

/// Functions and classes of the standard library's native code that call their first argument, by
/// module. CALL events do not show calls that native code makes.
const CALL_THEIR_FIRST: [(&str, &[&str]); 6] = [
    ("builtins", &["map", "filter", "iter"]),
    ("collections", &["defaultdict"]),
    ("functools", &["cmp_to_key", "partial", "reduce"]),
    ("itertools", &["dropwhile", "filterfalse", "starmap", "takewhile"]),
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
            top == stack::PACKAGE || self.is_standard(top)
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

// Shared objects of the process that use Python's C API, or hold a function.

pub use objects::{any_foreign, code_unless, holding};

mod objects {
    use std::ffi::OsStr;
    use std::ops::{ControlFlow, Range};
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;

    use pyo3::ffi;

    use crate::native::asking::object_of;
    use crate::native::objects;

    /// The functions that an interpreter's own main program imports; an extension imports others.
    const ENTRY_POINTS: [&[u8]; 3] = [b"Py_Main", b"Py_BytesMain", b"Py_RunMain"];

    /// The addresses at which the interpreter and this package are loaded.
    static KNOWN: OnceLock<[usize; 2]> = OnceLock::new();

    /// Returns whether some shared object uses Python's C API and is neither ours nor standard.
    pub fn any_foreign(is_standard: impl Fn(&Path) -> bool) -> bool {
        let is_of_python = |name: &[u8]| {
            (name.starts_with(b"Py") || name.starts_with(b"_Py")) && !ENTRY_POINTS.contains(&name)
        };
        let mut any = false;
        let found = objects::each(|object| {
            any = true;
            // One that cannot be read may.
            let uses_python = object
                .dynamic()
                .is_some_and(|dynamic| dynamic.imports_any(is_of_python).unwrap_or(true));
            let path = Path::new(OsStr::from_bytes(object.path()));
            match uses_python && !object.holds(holding as *const () as usize) && !is_standard(path)
            {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        found.is_some() || !any
    }

    /// Where the code of all objects is that are neither the interpreter's, ours nor standard.
    pub fn code_unless(is_standard: impl Fn(&Path) -> bool) -> Vec<Range<usize>> {
        let mut code = Vec::new();
        let _: Option<()> = objects::each(|object| {
            let path = Path::new(OsStr::from_bytes(object.path()));
            let own = [ffi::PyLong_FromLong as *const () as usize, holding as *const () as usize];
            if !object.is_program
                && !own.into_iter().any(|own| object.holds(own))
                && !is_standard(path)
            {
                code.extend(object.code());
            }
            ControlFlow::Continue(())
        });
        code
    }

    /// The shared object that a function's code is in; `None` for the interpreter, for ours, and if
    /// there is none.
    pub fn holding(function: usize) -> Option<PathBuf> {
        let known = KNOWN.get_or_init(|| {
            [ffi::PyLong_FromLong as *const (), holding as *const ()]
                .map(|own| object_of(own as usize).map_or(0, |(base, _)| base))
        });
        let (base, path) = object_of(function)?;
        (!known.contains(&base) && !path.as_os_str().is_empty()).then_some(path)
    }
}
