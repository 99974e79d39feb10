//! The tables of the fields of a policy: one row says how a field is written in TOML and in Python,
//! which values it accepts, and how two of its values compare.

use super::stricter;
use crate::policy::hosts::HostRule;
use crate::policy::network::{NetworkRules, Ports};
use crate::policy::packages::{self, no_package};
use crate::policy::requests::RequestRule;
use crate::policy::written::spec::{Imports, NetworkUse, OnViolation, Spec};
use crate::policy::written::values::{Choice, SpecError, Where};
use crate::policy::written::values::{Switch, Switches};

/// A field of `S`: of a policy, or of its rules for imports or the network.
#[derive(Debug)]
pub struct Field<S: 'static> {
    /// The name, in TOML and in Python.
    pub name: &'static str,
    pub kind: FieldKind<S>,
    /// Returns whether the field of the first allows something that the second one's does not, where
    /// its kind does not say so.
    compare: Option<fn(&S, &S) -> bool>,
}

#[derive(Debug)]
pub enum FieldKind<S: 'static> {
    /// Anywhere, or at these.
    Places(At<S, Where>, Items),
    Names(At<S, Vec<String>>, Items),
    /// All, none, or a list of names.
    Choice(At<S, Choice>, Items),
    Switch(At<S, Switches>, Switch),
    Flag(At<S, bool>),
    /// A number of bytes, or no limit.
    Bytes(At<S, Option<u64>>),
    Count(At<S, Option<u32>>),
    Ports(At<S, Option<Vec<Ports>>>),
    /// A list of packages; one name stands for itself.
    Packages(At<S, Vec<String>>),
    /// The native code that may be called; `None` if it is not judged.
    Native {
        get: fn(&S) -> Option<&Choice>,
        set: fn(&mut S, Option<Choice>),
    },
    /// The answer to a violation, which may be a function of the host.
    OnViolation(At<S, OnViolation>),
    /// The modules that may be imported, or these and those that may not.
    Imports(At<S, Imports>),
    Network(At<S, NetworkUse>),
}

/// The place of a field in `S`.
#[derive(Debug)]
pub struct At<S: 'static, T: 'static> {
    pub get: fn(&S) -> &T,
    pub get_mut: fn(&mut S) -> &mut T,
}

macro_rules! at {
    ($of:ident.$field:ident) => {
        At::<$of, _> { get: |of| &of.$field, get_mut: |of| &mut of.$field }
    };
}

/// The items of a list, in the words of messages.
#[derive(Debug)]
pub struct Items {
    /// All of them ("modules").
    pub many: &'static str,
    /// One of them ("a module's name").
    pub one: &'static str,
    /// Returns the problem with one, if there is any.
    problem: fn(&str) -> Option<String>,
}

const PATHS: Items = Items { many: "paths", one: "a path", problem: no_path };

/// Unix sockets, of which `@` names one that is not a file.
const SOCKETS: Items =
    Items { problem: |path| no_path(path.strip_prefix('@').unwrap_or(path)), ..PATHS };

const PROTECTED: Items = Items {
    many: "names",
    one: "a name",
    problem: |name| {
        let odd = |part: &str| matches!(part, "" | "." | "..") || part.contains('\0');
        let says = "must be a name, or names below each other (\".git/hooks\")";
        name.split('/').any(odd).then(|| not(says, name))
    },
};

const VARIABLES: Items = Items {
    many: "names",
    one: "a name",
    problem: |name| {
        let odd = name.is_empty() || name.contains(['=', '\0']);
        let says = "must be the name of a variable, \"MY_*\" for those that begin so";
        odd.then(|| not(says, name))
    },
};

const PROGRAMS: Items = Items {
    many: "programs",
    one: "a program's name or path",
    problem: |name| {
        // Two words are not a program: an argument list does not go through a shell.
        let odd = name.is_empty()
            || name.contains('\0')
            || (!name.contains('/') && name.contains(char::is_whitespace));
        let says = "must be the name or the path of one program, without arguments";
        odd.then(|| not(says, name))
    },
};

pub const MODULES: Items = Items { many: "modules", one: "a module's name", problem: no_module };

/// Modules that are imported, of which `*` names all.
const IMPORTED: Items =
    Items { problem: |name| (name != "*").then(|| no_module(name)).flatten(), ..MODULES };

pub const PACKAGES: Items = Items {
    many: "packages",
    one: "a package's name",
    problem: |name| no_package(name).map(|problem| not(problem, name)),
};

const HOSTS: Items = Items {
    many: "hosts",
    one: "a host",
    problem: |host| HostRule::parse(host).err().map(|problem| not(problem, host)),
};

const REQUESTS: Items = Items {
    many: "requests",
    one: "a request",
    problem: |text| RequestRule::parse(text).err().map(|problem| not(problem, text)),
};

/// The fields of a policy, in the order in which they are written.
pub static FIELDS: [Field<Spec>; 15] = [
    field("write", FieldKind::Places(at!(Spec.write), PATHS)),
    field("read", FieldKind::Places(at!(Spec.read), PATHS)),
    field("block", FieldKind::Names(at!(Spec.block), PATHS)).compared(stricter::blocks_less),
    field("protect", FieldKind::Choice(at!(Spec.protect), PROTECTED))
        .compared(stricter::protects_less),
    field("max_bytes", FieldKind::Bytes(at!(Spec.max_bytes))),
    field("commands", FieldKind::Choice(at!(Spec.commands), PROGRAMS)),
    field("env", FieldKind::Choice(at!(Spec.env), VARIABLES))
        .compared(|new, old| stricter::sets_more(&new.env, &old.env)),
    field("import_allow", FieldKind::Names(at!(Spec.import_allow), IMPORTED))
        .compared(|new, old| !stricter::are_within(&new.import_allow, &old.import_allow)),
    switch(Switch::Threads),
    switch(Switch::UnknownEvents),
    field("native", FieldKind::Native { get: Spec::judged_native, set: Spec::set_native }),
    field("on_violation", FieldKind::OnViolation(at!(Spec.on_violation))),
    field("imports", FieldKind::Imports(at!(Spec.imports))),
    field("network", FieldKind::Network(at!(Spec.network))),
    field("packages", FieldKind::Packages(at!(Spec.packages))),
];

pub static IMPORTS: [Field<Imports>; 2] = [
    field("allow", FieldKind::Choice(at!(Imports.allow), MODULES))
        .compared(|new, old| !stricter::are_modules_of(&new.allow, &old.allow)),
    field("block", FieldKind::Names(at!(Imports.block), MODULES))
        .compared(|new, old| !stricter::are_within(&old.block, &new.block)),
];

pub static NETWORK: [Field<NetworkRules>; 8] = [
    field("hosts", FieldKind::Places(at!(NetworkRules.hosts), HOSTS))
        .compared(stricter::has_more_hosts),
    field("block", FieldKind::Names(at!(NetworkRules.block), HOSTS))
        .compared(|new, old| old.block.iter().any(|host| !new.block.contains(host))),
    field("ports", FieldKind::Ports(at!(NetworkRules.ports))).compared(stricter::has_more_ports),
    field("listen", FieldKind::Choice(at!(NetworkRules.listen), HOSTS)),
    field("unix", FieldKind::Places(at!(NetworkRules.unix), SOCKETS)),
    field("lookup", FieldKind::Flag(at!(NetworkRules.lookup))),
    field("max_connections", FieldKind::Count(at!(NetworkRules.max_connections))),
    field("http", FieldKind::Names(at!(NetworkRules.http), REQUESTS))
        .compared(stricter::has_more_requests),
];

const fn field<S>(name: &'static str, kind: FieldKind<S>) -> Field<S> {
    Field { name, kind, compare: None }
}

const fn switch(switch: Switch) -> Field<Spec> {
    field(switch.name(), FieldKind::Switch(at!(Spec.switches), switch))
}

impl<S> Field<S> {
    const fn compared(mut self, compare: fn(&S, &S) -> bool) -> Self {
        self.compare = Some(compare);
        self
    }

    /// Returns whether the field of the first allows something that the second one's does not. Paths
    /// are resolved.
    fn allows_more(&self, new: &S, old: &S) -> bool {
        if let Some(compare) = self.compare {
            return compare(new, old);
        }
        match &self.kind {
            FieldKind::Places(at, _) => !stricter::is_where_within((at.get)(new), (at.get)(old)),
            FieldKind::Choice(at, _) => !stricter::is_choice_of((at.get)(new), (at.get)(old)),
            FieldKind::Switch(at, switch) => {
                (at.get)(new).has(*switch) && !(at.get)(old).has(*switch)
            }
            FieldKind::Flag(at) => *(at.get)(new) && !*(at.get)(old),
            FieldKind::Bytes(at) => stricter::is_more((at.get)(new), (at.get)(old)),
            FieldKind::Count(at) => stricter::is_more((at.get)(new), (at.get)(old)),
            FieldKind::Packages(at) => !packages::are_of((at.get)(new), (at.get)(old)),
            FieldKind::Native { get, .. } => match (get(new), get(old)) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(new), Some(old)) => !stricter::are_modules_of(new, old),
            },
            FieldKind::OnViolation(at) => {
                *(at.get)(new) != OnViolation::Raise && (at.get)(new) != (at.get)(old)
            }
            FieldKind::Imports(at) => more(&IMPORTS, (at.get)(new), (at.get)(old)).is_some(),
            FieldKind::Network(at) => match ((at.get)(new), (at.get)(old)) {
                (_, NetworkUse::All(true)) | (NetworkUse::All(false), _) => false,
                (NetworkUse::All(true), _) | (_, NetworkUse::All(false)) => true,
                (NetworkUse::Rules(new), NetworkUse::Rules(old)) => {
                    more(&NETWORK, &**new, &**old).is_some()
                }
            },
            // Lists differ in what more names mean.
            FieldKind::Names(at, _) => (at.get)(new) != (at.get)(old),
            FieldKind::Ports(at) => (at.get)(new) != (at.get)(old),
        }
    }
}

pub fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> Option<&'static str> {
    let found = names.iter().find(|(_, named)| named == value);
    found.map(|(name, _)| *name)
}

pub fn find<S>(fields: &'static [Field<S>], name: &str) -> Option<&'static Field<S>> {
    fields.iter().find(|field| field.name == name)
}

pub fn names<S>(fields: &'static [Field<S>]) -> Vec<&'static str> {
    fields.iter().map(|field| field.name).collect()
}

/// Checks the rules that types do not express. The names of fields begin with `prefix`.
fn validate<S>(fields: &[Field<S>], of: &S, prefix: &str) -> Result<(), SpecError> {
    fields.iter().try_for_each(|field| {
        let key = format!("{prefix}{}", field.name);
        match &field.kind {
            FieldKind::Places(at, items) => check(&key, (at.get)(of).names(), items),
            FieldKind::Names(at, items) => check(&key, (at.get)(of), items),
            FieldKind::Choice(at, items) => check(&key, (at.get)(of).names(), items),
            FieldKind::Packages(at) => check(&key, (at.get)(of), &PACKAGES),
            FieldKind::Native { get, .. } => {
                check(&key, get(of).map_or(&[], Choice::names), &MODULES)
            }
            FieldKind::Imports(at) => validate(&IMPORTS, (at.get)(of), "imports."),
            FieldKind::Network(at) => match (at.get)(of) {
                NetworkUse::Rules(rules) => validate(&NETWORK, rules, "network."),
                NetworkUse::All(_) => Ok(()),
            },
            FieldKind::Switch(..)
            | FieldKind::Flag(_)
            | FieldKind::Bytes(_)
            | FieldKind::Count(_)
            | FieldKind::Ports(_)
            | FieldKind::OnViolation(_) => Ok(()),
        }
    })
}

/// Returns the name of the first field by which one allows something that another one does not. A
/// field that cannot be compared counts as allowing more.
fn more<S>(fields: &[Field<S>], new: &S, old: &S) -> Option<&'static str> {
    let more = fields.iter().find(|field| field.allows_more(new, old));
    more.map(|field| field.name)
}

impl Spec {
    /// Checks the rules that types do not express.
    ///
    /// # Errors
    /// `SpecError::Value`.
    pub fn validate(&self) -> Result<(), SpecError> {
        validate(&FIELDS, self, "")
    }

    /// Returns the name of the first field by which this policy allows something that another one
    /// does not, if there is one. Paths are resolved.
    pub fn allows_more_than(&self, other: &Self) -> Option<&'static str> {
        more(&FIELDS, self, other)
    }
}

impl NetworkRules {
    /// Checks the rules that types do not express.
    ///
    /// # Errors
    /// `SpecError::Value`.
    pub fn validate(&self) -> Result<(), SpecError> {
        validate(&NETWORK, self, "network.")
    }
}

fn check(key: &str, names: &[String], items: &Items) -> Result<(), SpecError> {
    for (index, name) in names.iter().enumerate() {
        if let Some(problem) = (items.problem)(name) {
            return Err(SpecError::Value { key: format!("{key}[{index}]"), problem });
        }
    }
    Ok(())
}

fn no_path(path: &str) -> Option<String> {
    let problem = match path {
        "" => "must not be empty: \".\" is the current directory",
        path if path.contains('\0') => "must not contain a NUL",
        _ => return None,
    };
    Some(problem.to_owned())
}

fn no_module(name: &str) -> Option<String> {
    let odd = |part: &str| {
        part.is_empty() || part.contains(|letter: char| !letter.is_alphanumeric() && letter != '_')
    };
    let says = "must be the name of a module (\"numpy\", \"os.path\")";
    name.split('.').any(odd).then(|| not(says, name))
}

fn not(says: impl std::fmt::Display, name: &str) -> String {
    format!("{says}, not {name:?}")
}
