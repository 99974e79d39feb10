//! Packages that ordinary code uses, and the permissions that they need: the table `packages.toml`,
//! and the packages of it that a host names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

use ahash::AHashSet;
use toml::{Table, Value};

use super::distributions::{InstalledPackages, distance};
use super::environment::matches;
use crate::policy::written::values::is_within_module;

/// The name of all packages of the table.
pub const ALL: &str = "data";

/// The declarations about a package.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Packages that it uses where they are installed, though it does not require them.
    pub with: Vec<String>,
    /// Environment variables that it sets or reads; `*` at the end stands for whatever follows.
    pub env: Vec<String>,
    /// Directories of its own among the temporary files of the machine; `*` as for variables.
    pub keeps: Vec<String>,
}

const TEXT: &str = include_str!("packages.toml");

static TABLE: LazyLock<BTreeMap<String, Package>> = LazyLock::new(|| {
    let table: Table = TEXT.parse().unwrap_or_default();
    let packages = table.into_iter();
    packages.map(|(name, value)| (name, Package::of(&value))).collect()
});

impl Package {
    /// Reads the declarations in a table.
    fn of(value: &Value) -> Self {
        let texts = |key| {
            let items = value.get(key).and_then(Value::as_array);
            let texts = items.into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        Self { with: texts("with"), env: texts("env"), keeps: texts("keeps") }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct NoPackage {
    name: String,
    near: Option<String>,
}

impl fmt::Display for NoPackage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, near } = self;
        write!(to, "{name:?} is neither installed nor declared")?;
        match near {
            Some(near) => write!(to, "; is it {near:?}?"),
            None => write!(to, "; {ALL:?} names all that are declared"),
        }
    }
}

/// The packages that a host names, with what they require as it is installed.
#[derive(Clone, Debug, Default)]
pub struct Packages(Arc<Named>);

#[derive(Debug, Default)]
struct Named {
    names: Vec<String>,
    /// True if all packages of the table are named.
    has_all: bool,
    /// `None` without names.
    installed: Option<Arc<InstalledPackages>>,
    /// Read when it is first asked for.
    chosen: OnceLock<Chosen>,
}

#[derive(Debug, Default)]
struct Chosen {
    /// Top-level modules and directories.
    modules: AHashSet<String>,
    /// The modules, for those who import.
    imports: Vec<String>,
    env: Vec<String>,
    keeps: Vec<String>,
}

impl Packages {
    /// The packages of these names, as they are imported or installed.
    ///
    /// # Errors
    /// The first name that no package has.
    pub fn named(names: &[String], installed: &Arc<InstalledPackages>) -> Result<Self, NoPackage> {
        let is_known =
            |name: &String| name == ALL || TABLE.contains_key(name) || installed.found().has(name);
        if let Some(name) = names.iter().find(|name| !is_known(name)) {
            return Err(NoPackage { name: name.clone(), near: near(name, installed) });
        }
        Ok(Self(Arc::new(Named {
            names: names.to_vec(),
            has_all: names.iter().any(|name| name == ALL),
            installed: Some(Arc::clone(installed)),
            chosen: OnceLock::new(),
        })))
    }

    fn chosen(&self) -> &Chosen {
        let read = || {
            let installed = self.0.installed.as_ref();
            installed.map(|installed| Chosen::of(&self.0.names, installed)).unwrap_or_default()
        };
        self.0.chosen.get_or_init(read)
    }

    /// A number that stands for what was installed when they were named.
    pub fn as_of(&self) -> u64 {
        self.0.installed.as_ref().map_or(0, |installed| installed.id)
    }

    /// The names that they were given by.
    pub fn names(&self) -> &[String] {
        &self.0.names
    }

    /// Returns the names with one more by which this package is among them, if there is such a
    /// name: the name of all if the package is in the table.
    pub fn names_with(
        &self,
        package: &str,
        installed: &Arc<InstalledPackages>,
    ) -> Option<Vec<String>> {
        if self.have(package) {
            return None;
        }
        let has = |name: &str| {
            let with = [self.names(), &[name.to_owned()]].concat();
            let packages = Self::named(&with, installed);
            packages.is_ok_and(|packages| packages.have(package)).then_some(with)
        };
        has(ALL).or_else(|| has(package))
    }

    pub fn is_empty(&self) -> bool {
        self.0.names.is_empty()
    }

    /// Returns whether all of the table are among them.
    pub fn have_all(&self) -> bool {
        self.0.has_all
    }

    /// Returns whether a top-level module, or directory, is one of theirs.
    pub fn have(&self, module: &str) -> bool {
        !self.is_empty() && self.chosen().modules.contains(module)
    }

    pub fn may_set(&self, name: &[u8]) -> bool {
        !self.is_empty() && self.chosen().env.iter().any(|own| matches(own, name))
    }

    /// Returns whether they keep directories of their own among temporary files.
    pub fn keep_any(&self) -> bool {
        !self.is_empty() && !self.chosen().keeps.is_empty()
    }

    /// Returns whether a directory of this name is one that they keep there.
    pub fn keep(&self, name: &[u8]) -> bool {
        !self.is_empty() && self.chosen().keeps.iter().any(|own| matches(own, name))
    }

    /// The modules whose import may do what is denied otherwise.
    pub fn imports(&self) -> &[String] {
        &self.chosen().imports
    }
}

impl PartialEq for Packages {
    fn eq(&self, other: &Self) -> bool {
        (self.names(), self.as_of()) == (other.names(), other.as_of())
    }
}

impl Eq for Packages {}

impl Chosen {
    fn of(names: &[String], installed: &InstalledPackages) -> Self {
        let mut given: Vec<&str> = Vec::new();
        for name in names {
            match name == ALL {
                true => given.extend(TABLE.keys().map(String::as_str)),
                false => given.push(name),
            }
        }
        let with = given.iter().filter_map(|name| TABLE.get(*name));
        let with = with.flat_map(|package| package.with.iter().map(String::as_str));
        let all: Vec<_> = given.iter().copied().chain(with).collect();
        let modules = installed.found().modules_of(all);
        let mut imports: Vec<_> = modules.iter().cloned().collect();
        imports.sort_unstable();
        let mut chosen = Self { modules, imports, ..Self::default() };
        // A name of a distribution brings the declarations about its modules.
        for (name, package) in &*TABLE {
            if chosen.modules.contains(name) {
                chosen.env.extend(package.env.iter().cloned());
                chosen.keeps.extend(package.keeps.iter().cloned());
            }
        }
        chosen
    }
}

/// Returns whether these packages allow nothing that the others do not: each is among them.
pub fn are_of(new: &[String], old: &[String]) -> bool {
    let has = |name: &String| {
        old.contains(name) || (old.iter().any(|own| own == ALL) && TABLE.contains_key(name))
    };
    new.iter().all(has)
}

fn near(name: &str, installed: &InstalledPackages) -> Option<String> {
    let declared = TABLE.keys().map(|known| (distance(known, name), known));
    let declared = declared.filter(|(distance, _)| *distance <= 2).min();
    match declared {
        Some((_, known)) => Some(known.clone()),
        None => installed.found().near(name).map(str::to_owned),
    }
}

/// Returns the problem with the name of a package, if any.
pub fn no_package(name: &str) -> Option<&'static str> {
    let is_odd = |letter: char| !letter.is_alphanumeric() && !matches!(letter, '-' | '_' | '.');
    (name.is_empty() || name.contains(is_odd) || is_within_module(name, "fastaudit_rs"))
        .then_some("must be the name of a package, as one installs or imports it (\"numpy\")")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::environment::is_dangerous;

    #[test]
    fn the_table_is_whole() {
        let table: Table = TEXT.parse().unwrap();
        for (name, value) in &table {
            assert!(no_package(name).is_none(), "{name}");
            for (key, value) in value.as_table().unwrap() {
                let is_known = match key.as_str() {
                    "why" => value.as_str().is_some_and(|why| why.ends_with('.')),
                    "with" | "env" | "keeps" => {
                        let items = value.as_array().unwrap();
                        items.iter().all(Value::is_str)
                    }
                    _ => false,
                };
                assert!(is_known, "{name}: {key}");
            }
            let package = Package::of(value);
            for with in &package.with {
                assert!(table.contains_key(with), "{name}: {with}");
            }
            for variable in &package.env {
                let start = variable.trim_end_matches('*');
                assert!(start.len() > 2 && start.is_ascii(), "{name}: {variable}");
                assert!(!is_dangerous(start.as_bytes()), "{name}: {variable}");
            }
            for kept in &package.keeps {
                let start = kept.trim_end_matches('*');
                assert!(start.len() > 5 && !start.contains('/'), "{name}: {kept}");
            }
        }
    }
}
