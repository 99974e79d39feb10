//! The verdict on one operation.

use std::sync::{Arc, OnceLock};

use ahash::AHashSet;

use super::commands::Commands;
use super::distributions::Installed;
use super::environment::Environment;
use super::network::Network;
pub use super::operation::{Operation, Verdict, Why};
use super::packages::Packages;
use super::rules;
use super::rules_02::RuleSet;
use crate::policy::files::descriptors;
use crate::policy::files::fs::FileSystem;
use crate::policy::files::opened::Place;
use crate::policy::files::opening::is_standing_device;
use crate::policy::files::path::{self, Base, Name, Resolved, Target};
use crate::policy::files::places::{Blocked, Protected, Temporary};
use crate::policy::files::roots::Roots;
use crate::policy::sql::names::{self, Database, UriTarget};
use crate::policy::sql::write_ahead_log;
use crate::policy::written::spec::Imports;
use crate::policy::written::values::{Choice, is_within_module};

/// The rules of a guard. Immutable once built.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub(super) roots: Roots,
    /// `None`: anywhere.
    pub(super) read: Option<Roots>,
    blocked: Blocked,
    protected: Protected,
    temporary: Temporary,
    pub(super) environment: Environment,
    pub(super) network: Network,
    pub(super) commands: Commands,
    pub(super) imports: Option<Imports>,
    pub(super) native: Option<Choice>,
    /// The modules of the packages that `native` names, and of what they require.
    pub(super) native_modules: OnceLock<AHashSet<String>>,
    pub(super) rest: Rest,
    rules: RuleSet,
    /// True if a root approves its own entry, not just the entries below it.
    pub(super) approves_root_entries: bool,
    /// The rules while an allowed package is imported: the same at all places.
    pub(super) while_importing: Option<Box<Policy>>,
}

/// The rules of a guard that are not about paths and names.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    /// Packages whose import may do what is denied otherwise.
    pub import_allow: Vec<String>,
    /// True if threads may be started, under the same guard.
    pub threads: bool,
    /// True if events that the tables do not name are denied.
    pub denies_unknown: bool,
    /// The bytes that may be written to files.
    pub max_bytes: Option<u64>,
    /// Packages that may do what they need.
    pub packages: Packages,
}

impl Policy {
    /// The policy that approves writing below these roots, and reading anywhere.
    #[must_use]
    pub fn new(roots: Roots) -> Self {
        Self {
            roots,
            ..Self::default()
        }
    }

    /// The policy of fastaudit 0.2, which approves its roots' own entries as well. Importing one of
    /// the packages may do what is denied otherwise.
    #[must_use]
    pub fn strict(roots: Roots, import_allow: Vec<String>) -> Self {
        Self {
            rules: RuleSet::Strict,
            environment: Environment::Insensitive,
            approves_root_entries: true,
            rest: Rest {
                import_allow,
                ..Rest::default()
            },
            ..Self::new(roots)
        }
    }

    /// Returns the policy with these packages, whose import may do what is denied otherwise.
    #[must_use]
    pub fn importing(mut self, import_allow: Vec<String>) -> Self {
        self.rest.import_allow = import_allow;
        self
    }

    /// Returns the policy with packages that may do what they need, with threads under the same
    /// guard.
    #[must_use]
    pub fn with_packages(mut self, packages: Packages) -> Self {
        self.rest.threads |= !packages.is_empty();
        self.rest.packages = packages;
        self
    }

    /// The rules that events are judged by.
    #[must_use]
    #[inline]
    pub fn rules(&self) -> RuleSet {
        self.rules
    }

    /// Returns the policy with reading only below these roots.
    #[must_use]
    pub fn reading(mut self, roots: Option<Roots>) -> Self {
        self.read = roots;
        self
    }

    /// Returns the policy with blocked places and protected names.
    #[must_use]
    pub fn without(mut self, blocked: Blocked, protected: Protected) -> Self {
        self.blocked = blocked;
        self.protected = protected;
        self
    }

    /// Returns the policy with these environment variables.
    #[must_use]
    pub fn setting(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Returns the policy with these rules for the network.
    #[must_use]
    pub fn reaching(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Returns the policy with these modules to import, and these native ones to call.
    #[must_use]
    pub fn loading(mut self, imports: Imports, native: Choice) -> Self {
        let all = imports.allow == Choice::All(true) && imports.block.is_empty();
        self.imports = (!all).then_some(imports);
        self.native = Some(native);
        self
    }

    /// Returns the policy with the remaining fields of a `Policy`, whose roots approve their own
    /// entries.
    #[must_use]
    pub fn with_rest(mut self, rest: Rest) -> Self {
        self.rest = rest;
        self.approves_root_entries = true;
        if !self.rest.import_allow.is_empty() {
            self.while_importing = Some(Box::new(Self {
                roots: Roots::everywhere(),
                read: None,
                ..self.clone()
            }));
        }
        self
    }

    /// Returns the reason that denies an operation which no root could approve, wherever it is.
    pub fn denies_everywhere(&self, fs: &impl FileSystem, operation: Operation<'_>) -> Option<Why> {
        match self.while_importing.as_ref()?.check(fs, operation) {
            Verdict::Allow => None,
            Verdict::Deny(why) => Some(why),
        }
    }

    /// Returns the reason beside the roots that denies an operation, so that more roots would not
    /// help. It makes a policy, which is too slow for anything but the words of a denial.
    #[cold]
    pub fn denies_beside_roots(
        &self,
        fs: &impl FileSystem,
        operation: Operation<'_>,
    ) -> Option<Why> {
        let everywhere = Self {
            roots: Roots::everywhere(),
            read: None,
            ..self.clone()
        };
        match everywhere.check(fs, operation) {
            Verdict::Allow => None,
            Verdict::Deny(why) => Some(why),
        }
    }

    /// Returns the policy with these programs.
    #[must_use]
    pub fn starting(mut self, commands: Commands) -> Self {
        self.commands = commands;
        self
    }

    /// The programs that may be started.
    #[must_use]
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Returns whether some modules may not be imported.
    #[must_use]
    pub fn restricts_imports(&self) -> bool {
        self.imports.is_some()
    }

    /// Returns whether all native code may be called.
    #[must_use]
    pub fn calls_all_native(&self) -> bool {
        self.native == Some(Choice::All(true))
    }

    /// The native modules that may be called; `None` if the rules alone decide.
    #[must_use]
    pub fn native(&self) -> Option<&Choice> {
        self.native.as_ref()
    }

    /// Returns whether native code of this top-level module, or directory, may be called, as it
    /// belongs to an installed package that is named, or that such a package requires.
    pub fn calls_native_of(
        &self,
        module: &str,
        installed: impl FnOnce() -> Arc<Installed>,
    ) -> bool {
        let Some(Choice::Named(names)) = &self.native else {
            return self.calls_all_native();
        };
        let modules = self.native_modules.get_or_init(|| {
            // A name with a dot stands for a part alone.
            let packages = names.iter().filter(|name| !name.contains('.'));
            installed().modules_of(packages.map(String::as_str))
        });
        modules.contains(module)
    }

    /// The environment variables that may be set.
    #[must_use]
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The rules for the network.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The rules that are not about paths and names.
    #[must_use]
    pub fn rest(&self) -> &Rest {
        &self.rest
    }

    /// Returns whether the policy restricts operations that fastaudit 0.1 lets pass: reading, the
    /// network, imports, unknown events.
    #[must_use]
    pub fn restricts_more(&self) -> bool {
        self.checks_reads()
            || !self.network.is_open()
            || self.imports.is_some()
            || self.rest.denies_unknown
            || self.rules == RuleSet::Strict
    }

    /// Returns whether reading is restricted at all.
    #[must_use]
    pub fn checks_reads(&self) -> bool {
        self.read.is_some() || !self.blocked.is_empty()
    }

    /// Returns whether anything may be written anywhere.
    #[must_use]
    pub fn may_write(&self) -> bool {
        !self.roots.is_empty()
    }

    /// Returns the policy with a temporary directory of its own, which may be written and read.
    #[must_use]
    pub fn with_temporary(&self, directory: &Resolved) -> Self {
        let mut policy = self.clone();
        policy.temporary.add(directory);
        policy
    }

    /// Judges an operation.
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
            Operation::OpenDatabase(_) => Verdict::Deny(Why::Unapproved),
            Operation::SetVariable(Name::Path(name))
                if self.environment.may_set(name) || self.packages_may_set(name) =>
            {
                Verdict::Allow
            }
            Operation::SetVariable(_) => Verdict::Deny(Why::Environment),
            Operation::UseNetwork(reach) => match self.network.denies(fs, reach) {
                Some(part) => Verdict::Deny(Why::Network(part)),
                None => Verdict::Allow,
            },
            Operation::Import { module, in_turn } => match &self.imports {
                Some(imports) if !may_import(imports, module, in_turn) => {
                    Verdict::Deny(Why::Import)
                }
                _ => Verdict::Allow,
            },
            Operation::CallNative(module) => match &self.native {
                Some(native) if native.has_module(module) => Verdict::Allow,
                _ => Verdict::Deny(Why::Native),
            },
            Operation::Start(program) => {
                let allowed = match (&self.commands, program) {
                    (Commands::All, _) => true,
                    (commands, Some(program)) => commands.allow(fs, program),
                    (_, None) => false,
                };
                if allowed {
                    Verdict::Allow
                } else {
                    Verdict::Deny(Why::Command)
                }
            }
            Operation::SetAttribute(name) => Verdict::when(rules::is_ordinary_attribute(name)),
        }
    }

    /// Judges loading an extension module. Below a root its file may be the guarded code's own, so
    /// that it may be loaded there only where packages are installed.
    pub fn load(
        &self,
        fs: &impl FileSystem,
        module: &str,
        file: &Resolved,
        origin: Origin,
    ) -> Verdict {
        match origin {
            Origin::Installed => Verdict::Allow,
            _ if self.contains(fs, file) => Verdict::Deny(Why::Unapproved),
            Origin::Known => Verdict::Allow,
            Origin::Unknown => match &self.native {
                Some(native) if native.has_module(module) => Verdict::Allow,
                _ => Verdict::Deny(Why::Native),
            },
        }
    }

    fn packages_may_set(&self, name: &[u8]) -> bool {
        std::str::from_utf8(name).is_ok_and(|name| self.rest.packages.may_set(name))
    }

    fn change(&self, fs: &impl FileSystem, target: Target<'_>, aim: Aim) -> Verdict {
        match target.name {
            Name::Path(path) => self.change_path(fs, path, target.base, aim),
            Name::Descriptor(fd) => self.change_open(fs, fd),
            Name::Unreadable => Verdict::Deny(Why::Unapproved),
        }
    }

    /// Judges by the directory that holds the changed entry, and by the blocked paths.
    fn change_path(&self, fs: &impl FileSystem, path: &[u8], base: Base, aim: Aim) -> Verdict {
        let name = path::split(path).1;
        let by_entry = match aim {
            Aim::Entry | Aim::Moved => !is_unnamed(name),
            Aim::Place => true,
            Aim::File => false,
        };
        let contained = if by_entry {
            parent(fs, path, base).map(|dir| self.contains_entry(fs, &dir, name))
        } else {
            path::resolve(fs, path, base).map(|landing| {
                // `tar` archives have attributes for ".": a root's own, where they are extracted.
                let is_place = aim == Aim::File && is_unnamed(name);
                self.contains_file(fs, &landing) || (is_place && self.contains(fs, &landing))
            })
        };
        let contained = contained.unwrap_or(false);
        Verdict::when(contained).and(|| self.restrict(fs, path, base, aim == Aim::Moved))
    }

    /// Judges a change of the file that a descriptor leads to.
    fn change_open(&self, fs: &impl FileSystem, fd: i32) -> Verdict {
        let path = match descriptors::to_approve(fs, fd) {
            Place::Nowhere => return Verdict::Allow,
            Place::At(path) => path,
            Place::Unknown => return Verdict::Deny(Why::Unapproved),
        };
        match self.change_path(fs, &path, Base::CurrentDir, Aim::File) {
            // A root's own attributes, as by the name ".".
            Verdict::Deny(Why::Unapproved)
                if self.roots.has(fs, &path) || self.temporary.hold(&path) =>
            {
                self.restrict(fs, &path, Base::CurrentDir, false)
            }
            verdict => verdict,
        }
    }

    /// Returns whether the path is a root, or below one or a temporary directory.
    fn contains(&self, fs: &impl FileSystem, path: &Resolved) -> bool {
        self.roots.contain(fs, path) || self.temporary.hold(path.as_bytes())
    }

    /// Returns whether the roots approve changing the entry of this name in a directory.
    fn contains_entry(&self, fs: &impl FileSystem, dir: &Resolved, name: &[u8]) -> bool {
        self.contains(fs, dir)
            || (self.approves_root_entries
                && !is_unnamed(name)
                && self.roots.has(fs, &dir.join(name)))
    }

    /// Returns whether the roots approve changing the file at this path.
    #[inline(always)]
    fn contains_file(&self, fs: &impl FileSystem, landing: &Resolved) -> bool {
        self.roots.contain_path(fs, landing.parent())
            || (self.approves_root_entries && self.roots.has(fs, landing.as_bytes()))
            || self.temporary.hold(landing.parent())
    }

    /// Judges by the blocked paths: the entry itself, and its target.
    #[inline]
    fn restrict(&self, fs: &impl FileSystem, path: &[u8], base: Base, moves: bool) -> Verdict {
        if self.blocked.is_empty() && self.protected.is_empty() {
            return Verdict::Allow;
        }
        self.restrict_names(fs, path, base, moves)
    }

    #[inline(never)]
    fn restrict_names(
        &self,
        fs: &impl FileSystem,
        path: &[u8],
        base: Base,
        moves: bool,
    ) -> Verdict {
        let (Some(landing), Some(dir)) = (path::resolve(fs, path, base), parent(fs, path, base))
        else {
            return Verdict::Deny(Why::Unapproved);
        };
        let entry = match path::split(path).1 {
            name if is_unnamed(name) => landing.as_bytes().into(),
            name => dir.join(name),
        };
        let places = [&entry[..], landing.as_bytes()];
        if places.iter().any(|place| self.blocked.holds(place))
            || (moves && self.blocked.is_below(&entry))
        {
            return Verdict::Deny(Why::Blocked);
        }
        if places.iter().any(|place| self.protected.holds(place))
            || (moves && self.protected.may_be_below(&entry))
        {
            return Verdict::Deny(Why::Protected);
        }
        Verdict::Allow
    }

    fn open(&self, fs: &impl FileSystem, target: Target<'_>, appends: bool) -> Verdict {
        let path = match target.name {
            Name::Path(path) => path,
            Name::Descriptor(_) => return Verdict::Allow,
            Name::Unreadable => return Verdict::Deny(Why::Unapproved),
        };
        let Some(landing) = path::resolve(fs, path, target.base) else {
            return Verdict::Deny(Why::Unapproved);
        };
        if self.contains_file(fs, &landing) {
            return self.restrict(fs, path, target.base, false);
        }
        let entry = parent(fs, path, target.base).map(|dir| dir.join(path::split(path).1));
        if entry.is_some_and(|entry| is_standing_device(fs, &entry, appends)) {
            return Verdict::Allow;
        }
        // A root itself, opened as a directory: `O_TMPFILE`, and `tempfile`, which names the
        // directory to `open` and hands it an opener. Without one of these it fails: a directory
        // cannot be opened for writing.
        let path_of_root = landing.as_bytes();
        let is_root = (self.roots.has(fs, path_of_root) || self.temporary.hold(path_of_root))
            && fs.is_dir(path_of_root);
        Verdict::when(is_root).and(|| self.restrict(fs, path, target.base, false))
    }

    fn read(&self, fs: &impl FileSystem, target: Target<'_>) -> Verdict {
        if !self.checks_reads() {
            return Verdict::Allow;
        }
        let path = match target.name {
            Name::Path(path) => path,
            Name::Descriptor(_) => return Verdict::Allow,
            Name::Unreadable => return Verdict::Deny(Why::Unreadable),
        };
        let Some(landing) = path::resolve(fs, path, target.base) else {
            return Verdict::Deny(Why::Unreadable);
        };
        // A link in a blocked directory is blocked itself, wherever it leads.
        if self.blocked.holds(landing.as_bytes())
            || (!self.blocked.is_empty()
                && parent(fs, path, target.base)
                    .is_none_or(|dir| self.blocked.holds(dir.as_bytes())))
        {
            return Verdict::Deny(Why::Blocked);
        }
        match &self.read {
            Some(roots)
                if !roots.contain(fs, &landing) && !self.temporary.hold(landing.as_bytes()) =>
            {
                Verdict::Deny(Why::Unreadable)
            }
            _ => Verdict::Allow,
        }
    }

    fn look(&self, fs: &impl FileSystem, target: Target<'_>) -> Verdict {
        if self.blocked.is_empty() {
            return Verdict::Allow;
        }
        let path = match target.name {
            Name::Path(path) => path,
            Name::Descriptor(_) => return Verdict::Allow,
            Name::Unreadable => return Verdict::Deny(Why::Unreadable),
        };
        let (dir, name) = path::split(path);
        let entry = match is_unnamed(name) {
            true => path::resolve(fs, path, target.base).map(|place| place.as_bytes().into()),
            false => path::resolve(fs, dir, target.base).map(|dir| dir.join(name)),
        };
        match entry {
            Some(entry) if !self.blocked.holds(&entry) => Verdict::Allow,
            Some(_) => Verdict::Deny(Why::Blocked),
            None => Verdict::Deny(Why::Unreadable),
        }
    }

    fn enter(&self, fs: &impl FileSystem, to: Target<'_>, left: Option<&[u8]>) -> Verdict {
        let (path, base) = match to.name {
            Name::Path(path) => (path, to.base),
            Name::Descriptor(fd) => (&b"."[..], Base::Descriptor(fd)),
            Name::Unreadable => return Verdict::Deny(Why::Unapproved),
        };
        let Some(dir) = path::resolve(fs, path, base) else {
            return Verdict::Deny(Why::Unapproved);
        };
        if left == Some(dir.as_bytes()) {
            return Verdict::Allow;
        }
        if self.blocked.holds(dir.as_bytes()) {
            return Verdict::Deny(Why::Blocked);
        }
        Verdict::when(self.contains(fs, &dir))
    }

    fn link(&self, fs: &impl FileSystem, text: Name<'_>, at: Target<'_>) -> Verdict {
        let Name::Path(text) = text else {
            return Verdict::Deny(Why::Unapproved);
        };
        if text.starts_with(b"/") {
            let place = self.change_path(fs, text, Base::CurrentDir, Aim::Place);
            return place.and(|| {
                let landing = path::resolve(fs, text, Base::CurrentDir);
                Verdict::when(landing.is_some_and(|landing| self.contains(fs, &landing)))
            });
        }
        let Name::Path(link) = at.name else {
            return Verdict::Deny(Why::Unapproved);
        };
        let Some(landing) =
            parent(fs, link, at.base).and_then(|dir| path::resolve_beside(fs, text, &dir))
        else {
            return Verdict::Deny(Why::Unapproved);
        };
        if self.blocked.holds(landing.as_bytes()) {
            return Verdict::Deny(Why::Blocked);
        }
        if self.protected.holds(landing.as_bytes()) {
            return Verdict::Deny(Why::Protected);
        }
        Verdict::when(self.contains(fs, &landing))
    }

    fn open_database(&self, fs: &impl FileSystem, name: &[u8]) -> Verdict {
        let write = |path: &[u8]| self.change_path(fs, path, Base::CurrentDir, Aim::File);
        let by_uri = match names::parse(name) {
            Database::Private => return Verdict::Allow,
            Database::File => return write(name),
            Database::Uri(UriTarget::Memory) => Verdict::Allow,
            Database::Uri(UriTarget::Read(path)) => self.read(fs, Target::path(&path)),
            Database::Uri(UriTarget::ReadShared(path)) => {
                self.read(fs, Target::path(&path)).and(|| {
                    let landing = path::resolve(fs, &path, Base::CurrentDir);
                    match landing {
                        Some(at) if !write_ahead_log::is_kept(fs, at.as_bytes()) => Verdict::Allow,
                        _ => write(&path),
                    }
                })
            }
            Database::Uri(UriTarget::Write(path)) => write(&path),
        };
        // Without uri=True the same text is a relative path, "file:" its first directory. If it
        // does not exist, nothing can be opened by it.
        by_uri.and(|| {
            if memchr::memchr(b'/', name).is_none()
                || !parent(fs, name, Base::CurrentDir).is_some_and(|dir| fs.exists(dir.as_bytes()))
            {
                return Verdict::Allow;
            }
            write(name)
        })
    }
}

/// The place that the file of an extension module is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
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

/// The part of a path that an operation changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// The directory entry.
    Entry,
    /// The entry with all that is below it.
    Moved,
    /// The file that it leads to.
    File,
    /// The entry, or the entries in it if the path ends with a slash.
    Place,
}

/// Returns whether the last component of a path names no entry of the directory before it.
fn is_unnamed(name: &[u8]) -> bool {
    matches!(name, b"" | b"." | b"..")
}

fn parent(fs: &impl FileSystem, path: &[u8], base: Base) -> Option<Resolved> {
    path::resolve(fs, path::split(path).0, base)
}
