//! A policy as it is written: the fields that a host sets, and their TOML.
//!
//! Paths are as given, `'.'` and `'~'` included; they are resolved when a guard is made.

use std::fmt;

use toml::{Table, Value};

use super::places::PRESET;

/// The fields, in the order in which they are written.
pub const FIELDS: &[&str] = &[
    "write", "read", "block", "protect", "env", "network", "commands",
];

/// The section of a `pyproject.toml`.
pub const SECTION: &str = "tool.fastaudit";

/// Where something is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// Everywhere: `"anywhere"` in TOML, `None` in Python.
    Anywhere,
    /// Below these paths.
    Below(Vec<String>),
}

/// Which names are kept from writing inside the roots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Protect {
    /// Those of the preset (`true`), or none (`false`).
    Preset(bool),
    /// These.
    Names(Vec<String>),
}

impl Protect {
    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (preset, own): (&[&str], &[String]) = match self {
            Self::Preset(true) => (PRESET, &[]),
            Self::Preset(false) => (&[], &[]),
            Self::Names(names) => (&[], names),
        };
        preset.iter().copied().chain(own.iter().map(String::as_str))
    }
}

/// Which environment variables may be set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Env {
    /// All but the dangerous ones (`true`), or none (`false`).
    Harmless(bool),
    /// These.
    Names(Vec<String>),
}

/// Which programs may be started.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Programs {
    /// All (`true`), or none (`false`).
    Any(bool),
    /// These, by their name on `PATH` or their path.
    Named(Vec<String>),
}

/// What a policy says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Where may be written.
    pub write: Where,
    /// Where may be read.
    pub read: Where,
    /// What no root opens.
    pub block: Vec<String>,
    /// What is kept from writing inside the roots.
    pub protect: Protect,
    /// Which environment variables may be set.
    pub env: Env,
    /// Whether the network may be used.
    pub network: bool,
    /// Which programs may be started.
    pub commands: Programs,
}

impl Default for Spec {
    /// Writing nowhere, reading anywhere, the preset of protected names, no variables, the network.
    fn default() -> Self {
        Self {
            write: Where::Below(Vec::new()),
            read: Where::Anywhere,
            block: Vec::new(),
            protect: Protect::Preset(true),
            env: Env::Harmless(false),
            network: true,
            commands: Programs::Any(false),
        }
    }
}

/// What is wrong with a policy that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// The text is no TOML.
    Syntax(String),
    /// It has no such section.
    NoSection,
    /// A key that is none of the fields.
    UnknownKey(String),
    /// A value of another type than the field has.
    Type {
        /// The key, with an index where it is an item.
        key: String,
        /// What is accepted.
        accepted: &'static str,
        /// What is there.
        given: &'static str,
    },
    /// A value that is not accepted.
    Value {
        /// The key, with an index where it is an item.
        key: String,
        /// Why, and what is accepted.
        problem: String,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => write!(to, "is not TOML: {error}"),
            Self::NoSection => write!(to, "has no section [{SECTION}]"),
            Self::UnknownKey(key) => {
                write!(
                    to,
                    "has the unknown key {key:?}: the keys are {}",
                    FIELDS.join(", ")
                )
            }
            Self::Type {
                key,
                accepted,
                given,
            } => write!(to, "{key} must be {accepted}, not {given}"),
            Self::Value { key, problem } => write!(to, "{key} {problem}"),
        }
    }
}

impl std::error::Error for SpecError {}

/// What `write` and `read` accept.
pub const PLACES: &str = "\"anywhere\" or an array of paths";
const PATHS: &str = "an array of paths";
const NAMES: &str = "true, false or an array of names";
const PATH: &str = "a path, a string";
const NAME: &str = "a name, a string";
const PROGRAMS: &str = "true, false or an array of programs";
const PROGRAM: &str = "a program's name or path, a string";

impl Spec {
    /// Reads a policy from the text of a TOML file; `in_pyproject`: from its section there.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_toml(text: &str, in_pyproject: bool) -> Result<Self, SpecError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            SpecError::Syntax(error.to_string().trim().to_owned())
        })?;
        if !in_pyproject {
            return Self::from_table(&table);
        }
        let mut section = &table;
        for name in SECTION.split('.') {
            let Some(Value::Table(inner)) = section.get(name) else {
                return Err(SpecError::NoSection);
            };
            section = inner;
        }
        Self::from_table(section)
    }

    fn from_table(table: &Table) -> Result<Self, SpecError> {
        let mut spec = Self::default();
        for (key, value) in table {
            match key.as_str() {
                "write" => spec.write = places(key, value)?,
                "read" => spec.read = places(key, value)?,
                "block" => spec.block = paths(key, value, PATHS, PATH)?,
                "protect" => {
                    spec.protect = match value {
                        Value::Boolean(preset) => Protect::Preset(*preset),
                        names => Protect::Names(paths(key, names, NAMES, NAME)?),
                    }
                }
                "env" => {
                    spec.env = match value {
                        Value::Boolean(harmless) => Env::Harmless(*harmless),
                        names => Env::Names(paths(key, names, NAMES, NAME)?),
                    }
                }
                "network" => {
                    spec.network = value.as_bool().ok_or_else(|| SpecError::Type {
                        key: key.clone(),
                        accepted: "true or false",
                        given: value.type_str(),
                    })?;
                }
                "commands" => {
                    spec.commands = match value {
                        Value::Boolean(any) => Programs::Any(*any),
                        names => Programs::Named(paths(key, names, PROGRAMS, PROGRAM)?),
                    }
                }
                _ => return Err(SpecError::UnknownKey(key.clone())),
            }
        }
        spec.validate()?;
        Ok(spec)
    }

    /// Checks what types do not say.
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
            for (index, path) in paths.iter().enumerate() {
                let problem = if path.is_empty() {
                    "must not be empty: \".\" is the current directory"
                } else if path.contains('\0') {
                    "must not contain a NUL"
                } else {
                    continue;
                };
                return Err(SpecError::Value {
                    key: format!("{field}[{index}]"),
                    problem: problem.to_owned(),
                });
            }
        }
        if let Protect::Names(names) = &self.protect {
            for (index, name) in names.iter().enumerate() {
                let odd = |part: &str| matches!(part, "" | "." | "..") || part.contains('\0');
                if name.split('/').any(odd) {
                    return Err(SpecError::Value {
                        key: format!("protect[{index}]"),
                        problem: format!(
                            "must be a name, or names below each other (\".git/hooks\"), not {name:?}"
                        ),
                    });
                }
            }
        }
        if let Programs::Named(names) = &self.commands {
            // Two words are no program: an argument list does not go through a shell.
            let odd = |name: &str| {
                name.is_empty()
                    || name.contains('\0')
                    || (!name.contains('/') && name.contains(char::is_whitespace))
            };
            if let Some(index) = names.iter().position(|name| odd(name)) {
                return Err(SpecError::Value {
                    key: format!("commands[{index}]"),
                    problem: format!(
                        "must be the name or the path of one program, without arguments, not {:?}",
                        names[index]
                    ),
                });
            }
        }
        if let Env::Names(names) = &self.env {
            let odd = |name: &str| name.is_empty() || name.contains(['=', '\0']);
            if let Some(index) = names.iter().position(|name| odd(name)) {
                return Err(SpecError::Value {
                    key: format!("env[{index}]"),
                    problem: format!(
                        "must be the name of a variable, \"MY_*\" for those that begin so, not {:?}",
                        names[index]
                    ),
                });
            }
        }
        Ok(())
    }

    /// The policy as TOML, with all fields.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let array =
            |items: &[String]| Value::Array(items.iter().cloned().map(Value::String).collect());
        let places = |place: &Where| match place {
            Where::Anywhere => Value::String("anywhere".to_owned()),
            Where::Below(paths) => array(paths),
        };
        let protect = match &self.protect {
            Protect::Preset(preset) => Value::Boolean(*preset),
            Protect::Names(names) => array(names),
        };
        let mut table = Table::new();
        table.insert("write".to_owned(), places(&self.write));
        table.insert("read".to_owned(), places(&self.read));
        table.insert("block".to_owned(), array(&self.block));
        table.insert("protect".to_owned(), protect);
        let env = match &self.env {
            Env::Harmless(harmless) => Value::Boolean(*harmless),
            Env::Names(names) => array(names),
        };
        table.insert("env".to_owned(), env);
        table.insert("network".to_owned(), Value::Boolean(self.network));
        let commands = match &self.commands {
            Programs::Any(any) => Value::Boolean(*any),
            Programs::Named(names) => array(names),
        };
        table.insert("commands".to_owned(), commands);
        table.to_string()
    }
}

fn places(key: &str, value: &Value) -> Result<Where, SpecError> {
    match value {
        Value::String(text) if text == "anywhere" => Ok(Where::Anywhere),
        Value::String(text) => Err(SpecError::Value {
            key: key.to_owned(),
            problem: format!("must be {PLACES}, not {text:?}"),
        }),
        value => paths(key, value, PLACES, PATH).map(Where::Below),
    }
}

fn paths(
    key: &str,
    value: &Value,
    accepted: &'static str,
    item_accepted: &'static str,
) -> Result<Vec<String>, SpecError> {
    let wrong = |key: String, accepted, value: &Value| SpecError::Type {
        key,
        accepted,
        given: value.type_str(),
    };
    let Value::Array(items) = value else {
        return Err(wrong(key.to_owned(), accepted, value));
    };
    let items = items.iter().enumerate();
    items
        .map(|(index, item)| match item {
            Value::String(text) => Ok(text.clone()),
            item => Err(wrong(format!("{key}[{index}]"), item_accepted, item)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_default() {
        assert_eq!(Spec::from_toml("", false), Ok(Spec::default()));
    }

    #[test]
    fn comes_back_from_its_toml() {
        for text in [
            "write = ['.', '~/a']\nread = ['/']\nblock = ['/etc']\nprotect = ['x/y']",
            "write = 'anywhere'\nprotect = false",
            "",
        ] {
            let spec = Spec::from_toml(text, false).unwrap();
            assert_eq!(Spec::from_toml(&spec.to_toml(), false), Ok(spec));
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, message) in [
            (
                "write = 1",
                "write must be \"anywhere\" or an array of paths, not integer",
            ),
            (
                "write = '.'",
                "write must be \"anywhere\" or an array of paths, not \".\"",
            ),
            ("block = 'x'", "block must be an array of paths, not string"),
            (
                "block = [1]",
                "block[0] must be a path, a string, not integer",
            ),
            (
                "read = ['']",
                "read[0] must not be empty: \".\" is the current directory",
            ),
            (
                "protect = 1",
                "protect must be true, false or an array of names, not integer",
            ),
            (
                "protect = ['a', '../b']",
                "protect[1] must be a name, or names below each other (\".git/hooks\"), not \"../b\"",
            ),
            (
                "wirte = []",
                "has the unknown key \"wirte\": the keys are write, read, block, protect, env, network, commands",
            ),
        ] {
            assert_eq!(
                Spec::from_toml(text, false).unwrap_err().to_string(),
                message
            );
        }
    }

    #[test]
    fn is_a_section_of_a_pyproject() {
        let text = "[tool.fastaudit]\nwrite = ['.']";
        let spec = Spec::from_toml(text, true).unwrap();
        assert_eq!(spec.write, Where::Below(vec![".".to_owned()]));
        assert_eq!(Spec::from_toml("[tool.x]", true), Err(SpecError::NoSection));
    }
}
