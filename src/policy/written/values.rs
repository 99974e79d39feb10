//! Values of the fields of a policy, and the errors in them.

use std::fmt;

use crate::policy::files::path::is_within;

/// The section of a `pyproject.toml`.
pub const SECTION: &str = "tool.fastaudit";

/// The places where something is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// Everywhere: `"anywhere"` in TOML, `None` in Python.
    Anywhere,
    /// Below these paths, or at these hosts.
    Below(Vec<String>),
}

impl Where {
    pub fn names(&self) -> &[String] {
        match self {
            Self::Anywhere => &[],
            Self::Below(names) => names,
        }
    }

    pub fn add(&mut self, name: String) {
        if let Self::Below(names) = self {
            add(names, name);
        }
    }

    pub fn extend(&mut self, more: &Self) {
        match more {
            Self::Anywhere => *self = Self::Anywhere,
            Self::Below(names) => names.iter().for_each(|name| self.add(name.clone())),
        }
    }
}

/// A choice of things: all, none, or the named ones. The field says what "all" leaves out, if
/// anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// All (`true`), or none (`false`).
    All(bool),
    Named(Vec<String>),
}

impl Choice {
    /// Returns whether it has this name, or the beginning of a dotted one that does.
    pub fn has_module(&self, module: &str) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Named(names) => names.iter().any(|name| is_within_module(module, name)),
        }
    }

    /// These names, or none.
    pub fn of(names: Vec<String>) -> Self {
        match names.is_empty() {
            true => Self::All(false),
            false => Self::Named(names),
        }
    }

    pub fn names(&self) -> &[String] {
        match self {
            Self::All(_) => &[],
            Self::Named(names) => names,
        }
    }

    pub fn add(&mut self, name: String) {
        match self {
            Self::All(true) => {}
            Self::All(false) => *self = Self::Named(vec![name]),
            Self::Named(names) => add(names, name),
        }
    }

    pub fn extend(&mut self, more: &Self) {
        match (&mut *self, more) {
            (Self::All(true), _) | (_, Self::All(false)) => {}
            (Self::Named(_), Self::Named(names)) => {
                names.iter().for_each(|name| self.add(name.clone()));
            }
            (_, more) => self.clone_from(more),
        }
    }
}

pub fn add(names: &mut Vec<String>, name: String) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// Returns whether a module is the named one or below it; `*` names every module.
pub fn is_within_module(module: &str, name: &str) -> bool {
    name == "*"
        || module.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns whether a resolved path of a policy is in a directory of one.
pub fn is_in(path: &str, dir: &str) -> bool {
    is_within(path.as_bytes(), dir.as_bytes())
}

/// The error in a policy that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    Syntax(String),
    /// It has no such section.
    NoSection,
    /// A key that no such table has.
    UnknownKey {
        key: String,
        keys: Vec<&'static str>,
    },
    /// A value of another type than the field has.
    Type {
        /// The key, with an index if it is an item.
        key: String,
        accepted: String,
        /// The kind of value given.
        given: &'static str,
    },
    /// A value that is not accepted.
    Value {
        /// The key, with an index if it is an item.
        key: String,
        /// The problem, and the values that are accepted.
        problem: String,
    },
}

impl From<toml::de::Error> for SpecError {
    fn from(error: toml::de::Error) -> Self {
        Self::Syntax(error.to_string().trim().to_owned())
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => write!(to, "is not TOML: {error}"),
            Self::NoSection => write!(to, "has no section [{SECTION}]"),
            Self::UnknownKey { key, keys } => {
                write!(to, "has the unknown key {key:?}: the keys are {}", keys.join(", "))
            }
            Self::Type { key, accepted, given } => {
                write!(to, "{key} must be {accepted}, not {given}")
            }
            Self::Value { key, problem } => write!(to, "{key} {problem}"),
        }
    }
}

impl std::error::Error for SpecError {}

/// A permission that a field gives when it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Switch {
    /// Starting threads, which run under the same guard.
    Threads,
    /// Events that the tables do not name.
    UnknownEvents,
}

impl Switch {
    pub const ALL: [Self; 2] = [Self::Threads, Self::UnknownEvents];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::UnknownEvents => "unknown_events",
        }
    }

    /// The names of its values, first that of the default.
    pub const fn values(self) -> [(&'static str, bool); 2] {
        match self {
            Self::Threads => [("deny", false), ("inherit", true)],
            Self::UnknownEvents => [("allow", true), ("deny", false)],
        }
    }

    /// True if it is on in a policy that does not name it.
    pub const fn by_default(self) -> bool {
        self.values()[0].1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switches(u8);

impl Switches {
    #[inline]
    pub fn has(self, switch: Switch) -> bool {
        self.0 & (1 << switch as u8) != 0
    }

    pub fn set(&mut self, switch: Switch, on: bool) {
        let bit = 1 << switch as u8;
        self.0 = if on { self.0 | bit } else { self.0 & !bit };
    }

    /// Turns on what others turned on that is off by default.
    pub fn add(&mut self, more: Self) {
        self.0 |= more.0 & !Self::default().0;
    }
}

impl Default for Switches {
    fn default() -> Self {
        let mut switches = Self(0);
        for switch in Switch::ALL {
            switches.set(switch, switch.by_default());
        }
        switches
    }
}
