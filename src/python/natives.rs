//! The native functions of the standard library whose calls are looked at as they are made.
//!
//! The one function object that such a function is, however it was imported, is made to come here,
//! and then does what it always did. It stays the same object: sets and tables that hold it still
//! find it. What is loaded later, or anew, is treated as it is loaded.
#![allow(unsafe_code)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::arguments::Arguments;
use super::later::Registered;
use super::methods::{Builtin, Vectorcall};
use super::noted::{self, Follows};
use super::silent::{self, Silent};
#[cfg(Py_3_12)]
use super::tool;
use super::{
    context, executors, ffi as raw, foreign_functions, intercept, later, pool_starts, statements,
};

/// What is done with the calls of a function.
#[derive(Clone, Copy)]
pub enum What {
    /// Arguments are noted that its event leaves out.
    Notes(Follows),
    /// An event is raised, as it has none of its own.
    Raises(&'static Silent),
    /// It has something called later.
    Registers(&'static Registered),
    /// It tells what is called later.
    TellsRegistered,
    /// It changes tools of `sys.monitoring`.
    #[cfg(Py_3_12)]
    ChangesTools(tool::Changes),
    /// It starts a process.
    #[cfg(unix)]
    Starts,
    /// It waits for a process.
    #[cfg(unix)]
    Waits,
    /// It starts a program; where it has no event, this one is raised first.
    #[cfg(unix)]
    StartsProgram(Option<&'static Silent>),
    /// It loads a native module, and returns it.
    Loads,
    /// It makes a native module ready that it is given.
    MakesReady,
}

/// A function whose calls come here.
#[derive(Clone, Copy)]
struct Known {
    /// The C function, which all objects have that are made of it, for each copy of its module.
    function: *const (),
    /// `None` where it is not called by vectorcall.
    original: Option<Vectorcall>,
    what: What,
}

// SAFETY: these are addresses of functions, and what lives for ever.
unsafe impl Send for Known {}
// SAFETY: as above.
unsafe impl Sync for Known {}

/// A call of such a function.
#[derive(Clone, Copy)]
pub struct Called {
    callable: *mut PyObject,
    original: Option<Vectorcall>,
    pub arguments: Arguments,
}

impl Called {
    /// The same call with other arguments.
    pub fn with(self, arguments: Arguments) -> Self {
        Self { arguments, ..self }
    }

    /// Makes the call, with these arguments.
    ///
    /// # Safety
    /// The thread is attached, and the arguments are those of a vectorcall.
    pub unsafe fn make(self, arguments: Arguments) -> *mut PyObject {
        let Arguments {
            args,
            nargsf,
            kwnames,
        } = arguments;
        // SAFETY: as this function's; the callable is the one that was called.
        unsafe {
            if let Some(original) = self.original {
                return original(self.callable, args, nargsf, kwnames);
            }
            let copy = intercept::ours(|py| {
                let callable = Borrowed::from_ptr(py, self.callable);
                let function = Builtin::cast(&callable).map(|function| function.copy());
                Ok(function.transpose()?.map(Bound::into_ptr))
            });
            let Some(Some(copy)) = copy else {
                return std::ptr::null_mut();
            };
            let result = intercept::call_by_tuple(copy, args, nargsf, kwnames);
            raw::with_attachment_counted(|| ffi::Py_DECREF(copy));
            result
        }
    }
}

/// All of them: a `Vec` that is replaced as a whole, and never freed, as another thread may read it.
static KNOWN: AtomicPtr<Vec<Known>> = AtomicPtr::new(std::ptr::null_mut());

/// Whoever adds holds this.
static ADDING: Mutex<()> = Mutex::new(());

#[inline]
fn known() -> &'static [Known] {
    // SAFETY: null, or made by `add` and never freed.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

/// What is done with the functions of a module.
fn wanted(module: &str) -> impl Iterator<Item = (&'static str, What)> {
    const LOADING: &[(&str, What)] = &[
        ("create_builtin", What::Loads),
        ("create_dynamic", What::Loads),
        ("exec_builtin", What::MakesReady),
        ("exec_dynamic", What::MakesReady),
    ];
    let noting = noted::FUNCTIONS
        .iter()
        .filter(move |_| module == "posix")
        .map(|(name, follows)| (*name, What::Notes(*follows)));
    let loading = LOADING.iter().filter(move |_| module == "_imp").copied();
    let loading = loading.chain(later::of(module).iter().copied());
    #[cfg(Py_3_12)]
    let loading = loading.chain(
        tool::FUNCTIONS
            .iter()
            .filter(move |_| module == "sys.monitoring")
            .map(|(name, changes)| (*name, What::ChangesTools(*changes))),
    );
    #[cfg(unix)]
    let loading = loading.chain(super::starts::of(module));
    noting.chain(silent::of(module)).chain(loading)
}

/// Has the functions of all modules that are loaded come here, and those of modules that will be.
///
/// # Errors
/// What looking them up raises.
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
    let others = [
        "_imp",
        "atexit",
        #[cfg(unix)]
        super::starts::MODULE,
        executors::MODULE,
        pool_starts::MODULE,
        foreign_functions::MODULE,
        statements::MODULE,
    ];
    let names = ["posix"].into_iter().chain(others).chain(silent::modules());
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

/// Has the functions of a module come here.
fn add(module: &Bound<'_, PyAny>, name: &str) -> PyResult<()> {
    match name {
        pool_starts::MODULE => return pool_starts::install(module),
        executors::MODULE => return executors::install(module),
        foreign_functions::MODULE => return foreign_functions::install(module),
        statements::MODULE => return statements::install(module),
        _ => {}
    }
    for (name, what) in wanted(name) {
        let Some(object) = module.getattr_opt(name)? else {
            continue;
        };
        let Some(function) = Builtin::cast(&object) else {
            continue;
        };
        let own = function.vectorcall();
        if own.is_some_and(|own| std::ptr::fn_addr_eq(own, called as Vectorcall)) {
            continue;
        }
        remember(Known {
            function: function.function(),
            original: function.vectorcall(),
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
            What::ChangesTools(changes) if context::is_ours() => tool::call(call, changes),
            #[cfg(Py_3_12)]
            What::ChangesTools(_) => call.make(arguments),
            #[cfg(unix)]
            What::Waits => super::servers::wait(call),
            _ if !context::may_be_guarded() => call.make(arguments),
            What::Notes(follows) => noted::call(call, follows),
            What::Raises(silent) => silent::call(call, silent),
            #[cfg(unix)]
            What::Starts => super::starts::call(call, None),
            #[cfg(unix)]
            What::StartsProgram(silent) => super::starts::call_program(call, silent),
            What::Registers(registered) => later::call(call, registered),
            What::TellsRegistered => later::tell(call),
        }
    }
}

/// Has the functions of a module that was just loaded come here; whether that went well, else the
/// exception is set.
///
/// # Safety
/// The thread is attached; `module` is alive.
unsafe fn is_loaded(module: *mut PyObject) -> bool {
    if !context::is_ours() {
        return true;
    }
    // SAFETY: as this function's.
    let added = unsafe {
        intercept::ours(|py| {
            let module = Borrowed::from_ptr(py, module);
            let Some(name) = module.getattr_opt(pyo3::intern!(py, "__name__"))? else {
                return Ok(());
            };
            match name.cast::<PyString>() {
                Ok(name) => add(&module, &name.to_string_lossy()),
                Err(_) => Ok(()),
            }
        })
    };
    added.is_some()
}
