//! From a written policy to one that judges, and to one with what a host approved besides.

use std::sync::OnceLock;

use crate::policy::check::{Policy, Rest};
use crate::policy::commands::Commands;
use crate::policy::environment::Environment;
use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::places::Roots;
use crate::policy::files::places::{Blocked, Protected};
use crate::policy::network::{HostRules, Network};
use crate::policy::packages::Packages;
use crate::policy::written::spec::{NetworkUse, Spec};
use crate::policy::written::values::Choice;

/// The places that the paths of a policy lead to when a guard of it is made, and the packages that
/// it names.
#[derive(Debug, Default)]
pub struct Landings {
    pub write: Roots,
    /// The places of `read`, with others that may always be read; `None` for anywhere.
    pub read: Option<Roots>,
    pub block: Blocked,
    /// The places of Unix sockets that are files; `None` for all.
    pub unix: Option<Roots>,
    /// The programs of `commands`, `~` expanded.
    pub programs: Vec<PathBuf>,
    /// The `PATH` on which programs are looked for.
    pub search: Vec<u8>,
    pub packages: Packages,
}

impl Spec {
    pub fn policy(&self, fs: &impl FileSystem, landings: Landings) -> Policy {
        let mut protected = Protected::default();
        for name in self.protected_names() {
            protected.add(name);
        }
        let network = match &self.network {
            NetworkUse::All(true) => Network::Open,
            NetworkUse::All(false) => Network::Closed,
            NetworkUse::Rules(rules) => {
                Network::Rules(Box::new(HostRules::new(rules, landings.unix)))
            }
        };
        let programs = landings.programs.iter().map(|name| &name[..]);
        let commands = match &self.commands {
            Choice::All(false) => Commands::None,
            Choice::All(true) => Commands::All,
            Choice::Named(_) => Commands::named(fs, programs, &landings.search),
        };
        let imports = &self.imports;
        let imports_all = imports.allow == Choice::All(true) && imports.block.is_empty();
        let mut policy = Policy {
            roots: landings.write,
            read: landings.read,
            blocked: landings.block,
            protected,
            environment: Environment::of(&self.env),
            network,
            commands,
            imports: (!imports_all).then(|| imports.clone()),
            native: Some(self.native.clone()),
            rest: Rest {
                import_allow: self.import_allow.clone(),
                switches: self.switches,
                native_unjudged: self.native_unjudged,
                max_bytes: self.max_bytes,
                packages: Packages::default(),
            },
            approves_root_entries: true,
            any_directory: true,
            ..Policy::default()
        };
        if !self.import_allow.is_empty() {
            policy.while_importing = Some(Box::new(policy.everywhere()));
        }
        policy.with_packages(landings.packages)
    }
}

/// The permissions to add: their names, and the places that their paths led to when they were given.
#[derive(Debug)]
pub struct More<'a> {
    /// The names; a field at its default adds nothing.
    pub spec: &'a Spec,
    pub write: Roots,
    /// Where may be read; `None` adds nothing.
    pub read: Option<Roots>,
    pub commands: Commands,
    /// The rules for the network; `None` adds nothing.
    pub network: Option<HostRules>,
}

impl Policy {
    /// Returns the policy with more permissions. Blocked places, protected names and blocked hosts
    /// and modules stay so.
    pub fn with_more(&self, more: &More<'_>) -> Self {
        let mut policy = self.clone();
        let spec = more.spec;
        policy.roots.extend(&more.write);
        if let (Some(own), Some(read)) = (&mut policy.read, &more.read) {
            own.extend(read);
        }
        if let Some(own) = &mut policy.read {
            // Places that may be written may be read.
            own.extend(&more.write);
        }
        policy.environment.add(&spec.env);
        policy.commands = policy.commands.with(&more.commands);
        if let Some(imports) = &mut policy.imports
            && spec.imports.allow != Choice::All(true)
        {
            imports.allow.extend(&spec.imports.allow);
        }
        if spec.native != Choice::All(false) {
            let own = policy.native.get_or_insert(Choice::All(false));
            own.extend(&spec.native);
            policy.native_modules = OnceLock::new();
        }
        policy.rest.switches.add(spec.switches);
        if let Some(rules) = &more.network {
            policy.network = policy.network.with(rules);
        }
        if let Some(importing) = policy.while_importing.take() {
            policy.while_importing = Some(Box::new(importing.with_more(more)));
        }
        policy
    }
}
