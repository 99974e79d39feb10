//! The verdict on one operation.

use std::sync::{Arc, OnceLock};

use ahash::AHashSet;

use super::commands::Commands;
use super::distributions::InstalledPackages;
use super::environment::Environment;
use super::network::Network;
use super::operation::{Aim, allow_if};
pub use super::operation::{Operation, Verdict, Why};
use super::packages::Packages;
use super::rules;
use super::rules_02::RuleSet;
use super::written::values::{Switch, Switches};
use crate::policy::files::fs::FileSystem;
use crate::policy::files::path::{Name, Resolved, Target};
use crate::policy::files::places::Roots;
use crate::policy::files::places::{Blocked, Governing, Protected, Temporary, TemporaryPaths};
use crate::policy::written::spec::Imports;
use crate::policy::written::values::{Choice, is_within_module};

/// The rules of a guard. Immutable once built.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub(super) roots: Roots,
    /// `None`: anywhere.
    pub(super) read: Option<Roots>,
    pub(super) blocked: Blocked,
    pub(super) protected: Protected,
    pub(super) temporary: Temporary,
    pub(super) environment: Environment,
    pub(super) network: Network,
    pub(super) commands: Commands,
    pub(super) imports: Option<Imports>,
    pub(super) native: Option<Choice>,
    /// The modules of the packages that `native` names, and of what they require.
    pub(super) native_modules: OnceLock<AHashSet<String>>,
    pub(super) rest: Rest,
    pub(super) rules: RuleSet,
    /// True if a root approves its own entry, not just the entries below it.
    pub(super) approves_root_entries: bool,
    /// True if any directory may become the current one, as no root follows it.
    pub(super) any_directory: bool,
    /// The rules while an allowed package is imported: the same at all places.
    pub(super) while_importing: Option<Box<Policy>>,
}

/// The rules of a guard that are not about paths and names.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    /// Packages whose import may do what is denied otherwise.
    pub import_allow: Vec<String>,
    pub switches: Switches,
    /// True if what native code does is not judged.
    pub native_unjudged: bool,
    /// The bytes that may be written to files.
    pub max_bytes: Option<u64>,
    /// Packages that may do what they need.
    pub packages: Packages,
}

impl Policy {
    /// The policy that approves writing below these roots, and reading anywhere.
    pub fn new(roots: Roots) -> Self {
        Self { roots, ..Self::default() }
    }

    /// The policy of fastaudit 0.2, which approves its roots' own entries as well. Importing one of
    /// the packages may do what is denied otherwise.
    pub fn strict(roots: Roots, import_allow: Vec<String>) -> Self {
        Self {
            rules: RuleSet::Strict,
            environment: Environment::insensitive(),
            approves_root_entries: true,
            rest: Rest { import_allow, ..Rest::default() },
            ..Self::new(roots)
        }
    }

    /// Returns the policy with these packages, whose import may do what is denied otherwise.
    pub fn importing(mut self, import_allow: Vec<String>) -> Self {
        self.rest.import_allow = import_allow;
        self
    }

    /// Returns the policy with packages that may do what they need, with threads under the same
    /// guard.
    pub fn with_packages(mut self, packages: Packages) -> Self {
        if !packages.is_empty() {
            self.rest.switches.set(Switch::Threads, true);
        }
        self.rest.packages = packages;
        self
    }

    #[inline]
    pub fn rules(&self) -> RuleSet {
        self.rules
    }

    /// Returns the policy with reading only below these roots.
    pub fn reading(mut self, roots: Option<Roots>) -> Self {
        self.read = roots;
        self
    }

    /// Returns the policy that keeps the files from writing by which it is governed.
    pub fn keeping(mut self, files: &Arc<Governing>) -> Self {
        self.protected.add_files(Arc::clone(files));
        let importing = self.while_importing.take();
        self.while_importing = importing.map(|policy| Box::new(policy.keeping(files)));
        self
    }

    /// Returns whether nobody may import a module, whatever else is allowed.
    pub fn blocks_import(&self, module: &str) -> bool {
        let imports = self.imports.as_ref();
        imports.is_some_and(|imports| {
            let mut blocked = imports.block.iter();
            blocked.any(|name| is_within_module(module, name))
        })
    }

    /// Returns whether a root approves its own entry, not just the entries below it.
    pub fn approves_root_entries(&self) -> bool {
        self.approves_root_entries
    }

    /// Returns whether any directory may become the current one.
    pub fn allows_any_directory(&self) -> bool {
        self.any_directory
    }

    /// The files that govern the code.
    pub fn governing(&self) -> &Governing {
        self.protected.files()
    }

    /// Returns the policy with these environment variables.
    pub fn setting(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// The same with a root for everything.
    pub(super) fn everywhere(&self) -> Self {
        Self { roots: Roots::everywhere(), read: None, ..self.clone() }
    }

    /// Returns the reason that denies an operation which no root could approve, wherever it is.
    pub fn denies_everywhere(&self, fs: &impl FileSystem, operation: Operation<'_>) -> Option<Why> {
        self.while_importing.as_ref()?.check(fs, operation).err()
    }

    /// Returns the reason beside the roots that denies an operation, so that more roots would not
    /// help. It makes a policy, which is too slow for anything but the words of a denial.
    #[cold]
    pub fn denies_beside_roots(
        &self,
        fs: &impl FileSystem,
        operation: Operation<'_>,
    ) -> Option<Why> {
        self.everywhere().check(fs, operation).err()
    }

    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    pub fn restricts_imports(&self) -> bool {
        self.imports.is_some()
    }

    /// Returns whether all native code may be called: the policy says so, or lets ordinary packages
    /// act where their acts are judged.
    pub fn calls_all_native(&self) -> bool {
        self.native == Some(Choice::All(true)) || self.rest.packages.have_all()
    }

    /// The native modules that may be called; `None` if the rules alone decide.
    pub fn native(&self) -> Option<&Choice> {
        self.native.as_ref()
    }

    /// Returns whether native code of this top-level module, or directory, may be called, as it
    /// belongs to an installed package that is named, or that such a package requires.
    pub fn calls_native_of(
        &self,
        module: &str,
        installed: impl FnOnce() -> Arc<InstalledPackages>,
    ) -> bool {
        let Some(Choice::Named(names)) = &self.native else {
            return self.calls_all_native();
        };
        let modules = self.native_modules.get_or_init(|| {
            // A name with a dot stands for a part alone.
            let packages = names.iter().filter(|name| !name.contains('.'));
            installed().found().modules_of(packages.map(String::as_str))
        });
        modules.contains(module)
    }

    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    pub fn rest(&self) -> &Rest {
        &self.rest
    }

    #[inline]
    pub fn has(&self, switch: Switch) -> bool {
        self.rest.switches.has(switch)
    }

    /// Returns whether the policy restricts operations that fastaudit 0.1 lets pass: reading, the
    /// network, imports, unknown events.
    pub fn restricts_more(&self) -> bool {
        self.checks_reads()
            || !self.network.is_open()
            || self.imports.is_some()
            || !self.has(Switch::UnknownEvents)
            || self.rules == RuleSet::Strict
    }

    pub fn checks_reads(&self) -> bool {
        self.read.is_some() || !self.blocked.is_empty()
    }

    /// Returns whether anything may be written at all.
    pub fn may_write(&self) -> bool {
        !self.roots.is_empty()
    }

    /// Returns the policy with directories for temporary files, which may be written and read if
    /// anything may be written at all.
    pub fn with_temporary(mut self, directories: &Arc<TemporaryPaths>) -> Self {
        if self.may_write() {
            self.temporary.set_own(directories);
        }
        self
    }

    /// Returns whether a place is in a directory for temporary files of its own.
    pub fn is_temporary(&self, place: &Resolved) -> bool {
        self.temporary.own().hold(place.as_bytes())
    }

    /// Returns whether files may be made and read in a directory.
    pub fn may_use(&self, fs: &impl FileSystem, directory: &[u8]) -> bool {
        let file = [directory, b"/file"].concat();
        let file = Target::path(&file);
        self.check(fs, Operation::ChangeEntry(file)).is_ok()
            && self.check(fs, Operation::Read(file)).is_ok()
    }

    /// Returns whether a directory could be one for temporary files: nothing blocks it.
    pub fn could_use(&self, fs: &impl FileSystem, directory: &Resolved) -> bool {
        self.everywhere().may_use(fs, directory.as_bytes())
    }

    /// Returns the policy that native code is judged by: if anything may be written, its packages may
    /// write what they keep in the directories for temporary files.
    pub fn for_native_code(
        self: &Arc<Self>,
        temporary: impl FnOnce() -> Vec<Resolved>,
    ) -> Arc<Self> {
        if !self.may_write() || !self.rest.packages.keep_any() {
            return Arc::clone(self);
        }
        let mut policy = Self::clone(self);
        let packages = policy.rest.packages.clone();
        policy.temporary.add_kept(packages, temporary());
        Arc::new(policy)
    }

    pub fn check(&self, fs: &impl FileSystem, operation: Operation<'_>) -> Verdict {
        match operation {
            Operation::ChangeEntry(target) => self.change(fs, target, Aim::Entry),
            Operation::MoveEntry(target) => self.change(fs, target, Aim::Moved),
            Operation::ChangeFile(target) => self.change(fs, target, Aim::File),
            Operation::ChangePlace(target) => self.change(fs, target, Aim::Place),
            Operation::OpenForWriting(target) => self.open(fs, target, false),
            Operation::OpenForAppending(target) => self.open(fs, target, true),
            Operation::Read(target) => self.read(fs, target),
            Operation::Look(target) => self.look(fs, target),
            Operation::ChangeDirectory { to, left } => self.enter(fs, to, left),
            Operation::LinkTo { text, at } => self.link(fs, text, at),
            Operation::OpenDatabase(Name::Path(name)) => self.open_database(fs, name),
            Operation::OpenDatabase(_) => Err(Why::Unapproved),
            Operation::SetVariable(Name::Path(name)) => {
                let packages = &self.rest.packages;
                let allowed = self.environment.may_set(name) || packages.may_set(name);
                allow_if(allowed, Why::Environment)
            }
            Operation::SetVariable(_) => Err(Why::Environment),
            Operation::UseNetwork(reach) => match self.network.denies(fs, reach) {
                Some(part) => Err(Why::Network(part)),
                None => Ok(()),
            },
            Operation::Import { module, in_turn } => {
                let imports = self.imports.as_ref();
                let allowed = imports.is_none_or(|rules| may_import(rules, module, in_turn));
                allow_if(allowed, Why::Import)
            }
            Operation::CallNative(module) => self.call_native(module),
            Operation::Start(program) => {
                let allowed = match (&self.commands, program) {
                    (Commands::All, _) => true,
                    (commands, Some(program)) => commands.allow(fs, program),
                    (_, None) => false,
                };
                allow_if(allowed, Why::Command)
            }
            Operation::SetAttribute(name) => {
                allow_if(rules::is_ordinary_attribute(name), Why::Unapproved)
            }
        }
    }

    /// Judges loading an extension module. Below a root its file may be the guarded code's own, so
    /// that it may be loaded there only where packages are installed.
    pub fn load(
        &self,
        fs: &impl FileSystem,
        module: &str,
        file: &Resolved,
        origin: ModuleOrigin,
    ) -> Verdict {
        match origin {
            ModuleOrigin::Installed => Ok(()),
            _ if self.contains(fs, file) => Err(Why::Unapproved),
            ModuleOrigin::Known => Ok(()),
            ModuleOrigin::Unknown => self.call_native(module),
        }
    }

    fn call_native(&self, module: &str) -> Verdict {
        let native = self.native.as_ref();
        let allowed = native.is_some_and(|native| native.has_module(module));
        allow_if(allowed || self.calls_all_native(), Why::Native)
    }
}

/// The place that the file of an extension module is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleOrigin {
    /// A directory that packages are installed in, or one that an editable install leads to.
    Installed,
    /// A directory that the host imports modules from.
    Known,
    /// Anywhere else.
    Unknown,
}

/// Returns whether a module may be imported. The imports of an installed module are not the guarded
/// code's choice.
fn may_import(imports: &Imports, module: &str, in_turn: bool) -> bool {
    let is_blocked = |name: &String| is_within_module(module, name);
    // A package that an allowed module is in is imported with it.
    let holds_allowed = || match &imports.allow {
        Choice::All(_) => false,
        Choice::Named(names) => names.iter().any(|name| is_within_module(name, module)),
    };
    !imports.block.iter().any(is_blocked)
        && (in_turn || imports.allow.has_module(module) || holds_allowed())
}
