//! The surroundings of an event: what the judge of the policy core asks the interpreter.

use std::net::IpAddr;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyTupleMethods};

use crate::policy::check::ModuleOrigin;
use crate::policy::distributions::InstalledPackages;
use crate::policy::files::os::Os;
use crate::policy::files::path::{Base, Resolved};
use crate::policy::judge::{ActRules, Follows, Reason, Surroundings};
use crate::policy::learn::Need;
use crate::policy::written::values::Switch;
use crate::policy::{Operation, Policy, Why};
use crate::python::callees::distributions;
use crate::python::configuration::declared::Declared;
use crate::python::cpython::process;
use crate::python::events::deny;
use crate::python::excuses::{table, unchanging, variables};
use crate::python::frames::stack;
use crate::python::guard::active::InForce;
use crate::python::guard::event::{self, Event, Probe};
use crate::python::guard::{own_events, tempfile};
use crate::python::importing::imports;
use crate::python::values::{addresses, process_start};
use crate::python::wrapped::{sockets, threads, workers};

impl Event<'_, '_> {
    #[inline]
    fn meet(&self, reason: Reason, operation: Option<Operation<'_>>) -> PyResult<()> {
        let Some(probe) = self.probe else {
            return deny::meet(self, reason, operation);
        };
        // The host may allow it, which a log tells too.
        let result = deny::meet(self, reason, operation);
        if result.is_err() || !probe.records() {
            probe.denied.set(Some(reason.why()));
        }
        result
    }

    /// Meets a denied import: its beginning, or else the code or extension that it would load.
    #[inline(never)]
    fn meet_import(&self, reason: Reason, operation: Option<Operation<'_>>) -> PyResult<()> {
        let py = self.args.py();
        let has_file = self.args.get_item(1).is_ok_and(|file| !file.is_none());
        let begins = self.name == c"import" && !has_file;
        let module = match begins {
            true => self.args.get_item(0)?.cast_into().ok(),
            false => imports::module_being_loaded(py)?,
        };
        let Some(module) = module else {
            return self.meet(reason, operation);
        };
        if imports::is_allowed(&module, begins)? {
            return Ok(());
        }
        // Before 3.15 `importlib.import_module` raises no event of its own: it is denied as an import.
        if self.name == c"exec" {
            let none = || py.None();
            let args = (module, none(), none(), none(), none()).into_pyobject(py)?;
            return Event { name: c"import", args: &args, ..*self }.meet(reason, operation);
        }
        self.meet(reason, operation)?;
        if begins {
            imports::note_allowed(&module)?;
        }
        Ok(())
    }
}

impl<'py> Surroundings for Event<'_, 'py> {
    type Error = PyErr;
    type Arguments = Bound<'py, PyTuple>;
    type Fs = Os;

    #[inline]
    fn event(&self) -> &[u8] {
        self.name.to_bytes()
    }

    #[inline]
    fn arguments(&self) -> &Bound<'py, PyTuple> {
        self.args
    }

    #[inline]
    fn fs(&self) -> &Os {
        &Os
    }

    #[inline]
    fn policy(&self) -> &Policy {
        self.config.policy()
    }

    #[inline]
    fn deny(&self, reason: Reason, operation: Option<Operation<'_>>) -> PyResult<()> {
        if let Some(probe) = self.probe
            && !probe.enforces()
        {
            probe.denied.set(Some(reason.why()));
            return Ok(());
        }
        if reason == Reason::Switch(Why::Import) {
            return self.meet_import(reason, operation);
        }
        unchanging::fail_without_target(self)?;
        self.meet(reason, operation)
    }

    #[inline]
    fn excuses(&self, reason: Reason) -> PyResult<bool> {
        let excused = table::excuse(self, reason)?;
        if excused && let Some(probe) = self.probe {
            // It passes whatever the policy says.
            probe.needs.take();
            if table::is_recorded_worker(self)? {
                probe.need(Need::Switch(Switch::Threads));
            }
        }
        Ok(excused)
    }

    #[inline]
    fn records(&self) -> bool {
        self.probe.is_some_and(Probe::records)
    }

    fn observes(&self) -> bool {
        Event::observes(self)
    }

    #[inline]
    fn note(&self, operation: Operation<'_>) {
        if let Some(probe) = self.probe {
            probe.note(operation);
        }
    }

    fn need(&self, need: Need) {
        if let Some(probe) = self.probe {
            probe.need(need);
        }
    }

    #[inline]
    fn reads_passed(&self) -> bool {
        self.reads_passed
    }

    #[inline]
    fn base(&self) -> Base {
        event::call_note().base
    }

    #[inline]
    fn follows(&self) -> Follows {
        event::call_note().follows
    }

    fn is_numeric(&self) -> bool {
        event::call_note().is_numeric
    }

    fn first_dir(&self) -> Option<&[u8]> {
        self.active.first_dir()
    }

    #[inline]
    fn is_own(&self) -> bool {
        own_events::is_raised(self.name)
    }

    fn is_start_covered(&self) -> bool {
        process_start::covers(self.name, self.args)
    }

    fn allow_start(&self) {
        process_start::approved(self.name, self.args);
    }

    fn is_in_copy(&self) -> bool {
        self.active.is_in_copy()
    }

    fn has_other_threads(&self) -> PyResult<bool> {
        process::has_other_threads(self.args.py())
    }

    fn before_fork(&self) -> PyResult<()> {
        tempfile::before_fork(self.args.py(), workers::is_worker())
    }

    #[inline]
    fn before_removal(&self) {
        variables::will_be_removed(self);
    }

    fn carries_guard(&self) -> bool {
        let function = self.args.get_item(0);
        function.is_ok_and(|function| threads::is_carried(&function))
    }

    fn is_of_event_loop(&self) -> PyResult<bool> {
        threads::is_of_event_loop(&self.args.get_item(0)?)
    }

    fn only_marks_awaitable(&self) -> bool {
        matches!((self.args.get_item(0), self.args.get_item(2)),
            (Ok(function), Ok(new)) if stack::only_marks_awaitable(&function, &new))
    }

    fn origin(&self, file: &[u8], landing: &Resolved) -> ModuleOrigin {
        distributions::extension_origin(file, landing)
    }

    fn with_module_being_loaded<R>(&self, judge: impl FnOnce(Option<&str>) -> R) -> PyResult<R> {
        Ok(match imports::module_being_loaded(self.args.py())? {
            Some(module) => judge(Some(&module.to_string_lossy())),
            None => judge(None),
        })
    }

    fn is_in_turn(&self) -> PyResult<bool> {
        imports::is_in_turn(self.args.py())
    }

    fn is_importing(&self, packages: &[String]) -> PyResult<bool> {
        imports::is_importing(self.args.py(), packages)
    }

    fn is_importing_named(&self, modules: &[String]) -> PyResult<bool> {
        imports::is_importing_named(self.args.py(), modules)
    }

    fn declared_loading_native(&self) -> &[String] {
        Declared::known(self.args.py()).map_or(&[], |declared| &declared.loading_native)
    }

    fn package_being_called(&self) -> String {
        let callee = self.callee();
        callee.map_or_else(String::new, |callee| distributions::package_being_called(callee))
    }

    fn module_being_called(&self) -> Option<String> {
        distributions::module_being_called(self.callee()?)
    }

    fn installed(&self) -> Arc<InstalledPackages> {
        distributions::installed()
    }

    fn wraps_socket(&self) -> bool {
        sockets::wraps()
    }

    fn has_only_unix_sockets(&self) -> bool {
        crate::kernel::filter::has_only_unix_sockets()
    }

    fn look_up(&self, name: &str, family: i64) -> Vec<IpAddr> {
        addresses::look_up(self.args.py(), name, family)
    }

    fn names_of(&self, address: IpAddr) -> Vec<String> {
        self.rules().map_or_else(Vec::new, |rules| rules.names_of(address))
    }

    fn remember(&self, name: &str, addresses: &[IpAddr]) {
        if let Some(rules) = self.rules() {
            rules.remember(name, addresses);
        }
    }

    fn may_connect(&self, socket: i32, most: u32) -> bool {
        self.rules().is_some_and(|rules| rules.may_connect(socket, most))
    }
}

impl<'py> Event<'_, 'py> {
    fn rules(&self) -> Option<InForce<'_>> {
        InForce::of(self.active)
    }

    /// The name of the native code that is about to be called, as it was announced.
    fn callee(&self) -> Option<&Bound<'py, PyString>> {
        PyTupleMethods::as_slice(self.args).get(1)?.cast().ok()
    }
}
