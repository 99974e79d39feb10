//! A policy with more permissions, for what a host approved while its guard is in force.

use std::sync::OnceLock;

use crate::policy::check::Policy;
use crate::policy::commands::Commands;
use crate::policy::environment::Environment;
use crate::policy::files::roots::Roots;
use crate::policy::network::{HostRules, Network};
use crate::policy::written::spec::Spec;
use crate::policy::written::values::{Choice, is_within_module};

/// The permissions to add: their names, and the places that their paths led to when they were given.
#[derive(Debug)]
pub struct More<'a> {
    /// The names; a field at its default adds nothing.
    pub spec: &'a Spec,
    /// Where may be written.
    pub write: Roots,
    /// Where may be read; `None` adds nothing.
    pub read: Option<Roots>,
    /// The programs that may be started.
    pub commands: Commands,
    /// The rules for the network; `None` adds nothing.
    pub network: Option<HostRules>,
}

impl Policy {
    /// Returns the policy with more permissions. Blocked places, protected names and blocked hosts
    /// and modules stay so.
    #[must_use]
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
        policy.environment = policy.environment.with(&spec.env);
        policy.commands = policy.commands.with(&more.commands);
        if let Some(imports) = &mut policy.imports
            && spec.imports.allow != Choice::All(true)
        {
            imports.allow = union(&imports.allow, &spec.imports.allow);
        }
        if spec.native != Choice::All(false) {
            let own = policy.native.unwrap_or(Choice::All(false));
            policy.native = Some(union(&own, &spec.native));
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

    /// Returns whether nobody may import a module, whatever else is allowed.
    #[must_use]
    pub fn blocks_import(&self, module: &str) -> bool {
        let imports = self.imports.as_ref();
        imports.is_some_and(|imports| {
            let mut blocked = imports.block.iter();
            blocked.any(|name| is_within_module(module, name))
        })
    }

    /// Returns whether a root approves its own entry, not just the entries below it.
    #[must_use]
    pub fn approves_root_entries(&self) -> bool {
        self.approves_root_entries
    }
}

fn union(own: &Choice, more: &Choice) -> Choice {
    match (own, more) {
        (Choice::All(true), _) | (_, Choice::All(true)) => Choice::All(true),
        (Choice::All(false), more) => more.clone(),
        (own, Choice::All(false)) => own.clone(),
        (Choice::Named(own), Choice::Named(more)) => {
            Choice::Named(own.iter().chain(more).cloned().collect())
        }
    }
}

impl Commands {
    fn with(&self, more: &Self) -> Self {
        match (self, more) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::None, more) => more.clone(),
            (own, Self::None) => own.clone(),
            (Self::At(own), Self::At(more)) => Self::At(own.union(more).cloned().collect()),
        }
    }
}

impl Environment {
    fn with(&self, more: &Choice) -> Self {
        let names = match more {
            Choice::All(false) => return self.clone(),
            Choice::All(true) => vec!["*".to_owned()],
            Choice::Named(names) => names.clone(),
        };
        Self::Either(Box::new(self.clone()), names)
    }
}

impl Network {
    fn with(&self, more: &HostRules) -> Self {
        match self {
            Self::Open => Self::Open,
            Self::Closed => Self::Rules(Box::new(more.clone())),
            Self::Rules(own) => Self::Rules(Box::new(own.with(more))),
        }
    }
}
