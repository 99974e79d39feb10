//! Makes the standard library's `tempfile` ask which directory to use.
//!
//! Its function `_gettempdir`, from which all others get the directory, gets new code, so that it
//! stays the same object. `tempfile.tempdir`, which belongs to the host, is never set.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::policy::files::fs::PathBuf;
use crate::policy::files::os::Os;
use crate::python::configuration::approvals::Marked;
use crate::python::configuration::config::AuditCfg;
use crate::python::configuration::temporary;
use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::once::intern;
use crate::python::cpython::{ffi as raw, frames, objects};
use crate::python::guard::scope;
use crate::python::importing::imports;
use crate::python::values::decode;

const MODULE: &str = "tempfile";
const FUNCTION: &str = "_gettempdir";

/// The new body of the function; the constants become the function that asks and the one it was.
const SOURCE: &CStr = c"def _gettempdir():
    ask = 'fastaudit_rs.ask'
    usual = 'fastaudit_rs.usual'
    found = ask()
    return usual() if found is None else found
";
const ASK: &str = "fastaudit_rs.ask";
const USUAL: &str = "fastaudit_rs.usual";

/// True if the module was imported since it was last made to ask.
static IS_NEW: AtomicBool = AtomicBool::new(false);

/// True if it asks, in one of its copies at least.
static ASKS: AtomicBool = AtomicBool::new(false);

/// True if the kernel holds this process to a guard's rules until it ends.
static IS_HELD: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CHANGING: Cell<bool> = const { Cell::new(false) };
    static IMPORTING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this module changes the code of `tempfile`, which guarded code may not.
pub fn is_changing() -> bool {
    CHANGING.get()
}

pub fn note_held() {
    IS_HELD.store(true, Ordering::Relaxed);
}

pub fn asks() -> bool {
    ASKS.load(Ordering::Relaxed)
}

/// Makes `tempfile` ask if it was imported meanwhile.
#[inline]
pub fn look(py: Python<'_>) {
    if IS_NEW.load(Ordering::Relaxed) {
        make_ask(py);
    }
}

/// The same if no event reported its import: before the hook, or by `importlib.import_module`.
pub fn look_again(py: Python<'_>) {
    if !asks() || IS_NEW.load(Ordering::Relaxed) {
        make_ask(py);
    }
}

/// Makes `tempfile` ask, if it is imported. If that fails, mostly because another audit hook
/// refuses, it goes on as it was: its acts are judged all the same.
#[cold]
fn make_ask(py: Python<'_>) {
    let module = raw::imported_module(py, intern!(py, MODULE));
    let changed = match module {
        Ok(Some(module)) => {
            // Another thread may import it anew from here on.
            IS_NEW.store(false, Ordering::Relaxed);
            change(&module)
        }
        Ok(None) => return,
        Err(error) => Err(error),
    };
    // A module that is still being imported has no such function yet.
    IS_NEW.fetch_or(matches!(changed, Ok(false)), Ordering::Relaxed);
}

/// Handles the event `import`.
pub fn import(event: &[u8], args: &Bound<'_, PyTuple>) {
    if event == b"import"
        && let Ok(name) = args.get_borrowed_item(0)
        && let Ok(name) = name.cast_exact::<PyString>()
        && name == MODULE
    {
        is_imported(args.py());
    }
}

/// While a guard is in force somewhere it is imported here and now, as its next user may be
/// guarded; else the next guard looks.
#[cold]
fn is_imported(py: Python<'_>) {
    IS_NEW.store(true, Ordering::Relaxed);
    // The import in here raises the event as well.
    if IMPORTING.get() || !scope::may_be_guarded() {
        return;
    }
    let _importing = Marked::begin(&IMPORTING);
    // An error is raised again by the import that is about to begin.
    if calling::import(py, MODULE).is_ok() {
        make_ask(py);
    }
}

/// Changes the function's code, unless it was changed before; false if there is no function.
fn change(module: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = module.py();
    let Some(function) = module.attr_opt(FUNCTION)? else {
        return Ok(false);
    };
    let Some(globals) = frames::function_globals(&function) else {
        return Ok(true);
    };
    let code = frames::function_code(&function);
    let constants = code.attr("co_consts")?;
    let constants = constants.cast::<PyTuple>()?;
    if constants.iter().any(|one| one.is_exact_instance_of::<Ask>()) {
        return Ok(true);
    }
    let _changing = Marked::begin(&CHANGING);
    let ask = Bound::new(py, Ask { globals: globals.clone().unbind() })?;
    let usual = objects::new_function(&code, &globals)?;
    let new = new_code(&code, ask.as_any(), &usual)?;
    function.set_attr("__code__", new)?;
    ASKS.store(true, Ordering::Relaxed);
    Ok(true)
}

/// The code that asks, to put in the place of the function's own.
fn new_code<'py>(
    before: &Bound<'py, PyAny>,
    ask: &Bound<'py, PyAny>,
    usual: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = before.py();
    let module = objects::compile(py, SOURCE)?;
    let constants = module.attr("co_consts")?;
    let constants = constants.cast::<PyTuple>()?.iter();
    let is_code = |one: &Bound<'_, PyAny>| one.get_type().is(before.get_type());
    let code = constants.into_iter().find(is_code);
    let code = code.ok_or_else(|| pyo3::exceptions::PySystemError::new_err("no code"))?;
    let constants = code.attr("co_consts")?;
    let constants = constants.cast::<PyTuple>()?.iter().map(|one| match one.cast::<PyString>() {
        Ok(text) if text == ASK => ask.clone(),
        Ok(text) if text == USUAL => usual.clone(),
        _ => one,
    });
    let changes = PyDict::new(py);
    changes.set_item("co_consts", PyTuple::new(py, constants.collect::<Vec<_>>())?)?;
    for name in ["co_filename", "co_name", "co_firstlineno"] {
        changes.set_item(name, before.attr(name)?)?;
    }
    code.invoke_method("replace", (), Some(&changes))
}

/// Tells `tempfile` which directory to use under the guards in force.
#[pyclass(frozen, immutable_type, module = "fastaudit_rs._native", name = "_Ask")]
pub struct Ask {
    globals: Py<PyDict>,
}

#[pymethods]
impl Ask {
    /// The directory; `None` for the one without a guard.
    fn __call__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !scope::may_be_guarded() {
            return Ok(None);
        }
        let guards = in_force(py)?;
        if guards.is_empty() {
            return Ok(None);
        }
        let set = self.globals.bind(py).get_item(intern!(py, "tempdir"))?;
        let set = set.filter(|set| !set.is_none());
        let usual = match &set {
            None => temporary::usual(),
            Some(set) => match decode::root_name(set) {
                Ok(path) => path,
                // Path-like objects can answer differently each time.
                Err(_) => return Ok(None),
            },
        };
        // It keeps its directory for the whole process, mostly beyond the guard.
        let is_kept = !IS_HELD.load(Ordering::Relaxed)
            && imports::is_in_function(py, "multiprocessing.util", &["get_temp_dir"])?;
        let own = match is_kept || all_may_use(&guards, &usual) {
            true => None,
            false => own_directory(&guards),
        };
        Ok(match (own, set) {
            (None, Some(set)) => Some(set),
            // The same object each time, as without a guard.
            (own, _) => {
                let path = raw::fs_decode(py, &own.unwrap_or(usual))?;
                let text = path.to_str().map(|text| PyString::intern(py, text));
                Some(text.unwrap_or(path).into_any())
            }
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.globals)
    }
}

/// The guards in force, the outermost first, each once; code that asks for them needs no others.
pub fn in_force(py: Python<'_>) -> PyResult<Vec<Py<AuditCfg>>> {
    let mut all: Vec<Py<AuditCfg>> = Vec::new();
    for active in scope::in_force(py)?.iter().rev() {
        if let Some(config) = active.get().config()
            && !all.iter().any(|known| known.is(config))
        {
            all.push(config.clone_ref(py));
        }
    }
    Ok(all)
}

/// Returns whether all guards let files be made and read in a directory.
pub fn all_may_use(guards: &[Py<AuditCfg>], directory: &[u8]) -> bool {
    guards.iter().all(|config| {
        let config = config.get();
        config.policy().may_use(&Os, directory) || config.directories().hold(directory)
    })
}

/// The innermost guard's own directory; `None` if a guard may have none, or it cannot be made.
pub fn own_directory(guards: &[Py<AuditCfg>]) -> Option<PathBuf> {
    let mut inside = None;
    for config in guards {
        let config = config.get();
        if !config.may_have_temporary() {
            return None;
        }
        let directories = config.directories();
        inside = Some(directories.usable(config.policy(), inside.as_deref())?);
    }
    inside
}

/// Makes the directory of the guards in force before the process is copied: each copy would make
/// one of its own otherwise, and leave it behind. Needed where `tempfile` is loaded, and in a
/// worker, whose copies may load it.
pub fn before_fork(py: Python<'_>, is_worker: bool) -> PyResult<()> {
    if is_worker || asks() {
        let guards = in_force(py)?;
        if !all_may_use(&guards, &temporary::usual()) {
            own_directory(&guards);
        }
    }
    Ok(())
}
