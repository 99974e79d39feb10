//! One event: its arguments are decoded by its rule, and the policy is asked.

use std::ffi::OsString;

use super::arguments::{Arguments, Named, PathLikes, program};
use super::surroundings::{Reason, Surroundings};
use crate::policy::commands::Commands;
use crate::policy::environment::files_named;
use crate::policy::events;
use crate::policy::files::descriptors::{self, ControlEffect, has_signals_sent};
use crate::policy::files::path;
use crate::policy::files::path::{Base, Name, Target};
use crate::policy::learn::Need;
use crate::policy::operation::{Operation, Verdict, Why};
use crate::policy::rules::{PathArg, Rule};
use crate::policy::rules_02::RuleSet;
use crate::policy::written::values::Switch;

/// The bits of a mode that say what kind of file it is, and the kinds of devices: inode(7).
const FORMAT: i64 = 0o170_000;
const CHARACTERS: i64 = 0o020_000;
const BLOCKS: i64 = 0o060_000;

/// Judges an event by its rule, or by the lack of one.
pub fn judge_any<S: Surroundings>(event: &S, rule: Option<Rule>) -> Result<(), S::Error> {
    if let Some(rule) = rule {
        return judge(event, rule);
    }
    let name = std::str::from_utf8(event.event());
    if name.is_ok_and(|name| events::known(name).is_some()) {
        return Ok(());
    }
    event.need(Need::Switch(Switch::UnknownEvents));
    match event.policy().has(Switch::UnknownEvents) {
        true => Ok(()),
        false => Judge(event).deny(Reason::Switch(Why::Switch(Switch::UnknownEvents))),
    }
}

/// Judges an event by its rule.
#[inline]
pub fn judge<S: Surroundings>(event: &S, rule: Rule) -> Result<(), S::Error> {
    let judge = Judge(event);
    match rule {
        Rule::Deny if event.is_own() => Ok(()),
        Rule::Deny => judge.deny(Reason::Event),
        Rule::LowLevelStart if event.is_start_covered() => Ok(()),
        Rule::Start | Rule::LowLevelStart => judge.start(),
        Rule::Entries(paths) => {
            judge.paths(paths)?;
            judge.moved_link(paths)
        }
        Rule::Read(paths) => judge.paths(paths),
        Rule::Node(paths) => judge.node(paths),
        Rule::SetVariable => {
            judge.set_variable()?;
            judge.read_by_variable()
        }
        Rule::RemoveVariable => {
            event.before_removal();
            judge.set_variable()
        }
        Rule::RemoveVariables => {
            event.before_removal();
            judge.remove_variables()
        }
        Rule::Network(kind) => judge.network(kind),
        Rule::Socket => judge.socket(),
        Rule::Bind => judge.bind(),
        Rule::Fork => judge.fork(),
        Rule::End if event.is_in_copy() => Ok(()),
        Rule::End => judge.deny(Reason::Event),
        Rule::Signalling => judge.signalling(),
        Rule::Limits if judge.args().is_none(2) => Ok(()),
        Rule::Limits => judge.deny(Reason::Event),
        Rule::Import => judge.import(),
        Rule::Exec => judge.exec(),
        Rule::Thread => judge.thread(),
        Rule::Native => judge.native(),
        Rule::WriteBytes => judge.deny(Reason::Switch(Why::TooMuch)),
        Rule::Open => judge.open(),
        Rule::Control => judge.control(),
        Rule::ChangeDirectory => judge.change_directory(),
        Rule::Symlink => judge.symlink(),
        Rule::Database => judge.database(),
        Rule::SetAttribute => judge.set_attribute(),
    }
}

pub(super) struct Judge<'a, S>(pub(super) &'a S);

impl<'a, S: Surroundings> Judge<'a, S> {
    pub(super) fn args(&self) -> &'a S::Arguments {
        self.0.arguments()
    }

    pub(super) fn name_at(
        &self,
        index: usize,
        descriptor: bool,
    ) -> Result<<S::Arguments as Arguments>::Name<'a>, S::Error> {
        self.args().name(index, descriptor, PathLikes::CheckedAgain)
    }

    #[inline]
    pub(super) fn deny(&self, reason: Reason) -> Result<(), S::Error> {
        self.deny_operation(reason, None)
    }

    fn deny_operation(
        &self,
        reason: Reason,
        operation: Option<Operation<'_>>,
    ) -> Result<(), S::Error> {
        if self.0.excuses(reason)? {
            return Ok(());
        }
        if !self.0.observes() && excused_by_import(self.0, reason)? {
            return Ok(());
        }
        self.0.deny(reason, operation)
    }

    #[inline]
    pub(super) fn check(&self, operation: Operation<'_>) -> Verdict {
        self.0.policy().check(self.0.fs(), operation)
    }

    /// Judges an operation; `path` is the position of the path that a denial names.
    pub(super) fn judge(&self, operation: Operation<'_>, path: usize) -> Result<(), S::Error> {
        self.0.note(operation);
        match self.check(operation) {
            Ok(()) => Ok(()),
            // An event without the argument that its rule needs did not come from CPython.
            Err(_) if path >= self.args().count() => self.deny(Reason::Event),
            Err(why @ (Why::Unapproved | Why::Unreadable)) => {
                let policy = self.0.policy();
                let everywhere = policy.denies_everywhere(self.0.fs(), operation);
                self.deny_operation(Reason::Path(path, everywhere.unwrap_or(why)), Some(operation))
            }
            Err(why) => self.deny_operation(Reason::Path(path, why), Some(operation)),
        }
    }

    /// Judges an operation that is allowed or denied as such.
    #[inline]
    pub(super) fn switch(&self, operation: Operation<'_>) -> Result<(), S::Error> {
        self.0.note(operation);
        self.check(operation).or_else(|why| self.deny(Reason::Switch(why)))
    }

    /// A copy of the process would wait for the locks of its other threads.
    fn fork(&self) -> Result<(), S::Error> {
        if self.0.has_other_threads()? {
            self.deny(Reason::Event)?;
        }
        self.0.before_fork()
    }

    fn set_variable(&self) -> Result<(), S::Error> {
        let name = self.name_at(0, false)?;
        self.switch(Operation::SetVariable(name.name()))
    }

    /// Judges the files that the variable names and that native code reads later, without an event.
    fn read_by_variable(&self) -> Result<(), S::Error> {
        if !self.0.records() && !self.0.policy().checks_reads() {
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

    fn remove_variables(&self) -> Result<(), S::Error> {
        let environment = self.0.policy().environment();
        let may_set = |name: &OsString| environment.may_set(name.as_encoded_bytes());
        let names = std::env::vars_os().map(|(name, _)| name);
        let (free, kept): (Vec<_>, Vec<_>) = names.partition(may_set);
        if !kept.is_empty() {
            self.deny(Reason::Switch(Why::Environment))?;
        }
        for name in &free {
            let name = Name::Path(name.as_encoded_bytes());
            self.0.note(Operation::SetVariable(name));
        }
        Ok(())
    }

    fn start(&self) -> Result<(), S::Error> {
        // The program is read only if the answer depends on it.
        let program = match self.0.policy().commands() {
            Commands::None | Commands::All if !self.0.records() => None,
            _ => program(self.0.fs(), self.0.event(), self.args(), &|| self.0.own_path()),
        };
        self.switch(Operation::Start(program.as_deref()))?;
        self.0.allow_start();
        Ok(())
    }

    /// A thread runs under the guard that it carries; the rules of fastaudit 0.2 let an event loop
    /// start its own as well.
    fn thread(&self) -> Result<(), S::Error> {
        self.0.need(Need::Switch(Switch::Threads));
        if self.args().count() > 0 {
            let policy = self.0.policy();
            let passes = (policy.has(Switch::Threads) && self.0.carries_guard())
                || (policy.rules() == RuleSet::Strict && self.0.is_of_event_loop()?);
            if passes {
                return Ok(());
            }
        }
        self.deny(Reason::Switch(Why::Switch(Switch::Threads)))
    }

    fn native(&self) -> Result<(), S::Error> {
        let Some(callee) = self.args().text(1) else {
            return self.deny(Reason::Switch(Why::Native));
        };
        if self.0.records() {
            self.0.need(Need::Native(self.0.package_being_called()));
        }
        match self.check(Operation::CallNative(&callee)) {
            Ok(()) => Ok(()),
            Err(_) if self.is_of_named_package() => Ok(()),
            Err(why) => {
                // A hint names the package.
                self.0.package_being_called();
                self.deny(Reason::Switch(why))
            }
        }
    }

    /// Returns whether a native callee is of a package that the policy names, under whatever name
    /// it goes.
    fn is_of_named_package(&self) -> bool {
        let Some(module) = self.0.module_being_called() else {
            return false;
        };
        let policy = self.0.policy();
        let packages = &policy.rest().packages;
        packages.have(&module) || policy.calls_native_of(&module, || self.0.installed())
    }

    /// Judges an `ioctl` by its possible effect on the file behind the descriptor.
    fn control(&self) -> Result<(), S::Error> {
        let Some(request) = self.args().integer(1) else {
            return self.deny(Reason::Event);
        };
        match descriptors::effect(request) {
            ControlEffect::None => Ok(()),
            ControlEffect::Disturbs => self.deny(Reason::Event),
            ControlEffect::Changes => {
                let target = self.name_at(0, true)?;
                let target = target.target(Base::CurrentDir);
                self.judge(Operation::ChangeFile(target), 0)
            }
        }
    }

    fn signalling(&self) -> Result<(), S::Error> {
        match self.args().integer(1) {
            Some(request) if !has_signals_sent(request, self.args().integer(2)) => Ok(()),
            _ => self.deny(Reason::Event),
        }
    }

    /// A device leads to the hardware, past all files.
    fn node(&self, paths: &[PathArg]) -> Result<(), S::Error> {
        let kind = self.args().integer(1).map(|mode| mode & FORMAT);
        match kind {
            Some(CHARACTERS | BLOCKS) => self.deny(Reason::Event)?,
            Some(_) => {}
            None if self.args().is_none(1) => {}
            None => self.deny(Reason::Event)?,
        }
        self.paths(paths)
    }

    fn set_attribute(&self) -> Result<(), S::Error> {
        let allowed = self.args().with_encoded(1, |name| match name {
            Some(b"__code__") => self.0.only_marks_awaitable(),
            Some(name) => self.check(Operation::SetAttribute(name)).is_ok(),
            None => false,
        });
        match allowed {
            Some(true) => Ok(()),
            _ => self.deny(Reason::Event),
        }
    }

    fn import(&self) -> Result<(), S::Error> {
        let Some(module) = self.args().text(0) else {
            return self.deny(Reason::Event);
        };
        if self.args().count() > 1 && !self.args().is_none(1) {
            self.load(&module)?;
        }
        if !self.0.records() && !self.0.policy().restricts_imports() {
            return Ok(());
        }
        self.import_of(&module)
    }

    /// Judges loading an extension module by the place of its file.
    fn load(&self, module: &str) -> Result<(), S::Error> {
        let name = self.args().name(1, false, PathLikes::CheckedAgain)?;
        let Name::Path(file) = name.name() else {
            return self.deny(Reason::Event);
        };
        let fs = self.0.fs();
        let Some(landing) = path::resolve(fs, file, Base::CurrentDir) else {
            return self.deny(Reason::Event);
        };
        let origin = self.0.origin(file, &landing);
        match self.0.policy().load(fs, module, &landing, origin) {
            Ok(()) => Ok(()),
            Err(Why::Native) => {
                self.0.need(Need::of_native(module));
                self.deny(Reason::Switch(Why::Native))
            }
            Err(_) => self.deny(Reason::Event),
        }
    }

    /// Judges the code of a module that is imported, by `importlib` too, which raises no `import`.
    fn exec(&self) -> Result<(), S::Error> {
        if !self.0.policy().restricts_imports() {
            return Ok(());
        }
        self.0.with_module_being_loaded(|module| match module {
            Some(module) => self.import_of(module),
            None => Ok(()),
        })?
    }

    fn import_of(&self, module: &str) -> Result<(), S::Error> {
        self.0.note(Operation::Import { module, in_turn: false });
        let denied = |in_turn| {
            let operation = Operation::Import { module, in_turn };
            self.check(operation).is_err()
        };
        // The importing code is looked at only where it matters.
        if denied(false) && (denied(true) || !self.0.is_in_turn()?) {
            return self.deny(Reason::Switch(Why::Import));
        }
        Ok(())
    }
}

/// Returns whether a denied event is part of importing a package whose import may do what is
/// denied.
#[inline]
fn excused_by_import<S: Surroundings>(event: &S, reason: Reason) -> Result<bool, S::Error> {
    let policy = event.policy();
    let rest = policy.rest();
    // They may have to be read, for denials that an import can be the reason of.
    let packages = &rest.packages;
    if !packages.is_empty() && is_imported(event, || packages.imports(), reason)? {
        return Ok(true);
    }
    let named = &rest.import_allow;
    if policy.rules() == RuleSet::Classic {
        return Ok(!named.is_empty() && is_imported(event, || named, reason)?);
    }
    if event.event().starts_with(b"audit_perms.") || loads_own(event, reason) {
        return Ok(false);
    }
    if !named.is_empty() && event.is_importing_named(named)? {
        return Ok(true);
    }
    let declared = event.declared_loading_native();
    Ok(!declared.is_empty() && is_imported(event, || declared, reason)?)
}

/// Tells the same by the packages. Denials of blocked and protected files, and of the guard's own
/// events, stay.
fn is_imported<'a, S: Surroundings>(
    event: &S,
    packages: impl FnOnce() -> &'a [String],
    reason: Reason,
) -> Result<bool, S::Error> {
    if reason.why().is_some_and(Why::outlasts_imports) {
        return Ok(false);
    }
    let name = std::str::from_utf8(event.event());
    if !name.is_ok_and(events::is_excused_by_import) || loads_own(event, reason) {
        return Ok(false);
    }
    event.is_importing(packages())
}

/// Returns whether a native module that the guarded code may have written is loaded.
fn loads_own(event: &impl Surroundings, reason: Reason) -> bool {
    event.event() == b"import" && reason == Reason::Event
}
