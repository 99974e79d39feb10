//! A policy as it is written: the fields that a host sets, and presets to begin with.
//!
//! Paths are as given, `'.'` and `'~'` included; they are resolved when a guard is made.

use crate::policy::files::places::PRESET;
use crate::policy::network::NetworkRules;
use crate::policy::written::values::Switches;
use crate::policy::written::values::{Choice, Where};

/// The modules that may be imported if they are not imported yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Imports {
    /// The modules that may be imported; all (`true`), or none (`false`).
    pub allow: Choice,
    /// The modules that nobody may import.
    pub block: Vec<String>,
}

/// The use that code may make of the network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NetworkUse {
    /// Everything (`true`), or nothing (`false`).
    All(bool),
    Rules(Box<NetworkRules>),
}

impl NetworkUse {
    /// The rules; without some, those that let no host be reached.
    pub fn rules(&self) -> NetworkRules {
        match self {
            Self::Rules(rules) => NetworkRules::clone(rules),
            Self::All(_) => NetworkRules::to_no_host(),
        }
    }
}

/// The answer to a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnViolation {
    /// It is denied.
    Raise,
    /// It proceeds with a warning.
    Warn,
    /// It proceeds, and is logged.
    Log,
    /// It proceeds, and a function of the host is called.
    Call,
}

impl OnViolation {
    /// The answers that have a name.
    pub const NAMED: [(&'static str, Self); 3] =
        [("raise", Self::Raise), ("warn", Self::Warn), ("log", Self::Log)];
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    pub write: Where,
    pub read: Where,
    /// The paths that nothing may open, inside a root too.
    pub block: Vec<String>,
    /// Names that are kept from writing inside the roots; `All(true)`: those of the preset.
    pub protect: Choice,
    /// The bytes that may be written to files in one guard.
    pub max_bytes: Option<u64>,
    /// The programs that may be started, by their name on `PATH` or their path.
    pub commands: Choice,
    /// The environment variables that may be set; `All(true)`: all but the dangerous ones.
    pub env: Choice,
    /// Packages whose import may do what the policy denies otherwise.
    pub import_allow: Vec<String>,
    pub switches: Switches,
    /// True if what native code does is not judged, all of which may be called then: `native` is
    /// `"unjudged"`.
    pub native_unjudged: bool,
    /// The native modules from outside the standard library that may be called.
    pub native: Choice,
    pub on_violation: OnViolation,
    pub imports: Imports,
    pub network: NetworkUse,
    /// Packages that may do what they need; `"data"` names all that are declared.
    pub packages: Vec<String>,
}

impl Default for Spec {
    /// Writing nowhere, reading anywhere, the preset of protected names, no variables, the network.
    fn default() -> Self {
        Self {
            write: Where::Below(Vec::new()),
            read: Where::Anywhere,
            block: Vec::new(),
            protect: Choice::All(true),
            max_bytes: None,
            commands: Choice::All(false),
            env: Choice::All(false),
            import_allow: Vec::new(),
            switches: Switches::default(),
            native_unjudged: false,
            native: Choice::All(false),
            on_violation: OnViolation::Raise,
            imports: Imports { allow: Choice::All(true), block: Vec::new() },
            network: NetworkUse::All(true),
            packages: Vec::new(),
        }
    }
}

/// The value of `native` for native code that may do what it likes.
pub const UNJUDGED: &str = "unjudged";

impl Spec {
    /// Sets the native code that may be called; `None`: all may, and what it does is not judged.
    pub fn set_native(&mut self, native: Option<Choice>) {
        self.native_unjudged = native.is_none();
        self.native = native.unwrap_or(Choice::All(true));
    }

    /// Returns the native code that may be called; `None` if what it does is not judged.
    pub fn judged_native(&self) -> Option<&Choice> {
        (!self.native_unjudged).then_some(&self.native)
    }

    pub fn protected_names(&self) -> impl Iterator<Item = &str> {
        let (preset, own): (&[&str], &[String]) = match &self.protect {
            Choice::All(true) => (PRESET, &[]),
            Choice::All(false) => (&[], &[]),
            Choice::Named(names) => (&[], names),
        };
        preset.iter().copied().chain(own.iter().map(String::as_str))
    }
}

/// The presets by name. A field that a text leaves out has its default.
pub const PRESETS: &[(&str, &str)] = &[
    (
        "readonly",
        "\
write = []
env = true
import_allow = [\"*\"]
threads = \"inherit\"
native = true
network = false
",
    ),
    (
        "workspace",
        // The network of this machine alone. Connections to it go nowhere else, and its servers are
        // reached from nowhere else.
        "\
write = [\".\"]
env = true
import_allow = [\"*\"]
threads = \"inherit\"
native = true
packages = [\"data\"]

[network]
hosts = [\"127.0.0.0/8\", \"::1\"]
listen = [\"127.0.0.0/8\", \"::1\"]
unix = [\".\"]
lookup = false
",
    ),
    (
        "notebook",
        "\
write = [\".\"]
env = true
import_allow = [\"*\"]
threads = \"inherit\"
native = true
network = true
packages = [\"data\"]
",
    ),
    (
        "sandbox",
        // The kernel holds the rest: what native code, threads and programs do.
        "\
write = []
read = []
env = true
import_allow = [\"*\"]
threads = \"inherit\"
native = true
network = false
",
    ),
    (
        "fastaudit-0.1",
        "\
write = []
protect = false
env = false
threads = \"deny\"
unknown_events = \"allow\"
native = false
network = true
",
    ),
    (
        "fastaudit-0.2",
        "\
write = []
protect = false
env = true
threads = \"deny\"
unknown_events = \"deny\"
native = false
network = false
",
    ),
];
