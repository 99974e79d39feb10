//! The native functions of the standard library that are wrapped.
//!
//! Such a function is one object, however it was imported. Its calls are routed here, and then do
//! what they always did. It stays the same object: sets and tables that hold it still find it.
//! Modules that are loaded later, or anew, are treated as they are loaded.

#[cfg(Py_3_12)]
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString, PyType};

use crate::policy::judge::Follows;
#[cfg(Py_3_12)]
use crate::python::calls::monitor;
use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
#[cfg(not(Py_3_11))]
use crate::python::cpython::layout;
use crate::python::cpython::once::intern;
use crate::python::cpython::replace::{self, Lists, Table};
use crate::python::guard::{holds, scope};
use crate::python::wrapped::callbacks_later::{self, Registered};
use crate::python::wrapped::without_event::{self, Raises, Silent};
use crate::python::wrapped::{contextvars, executors, methods, sockets, starts};

struct Functions;

#[derive(Clone, Copy)]
enum What {
    Does(fn(Called<'_>) -> Returned),
    /// It raises an event, as it has none of its own.
    Raises(&'static Silent),
    /// It notes the arguments that its event leaves out.
    Notes(Follows),
    Registers(&'static Registered),
    /// It changes tools of `sys.monitoring`, which has this event.
    #[cfg(Py_3_12)]
    ChangesTools(&'static CStr),
}

impl Lists for Functions {
    type Kind = What;

    fn table() -> &'static Table<What> {
        static TABLE: Table<What> = Table::new();
        &TABLE
    }

    fn call(called: Called<'_>, what: What) -> Returned {
        match what {
            What::Does(call) => call(called),
            What::Raises(silent) => match silent.raises {
                Raises::Starts => starts::call_program(called, silent),
                _ => without_event::call(called, silent),
            },
            #[cfg(Py_3_12)]
            What::ChangesTools(changes) if scope::is_ours() => {
                monitor::change_tools(called, changes)
            }
            What::Notes(follows) if scope::may_be_guarded() => without_event::note(called, follows),
            What::Registers(registered) if scope::may_be_guarded() => {
                callbacks_later::call(called, registered)
            }
            _ => called.make(),
        }
    }
}

/// The functions of a module, those that are called most first.
fn wanted(module: &str) -> Vec<(&'static str, What)> {
    let mut all = Vec::new();
    match module {
        "posix" => {
            let noting = without_event::NOTING.iter();
            all.extend(noting.map(|(name, follows)| (*name, What::Notes(*follows))));
            all.extend([
                ("fork", What::Does(starts::call)),
                ("forkpty", What::Does(starts::call)),
                ("posix_spawn", What::Does(starts::call_spawn)),
                ("posix_spawnp", What::Does(starts::call_spawn)),
                ("waitpid", What::Does(starts::wait)),
                ("register_at_fork", What::Registers(&callbacks_later::AT_FORK)),
            ]);
        }
        "_imp" => all.extend([
            ("create_builtin", What::Does(create_builtin)),
            ("create_dynamic", What::Does(create)),
            ("exec_builtin", What::Does(make_ready)),
            ("exec_dynamic", What::Does(make_ready)),
        ]),
        #[cfg(not(Py_3_11))]
        "sys" => all.push(("_clear_type_cache", What::Does(clear_type_cache))),
        #[cfg(Py_3_12)]
        "sys.monitoring" => {
            let changing = monitor::FUNCTIONS.iter();
            all.extend(changing.map(|(name, changes)| (*name, What::ChangesTools(changes))));
        }
        "_socket" => all.push(("getnameinfo", What::Does(without_event::note_flags))),
        "atexit" => all.push(("register", What::Registers(&callbacks_later::AT_EXIT))),
        "_signal" => all.extend([
            ("signal", What::Registers(&callbacks_later::AT_SIGNAL)),
            ("getsignal", What::Does(callbacks_later::tell)),
        ]),
        _ => {}
    }
    all.extend(without_event::of(module).map(|(name, silent)| (name, What::Raises(silent))));
    all
}

/// True once all was wrapped: what failed half-way is done again.
static IS_DONE: AtomicBool = AtomicBool::new(false);

/// Wraps the functions of all modules that are loaded, and later of those that will be.
pub fn install(py: Python<'_>) -> PyResult<()> {
    if IS_DONE.load(Ordering::Acquire) {
        return Ok(());
    }
    let loaded = raw::imported_module(py, intern!(py, "sys"))?;
    let Some(sys) = loaded else {
        return Ok(());
    };
    let modules = sys.attr("modules")?;
    // The functions of `posix` are called most.
    let names = ["posix", "_imp", "atexit", "sys"]
        .into_iter()
        .chain(CLASSES.iter().map(|(module, ..)| *module))
        .chain(without_event::modules());
    for name in names {
        let Ok(module) = modules.item(name) else {
            continue;
        };
        add(&module, name)?;
    }
    // An attribute of `sys` alone.
    if let Some(monitoring) = sys.attr_opt("monitoring")? {
        add(&monitoring, "sys.monitoring")?;
    }
    IS_DONE.store(true, Ordering::Release);
    Ok(())
}

type Install = fn(&Bound<'_, PyAny>, &Bound<'_, PyType>) -> PyResult<()>;

const CLASSES: &[(&str, &str, Install)] = &[
    ("_multiprocessing", "SemLock", executors::install_pools),
    ("_queue", "SimpleQueue", executors::install),
    ("_ctypes", "CFuncPtr", methods::install_ctypes),
    ("_sqlite3", "Connection", methods::install_connection),
    ("_sqlite3", "Cursor", methods::install_cursor),
    ("_socket", "socket", sockets::install),
    ("_ssl", "_SSLContext", methods::install_certificates),
    ("_asyncio", "Task", contextvars::install_tasks),
    ("greenlet._greenlet", "greenlet", contextvars::install_greenlets),
];

fn add(module: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    for (_, class, install) in CLASSES.iter().filter(|(own, ..)| *own == name) {
        // If the module is not ready yet, it will be looked at again.
        if let Some(class) = module.attr_opt(*class)? {
            install(module, &class.cast_into()?)?;
        }
    }
    for (name, what) in wanted(name) {
        if let Some(function) = module.attr_opt(name)? {
            replace::list::<Functions>(&function, what);
        }
    }
    Ok(())
}

/// Gives versions to classes anew, also those that other classes had.
#[cfg(not(Py_3_11))]
fn clear_type_cache(called: Called<'_>) -> Returned {
    layout::versions_repeat();
    called.make()
}

/// Makes a module that is part of the interpreter. `importlib.import_module` raises no `import` for one,
/// so that it is raised here: with the name that the module has, whatever the spec says when asked.
fn create_builtin(called: Called<'_>) -> Returned {
    let result = create(called);
    let module = result.object(called.py).filter(|_| scope::may_be_guarded());
    let Some(name) = module.and_then(|module| raw::module_definition_name(&module)) else {
        return result;
    };
    let announced = called.ours(|py| {
        let none = || py.None();
        raw::audit(py, c"import", (name, none(), none(), none(), none()))
    });
    result.if_done(called.py, announced)
}

fn create(called: Called<'_>) -> Returned {
    let result = called.make();
    let Some(module) = result.object(called.py) else {
        return result;
    };
    let loaded = is_loaded(called, &module);
    result.if_done(called.py, loaded)
}

/// Runs the code of a module that was made.
fn make_ready(called: Called<'_>) -> Returned {
    let result = called.make();
    if result.has_failed() || called.arguments.positional() != 1 {
        return result;
    }
    result.if_done(called.py, is_loaded(called, &called.arguments.at(called.py, 0)))
}

/// Wraps the functions of a module that was just loaded; `None` if that failed.
fn is_loaded(called: Called<'_>, module: &Bound<'_, PyAny>) -> Option<()> {
    if !scope::is_ours() {
        return Some(());
    }
    called.ours(|py| {
        let own = module.attr_opt(intern!(py, "__name__"))?;
        let own = own.and_then(|name| name.cast_into::<PyString>().ok());
        let own = own.map(|name| name.to_string_lossy().into_owned());
        if let Some(name) = &own {
            add(module, name)?;
        }
        if let Ok(module) = module.cast::<PyModule>() {
            holds::native_code_loaded(module)?;
        }
        // A module's C code is found by the last part of the name that it is loaded under.
        let last = |name: &str| name.rsplit('.').next().map(str::to_owned);
        let made = raw::module_definition_name(module);
        let others = [own.as_deref().and_then(last), made.as_deref().and_then(last)];
        for name in others.into_iter().flatten() {
            if own.as_ref() != Some(&name) {
                add_other(module, &name);
            }
        }
        replace::replace_again(module)
    })
}

/// Wraps the functions of a module that may be one of the standard library under another name.
fn add_other(module: &Bound<'_, PyAny>, name: &str) {
    // The data about the classes come from the module of this name, or from none.
    if CLASSES.iter().any(|(module, ..)| *module == name) {
        let _ = calling::import(module.py(), name);
    }
    // Another package's module of the same name may work in another way.
    let _ = add(module, name);
}
