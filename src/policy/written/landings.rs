//! From a written policy to one that judges.

use crate::policy::check::{Policy, Rest};
use crate::policy::commands::Commands;
use crate::policy::environment::Environment;
use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::places::{Blocked, Protected};
use crate::policy::files::roots::Roots;
use crate::policy::network::{HostRules, Network};
use crate::policy::packages::Packages;
use crate::policy::written::spec::{NetworkUse, Spec};
use crate::policy::written::values::Choice;

/// The places that the paths of a policy lead to when a guard of it is made, and the packages that
/// it names.
#[derive(Debug, Default)]
pub struct Landings {
    /// Of `write`.
    pub write: Roots,
    /// The places of `read`, with others that may always be read; `None` for anywhere.
    pub read: Option<Roots>,
    /// Of `block`.
    pub block: Blocked,
    /// The places of Unix sockets that are files; `None` for all.
    pub unix: Option<Roots>,
    /// The programs of `commands`, `~` expanded.
    pub programs: Vec<PathBuf>,
    /// The `PATH` on which programs are looked for.
    pub search: Vec<u8>,
    /// Of `packages`.
    pub packages: Packages,
}

impl Spec {
    /// Returns the policy with these places.
    #[must_use]
    pub fn policy(&self, fs: &impl FileSystem, landings: Landings) -> Policy {
        let mut protected = Protected::default();
        for name in self.protected_names() {
            protected.add(name);
        }
        let environment = match &self.env {
            Choice::All(false) => Environment::Fixed,
            Choice::All(true) => Environment::Harmless,
            Choice::Named(names) => Environment::Only(names.clone()),
        };
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
        let rest = Rest {
            import_allow: self.import_allow.clone(),
            switches: self.switches,
            native_unjudged: self.native_unjudged,
            max_bytes: self.max_bytes,
            packages: Packages::default(),
        };
        Policy::new(landings.write)
            .reading(landings.read)
            .without(landings.block, protected)
            .setting(environment)
            .reaching(network)
            .starting(commands)
            .loading(self.imports.clone(), self.native.clone())
            .with_rest(rest)
            .with_packages(landings.packages)
    }
}
