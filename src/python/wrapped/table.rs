//! The native functions of the standard library that are wrapped.
//!
//! Such a function is one object, however it was imported. Its calls are routed here, and then do
//! what they always did. It stays the same object: sets and tables that hold it still find it.
//! Modules that are loaded later, or anew, are treated as they are loaded.
#![allow(unsafe_code)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyString;

#[cfg(Py_3_12)]
use crate::python::calls::monitoring;
use crate::python::cpython::arguments::Arguments;
use crate::python::cpython::called::Called;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::functions::{Builtin, Convention, Vectorcall};
use crate::python::cpython::replace;
use crate::python::guard::scope;
use crate::python::wrapped::callbacks_later;
use crate::python::wrapped::certificates;
use crate::python::wrapped::ctypes;
use crate::python::wrapped::executors;
use crate::python::wrapped::greenlets;
use crate::python::wrapped::hidden_arguments;
use crate::python::wrapped::kinds::What;
use crate::python::wrapped::pool_starts;
use crate::python::wrapped::sockets;
use crate::python::wrapped::sql;
use crate::python::wrapped::tasks;
use crate::python::wrapped::without_event;

/// A function whose calls are routed here.
#[derive(Clone, Copy)]
struct Known {
    /// The C function, which all objects made of it have, for each copy of its module.
    function: *const (),
    original: Convention,
    what: What,
}

// SAFETY: these are addresses of functions, and what lives for ever.
unsafe impl Send for Known {}
// SAFETY: as above.
unsafe impl Sync for Known {}

/// All of them: a `Vec` that is replaced as a whole, and never freed, as another thread may read
/// it.
static KNOWN: AtomicPtr<Vec<Known>> = AtomicPtr::new(std::ptr::null_mut());

/// Whoever adds holds this.
static ADDING: Mutex<()> = Mutex::new(());

#[inline]
fn known() -> &'static [Known] {
    // SAFETY: null, or made by `add` and never freed.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

/// Returns the functions of a module that are wrapped, and how.
fn wanted(module: &str) -> impl Iterator<Item = (&'static str, What)> {
    const LOADING: &[(&str, What)] = &[
        ("create_builtin", What::Loads),
        ("create_dynamic", What::Loads),
        ("exec_builtin", What::MakesReady),
        ("exec_dynamic", What::MakesReady),
    ];
    let noting = hidden_arguments::FUNCTIONS
        .iter()
        .filter(move |_| module == "posix")
        .map(|(name, follows)| (*name, What::Notes(*follows)));
    let loading = LOADING.iter().filter(move |_| module == "_imp").copied();
    let loading = loading.chain(callbacks_later::of(module).iter().copied());
    #[cfg(Py_3_12)]
    let loading = loading.chain(
        monitoring::FUNCTIONS
            .iter()
            .filter(move |_| module == "sys.monitoring")
            .map(|(name, changes)| (*name, What::ChangesTools(*changes))),
    );
    #[cfg(unix)]
    let loading = loading.chain(crate::python::wrapped::starts::of(module));
    noting.chain(without_event::of(module)).chain(loading)
}

/// Wraps the functions of all modules that are loaded, and later of those that will be.
pub fn install(py: Python<'_>) -> PyResult<()> {
    if !known().is_empty() {
        return Ok(());
    }
    let loaded = raw::imported_module(py, pyo3::intern!(py, "sys"))?;
    let Some(sys) = loaded else {
        return Ok(());
    };
    let modules = sys.getattr("modules")?;
    // The functions of `posix` are called most.
    let names = ["posix", "_imp", "atexit"]
        .into_iter()
        .chain(CLASSES.iter().map(|(module, _)| *module))
        .chain(without_event::modules());
    for name in names {
        let Ok(module) = modules.get_item(name) else {
            continue;
        };
        add(&module, name)?;
    }
    // An attribute of `sys` alone.
    match sys.getattr_opt("monitoring")? {
        Some(monitoring) => add(&monitoring, "sys.monitoring"),
        None => Ok(()),
    }
}

/// Routes the calls of a module's classes here.
type Install = fn(&Bound<'_, PyAny>) -> PyResult<()>;

/// The modules whose classes are wrapped, and the functions that wrap them.
const CLASSES: &[(&str, Install)] = &[
    (pool_starts::MODULE, pool_starts::install),
    (executors::MODULE, executors::install),
    (ctypes::MODULE, ctypes::install),
    (sql::MODULE, sql::install),
    (sockets::MODULE, sockets::install),
    (certificates::MODULE, certificates::install),
    (tasks::MODULE, tasks::install),
    (greenlets::MODULE, greenlets::install),
];

/// Wraps the functions of a module.
fn add(module: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    // Its functions are wrapped as well, if there are any.
    if let Some((_, install)) = CLASSES.iter().find(|(module, _)| *module == name) {
        install(module)?;
    }
    for (name, what) in wanted(name) {
        let Some(object) = module.getattr_opt(name)? else {
            continue;
        };
        let Some(function) = Builtin::cast(&object) else {
            continue;
        };
        let Some(original) = function.convention() else {
            continue;
        };
        if matches!(original, Convention::Vectorcall(own) if std::ptr::fn_addr_eq(own, called as Vectorcall))
        {
            continue;
        }
        remember(Known {
            function: function.function(),
            original,
            what,
        });
        // SAFETY: `called` passes each call on to the original.
        unsafe { function.set_vectorcall(called) };
    }
    Ok(())
}

fn remember(new: Known) {
    let adding = ADDING.lock();
    if known().iter().all(|known| known.function != new.function) {
        let mut all = known().to_vec();
        all.push(new);
        KNOWN.store(Box::into_raw(Box::new(all)), Ordering::Release);
    }
    drop(adding);
}

/// # Safety
/// Called by CPython by the vectorcall convention.
unsafe extern "C-unwind" fn called(
    callable: *mut PyObject,
    args: *const *mut PyObject,
    nargsf: usize,
    kwnames: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: only native functions are made to come here.
    let function = unsafe { Builtin::function_of(callable) };
    let Some(known) = known().iter().find(|known| known.function == function) else {
        // And only those that were put there.
        return std::ptr::null_mut();
    };
    let arguments = Arguments {
        args,
        nargsf,
        kwnames,
    };
    let call = Called {
        callable,
        original: known.original,
        arguments,
    };
    // SAFETY: the arguments are those CPython passed, and are passed on as they came.
    unsafe {
        match known.what {
            What::Loads => {
                let module = call.make(arguments);
                if !module.is_null() && !is_loaded(module) {
                    raw::with_attachment_counted(|| ffi::Py_DECREF(module));
                    return std::ptr::null_mut();
                }
                module
            }
            What::MakesReady => {
                let result = call.make(arguments);
                let is_given = ffi::PyVectorcall_NARGS(nargsf) == 1;
                if !result.is_null() && is_given && !is_loaded(*args) {
                    raw::with_attachment_counted(|| ffi::Py_DECREF(result));
                    return std::ptr::null_mut();
                }
                result
            }
            #[cfg(Py_3_12)]
            What::ChangesTools(changes) if scope::is_ours() => monitoring::call(call, changes),
            #[cfg(Py_3_12)]
            What::ChangesTools(_) => call.make(arguments),
            #[cfg(unix)]
            What::Waits => crate::python::wrapped::servers::wait(call),
            _ if !scope::may_be_guarded() => call.make(arguments),
            What::Notes(follows) => hidden_arguments::call(call, follows),
            What::Raises(silent) => without_event::call(call, silent),
            #[cfg(unix)]
            What::Starts => crate::python::wrapped::starts::call(call),
            #[cfg(unix)]
            What::Spawns => crate::python::wrapped::file_actions::call(call),
            #[cfg(unix)]
            What::StartsProgram(silent) => {
                crate::python::wrapped::starts::call_program(call, silent)
            }
            What::Registers(registered) => callbacks_later::call(call, registered),
            What::TellsRegistered => callbacks_later::tell(call),
        }
    }
}

/// Wraps the functions of a module that was just loaded. Returns false with the exception set if
/// that fails.
///
/// # Safety
/// The thread is attached; `module` is alive.
unsafe fn is_loaded(module: *mut PyObject) -> bool {
    if !scope::is_ours() {
        return true;
    }
    // SAFETY: as this function's.
    let added = unsafe {
        replace::ours(|py| {
            let module = Borrowed::from_ptr(py, module);
            let own = module.getattr_opt(pyo3::intern!(py, "__name__"))?;
            let own = own.and_then(|name| name.cast_into::<PyString>().ok());
            let own = own.map(|name| name.to_string_lossy().into_owned());
            if let Some(name) = &own {
                add(&module, name)?;
            }
            // A module's C code is found by the last part of the name that it is loaded under.
            let last = |name: &str| name.rsplit('.').next().map(str::to_owned);
            let made = raw::module_definition_name(&module);
            let others = [
                own.as_deref().and_then(last),
                made.as_deref().and_then(last),
            ];
            for name in others.into_iter().flatten() {
                if own.as_ref() != Some(&name) {
                    add_other(&module, &name);
                }
            }
            replace::replace_again(&module)
        })
    };
    added.is_some()
}

/// Wraps the functions of a module that may be one of the standard library under another name.
fn add_other(module: &Bound<'_, PyAny>, name: &str) {
    // The data about the classes come from the module of this name, or from none.
    if CLASSES.iter().any(|(module, _)| *module == name) {
        let _ = module.py().import(name);
    }
    // Another package's module of the same name may work in another way.
    let _ = add(module, name);
}
