//! Installs the hook and everything that belongs to it, once for the process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::python::acts;
use crate::python::callees::callee;
use crate::python::cpython::objects::{self, dictionary, items, watched};
use crate::python::cpython::{ffi as raw, process};
use crate::python::denials::denial;
use crate::python::events::hook;
use crate::python::frames::with_statement;
use crate::python::guard::{environment, scope};
use crate::python::importing::stdlib;
use crate::python::values::errors;
use crate::python::wrapped::{callbacks_later, contextvars, table, workers};

/// Makes and lists the native classes.
pub type Classes = for<'py> fn(Python<'py>) -> PyResult<Vec<Bound<'py, PyType>>>;

static CLASSES: OnceLock<Classes> = OnceLock::new();

/// Says which classes are to be sealed.
pub fn know_classes(classes: Classes) {
    let _ = CLASSES.set(classes);
}

/// True once the Python that first loaded this module will tell its end, and once it has ended.
static TELLS: AtomicBool = AtomicBool::new(false);
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

extern "C" fn end() {
    HAS_ENDED.store(true, Ordering::Release);
}

/// Checks that no other Python of this process had the module before (`Py_Finalize`): CPython drops
/// the hook with it, and the objects that we keep are of it.
///
/// # Errors
/// `ImportError` if one had.
pub fn begin(py: Python<'_>) -> PyResult<()> {
    let tells = TELLS.load(Ordering::Acquire) || process::at_finalize(py, end);
    TELLS.store(tells, Ordering::Release);
    match tells && !HAS_ENDED.load(Ordering::Acquire) {
        true => Ok(()),
        false => Err(errors::other_python()),
    }
}

/// The thread that installs something, 0 for none, and the process that it is in.
static INSTALLER: AtomicU64 = AtomicU64::new(0);
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The time between two looks at another thread that installs, and the longest that it is waited
/// for: it may itself wait for this one, in a hook of the host.
const PAUSE: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// The turn of this thread to install.
pub struct Turn(());

impl Drop for Turn {
    fn drop(&mut self) {
        INSTALLER.store(0, Ordering::Release);
    }
}

/// Waits until no other thread installs anything; `None` if this thread does already.
///
/// # Errors
/// `RuntimeError` if another does not come to an end, and the errors of signal handlers.
pub fn turn(py: Python<'_>) -> PyResult<Option<Turn>> {
    let (thread, process) = (raw::thread_ident(), std::process::id());
    let mut waits_since = None;
    loop {
        let other = match INSTALLER.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => break,
            Err(other) => other,
        };
        if PROCESS.load(Ordering::Acquire) != process {
            // This process is a copy, and the thread need not be in it.
            INSTALLER.store(thread, Ordering::Release);
            hook::begin_anew();
            break;
        }
        if other == thread {
            return Ok(None);
        }
        if waits_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(errors::being_installed());
        }
        py.detach(|| std::thread::sleep(PAUSE));
        py.check_signals()?;
    }
    PROCESS.store(process, Ordering::Release);
    Ok(Some(Turn(())))
}

/// Installs them.
///
/// # Errors
/// `RuntimeError` if another hook refuses ours. Nothing is installed then.
pub fn install(py: Python<'_>) -> PyResult<()> {
    hook::install(py, prepare, wrap)
}

fn prepare(py: Python<'_>) -> PyResult<()> {
    scope::install(py)?;
    process::install(py)?;
    stdlib::directory(py)?;
    callbacks_later::prepare(py)?;
    environment::prepare(py)?;
    with_statement::prepare(py)?;
    denial::prepare(py)?;
    callee::prepare(py)?;
    match CLASSES.get() {
        Some(classes) => seal(py, classes(py)?),
        None => Ok(()),
    }
}

fn wrap(py: Python<'_>) -> PyResult<()> {
    acts::install();
    workers::prepare(py)?;
    callbacks_later::prepare_lazy(py)?;
    table::install(py)?;
    contextvars::install(py)
}

// Classes that stay as they were made.
//
// No attribute of a native class can be set or deleted: the classes are immutable. The dictionary
// behind a class can be had all the same (`gc.get_referents`, an operand that `mappingproxy` hands
// it to), and an entry there is found when a method is looked up by its name, as by a `with`
// statement. So each change of such a dictionary is noted, and undone as a guard is made, entered
// or left.

/// A class and its attributes. They are kept out of reach of Python code.
struct Sealed {
    class: Py<PyType>,
    attributes: Vec<(Py<PyAny>, Py<PyAny>)>,
}

static SEALED: OnceLock<Vec<Sealed>> = OnceLock::new();

/// Seals these classes, once for the process.
fn seal(py: Python<'_>, classes: Vec<Bound<'_, PyType>>) -> PyResult<()> {
    if SEALED.get().is_some() {
        return Ok(());
    }
    let mut all = Vec::with_capacity(classes.len());
    for class in classes {
        let Some(attributes) = dictionary(&class) else {
            continue;
        };
        let attributes = items(&attributes).map(|(name, value)| (name.unbind(), value.unbind()));
        all.push(Sealed { attributes: attributes.collect(), class: class.unbind() });
    }
    let all = SEALED.get_or_init(|| all);
    let dictionaries: Vec<_> =
        all.iter().filter_map(|sealed| dictionary(sealed.class.bind(py))).collect();
    watched::install(py, &dictionaries)
}

/// Undoes the changes of the classes.
#[inline]
pub fn restore_classes(py: Python<'_>) {
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
    watched::restore(|| {
        for sealed in all {
            let class = sealed.class.bind(py);
            let Some(dictionary) = dictionary(class) else {
                continue;
            };
            // Objects that are taken out are freed last: that may run Python code.
            gone.extend(items(&dictionary));
            dictionary.clear();
            for (name, value) in &sealed.attributes {
                // Without memory for it a `with` statement finds no method, and does not go on.
                let _ = dictionary.set_item(name, value);
            }
            objects::make_concrete(class);
        }
    });
    drop(gone);
}
