//! One event under a guard: its arguments are decoded, the policy is asked, a denial is raised.

use std::ffi::OsString;

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};
use smallvec::SmallVec;

use crate::policy::Why;
use crate::policy::control::{self, Effect};
use crate::policy::environment::files_named;
use crate::policy::files::fs::Os;
use crate::policy::files::opening::open_appends;
use crate::policy::files::path::{self, Base, Name, Target};
use crate::policy::learn::Need;
use crate::policy::network::{Part, Reach};
use crate::policy::rules::{Access, NetworkEvent, PathArg, Rule};
use crate::policy::signalling::has_signals_sent;
use crate::policy::{Commands, Network, Operation, Policy, Verdict, events};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::forks;
use crate::python::events::deny;
use crate::python::events::network;
use crate::python::excuses::table;
use crate::python::excuses::variables;
use crate::python::guard::event::{Event, Probe, Reason};
use crate::python::guard::temporary;
#[cfg(unix)]
use crate::python::guard::workers;
use crate::python::values::call_notes::{self, Follows};
use crate::python::values::code;
use crate::python::values::command;
use crate::python::values::decode::{self, NameArg, PathLikes, is_open_for_reading};
use crate::python::values::distributions;
#[cfg(unix)]
use crate::python::values::extensions;
use crate::python::values::imports;
use crate::python::values::process_start;
use crate::python::wrapped::sockets;
use crate::python::wrapped::threads;

impl<'a, 'py> Event<'a, 'py> {
    /// Judges the event by its rule, or by the lack of one.
    ///
    /// # Errors
    /// The denial.
    pub fn check_any(&self, rule: Option<Rule>) -> PyResult<()> {
        match rule {
            Some(rule) => self.check(rule),
            None if !self.is_known() => {
                self.need(Need::UnknownEvent);
                if self.config.policy().rest().denies_unknown {
                    return self.deny(Reason::Switch(Why::Unknown));
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns whether the tables name it.
    fn is_known(&self) -> bool {
        let name = self.name.to_str();
        name.is_ok_and(|name| events::known(name).is_some())
    }

    /// Judges the event by its rule.
    ///
    /// # Errors
    /// The denial.
    pub fn check(&self, rule: Rule) -> PyResult<()> {
        match rule {
            #[cfg(Py_3_12)]
            Rule::Deny
                if crate::python::calls::deferred::is_registering()
                    && self.name == c"sys.monitoring.register_callback" =>
            {
                Ok(())
            }
            Rule::Deny => self.deny(Reason::Event),
            Rule::LowLevelStart if process_start::covers(self.name, self.args) => Ok(()),
            Rule::Start | Rule::LowLevelStart => self.start(),
            Rule::Entries(paths) | Rule::Read(paths) => self.paths(paths),
            Rule::SetVariable => {
                self.set_variable()?;
                self.read_by_variable()
            }
            Rule::RemoveVariable => {
                variables::will_be_removed(self);
                self.set_variable()
            }
            Rule::RemoveVariables => {
                variables::will_be_removed(self);
                self.remove_variables()
            }
            Rule::Network(kind) => self.network(kind),
            Rule::Socket if sockets::is_ordinary(self.args) => Ok(()),
            Rule::Socket => self.switch(Operation::UseNetwork(Reach::Other)),
            Rule::Bind => self.bind(),
            Rule::Fork => self.fork(),
            Rule::End if self.active.is_in_copy() => Ok(()),
            Rule::End => self.deny(Reason::Event),
            Rule::Signalling => self.signalling(),
            Rule::Limits => match self.args.get_borrowed_item(2) {
                Ok(limits) if limits.is_none() => Ok(()),
                _ => self.deny(Reason::Event),
            },
            Rule::Import => self.import(),
            Rule::Exec => self.exec(),
            Rule::Thread => self.thread(),
            Rule::Native => self.native(),
            Rule::WriteBytes => self.deny(Reason::Switch(Why::TooMuch)),
            Rule::Open => self.open(rule),
            Rule::Control => self.control(),
            Rule::ChangeDirectory => self.change_directory(),
            Rule::Symlink => self.symlink(),
            Rule::Database => self.database(),
            Rule::SetAttribute => self.set_attribute(),
        }
    }

    #[inline]
    fn deny(&self, reason: Reason) -> PyResult<()> {
        if table::excuse(self, reason)? {
            if let Some(probe) = self.probe {
                probe.forget();
            }
            return Ok(());
        }
        match self.probe {
            None => self.deny_really(reason),
            Some(probe) => self.deny_noting(probe, reason),
        }
    }

    #[cold]
    fn deny_noting(&self, probe: &Probe, reason: Reason) -> PyResult<()> {
        let why = match reason {
            Reason::Event => None,
            Reason::Switch(why) | Reason::Path(_, why) => Some(why),
        };
        if !probe.enforces() {
            probe.note_denied(why);
            return Ok(());
        }
        // The host may allow it, or the import that it is part of.
        let result = self.deny_really(reason);
        if result.is_err() {
            probe.note_denied(why);
        }
        result
    }

    #[inline]
    fn deny_really(&self, reason: Reason) -> PyResult<()> {
        deny::deny(self.active, self.config, self.name, self.args, reason)
    }

    /// Asks the policy; `path` is the position of the path that a denial names.
    fn judge(&self, operation: Operation<'_>, path: usize) -> PyResult<()> {
        self.note(operation);
        match self.config.policy().check(&Os, operation) {
            Verdict::Allow => Ok(()),
            Verdict::Deny(_) if self.is_temporary(operation) => Ok(()),
            // An event without the argument that its rule needs did not come from CPython.
            Verdict::Deny(_) if path >= self.args.len() => self.deny(Reason::Event),
            Verdict::Deny(why @ (Why::Unapproved | Why::Unreadable)) => {
                let everywhere = self.config.policy().denies_everywhere(&Os, operation);
                self.deny(Reason::Path(path, everywhere.unwrap_or(why)))
            }
            Verdict::Deny(why) => self.deny(Reason::Path(path, why)),
        }
    }

    /// Asks the policy about an operation that is allowed or denied as such.
    #[inline]
    fn switch(&self, operation: Operation<'_>) -> PyResult<()> {
        self.note(operation);
        match self.config.policy().check(&Os, operation) {
            Verdict::Allow => Ok(()),
            Verdict::Deny(why) => self.deny(Reason::Switch(why)),
        }
    }

    fn fork(&self) -> PyResult<()> {
        let py = self.args.py();
        if forks::has_other_threads(py)? {
            self.deny(Reason::Event)?;
        }
        #[cfg(unix)]
        let is_worker = workers::is_worker();
        #[cfg(not(unix))]
        let is_worker = false;
        temporary::before_fork(py, is_worker)
    }

    fn set_variable(&self) -> PyResult<()> {
        let name = self.name_at(0, false)?;
        self.switch(Operation::SetVariable(name.name()))
    }

    /// Judges the files that the variable names and that native code reads later, without an event.
    fn read_by_variable(&self) -> PyResult<()> {
        if self.probe.is_none() && !self.config.policy().checks_reads() {
            return Ok(());
        }
        let (name, value) = (self.name_at(0, false)?, self.name_at(1, false)?);
        let (Name::Path(name), Name::Path(value)) = (name.name(), value.name()) else {
            return Ok(());
        };
        for path in files_named(name, value) {
            self.judge(Operation::Read(Target::path(&path)), 1)?;
        }
        Ok(())
    }

    fn remove_variables(&self) -> PyResult<()> {
        let environment = self.config.policy().environment();
        let may_set = |name: &OsString| environment.may_set(name.as_encoded_bytes());
        let names = std::env::vars_os().map(|(name, _)| name);
        let (free, kept): (Vec<_>, Vec<_>) = names.partition(may_set);
        if !kept.is_empty() {
            self.deny(Reason::Switch(Why::Environment))?;
        }
        for name in &free {
            self.note(Operation::SetVariable(Name::Path(name.as_encoded_bytes())));
        }
        Ok(())
    }

    /// A Unix socket makes a file, unless its name begins with a NUL: unix(7).
    fn bind(&self) -> PyResult<()> {
        self.network(NetworkEvent::Bind)?;
        if !self.config.policy().network().is_open() {
            return Ok(());
        }
        let Ok(address) = self.args.get_borrowed_item(1) else {
            return self.deny(Reason::Event);
        };
        // Addresses of other families are tuples.
        let is_name = address.is_instance_of::<PyString>()
            || address.is_instance_of::<PyBytes>()
            || address.is_instance_of::<PyByteArray>();
        if !is_name {
            return Ok(());
        }
        let name = self.name_at(1, false)?;
        match name.name() {
            Name::Path(path) if path.first().is_none_or(|first| *first == 0) => Ok(()),
            name => {
                let base = Base::CurrentDir;
                self.judge(Operation::ChangeEntry(Target { name, base }), 1)
            }
        }
    }

    fn network(&self, kind: NetworkEvent) -> PyResult<()> {
        let denied = match self.config.policy().network() {
            _ if self.probe.is_some() => {
                network::denies(self, kind, self.config.policy().network().rules())?
            }
            Network::Open => None,
            Network::Closed => {
                // Without an address, it sends only to a place that the socket is connected to
                // already.
                let address = self.args.get_borrowed_item(1);
                let is_connected =
                    kind == NetworkEvent::Send && address.is_ok_and(|address| address.is_none());
                (!is_connected).then_some(Part::All)
            }
            Network::Rules(rules) => network::denies(self, kind, Some(rules))?,
        };
        match denied {
            Some(part) => self.deny(Reason::Switch(Why::Network(part))),
            None => Ok(()),
        }
    }

    fn import(&self) -> PyResult<()> {
        let Ok(module) = self.args.get_item(0) else {
            return self.deny(Reason::Event);
        };
        let Ok(module) = module.cast::<PyString>() else {
            return self.deny(Reason::Event);
        };
        #[cfg(unix)]
        if self
            .args
            .get_borrowed_item(1)
            .is_ok_and(|file| !file.is_none())
        {
            self.load(&module.to_string_lossy())?;
        }
        if self.probe.is_none() && !self.config.policy().restricts_imports() {
            return Ok(());
        }
        self.import_of(&module.to_string_lossy())
    }

    /// Judges loading an extension module by where its file is from.
    #[cfg(unix)]
    fn load(&self, module: &str) -> PyResult<()> {
        let name = self.name_at(1, false)?;
        let Name::Path(file) = name.name() else {
            return self.deny(Reason::Event);
        };
        let Some(landing) = path::resolve(&Os, file, Base::CurrentDir) else {
            return self.deny(Reason::Event);
        };
        let origin = extensions::origin(file, &landing);
        let judged = |policy: &Policy| policy.load(&Os, module, &landing, origin);
        let verdict = judged(self.config.policy());
        // The guarded code may write in the guard's temporary directory too.
        let with = self.config.policy_with_temporary();
        match with.map_or(verdict, |with| verdict.and(|| judged(&with))) {
            Verdict::Allow => Ok(()),
            Verdict::Deny(Why::Native) => {
                let package = module.split('.').next().unwrap_or(module);
                self.need(Need::Native(package.to_owned()));
                self.deny(Reason::Switch(Why::Native))
            }
            Verdict::Deny(_) => self.deny(Reason::Event),
        }
    }

    /// The code of a module that is imported, by `importlib` too, which raises no `import`.
    fn exec(&self) -> PyResult<()> {
        if !self.config.policy().restricts_imports() {
            return Ok(());
        }
        match imports::module_being_loaded(self.args.py())? {
            Some(module) => self.import_of(&module.to_string_lossy()),
            None => Ok(()),
        }
    }

    fn import_of(&self, module: &str) -> PyResult<()> {
        self.note(Operation::Import {
            module,
            in_turn: false,
        });
        let denied = |in_turn| {
            let operation = Operation::Import { module, in_turn };
            !self.config.policy().check(&Os, operation).allows()
        };
        // The importing code is looked at only where it matters.
        if denied(false) && (denied(true) || !imports::is_in_turn(self.args.py())?) {
            return self.deny(Reason::Switch(Why::Import));
        }
        Ok(())
    }

    fn thread(&self) -> PyResult<()> {
        self.need(Need::Thread);
        let function = self.args.get_item(0);
        if self.config.is_strict() {
            let passes = match &function {
                Ok(function) => {
                    (self.config.policy().rest().threads && threads::is_carried(function))
                        || threads::is_of_event_loop(function)?
                }
                Err(_) => false,
            };
            return match passes {
                true => Ok(()),
                false => self.deny(Reason::Switch(Why::Thread)),
            };
        }
        if self.config.policy().rest().threads
            && function.is_ok_and(|function| threads::is_carried(&function))
        {
            return Ok(());
        }
        self.deny(Reason::Switch(Why::Thread))
    }

    fn native(&self) -> PyResult<()> {
        let callee = self.args.get_item(1);
        let callee = callee.and_then(|callee| Ok(callee.cast_into::<PyString>()?));
        let Ok(callee) = callee else {
            return self.deny(Reason::Switch(Why::Native));
        };
        if self.probe.is_some() {
            self.need(Need::Native(distributions::package_being_called(&callee)));
        }
        let policy = self.config.policy();
        match policy.check(&Os, Operation::CallNative(&callee.to_string_lossy())) {
            Verdict::Allow => Ok(()),
            Verdict::Deny(_) if self.is_of_named_package(&callee) => Ok(()),
            Verdict::Deny(why) => {
                // A hint names the package.
                distributions::package_being_called(&callee);
                self.deny(Reason::Switch(why))
            }
        }
    }

    /// Returns whether a native callee is of a package that the policy names, under whatever name
    /// it goes.
    fn is_of_named_package(&self, callee: &Bound<'_, PyString>) -> bool {
        let Some(module) = distributions::module_being_called(callee) else {
            return false;
        };
        let policy = self.config.policy();
        let packages = &policy.rest().packages;
        let writes = || packages.writer(&callee.to_string_lossy()).is_some();
        (packages.have(&module) && !writes())
            || policy.calls_native_of(&module, distributions::installed)
    }

    fn start(&self) -> PyResult<()> {
        // The program is read only if the answer depends on it.
        let program = match self.config.policy().commands() {
            Commands::None | Commands::All if self.probe.is_none() => None,
            _ => command::program(self.name, self.args),
        };
        self.switch(Operation::Start(program.as_deref()))?;
        process_start::approved(self.name, self.args);
        Ok(())
    }

    fn name_at(&self, index: usize, descriptor: bool) -> PyResult<NameArg<'a, 'py>> {
        decode::name_at(self.args, index, descriptor, PathLikes::CheckedAgain)
    }

    /// Judges the paths of an event. Each is asked for its text once, though it may be judged in more
    /// than one way: a path-like object can answer differently the next time.
    fn paths(&self, paths: &[PathArg]) -> PyResult<()> {
        let mut told = SmallVec::<[(usize, NameArg<'a, 'py>); 1]>::new();
        for (number, path) in paths.iter().enumerate() {
            if matches!(path.access, Access::Read | Access::Look)
                && self.probe.is_none()
                && !self.config.policy().checks_reads()
            {
                continue;
            }
            if let Some((_, name)) = told.iter().find(|(index, _)| *index == path.path) {
                self.path(*path, name)?;
                continue;
            }
            let name = self.name_at(path.path, path.descriptor)?;
            self.path(*path, &name)?;
            let is_text = matches!(name, NameArg::Path(_) | NameArg::Made(_));
            if is_text
                && paths[number + 1..]
                    .iter()
                    .any(|next| next.path == path.path)
            {
                told.push((path.path, name));
            }
        }
        Ok(())
    }

    fn path(&self, path: PathArg, name: &NameArg<'a, 'py>) -> PyResult<()> {
        let mut target = name.target(decode::base_at(self.args, path.dir_fd));
        let operation = match path.access {
            Access::Change => Operation::ChangeEntry(target),
            Access::Move => Operation::MoveEntry(target),
            Access::Place => Operation::ChangePlace(target),
            Access::Look => Operation::Look(target),
            Access::Contents if matches!(target.name, Name::Descriptor(_)) => return Ok(()),
            Access::File | Access::Contents => return self.change_file(target, path.path),
            Access::Read => {
                let given = self.args.get_borrowed_item(path.path);
                if given.is_ok_and(|given| given.is_none()) {
                    // `os.listdir()` and others read the current directory then.
                    target.name = Name::Path(b".");
                }
                Operation::Read(target)
            }
        };
        self.judge(operation, path.path)
    }

    /// Judges a change of a file by the place that the call that raised the event goes to.
    fn change_file(&self, target: Target<'_>, path: usize) -> PyResult<()> {
        let follows = call_notes::follows();
        if follows != Follows::Always {
            self.judge(Operation::ChangeEntry(target), path)?;
        }
        if follows != Follows::Never {
            self.judge(Operation::ChangeFile(target), path)?;
        }
        Ok(())
    }

    fn open(&self, rule: Rule) -> PyResult<()> {
        let (Ok(mode), Ok(flags)) = (
            self.args.get_borrowed_item(1),
            self.args.get_borrowed_item(2),
        ) else {
            return self.deny(Reason::Event);
        };
        // Only `os.open` leaves the mode out, and only it takes a `dir_fd`.
        let base = if mode.is_none() {
            call_notes::base()
        } else {
            Base::CurrentDir
        };
        let reads = !self.reads_passed && is_open_for_reading(self.args, rule);
        if reads && self.probe.is_none() && !self.config.policy().checks_reads() {
            return Ok(());
        }
        // All but `io.FileIO` pass the text of a path-like object; `io.FileIO` passes the object,
        // and asks it again itself.
        let target = decode::name_at(self.args, 0, true, PathLikes::AskedLater)?;
        let target = target.target(base);
        let operation = if reads {
            Operation::Read(target)
        } else if is_open_for_appending(mode, &flags) {
            Operation::OpenForAppending(target)
        } else {
            Operation::OpenForWriting(target)
        };
        self.judge(operation, 0)
    }

    /// Judges an `ioctl` by its possible effect on the file behind the descriptor.
    fn control(&self) -> PyResult<()> {
        let request = self.args.get_borrowed_item(1);
        let Some(request) = request.ok().and_then(|request| raw::int_value(&request)) else {
            return self.deny(Reason::Event);
        };
        match control::effect(request) {
            Effect::None => Ok(()),
            Effect::Disturbs => self.deny(Reason::Event),
            Effect::Changes => {
                let target = self.name_at(0, true)?;
                let target = target.target(Base::CurrentDir);
                self.judge(Operation::ChangeFile(target), 0)
            }
        }
    }

    fn signalling(&self) -> PyResult<()> {
        let number = |index| raw::int_value(&self.args.get_item(index).ok()?);
        match number(1) {
            Some(request) if !has_signals_sent(request, number(2)) => Ok(()),
            _ => self.deny(Reason::Event),
        }
    }

    fn change_directory(&self) -> PyResult<()> {
        let left = self.active.first_dir();
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
        if self.args.len() < 2 {
            return self.deny(Reason::Event);
        }
        let (text, link) = (self.name_at(0, false)?, self.name_at(1, false)?);
        let at = link.target(decode::base_at(self.args, Some(2)));
        self.judge(
            Operation::LinkTo {
                text: text.name(),
                at,
            },
            0,
        )?;
        self.judge(Operation::MoveEntry(at), 1)
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
                self.config.policy().check(&Os, operation).allows()
            }
        });
        if allowed {
            Ok(())
        } else {
            self.deny(Reason::Event)
        }
    }
}

/// Returns whether an `open` that may write only adds to the end.
fn is_open_for_appending(mode: Borrowed<'_, '_, PyAny>, flags: &Bound<'_, PyAny>) -> bool {
    match mode.cast::<PyString>() {
        Ok(mode) => raw::fs_encode(mode).is_ok_and(|mode| open_appends(Some(mode.as_bytes()), 0)),
        Err(_) => raw::int_value(flags).is_some_and(|flags| open_appends(None, flags)),
    }
}
