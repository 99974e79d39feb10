//! The audit hook (PEP 578).
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple};

use super::config::AuditCfg;
use super::context::{self, Current};
use super::decode::{self, NameArg, PathLikes};
use super::denial::{self, Reason};
use super::{code, errors, ffi as raw, open_at, process_start};
use crate::policy::check::open_may_write;
use crate::policy::fs::Os;
use crate::policy::path::Base;
use crate::policy::rules::{self, PathArg, Rule};
use crate::policy::{Operation, Verdict};

/// Raised once, to see that the hook is there: CPython does not tell when it was refused.
const PROBE: &CStr = c"fastaudit_rs.installed";

const ABSENT: u8 = 0;
const INSTALLING: u8 = 1;
const INSTALLED: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(ABSENT);
static PROBED: AtomicBool = AtomicBool::new(false);
static AUDIT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Installs the hook, once for the process.
///
/// # Errors
/// `RuntimeError` when another hook refuses it. Nothing is installed then.
pub fn install(py: Python<'_>) -> PyResult<()> {
    match STATE.compare_exchange(ABSENT, INSTALLING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {}
        Err(INSTALLED) => return Ok(()),
        Err(_) => return Err(errors::being_installed()),
    }
    let result = add(py);
    STATE.store(
        if result.is_ok() { INSTALLED } else { ABSENT },
        Ordering::Release,
    );
    result
}

fn add(py: Python<'_>) -> PyResult<()> {
    context::install(py)?;
    raw::add_audit_hook(py, hook).map_err(|error| errors::hook_vetoed(py, Some(error)))?;
    // A hook that denies events it does not know may stop the probe, but not before ours saw it
    // if ours is there: native hooks are asked first.
    let probe = audit(py, PROBE, &[]).err();
    if !PROBED.load(Ordering::Acquire) {
        return Err(errors::hook_vetoed(py, probe));
    }
    open_at::install(py)
}

/// `sys.audit(event, *args)`, by the function that `sys` had when the hook was installed.
pub fn audit(py: Python<'_>, event: &CStr, args: &[&Bound<'_, PyAny>]) -> PyResult<()> {
    let audit =
        AUDIT.get_or_try_init(py, || py.import("sys")?.getattr("audit").map(Bound::unbind))?;
    let name = PyString::new(py, &event.to_string_lossy()).into_any();
    let all = std::iter::once(&name)
        .chain(args.iter().copied())
        .collect::<Vec<_>>();
    audit.bind(py).call1(PyTuple::new(py, all)?).map(|_| ())
}

/// # Safety
/// Called by CPython, with the event's name and its tuple of arguments.
unsafe extern "C" fn hook(event: *const c_char, args: *mut PyObject, _data: *mut c_void) -> c_int {
    if !context::may_be_guarded() {
        if STATE.load(Ordering::Relaxed) == INSTALLING {
            // SAFETY: the event's name is NUL-terminated.
            let event = unsafe { CStr::from_ptr(event) };
            PROBED.fetch_or(event == PROBE, Ordering::AcqRel);
        }
        return 0;
    }
    // SAFETY: this thread runs our interpreter (`may_be_guarded` looked), so it is attached; the
    // event's name is NUL-terminated.
    let (py, event) = unsafe { (Python::assume_attached(), CStr::from_ptr(event)) };
    let verdict = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: CPython passes a tuple, and holds it for the duration of the call.
        let args = unsafe { Bound::ref_from_ptr(py, &args).cast_unchecked::<PyTuple>() };
        check(py, event, args)
    }));
    match verdict {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            error.restore(py);
            -1
        }
        Err(_panic) => {
            denial::deny_by_failure(py, event, "internal error").restore(py);
            -1
        }
    }
}

fn check(py: Python<'_>, event: &CStr, args: &Bound<'_, PyTuple>) -> PyResult<()> {
    // Modules and objects are being taken apart then, ours among them.
    if raw::is_finalizing(py) {
        return Ok(());
    }
    let active = match context::current(py)? {
        Current::Unguarded => return Ok(()),
        Current::Guarded(active) => active,
        Current::Tampered => {
            let what = "the guard's context variable was changed";
            return Err(denial::deny_by_failure(py, event, what));
        }
    };
    let Some(rule) = rules::lookup(event.to_bytes()) else {
        return Ok(());
    };
    let Some(config) = active.get().config() else {
        return Ok(());
    };
    let event = Event {
        name: event,
        args,
        config: config.get(),
    };
    match rule {
        Rule::Deny => event.deny(Reason::Event),
        Rule::DenyProcessStart if process_start::covers(event.name, args) => Ok(()),
        Rule::DenyProcessStart => event.deny(Reason::Event),
        Rule::Entries(paths) => paths.iter().try_for_each(|path| event.change_entry(*path)),
        Rule::Open => event.open(),
        Rule::ChangeDirectory => event.change_directory(active.get()),
        Rule::Symlink => event.symlink(),
        Rule::Database => event.database(),
        Rule::SetAttribute => event.set_attribute(),
    }
}

/// An event under a guard.
struct Event<'a, 'py> {
    name: &'a CStr,
    args: &'a Bound<'py, PyTuple>,
    config: &'a AuditCfg,
}

impl<'a, 'py> Event<'a, 'py> {
    fn deny(&self, reason: Reason) -> PyResult<()> {
        denial::deny(self.config, self.name, self.args, reason)
    }

    /// Asks the policy; `path` is the position of the path that a denial names.
    fn judge(&self, operation: Operation<'_>, path: usize) -> PyResult<()> {
        match self.config.policy().check(&Os, operation) {
            Verdict::Allow => Ok(()),
            // An event without the argument that its rule asks for did not come from CPython.
            Verdict::Deny if path >= self.args.len() => self.deny(Reason::Event),
            Verdict::Deny => self.deny(Reason::Path(path)),
        }
    }

    fn name_at(&self, index: usize, descriptor: bool) -> PyResult<NameArg<'a, 'py>> {
        decode::name_at(self.args, index, descriptor, PathLikes::CheckedAgain)
    }

    fn change_entry(&self, path: PathArg) -> PyResult<()> {
        let name = self.name_at(path.path, path.descriptor)?;
        let base = decode::base_at(self.args, path.dir_fd);
        self.judge(Operation::ChangeEntry(name.target(base)), path.path)
    }

    fn open(&self) -> PyResult<()> {
        let (Ok(mode), Ok(flags)) = (self.args.get_item(1), self.args.get_item(2)) else {
            return self.deny(Reason::Event);
        };
        let may_write = if let Ok(mode) = mode.cast::<PyString>() {
            // A mode that cannot be encoded opens nothing, but is not known to only read.
            raw::fs_encode(mode.as_borrowed())
                .map_or(true, |mode| open_may_write(Some(mode.as_bytes()), 0))
        } else {
            !mode.is_none()
                || raw::int_value(&flags).is_none_or(|flags| open_may_write(None, flags))
        };
        if !may_write {
            return Ok(());
        }
        // Only `os.open` leaves the mode out, and only it takes a dir_fd.
        let base = if mode.is_none() {
            open_at::base()
        } else {
            Base::CurrentDir
        };
        let name = self.name_at(0, true)?;
        self.judge(Operation::OpenForWriting(name.target(base)), 0)
    }

    fn change_directory(&self, active: &context::Active) -> PyResult<()> {
        let left = active.first_dir();
        let to = self.name_at(0, true)?;
        self.judge(
            Operation::ChangeDirectory {
                to: to.target(Base::CurrentDir),
                left,
            },
            0,
        )
    }

    fn symlink(&self) -> PyResult<()> {
        let (text, link) = (self.name_at(0, false)?, self.name_at(1, false)?);
        let at = link.target(decode::base_at(self.args, Some(2)));
        self.judge(
            Operation::LinkTo {
                text: text.name(),
                at,
            },
            0,
        )?;
        self.judge(Operation::ChangeEntry(at), 1)
    }

    fn database(&self) -> PyResult<()> {
        let name = decode::name_at(self.args, 0, false, PathLikes::AskedLater)?;
        self.judge(Operation::OpenDatabase(name.name()), 0)
    }

    fn set_attribute(&self) -> PyResult<()> {
        let Ok(name) = self
            .args
            .get_item(1)
            .and_then(|name| Ok(name.cast_into::<PyString>()?))
        else {
            return self.deny(Reason::Event);
        };
        let allowed = raw::fs_encode(name.as_borrowed()).is_ok_and(|name| match name.as_bytes() {
            b"__code__" => matches!((self.args.get_item(0), self.args.get_item(2)),
                (Ok(function), Ok(new)) if code::only_marks_awaitable(&function, &new)),
            name => {
                let operation = Operation::SetAttribute(name);
                self.config.policy().check(&Os, operation) == Verdict::Allow
            }
        });
        if allowed {
            Ok(())
        } else {
            self.deny(Reason::Event)
        }
    }
}
