//! Which audit event means what: the rule set of the `fastaudit` 0.1 contract, as data.
//!
//! An event that is not named here passes. The argument shapes are those of the CPython
//! documentation's audit event table:
//! <https://docs.python.org/3/library/audit_events.html>.

use std::sync::OnceLock;

/// A path among an event's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathArg {
    /// Position of the path.
    pub path: usize,
    /// Position of the `dir_fd` that a relative path is resolved against, where the event has one.
    pub dir_fd: Option<usize>,
    /// Whether the operation also takes an open file descriptor in place of the path.
    pub descriptor: bool,
}

/// What the guard does with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Denied whatever its arguments are.
    Deny,
    /// Denied whatever its arguments are, unless it belongs to a process start that was approved.
    DenyProcessStart,
    /// Changes the directory entries that these arguments name.
    Entries(&'static [PathArg]),
    /// `open(path, mode, flags)`: checked when it may write.
    Open,
    /// `os.chdir(path)`: the destination itself is checked.
    ChangeDirectory,
    /// `os.symlink(text, path, dir_fd)`: the entry is checked, and where the link text leads.
    Symlink,
    /// `sqlite3.connect(database)`.
    Database,
    /// `object.__setattr__(object, name, value)`.
    SetAttribute,
}

const fn entry(path: usize) -> PathArg {
    PathArg {
        path,
        dir_fd: None,
        descriptor: false,
    }
}

const fn entry_at(path: usize, dir_fd: usize) -> PathArg {
    PathArg {
        path,
        dir_fd: Some(dir_fd),
        descriptor: false,
    }
}

const fn entry_or_descriptor(path: usize) -> PathArg {
    PathArg {
        path,
        dir_fd: None,
        descriptor: true,
    }
}

const fn entry_or_descriptor_at(path: usize, dir_fd: usize) -> PathArg {
    PathArg {
        path,
        dir_fd: Some(dir_fd),
        descriptor: true,
    }
}

/// Every event the rule set names, with its rule.
pub const RULES: &[(&str, Rule)] = &[
    // Processes.
    ("_posixsubprocess.fork_exec", Rule::DenyProcessStart),
    ("os.exec", Rule::Deny),
    ("os.kill", Rule::Deny),
    ("os.killpg", Rule::Deny),
    ("os.posix_spawn", Rule::DenyProcessStart),
    ("os.spawn", Rule::Deny),
    ("os.startfile", Rule::Deny),
    ("os.startfile/2", Rule::Deny),
    ("os.system", Rule::Deny),
    ("pty.spawn", Rule::Deny),
    ("signal.pthread_kill", Rule::Deny),
    ("subprocess.Popen", Rule::Deny),
    // The guard and the interpreter's own workings.
    ("_thread.start_joinable_thread", Rule::Deny),
    ("_thread.start_new_thread", Rule::Deny),
    ("audit_perms.set_config", Rule::Deny),
    ("audit_perms.set_data", Rule::Deny),
    ("cpython.PyConfig_Set", Rule::Deny),
    ("cpython.PyInterpreterState_Clear", Rule::Deny),
    ("cpython.PyInterpreterState_New", Rule::Deny),
    ("cpython._PySys_ClearAuditHooks", Rule::Deny),
    ("cpython.remote_debugger_script", Rule::Deny),
    ("cpython.run_command", Rule::Deny),
    ("cpython.run_file", Rule::Deny),
    ("cpython.run_module", Rule::Deny),
    ("cpython.run_startup", Rule::Deny),
    ("cpython.run_stdin", Rule::Deny),
    ("fastaudit.call", Rule::Deny),
    ("object.__setattr__", Rule::SetAttribute),
    ("os.add_dll_directory", Rule::Deny),
    ("os.putenv", Rule::Deny),
    ("os.unsetenv", Rule::Deny),
    ("socket.sethostname", Rule::Deny),
    ("sys.addaudithook", Rule::Deny),
    ("sys.excepthook", Rule::Deny),
    ("sys.monitoring.register_callback", Rule::Deny),
    ("sys.remote_exec", Rule::Deny),
    ("sys.unraisablehook", Rule::Deny),
    // Memory by address.
    ("ctypes.PyObj_FromPtr", Rule::Deny),
    ("ctypes.addressof", Rule::Deny),
    ("ctypes.call_function", Rule::Deny),
    ("ctypes.cdata", Rule::Deny),
    ("ctypes.cdata/buffer", Rule::Deny),
    ("ctypes.dlopen", Rule::Deny),
    ("ctypes.dlsym", Rule::Deny),
    ("ctypes.dlsym/handle", Rule::Deny),
    ("ctypes.memoryview_at", Rule::Deny),
    ("ctypes.string_at", Rule::Deny),
    ("ctypes.wstring_at", Rule::Deny),
    // Windows.
    ("_winapi.CreateFile", Rule::Deny),
    ("_winapi.CreateJunction", Rule::Deny),
    ("_winapi.CreateNamedPipe", Rule::Deny),
    ("_winapi.CreatePipe", Rule::Deny),
    ("_winapi.CreateProcess", Rule::DenyProcessStart),
    ("_winapi.OpenProcess", Rule::Deny),
    ("_winapi.TerminateProcess", Rule::Deny),
    ("msvcrt.get_osfhandle", Rule::Deny),
    ("msvcrt.locking", Rule::Deny),
    ("msvcrt.open_osfhandle", Rule::Deny),
    ("winreg.CreateKey", Rule::Deny),
    ("winreg.DeleteKey", Rule::Deny),
    ("winreg.DeleteValue", Rule::Deny),
    ("winreg.DisableReflectionKey", Rule::Deny),
    ("winreg.EnableReflectionKey", Rule::Deny),
    ("winreg.LoadKey", Rule::Deny),
    ("winreg.SaveKey", Rule::Deny),
    ("winreg.SetValue", Rule::Deny),
    // The first argument is what changes.
    ("os.chflags", Rule::Entries(&[entry(0)])),
    ("os.chmod", Rule::Entries(&[entry_or_descriptor_at(0, 2)])),
    ("os.chown", Rule::Entries(&[entry_or_descriptor_at(0, 3)])),
    ("os.mkdir", Rule::Entries(&[entry_at(0, 2)])),
    ("os.remove", Rule::Entries(&[entry_at(0, 1)])),
    ("os.removexattr", Rule::Entries(&[entry_or_descriptor(0)])),
    ("os.rmdir", Rule::Entries(&[entry_at(0, 1)])),
    ("os.setxattr", Rule::Entries(&[entry_or_descriptor(0)])),
    ("os.truncate", Rule::Entries(&[entry_or_descriptor(0)])),
    ("shutil.chown", Rule::Entries(&[entry_or_descriptor(0)])),
    ("shutil.make_archive", Rule::Entries(&[entry(0)])),
    ("shutil.rmtree", Rule::Entries(&[entry_at(0, 1)])),
    ("tempfile.mkdtemp", Rule::Entries(&[entry(0)])),
    ("tempfile.mkstemp", Rule::Entries(&[entry(0)])),
    // The second argument is what changes; the first is read.
    ("shutil.copyfile", Rule::Entries(&[entry(1)])),
    ("shutil.copymode", Rule::Entries(&[entry(1)])),
    ("shutil.copystat", Rule::Entries(&[entry(1)])),
    ("shutil.copytree", Rule::Entries(&[entry(1)])),
    ("shutil.unpack_archive", Rule::Entries(&[entry(1)])),
    ("sqlite3.load_extension", Rule::Entries(&[entry(1)])),
    // Both change.
    ("os.link", Rule::Entries(&[entry_at(0, 2), entry_at(1, 3)])),
    (
        "os.rename",
        Rule::Entries(&[entry_at(0, 2), entry_at(1, 3)]),
    ),
    ("shutil.move", Rule::Entries(&[entry(0), entry(1)])),
    // Events with rules of their own.
    ("open", Rule::Open),
    ("os.chdir", Rule::ChangeDirectory),
    ("os.symlink", Rule::Symlink),
    ("sqlite3.connect", Rule::Database),
];

/// Where the rules are in `RULES`, by a hash of the name: one more than the index, 0 for none.
struct Index([u8; PLACES]);

/// More than twice as many as there are rules, so that most names are found or missed at once.
const PLACES: usize = 512;
const _: () = assert!(RULES.len() * 2 < PLACES && RULES.len() < u8::MAX as usize);

/// The place to begin at: names differ in how they begin and end, or in length.
#[inline]
fn place(event: &[u8]) -> usize {
    let part = |bytes: Option<&[u8; 4]>| u32::from_le_bytes(*bytes.unwrap_or(&[0; 4]));
    let (first, last) = (part(event.first_chunk()), part(event.last_chunk()));
    let mixed = (first ^ last.rotate_left(13))
        .wrapping_add(event.len() as u32)
        .wrapping_mul(0x9E37_79B1);
    mixed as usize >> 23
}

impl Index {
    fn new() -> Self {
        let mut index = Self([0; PLACES]);
        for (number, (name, _)) in (1..).zip(RULES) {
            let mut at = place(name.as_bytes());
            while index.0[at] != 0 {
                at = (at + 1) % PLACES;
            }
            index.0[at] = number;
        }
        index
    }

    #[inline]
    fn find(&self, event: &[u8]) -> Option<Rule> {
        let mut at = place(event);
        loop {
            let number = usize::from(self.0[at % PLACES]);
            let (name, rule) = RULES.get(number.checked_sub(1)?)?;
            if name.as_bytes() == event {
                return Some(*rule);
            }
            at += 1;
        }
    }
}

/// The rule for an event, or `None` when the rule set does not name it.
#[must_use]
#[inline]
pub fn lookup(event: &[u8]) -> Option<Rule> {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(Index::new).find(event)
}

/// Attributes whose assignment raises `object.__setattr__` and that ordinary class and function
/// building sets: `namedtuple`, `dataclass(slots=True)`, `functools.wraps`, `unittest.mock`.
///
/// What is left out, a function's `__code__` and `__kwdefaults__`, changes what code that is
/// already trusted does.
const ORDINARY_ATTRIBUTES: &[&[u8]] = &[
    b"__doc__",
    b"__module__",
    b"__name__",
    b"__qualname__",
    b"__bases__",
    b"__class__",
    b"__defaults__",
    b"__type_params__",
];

/// Whether assigning the attribute is part of ordinary class and function building.
#[must_use]
pub fn is_ordinary_attribute(name: &[u8]) -> bool {
    ORDINARY_ATTRIBUTES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_named_once() {
        let mut names: Vec<_> = RULES.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
    }

    #[test]
    fn unknown_events_have_no_rule() {
        assert_eq!(lookup(b"import"), None);
        assert_eq!(lookup(b"os.system\0"), None);
        assert_eq!(lookup(b"os.system"), Some(Rule::Deny));
    }
}
