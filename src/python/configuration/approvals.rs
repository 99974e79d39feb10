//! The answers of a host that a guard keeps, and the file that keeps them for later.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::LocalKey;

use arc_swap::ArcSwapOption;
use pyo3::prelude::*;

use crate::policy::commands::own_path;
use crate::policy::files::os::Os;
use crate::policy::network::HostRules;
use crate::policy::written::approved::Kept;
use crate::policy::written::landings::More;
use crate::policy::written::spec::{NetworkUse, Spec};
use crate::policy::written::values::{Choice, Where};
use crate::policy::{Commands, Policy, Roots};
use crate::python::configuration::allowed::expanded;
use crate::python::configuration::callbacks::Callback;
use crate::python::configuration::resolve::{roots, unix_roots};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::{intern, lock};

/// The host's callback, and its answers that are kept.
pub struct Approvals {
    pub ask: Callback,
    /// The file to which answers are added.
    file: Option<PathBuf>,
    /// The guard's policy with what was approved; `None` before the first answer that is kept.
    pub policy: ArcSwapOption<Policy>,
    /// The same with what is denied without a question; `None` before the first such answer.
    pub never: ArcSwapOption<Policy>,
    /// The policy that the kernel holds around the guard, if it does: no answer opens more.
    pub held: Option<Arc<Policy>>,
}

impl Approvals {
    pub fn new(ask: Callback, file: Option<PathBuf>, held: Option<Arc<Policy>>) -> Self {
        Self { ask, file, policy: ArcSwapOption::empty(), never: ArcSwapOption::empty(), held }
    }

    /// Begins with the answers that the file has, for guards of this policy.
    pub fn begin(&self, py: Python<'_>, kept: &Kept, policy: &Policy) -> PyResult<()> {
        for (known, spec) in [(&self.policy, &kept.allowed), (&self.never, &kept.never)] {
            if *spec != Spec::default() {
                widen(py, known, spec, policy)?;
            }
        }
        Ok(())
    }

    pub fn keep(&self, kept: &Kept) -> Result<(), String> {
        match &self.file {
            None => Ok(()),
            Some(file) => {
                add_to_file(file, kept).map_err(|error| format!("{}: {error}", file.display()))
            }
        }
    }
}

/// Adds the permissions of an answer to those of earlier ones, or to the guard's policy.
pub fn widen(
    py: Python<'_>,
    known: &ArcSwapOption<Policy>,
    spec: &Spec,
    policy: &Policy,
) -> PyResult<()> {
    // Paths are resolved before: that may run Python code.
    let more = more(py, spec)?;
    known.rcu(|known| Some(Arc::new(known.as_deref().unwrap_or(policy).with_more(&more))));
    Ok(())
}

pub fn widened(py: Python<'_>, policy: &Policy, spec: &Spec) -> PyResult<Policy> {
    Ok(policy.with_more(&more(py, spec)?))
}

fn more<'a>(py: Python<'_>, spec: &'a Spec) -> PyResult<More<'a>> {
    let write = match &spec.write {
        Where::Anywhere => Roots::everywhere(),
        Where::Below(paths) => roots(py, paths)?.roots,
    };
    let read = match &spec.read {
        Where::Anywhere => None,
        Where::Below(paths) => Some(roots(py, paths)?.roots),
    };
    let commands = match &spec.commands {
        Choice::All(false) => Commands::None,
        Choice::All(true) => Commands::All,
        Choice::Named(names) => {
            let names = names.iter().map(|name| expanded(py, name));
            let names = names.collect::<PyResult<Vec<_>>>()?;
            let names = names.iter().map(|name| &name[..]);
            Commands::named(&Os, names, &own_path())
        }
    };
    let network = match &spec.network {
        NetworkUse::All(_) => None,
        NetworkUse::Rules(rules) => Some(HostRules::new(rules, unix_roots(py, rules)?)),
    };
    Ok(More { spec, write, read, commands, network })
}

pub fn parse(text: &str) -> Result<Kept, String> {
    Kept::from_toml(text).map_err(|error| error.to_string())
}

/// Adds answers to a file of them: another file takes its place, so that readers see all of
/// one or of the other. The system's calls are made without audit events: guarded code waits for
/// the answer, and its guard is not asked.
fn add_to_file(file: &Path, more: &Kept) -> Result<(), String> {
    /// One thread at a time reads and writes.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = lock(&WRITING);
    // Where a link leads, so that the link stays.
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut kept = match fs::read_to_string(&file) {
        Ok(text) => parse(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Kept::default(),
        Err(error) => return Err(error.to_string()),
    };
    kept.merge(more);
    let text = kept.to_toml();
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = file.with_file_name(name);
    let write = || -> std::io::Result<()> {
        let _ = fs::remove_file(&new);
        let mut to = fs::File::create_new(&new)?;
        if let Ok(before) = fs::metadata(&file) {
            to.set_permissions(before.permissions())?;
        }
        to.write_all(text.as_bytes())?;
        to.sync_all()?;
        fs::rename(&new, &file)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&new);
        error.to_string()
    })
}

// Marks on threads.

thread_local! {
    /// A callback of the host runs on this thread: it is not asked about denials in itself.
    pub static ASKING_HOST: Cell<bool> = const { Cell::new(false) };
    /// Operations judged on this thread have failed by now: they are told, nobody is asked.
    pub static TOO_LATE: Cell<bool> = const { Cell::new(false) };
}

/// A mark on this thread, for as long as it lives.
pub struct Marked(&'static LocalKey<Cell<bool>>);

impl Marked {
    pub fn begin(mark: &'static LocalKey<Cell<bool>>) -> Self {
        mark.set(true);
        Self(mark)
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// True for an answer that is still to be computed: it would count as true before it has run.
pub fn is_awaitable(answer: &Bound<'_, PyAny>) -> bool {
    let name = intern!(answer.py(), "__await__");
    raw::type_lookup(&answer.get_type(), name).is_some()
}
