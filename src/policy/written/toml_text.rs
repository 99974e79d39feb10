//! The TOML of a policy.

use std::fmt::Display;

use parse_size::Config;
use toml::{Table, Value};

use crate::policy::network::{NetworkRules, Ports};
use crate::policy::written::fields::{
    self, FIELDS, Field, FieldKind, IMPORTS, Items, MODULES, NETWORK, PACKAGES, name_of,
};
use crate::policy::written::spec::{Imports, NetworkUse, OnViolation, Spec, UNJUDGED};
use crate::policy::written::values::{Choice, SECTION, SpecError, Where};

const NATIVE: &str = "true, false, \"unjudged\" or an array of names";
const IMPORTED: &str = "true, false, an array of modules or a table of allow and block";
const RULES: &str = "true, false or a table of rules";
const SIZE: &str = "\"unlimited\", a number of bytes or a size (\"10M\")";
const COUNT: &str = "\"unlimited\" or a whole number";
const PORTS: &str = "\"any\" or an array of ports";

impl Spec {
    /// Reads a policy from the text of a TOML file; `in_pyproject`: from its section there.
    ///
    /// # Errors
    /// The problem with the text.
    pub fn from_toml(text: &str, in_pyproject: bool) -> Result<Self, SpecError> {
        let table: Table = text.parse()?;
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

    pub(super) fn from_table(table: &Table) -> Result<Self, SpecError> {
        let mut spec = Self::default();
        read_table(&FIELDS, &mut spec, "", table)?;
        spec.validate()?;
        Ok(spec)
    }

    /// Returns the policy as TOML, with all fields; `None` if a function of the host is one.
    pub fn to_toml(&self) -> Option<String> {
        Some(to_table(&FIELDS, self)?.to_string())
    }
}

/// Reads the fields in a table. Their names in messages begin with `prefix`.
fn read_table<S>(
    fields: &'static [Field<S>],
    into: &mut S,
    prefix: &str,
    table: &Table,
) -> Result<(), SpecError> {
    for (name, value) in table {
        let key = format!("{prefix}{name}");
        match fields::find(fields, name) {
            Some(field) => field.read(into, &key, value)?,
            None => {
                let keys = fields::names(fields);
                return Err(SpecError::UnknownKey { key, keys });
            }
        }
    }
    Ok(())
}

fn to_table<S>(fields: &[Field<S>], of: &S) -> Option<Table> {
    let fields = fields.iter();
    fields.map(|field| Some((field.name.to_owned(), field.toml(of)?))).collect()
}

impl<S> Field<S> {
    fn read(&self, into: &mut S, key: &str, value: &Value) -> Result<(), SpecError> {
        match &self.kind {
            FieldKind::Places(at, items) => *(at.get_mut)(into) = places(key, value, items)?,
            FieldKind::Names(at, items) => {
                *(at.get_mut)(into) = texts(key, value, &an_array(items), items)?;
            }
            FieldKind::Choice(at, items) => {
                let accepted = format!("true, false or {}", an_array(items));
                *(at.get_mut)(into) = choice(key, value, &accepted, items)?;
            }
            FieldKind::Switch(at, switch) => {
                (at.get_mut)(into).set(*switch, one_of(key, value, &switch.values())?);
            }
            FieldKind::Flag(at) => {
                let flag = value.as_bool();
                *(at.get_mut)(into) =
                    flag.ok_or_else(|| wrong_type(key, "true or false", value))?;
            }
            FieldKind::Bytes(at) => *(at.get_mut)(into) = bytes(key, value)?,
            FieldKind::Count(at) => *(at.get_mut)(into) = whole_number(key, value, COUNT)?,
            FieldKind::Ports(at) => *(at.get_mut)(into) = ports(key, value)?,
            FieldKind::Packages(at) => *(at.get_mut)(into) = packages(key, value)?,
            FieldKind::Native { set, .. } => set(
                into,
                match value {
                    Value::String(text) if text == UNJUDGED => None,
                    value => Some(choice(key, value, NATIVE, &MODULES)?),
                },
            ),
            FieldKind::OnViolation(at) => {
                *(at.get_mut)(into) = one_of(key, value, &OnViolation::NAMED)?;
            }
            FieldKind::Imports(at) => *(at.get_mut)(into) = imports(key, value)?,
            FieldKind::Network(at) => *(at.get_mut)(into) = network(key, value)?,
        }
        Ok(())
    }

    /// Returns the field as TOML has it; `None` if it is a function of the host.
    pub fn toml(&self, of: &S) -> Option<Value> {
        Some(match &self.kind {
            FieldKind::Places(at, _) => match (at.get)(of) {
                Where::Anywhere => text("anywhere"),
                Where::Below(names) => array(names),
            },
            FieldKind::Names(at, _) | FieldKind::Packages(at) => array((at.get)(of)),
            FieldKind::Choice(at, _) => from_choice((at.get)(of)),
            FieldKind::Switch(at, switch) => {
                text(name_of(&switch.values(), &(at.get)(of).has(*switch))?)
            }
            FieldKind::Flag(at) => Value::Boolean(*(at.get)(of)),
            FieldKind::Bytes(at) => from_limit(*(at.get)(of)),
            FieldKind::Count(at) => from_limit((at.get)(of).map(u64::from)),
            FieldKind::Ports(at) => match (at.get)(of) {
                None => text("any"),
                Some(ports) => Value::Array(ports.iter().map(from_ports).collect()),
            },
            FieldKind::Native { get, .. } => get(of).map_or_else(|| text(UNJUDGED), from_choice),
            FieldKind::OnViolation(at) => text(name_of(&OnViolation::NAMED, (at.get)(of))?),
            FieldKind::Imports(at) => match (at.get)(of) {
                imports if imports.block.is_empty() => from_choice(&imports.allow),
                imports => Value::Table(to_table(&IMPORTS, imports)?),
            },
            FieldKind::Network(at) => match (at.get)(of) {
                NetworkUse::All(all) => Value::Boolean(*all),
                NetworkUse::Rules(rules) => Value::Table(to_table(&NETWORK, &**rules)?),
            },
        })
    }
}

fn wrong_type(key: &str, accepted: &str, value: &Value) -> SpecError {
    SpecError::Type { key: key.to_owned(), accepted: accepted.to_owned(), given: value.type_str() }
}

fn wrong_value(key: &str, accepted: &str, given: impl Display) -> SpecError {
    SpecError::Value { key: key.to_owned(), problem: format!("must be {accepted}, not {given}") }
}

fn an_array(items: &Items) -> String {
    format!("an array of {}", items.many)
}

fn texts(
    key: &str,
    value: &Value,
    accepted: &str,
    items: &Items,
) -> Result<Vec<String>, SpecError> {
    let Value::Array(values) = value else {
        return Err(wrong_type(key, accepted, value));
    };
    let values = values.iter().enumerate();
    values
        .map(|(index, value)| match value {
            Value::String(text) => Ok(text.clone()),
            value => {
                let accepted = format!("{}, a string", items.one);
                Err(wrong_type(&format!("{key}[{index}]"), &accepted, value))
            }
        })
        .collect()
}

/// One name stands for itself: `packages = "data"`.
fn packages(key: &str, value: &Value) -> Result<Vec<String>, SpecError> {
    match value {
        Value::String(name) => Ok(vec![name.clone()]),
        value => {
            let accepted = format!("\"data\" or {}", an_array(&PACKAGES));
            texts(key, value, &accepted, &PACKAGES)
        }
    }
}

fn places(key: &str, value: &Value, items: &Items) -> Result<Where, SpecError> {
    let accepted = format!("\"anywhere\" or {}", an_array(items));
    match value {
        Value::String(text) if text == "anywhere" => Ok(Where::Anywhere),
        Value::String(text) => Err(wrong_value(key, &accepted, format_args!("{text:?}"))),
        value => texts(key, value, &accepted, items).map(Where::Below),
    }
}

fn choice(key: &str, value: &Value, accepted: &str, items: &Items) -> Result<Choice, SpecError> {
    match value {
        Value::Boolean(all) => Ok(Choice::All(*all)),
        names => texts(key, names, accepted, items).map(Choice::Named),
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
    Err(wrong_value(key, &accepted.join(" or "), given))
}

/// Reads a size: a number, with `K`, `M`, `G` or `T` for powers of 1024.
pub fn parse_size(text: &str) -> Option<u64> {
    Config::new().with_binary().parse_size(text).ok()
}

fn bytes(key: &str, value: &Value) -> Result<Option<u64>, SpecError> {
    match value {
        Value::String(text) if text != "unlimited" => {
            let size = parse_size(text).map(Some);
            size.ok_or_else(|| wrong_value(key, SIZE, format_args!("{text:?}")))
        }
        value => whole_number(key, value, SIZE),
    }
}

fn whole_number<T: TryFrom<i64>>(
    key: &str,
    value: &Value,
    accepted: &str,
) -> Result<Option<T>, SpecError> {
    match value {
        Value::String(text) if text == "unlimited" => Ok(None),
        Value::Integer(number) => {
            T::try_from(*number).map(Some).map_err(|_| wrong_value(key, accepted, number))
        }
        value => Err(wrong_type(key, accepted, value)),
    }
}

fn imports(key: &str, value: &Value) -> Result<Imports, SpecError> {
    let mut imports = Imports { allow: Choice::All(true), block: Vec::new() };
    match value {
        Value::Table(table) => read_table(&IMPORTS, &mut imports, &format!("{key}."), table)?,
        value => imports.allow = choice(key, value, IMPORTED, &MODULES)?,
    }
    Ok(imports)
}

fn network(key: &str, value: &Value) -> Result<NetworkUse, SpecError> {
    let table = match value {
        Value::Boolean(all) => return Ok(NetworkUse::All(*all)),
        Value::Table(table) => table,
        value => return Err(wrong_type(key, RULES, value)),
    };
    let mut rules = NetworkRules::default();
    read_table(&NETWORK, &mut rules, &format!("{key}."), table)?;
    Ok(NetworkUse::Rules(Box::new(rules)))
}

fn ports(key: &str, value: &Value) -> Result<Option<Vec<Ports>>, SpecError> {
    const PORT: &str = "a port from 0 to 65535 or a range (\"8000-8999\")";
    let items = match value {
        Value::String(text) if text == "any" => return Ok(None),
        Value::Array(items) => items,
        value => return Err(wrong_type(key, PORTS, value)),
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
        Err(wrong_value(&format!("{key}[{index}]"), PORT, given))
    });
    items.collect::<Result<_, _>>().map(Some)
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn array(items: &[String]) -> Value {
    Value::Array(items.iter().map(|item| text(item)).collect())
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

fn from_ports(ports: &Ports) -> Value {
    match ports.single() {
        Some(port) => Value::Integer(port.into()),
        None => text(&ports.to_string()),
    }
}
