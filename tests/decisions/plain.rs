//! Events of plain values: the arguments and the surroundings that a row of a table gives.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use fastaudit_rs::policy::check::ModuleOrigin;
use fastaudit_rs::policy::commands;
use fastaudit_rs::policy::files::fs::PathBuf;
use fastaudit_rs::policy::files::path::{Name, Resolved};
use fastaudit_rs::policy::judge::{
    Arguments, Endpoint, FAMILIES, Host, Knowledge, Named, PathLikes, Reason, Surroundings,
    UNIX_FAMILY,
};
use fastaudit_rs::policy::{Operation, Os, Policy};
use rustix::fs::{Mode, OFlags};
use toml::{Table, Value};

/// An argument of an event.
#[derive(Debug)]
pub enum Argument {
    None,
    Text(String),
    Bytes(Vec<u8>),
    ByteArray(Vec<u8>),
    Integer(i64),
    Tuple(Vec<Argument>),
    List(Vec<Argument>),
    Environment(Table),
    Descriptor(OwnedFd),
    Socket(i64),
    /// A path of `pathlib`, which keeps its text.
    Path(String),
    /// An object whose `__fspath__` is written in Python.
    PathLike(String),
    Other,
}

impl Argument {
    /// Reads a value of a row; `TREE` stands for `tree`.
    pub fn read(value: &Value, tree: &str) -> Self {
        let each = |items: &[Value]| items.iter().map(|item| Self::read(item, tree)).collect();
        let table = match value {
            Value::String(text) => return Self::Text(text.replace("TREE", tree)),
            Value::Integer(number) => return Self::Integer(*number),
            Value::Boolean(is) => return Self::Integer(i64::from(*is)),
            Value::Array(items) => return Self::Tuple(each(items)),
            Value::Table(table) => table,
            value => panic!("no argument: {value}"),
        };
        let Some((kind, value)) = table.iter().next() else {
            return Self::None;
        };
        let text = || value.as_str().unwrap().replace("TREE", tree);
        match kind.as_str() {
            "bytes" => Self::Bytes(text().into_bytes()),
            "bytearray" => Self::ByteArray(text().into_bytes()),
            "path" => Self::Path(text()),
            "pathlike" => Self::PathLike(text()),
            "list" => Self::List(each(value.as_array().unwrap())),
            "environment" => {
                let variables = value.as_table().unwrap().iter();
                let placed = variables.map(|(name, value)| {
                    let value = value.as_str().unwrap().replace("TREE", tree);
                    (name.clone(), Value::String(value))
                });
                Self::Environment(placed.collect())
            }
            "reading" => Self::Descriptor(open(&text(), OFlags::RDONLY)),
            "writing" => Self::Descriptor(open(&text(), OFlags::WRONLY)),
            "socket" => Self::Socket(match text().as_str() {
                "inet" => FAMILIES[0],
                "inet6" => FAMILIES[1],
                "unix" => UNIX_FAMILY,
                family => panic!("no family: {family}"),
            }),
            "object" => Self::Other,
            kind => panic!("no argument: {kind}"),
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) | Self::Path(text) => Some(text.as_bytes()),
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn host(&self) -> Option<Host> {
        match self {
            Self::None => Some(Host::Own),
            Self::Text(text) => Some(Host::of(text)),
            Self::Bytes(bytes) | Self::ByteArray(bytes) => {
                Some(Host::of(std::str::from_utf8(bytes).ok()?))
            }
            _ => None,
        }
    }

    fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Descriptor(fd) => Some(fd.as_raw_fd().into()),
            _ => None,
        }
    }
}

fn open(path: &str, flags: OFlags) -> OwnedFd {
    rustix::fs::open(path, flags, Mode::empty()).unwrap()
}

/// The name of a file, or none.
pub enum PlainName {
    Path(Vec<u8>),
    Descriptor(i32),
    Unreadable,
}

impl Named for PlainName {
    fn name(&self) -> Name<'_> {
        match self {
            Self::Path(bytes) => Name::Path(bytes),
            Self::Descriptor(fd) => Name::Descriptor(*fd),
            Self::Unreadable => Name::Unreadable,
        }
    }
}

/// The arguments of an event.
#[derive(Debug)]
pub struct Plain(pub Vec<Argument>);

impl Arguments for Plain {
    type Error = Reason;
    type Name<'a> = PlainName;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn is_none(&self, index: usize) -> bool {
        matches!(self.0.get(index), Some(Argument::None))
    }

    fn is_texts(&self, index: usize) -> bool {
        matches!(
            self.0.get(index),
            Some(Argument::Text(_) | Argument::Bytes(_) | Argument::ByteArray(_))
        )
    }

    fn integer(&self, index: usize) -> Option<i64> {
        self.0.get(index)?.integer()
    }

    fn text(&self, index: usize) -> Option<Cow<'_, str>> {
        match self.0.get(index)? {
            Argument::Text(text) => Some(Cow::Borrowed(text)),
            _ => None,
        }
    }

    fn with_encoded<R>(&self, index: usize, read: impl FnOnce(Option<&[u8]>) -> R) -> Option<R> {
        match self.0.get(index)? {
            Argument::Text(text) => Some(read(Some(text.as_bytes()))),
            _ => None,
        }
    }

    fn name(
        &self,
        index: usize,
        descriptor: bool,
        path_likes: PathLikes,
    ) -> Result<PlainName, Reason> {
        let given = self.0.get(index);
        let number = given.and_then(Argument::integer);
        Ok(match (given, number) {
            (_, Some(number)) if descriptor => {
                i32::try_from(number).map_or(PlainName::Unreadable, PlainName::Descriptor)
            }
            (Some(Argument::PathLike(text)), _) if path_likes == PathLikes::CheckedAgain => {
                PlainName::Path(text.clone().into_bytes())
            }
            (given, _) => match given.and_then(Argument::bytes) {
                Some(bytes) => PlainName::Path(bytes.to_vec()),
                None => PlainName::Unreadable,
            },
        })
    }

    fn path(&self, index: usize) -> Option<PathBuf> {
        self.0.get(index)?.bytes().map(PathBuf::from_slice)
    }

    fn paths(&self, index: usize) -> Option<Vec<PathBuf>> {
        let (Argument::Tuple(items) | Argument::List(items)) = self.0.get(index)? else {
            return None;
        };
        let paths = items.iter().map_while(Argument::bytes);
        Some(paths.map(PathBuf::from_slice).collect())
    }

    fn search_path(&self, index: usize, own: &dyn Fn() -> Vec<u8>) -> Option<Vec<u8>> {
        match self.0.get(index) {
            None | Some(Argument::None) => Some(own()),
            Some(Argument::Environment(table)) => Some(match table.get("PATH") {
                Some(path) => path.as_str()?.as_bytes().to_vec(),
                None => commands::DEFAULT_PATH.to_vec(),
            }),
            Some(_) => None,
        }
    }

    fn socket(&self, index: usize) -> Option<(i64, i32)> {
        match self.0.get(index)? {
            Argument::Socket(family) => Some((*family, 3)),
            _ => None,
        }
    }

    fn host(&self, index: usize) -> Option<Host> {
        self.0.get(index)?.host()
    }

    fn first_host(&self, index: usize) -> Option<Host> {
        match self.0.get(index)? {
            Argument::Tuple(items) => items.first()?.host(),
            _ => None,
        }
    }

    fn endpoint(&self, index: usize) -> Option<Endpoint> {
        let Argument::Tuple(items) = self.0.get(index)? else {
            return None;
        };
        Some(Endpoint {
            items: items.len(),
            host: items.first()?.host()?,
            port: items.get(1)?.integer()?,
        })
    }

    fn socket_name(&self, index: usize) -> Option<Vec<u8>> {
        match self.0.get(index)? {
            Argument::ByteArray(bytes) => Some(bytes.clone()),
            Argument::Path(_) => None,
            given => given.bytes().map(<[u8]>::to_vec),
        }
    }
}

/// An event of a row.
pub struct Event<'a> {
    pub name: &'a str,
    pub args: Plain,
    pub policy: &'a Policy,
    /// The `PATH` of the process.
    pub search: Vec<u8>,
    /// The directory that the code began in.
    pub first_dir: Option<Vec<u8>>,
    /// The facts of the row.
    pub facts: Table,
    /// The number of connected sockets.
    pub connected: Cell<u32>,
}

impl Event<'_> {
    fn is(&self, fact: &str) -> bool {
        self.facts.get(fact).and_then(Value::as_bool) == Some(true)
    }

    fn imports(&self, packages: &[String]) -> bool {
        let importing = self.facts.get("importing").and_then(Value::as_str);
        importing.is_some_and(|own| packages.iter().any(|name| name == "*" || name == own))
    }
}

impl Surroundings for Event<'_> {
    type Error = Reason;
    type Arguments = Plain;
    type Fs = Os;

    fn event(&self) -> &[u8] {
        self.name.as_bytes()
    }

    fn arguments(&self) -> &Plain {
        &self.args
    }

    fn fs(&self) -> &Os {
        &Os
    }

    fn policy(&self) -> &Policy {
        self.policy
    }

    fn deny(&self, reason: Reason, _operation: Option<Operation<'_>>) -> Result<(), Reason> {
        Err(reason)
    }

    fn first_dir(&self) -> Option<&[u8]> {
        self.first_dir.as_deref()
    }

    fn own_path(&self) -> Vec<u8> {
        self.search.clone()
    }

    fn is_in_copy(&self) -> bool {
        self.is("in_copy")
    }

    fn has_other_threads(&self) -> Result<bool, Reason> {
        Ok(self.is("other_threads"))
    }

    fn carries_guard(&self) -> bool {
        self.is("real_thread")
    }

    fn origin(&self, file: &[u8], _landing: &Resolved) -> ModuleOrigin {
        let has = |part: &[u8]| file.windows(part.len()).any(|window| window == part);
        match has(b"/site-packages/") {
            true => ModuleOrigin::Installed,
            false => ModuleOrigin::Unknown,
        }
    }

    fn with_module_being_loaded<R>(
        &self,
        judge: impl FnOnce(Option<&str>) -> R,
    ) -> Result<R, Reason> {
        Ok(judge(self.facts.get("importing").and_then(Value::as_str)))
    }

    fn is_in_turn(&self) -> Result<bool, Reason> {
        Ok(self.facts.contains_key("importing"))
    }

    fn is_importing(&self, packages: &[String]) -> Result<bool, Reason> {
        Ok(self.imports(packages))
    }

    fn is_importing_named(&self, modules: &[String]) -> Result<bool, Reason> {
        Ok(self.imports(modules))
    }

    /// Knows this machine alone.
    fn look_up(&self, name: &str, family: i64) -> Vec<IpAddr> {
        match name == "localhost" && family == FAMILIES[0] {
            true => vec![IpAddr::from([127, 0, 0, 1])],
            false => Vec::new(),
        }
    }

    fn may_connect(&self, _socket: i32, most: u32) -> bool {
        self.connected.replace(self.connected.get() + 1) < most
    }
}

impl Knowledge for Event<'_> {
    fn names_of(&self, _address: IpAddr) -> Vec<String> {
        Vec::new()
    }

    fn package_of(&self, callee: &str) -> String {
        callee.split('.').next().unwrap_or(callee).to_owned()
    }

    fn own_path(&self) -> Vec<u8> {
        self.search.clone()
    }
}
