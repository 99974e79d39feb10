//! A policy as it is written: the fields that a host sets.
//!
//! Paths are as given, `'.'` and `'~'` included; they are resolved when a guard is made.

use crate::policy::files::places::PRESET;
use crate::policy::network::NetworkRules;
use crate::policy::packages::no_package;
use crate::policy::written::values::{Choice, SpecError, Where, check_paths};

/// The fields, in the order in which they are written.
pub const FIELDS: &[&str] = &[
    "write",
    "read",
    "block",
    "protect",
    "max_bytes",
    "commands",
    "env",
    "import_allow",
    "threads",
    "unknown_events",
    "native",
    "on_violation",
    "imports",
    "network",
    "packages",
];

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
    /// According to these rules.
    Rules(Box<NetworkRules>),
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
    pub const NAMED: [(&'static str, Self); 3] = [
        ("raise", Self::Raise),
        ("warn", Self::Warn),
        ("log", Self::Log),
    ];
}

/// The values of `threads`, and whether threads may be started with each.
pub const THREADS: [(&str, bool); 2] = [("deny", false), ("inherit", true)];

/// The values of `unknown_events`, and whether such events pass with each.
pub const UNKNOWN_EVENTS: [(&str, bool); 2] = [("allow", true), ("deny", false)];

/// The name of a value.
pub fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> Option<&'static str> {
    let found = names.iter().find(|(_, named)| named == value);
    found.map(|(name, _)| *name)
}

/// The contents of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Where may be written.
    pub write: Where,
    /// Where may be read.
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
    /// True if threads may be started, under the same guard.
    pub threads: bool,
    /// True if events pass that the tables do not name.
    pub unknown_events: bool,
    /// True if what native code does is not judged, all of which may be called then: `native` is
    /// `"unjudged"`.
    pub native_unjudged: bool,
    /// The native modules from outside the standard library that may be called.
    pub native: Choice,
    /// The answer to a violation.
    pub on_violation: OnViolation,
    /// The modules that may be imported.
    pub imports: Imports,
    /// The use that code may make of the network.
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
            threads: false,
            unknown_events: true,
            native_unjudged: false,
            native: Choice::All(false),
            on_violation: OnViolation::Raise,
            imports: Imports {
                allow: Choice::All(true),
                block: Vec::new(),
            },
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
    #[must_use]
    pub fn judged_native(&self) -> Option<&Choice> {
        (!self.native_unjudged).then_some(&self.native)
    }

    /// The names that are kept from writing.
    pub fn protected_names(&self) -> impl Iterator<Item = &str> {
        let (preset, own): (&[&str], &[String]) = match &self.protect {
            Choice::All(true) => (PRESET, &[]),
            Choice::All(false) => (&[], &[]),
            Choice::Named(names) => (&[], names),
        };
        preset.iter().copied().chain(own.iter().map(String::as_str))
    }

    /// Checks the rules that types do not express.
    ///
    /// # Errors
    /// `SpecError::Value`.
    pub fn validate(&self) -> Result<(), SpecError> {
        let roots = |place: &Where| match place {
            Where::Anywhere => Vec::new(),
            Where::Below(paths) => paths.clone(),
        };
        for (field, paths) in [
            ("write", roots(&self.write)),
            ("read", roots(&self.read)),
            ("block", self.block.clone()),
        ] {
            check_paths(field, &paths)?;
        }
        check_names("protect", &self.protect, |name| {
            let odd = |part: &str| matches!(part, "" | "." | "..") || part.contains('\0');
            name.split('/')
                .any(odd)
                .then_some("must be a name, or names below each other (\".git/hooks\")")
        })?;
        check_names("commands", &self.commands, |name| {
            // Two words are not a program: an argument list does not go through a shell.
            let odd = name.is_empty()
                || name.contains('\0')
                || (!name.contains('/') && name.contains(char::is_whitespace));
            odd.then_some("must be the name or the path of one program, without arguments")
        })?;
        check_names("env", &self.env, |name| {
            let odd = name.is_empty() || name.contains(['=', '\0']);
            odd.then_some("must be the name of a variable, \"MY_*\" for those that begin so")
        })?;
        check_names("native", &self.native, no_module)?;
        check_names("imports.allow", &self.imports.allow, no_module)?;
        check_each("imports.block", &self.imports.block, no_module)?;
        check_each("import_allow", &self.import_allow, |name| {
            if name == "*" { None } else { no_module(name) }
        })?;
        check_each("packages", &self.packages, no_package)?;
        if let NetworkUse::Rules(rules) = &self.network {
            rules.validate()?;
        }
        Ok(())
    }
}

/// Returns the problem with the name of a module, if any.
fn no_module(name: &str) -> Option<&'static str> {
    let odd = |part: &str| {
        part.is_empty() || part.contains(|letter: char| !letter.is_alphanumeric() && letter != '_')
    };
    name.split('.')
        .any(odd)
        .then_some("must be the name of a module (\"numpy\", \"os.path\")")
}

fn check_names(
    field: &str,
    names: &Choice,
    wrong: impl Fn(&str) -> Option<&'static str>,
) -> Result<(), SpecError> {
    match names {
        Choice::All(_) => Ok(()),
        Choice::Named(names) => check_each(field, names, wrong),
    }
}

fn check_each(
    field: &str,
    names: &[String],
    wrong: impl Fn(&str) -> Option<&'static str>,
) -> Result<(), SpecError> {
    for (index, name) in names.iter().enumerate() {
        if let Some(problem) = wrong(name) {
            return Err(SpecError::Value {
                key: format!("{field}[{index}]"),
                problem: format!("{problem}, not {name:?}"),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::policy::written::values::is_within_module;

    #[test]
    fn modules_hold_what_is_below_them() {
        for (module, name, holds) in [
            ("numpy", "numpy", true),
            ("numpy.linalg", "numpy", true),
            ("numpyx", "numpy", false),
            ("numpy", "numpy.linalg", false),
            ("anything", "*", true),
        ] {
            assert_eq!(is_within_module(module, name), holds, "{module} {name}");
        }
    }
}
