//! The TOML of a policy.

use parse_size::Config;
use toml::{Table, Value};

use crate::policy::network::{NetworkRules, Ports};
use crate::policy::written::spec::{
    FIELDS, Imports, NetworkUse, OnViolation, Spec, THREADS, UNJUDGED, UNKNOWN_EVENTS, name_of,
};
use crate::policy::written::values::SECTION;
use crate::policy::written::values::{Choice, SpecError, Where};

/// The accepted values of `write` and `read`.
const PLACES: &str = "\"anywhere\" or an array of paths";
const PATHS: &str = "an array of paths";
const NAMES: &str = "true, false or an array of names";
const NATIVE: &str = "true, false, \"unjudged\" or an array of names";
const PATH: &str = "a path, a string";
const NAME: &str = "a name, a string";
const PROGRAMS: &str = "true, false or an array of programs";
const PROGRAM: &str = "a program's name or path, a string";
const MODULES: &str = "an array of modules";
const MODULE: &str = "a module's name, a string";
const PACKAGES: &str = "\"data\" or an array of packages";
const PACKAGE: &str = "a package's name, a string";
const IMPORTS: &str = "true, false, an array of modules or a table of allow and block";
const NETWORK: &str = "true, false or a table of rules";
const HOSTS: &str = "\"anywhere\" or an array of hosts";
const HOST: &str = "a host, a string";
const BOOL: &str = "true or false";
const SIZE: &str = "\"unlimited\", a number of bytes or a size (\"10M\")";
const COUNT: &str = "\"unlimited\" or a whole number";

impl Spec {
    /// Reads a policy from the text of a TOML file; `in_pyproject`: from its section there.
    ///
    /// # Errors
    /// The problem with the text.
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
                "write" => spec.write = places(key, value, "anywhere", PLACES, PATH)?,
                "read" => spec.read = places(key, value, "anywhere", PLACES, PATH)?,
                "block" => spec.block = texts(key, value, PATHS, PATH)?,
                "protect" => spec.protect = choice(key, value, NAMES, NAME)?,
                "max_bytes" => spec.max_bytes = bytes(key, value)?,
                "env" => spec.env = choice(key, value, NAMES, NAME)?,
                "commands" => spec.commands = choice(key, value, PROGRAMS, PROGRAM)?,
                "import_allow" => spec.import_allow = texts(key, value, MODULES, MODULE)?,
                "threads" => spec.threads = one_of(key, value, &THREADS)?,
                "unknown_events" => spec.unknown_events = one_of(key, value, &UNKNOWN_EVENTS)?,
                "native" => spec.set_native(match value {
                    Value::String(text) if text == UNJUDGED => None,
                    _ => Some(choice(key, value, NATIVE, MODULE)?),
                }),
                "on_violation" => spec.on_violation = one_of(key, value, &OnViolation::NAMED)?,
                "imports" => spec.imports = imports(key, value)?,
                "network" => spec.network = network(key, value)?,
                "packages" => spec.packages = packages(key, value)?,
                _ => {
                    return Err(SpecError::UnknownKey {
                        key: key.clone(),
                        keys: FIELDS,
                    });
                }
            }
        }
        spec.validate()?;
        Ok(spec)
    }

    /// Returns the policy as TOML, with all fields; `None` if a function of the host is one.
    pub fn to_toml(&self) -> Option<String> {
        let mut table = Table::new();
        for field in FIELDS {
            table.insert((*field).to_owned(), self.toml_value(field)?);
        }
        Some(table.to_string())
    }

    /// Returns a field of the policy as TOML has it; `None` if it is a function of the host.
    pub fn toml_value(&self, field: &str) -> Option<Value> {
        Some(match field {
            "write" => from_places(&self.write),
            "read" => from_places(&self.read),
            "block" => array(&self.block),
            "protect" => from_choice(&self.protect),
            "max_bytes" => from_limit(self.max_bytes),
            "env" => from_choice(&self.env),
            "commands" => from_choice(&self.commands),
            "import_allow" => array(&self.import_allow),
            "threads" => text(name_of(&THREADS, &self.threads)?),
            "unknown_events" => text(name_of(&UNKNOWN_EVENTS, &self.unknown_events)?),
            "native" => match self.judged_native() {
                Some(native) => from_choice(native),
                None => text(UNJUDGED),
            },
            "on_violation" => text(name_of(&OnViolation::NAMED, &self.on_violation)?),
            "imports" => from_imports(&self.imports),
            "network" => from_network(&self.network),
            _ => array(&self.packages),
        })
    }
}

fn wrong_type(key: &str, accepted: &'static str, value: &Value) -> SpecError {
    SpecError::Type {
        key: key.to_owned(),
        accepted,
        given: value.type_str(),
    }
}

fn texts(
    key: &str,
    value: &Value,
    accepted: &'static str,
    item_accepted: &'static str,
) -> Result<Vec<String>, SpecError> {
    let Value::Array(items) = value else {
        return Err(wrong_type(key, accepted, value));
    };
    let items = items.iter().enumerate();
    items
        .map(|(index, item)| match item {
            Value::String(text) => Ok(text.clone()),
            item => Err(wrong_type(&format!("{key}[{index}]"), item_accepted, item)),
        })
        .collect()
}

/// One name stands for itself: `packages = "data"`.
fn packages(key: &str, value: &Value) -> Result<Vec<String>, SpecError> {
    match value {
        Value::String(name) => Ok(vec![name.clone()]),
        value => texts(key, value, PACKAGES, PACKAGE),
    }
}

fn places(
    key: &str,
    value: &Value,
    anywhere: &str,
    accepted: &'static str,
    item_accepted: &'static str,
) -> Result<Where, SpecError> {
    match value {
        Value::String(text) if text == anywhere => Ok(Where::Anywhere),
        Value::String(text) => Err(SpecError::Value {
            key: key.to_owned(),
            problem: format!("must be {accepted}, not {text:?}"),
        }),
        value => texts(key, value, accepted, item_accepted).map(Where::Below),
    }
}

fn choice(
    key: &str,
    value: &Value,
    accepted: &'static str,
    item_accepted: &'static str,
) -> Result<Choice, SpecError> {
    match value {
        Value::Boolean(all) => Ok(Choice::All(*all)),
        names => texts(key, names, accepted, item_accepted).map(Choice::Named),
    }
}

fn one_of<T: Copy>(key: &str, value: &Value, names: &[(&str, T)]) -> Result<T, SpecError> {
    let given = match value {
        Value::String(text) => {
            if let Some((_, named)) = names.iter().find(|(name, _)| name == text) {
                return Ok(*named);
            }
            format!("{text:?}")
        }
        value => value.type_str().to_owned(),
    };
    let accepted: Vec<_> = names.iter().map(|(name, _)| format!("{name:?}")).collect();
    Err(SpecError::Value {
        key: key.to_owned(),
        problem: format!("must be {}, not {given}", accepted.join(" or ")),
    })
}

/// Reads a size: a number, with `K`, `M`, `G` or `T` for powers of 1024.
pub fn parse_size(text: &str) -> Option<u64> {
    Config::new().with_binary().parse_size(text).ok()
}

fn bytes(key: &str, value: &Value) -> Result<Option<u64>, SpecError> {
    match value {
        Value::String(text) if text == "unlimited" => Ok(None),
        Value::String(text) => parse_size(text).map(Some).ok_or_else(|| SpecError::Value {
            key: key.to_owned(),
            problem: format!("must be {SIZE}, not {text:?}"),
        }),
        value => whole_number(key, value, SIZE),
    }
}

fn whole_number<T: TryFrom<i64>>(
    key: &str,
    value: &Value,
    accepted: &'static str,
) -> Result<Option<T>, SpecError> {
    match value {
        Value::String(text) if text == "unlimited" => Ok(None),
        Value::Integer(number) => {
            let number = T::try_from(*number).map_err(|_| SpecError::Value {
                key: key.to_owned(),
                problem: format!("must be {accepted}, not {number}"),
            })?;
            Ok(Some(number))
        }
        value => Err(wrong_type(key, accepted, value)),
    }
}

fn imports(key: &str, value: &Value) -> Result<Imports, SpecError> {
    let mut imports = Imports {
        allow: Choice::All(true),
        block: Vec::new(),
    };
    let Value::Table(table) = value else {
        imports.allow = choice(key, value, IMPORTS, MODULE)?;
        return Ok(imports);
    };
    for (inner, value) in table {
        let key = format!("{key}.{inner}");
        match inner.as_str() {
            "allow" => imports.allow = choice(&key, value, NAMES, MODULE)?,
            "block" => imports.block = texts(&key, value, MODULES, MODULE)?,
            _ => {
                return Err(SpecError::UnknownKey {
                    key,
                    keys: &["imports.allow", "imports.block"],
                });
            }
        }
    }
    Ok(imports)
}

fn network(key: &str, value: &Value) -> Result<NetworkUse, SpecError> {
    let table = match value {
        Value::Boolean(all) => return Ok(NetworkUse::All(*all)),
        Value::Table(table) => table,
        value => return Err(wrong_type(key, NETWORK, value)),
    };
    let mut rules = NetworkRules::default();
    for (inner, value) in table {
        let key = format!("{key}.{inner}");
        match inner.as_str() {
            "hosts" => rules.hosts = places(&key, value, "anywhere", HOSTS, HOST)?,
            "block" => rules.block = texts(&key, value, "an array of hosts", HOST)?,
            "ports" => rules.ports = ports(&key, value)?,
            "listen" => {
                rules.listen = choice(&key, value, "true, false or an array of hosts", HOST)?;
            }
            "unix" => rules.unix = places(&key, value, "anywhere", PLACES, PATH)?,
            "lookup" => {
                rules.lookup = value
                    .as_bool()
                    .ok_or_else(|| wrong_type(&key, BOOL, value))?;
            }
            "max_connections" => rules.max_connections = whole_number(&key, value, COUNT)?,
            _ => {
                return Err(SpecError::UnknownKey {
                    key,
                    keys: NetworkRules::KEYS,
                });
            }
        }
    }
    Ok(NetworkUse::Rules(Box::new(rules)))
}

fn ports(key: &str, value: &Value) -> Result<Option<Vec<Ports>>, SpecError> {
    const ACCEPTED: &str = "\"any\" or an array of ports";
    const PORT: &str = "a port from 0 to 65535 or a range (\"8000-8999\")";
    let items = match value {
        Value::String(text) if text == "any" => return Ok(None),
        Value::Array(items) => items,
        value => return Err(wrong_type(key, ACCEPTED, value)),
    };
    let items = items.iter().enumerate().map(|(index, item)| {
        let given = match item {
            Value::Integer(port) => {
                if let Ok(port) = u16::try_from(*port) {
                    return Ok(Ports::one(port));
                }
                port.to_string()
            }
            Value::String(text) => {
                if let Some(range) = Ports::parse(text) {
                    return Ok(range);
                }
                format!("{text:?}")
            }
            item => item.type_str().to_owned(),
        };
        Err(SpecError::Value {
            key: format!("{key}[{index}]"),
            problem: format!("must be {PORT}, not {given}"),
        })
    });
    items.collect::<Result<_, _>>().map(Some)
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn array(items: &[String]) -> Value {
    Value::Array(items.iter().map(|item| text(item)).collect())
}

fn from_places(place: &Where) -> Value {
    match place {
        Where::Anywhere => text("anywhere"),
        Where::Below(paths) => array(paths),
    }
}

fn from_choice(choice: &Choice) -> Value {
    match choice {
        Choice::All(all) => Value::Boolean(*all),
        Choice::Named(names) => array(names),
    }
}

fn from_limit(limit: Option<u64>) -> Value {
    limit
        .and_then(|limit| i64::try_from(limit).ok())
        .map_or_else(|| text("unlimited"), Value::Integer)
}

fn from_imports(imports: &Imports) -> Value {
    if imports.block.is_empty() {
        return from_choice(&imports.allow);
    }
    let mut table = Table::new();
    table.insert("allow".to_owned(), from_choice(&imports.allow));
    table.insert("block".to_owned(), array(&imports.block));
    Value::Table(table)
}

fn from_network(network: &NetworkUse) -> Value {
    let rules = match network {
        NetworkUse::All(all) => return Value::Boolean(*all),
        NetworkUse::Rules(rules) => rules,
    };
    let ports = match &rules.ports {
        None => text("any"),
        Some(ports) => Value::Array(
            ports
                .iter()
                .map(|ports| match ports.single() {
                    Some(port) => Value::Integer(port.into()),
                    None => text(&ports.to_string()),
                })
                .collect(),
        ),
    };
    let mut table = Table::new();
    for key in NetworkRules::KEYS {
        let value = match *key {
            "hosts" => from_places(&rules.hosts),
            "block" => array(&rules.block),
            "ports" => ports.clone(),
            "listen" => from_choice(&rules.listen),
            "unix" => from_places(&rules.unix),
            "lookup" => Value::Boolean(rules.lookup),
            _ => from_limit(rules.max_connections.map(u64::from)),
        };
        table.insert((*key).to_owned(), value);
    }
    Value::Table(table)
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
            "write = 'anywhere'\nprotect = false\nmax_bytes = '10M'\nthreads = 'inherit'",
            "imports = ['json']\nunknown_events = 'deny'\non_violation = 'log'",
            "imports = {block = ['ctypes']}\nnative = ['numpy']\nimport_allow = ['*']",
            "[network]\nhosts = ['*.example.org', '[::1]:80']\nports = [80, '90-99']\nunix = []",
            "",
        ] {
            let spec = Spec::from_toml(text, false).unwrap();
            let written = spec.to_toml().unwrap();
            assert_eq!(Spec::from_toml(&written, false), Ok(spec), "{written}");
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
                "protect = ['a', '../b']",
                "protect[1] must be a name, or names below each other (\".git/hooks\"), not \"../b\"",
            ),
            (
                "threads = 'allow'",
                "threads must be \"deny\" or \"inherit\", not \"allow\"",
            ),
            (
                "max_bytes = -1",
                "max_bytes must be \"unlimited\", a number of bytes or a size (\"10M\"), not -1",
            ),
            (
                "network = {ports = [70000]}",
                "network.ports[0] must be a port from 0 to 65535 or a range (\"8000-8999\"), not 70000",
            ),
            (
                "network = {port = []}",
                "has the unknown key \"network.port\": the keys are hosts, block, ports, listen, unix, lookup, max_connections",
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
