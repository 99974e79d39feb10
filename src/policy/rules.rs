//! Which audit event means what: the rule set of the `fastaudit` 0.1 contract, as data.
//!
//! An event that is not named here passes; under the 0.2 contract, those that `rules_02` names do.
//! The argument shapes are those of the CPython documentation's audit event table:
//! <https://docs.python.org/3/library/audit_events.html>.

use super::index::Index;

/// What an operation does with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Makes, changes or removes the directory entry.
    Change,
    /// Changes the file that it leads to; the entry where the call says that links are not followed.
    File,
    /// Announces changes that have events of their own, or makes an entry.
    Place,
    /// Gives the entry another name, or makes it another's.
    Move,
    /// Reads what it leads to.
    Read,
}

/// A path among an event's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathArg {
    /// Position of the path.
    pub path: usize,
    /// Position of the `dir_fd` that a relative path is resolved against, where the event has one.
    pub dir_fd: Option<usize>,
    /// Whether the operation also takes an open file descriptor in place of the path.
    pub descriptor: bool,
    /// What is done with it.
    pub access: Access,
}

/// What the guard does with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Denied whatever its arguments are.
    Deny,
    /// Starts a program.
    Start,
    /// Starts a program, perhaps one whose start was approved just before.
    LowLevelStart,
    /// Changes the directory entries that these arguments name, or reads some of them.
    Entries(&'static [PathArg]),
    /// Reads what these arguments name, and does no more.
    Read(&'static [PathArg]),
    /// Copies the process: denied where other threads run, whose locks the copy would wait for.
    Fork,
    /// Ends the process at once: denied but in a copy of it.
    End,
    /// `resource.prlimit(pid, resource, limits)`: denied where limits are set.
    Limits,
    /// Takes an address of the machine: a file, where it is that of a Unix socket.
    Bind,
    /// Sets the environment variable of the first argument.
    SetVariable,
    /// Removes the environment variable of the first argument.
    RemoveVariable,
    /// Removes all environment variables.
    RemoveVariables,
    /// Uses the network.
    Network(NetworkEvent),
    /// Imports a module.
    Import,
    /// Runs code, perhaps that of a module whose import no other event tells of.
    Exec,
    /// Starts a thread.
    Thread,
    /// Calls native code that is not in the standard library.
    Native,
    /// Writes to a file what would be too much.
    WriteBytes,
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

/// What an event does with the network, and where its arguments say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkEvent {
    /// `(socket, address)`: connects.
    Connect,
    /// `(socket, address)`: takes an address of the machine.
    Bind,
    /// `(socket, address)`: sends; to where it is connected when the address is `None`.
    Send,
    /// `(host, …)`: looks up a name.
    LookUp,
    /// `(address)`: looks up the name of an address.
    LookUpAddress,
}

impl Rule {
    /// Whether only some policies restrict such events: fastaudit 0.1 lets them pass.
    #[must_use]
    pub const fn is_of_policies(self) -> bool {
        matches!(
            self,
            Self::Read(_) | Self::Network(_) | Self::Import | Self::Exec
        )
    }
}

const fn entry(path: usize) -> PathArg {
    PathArg {
        path,
        dir_fd: None,
        descriptor: false,
        access: Access::Change,
    }
}

const fn entry_at(path: usize, dir_fd: usize) -> PathArg {
    PathArg {
        dir_fd: Some(dir_fd),
        ..entry(path)
    }
}

const fn file_by_name(path: usize) -> PathArg {
    PathArg {
        access: Access::File,
        ..entry(path)
    }
}

const fn file(path: usize) -> PathArg {
    PathArg {
        descriptor: true,
        ..file_by_name(path)
    }
}

const fn file_at(path: usize, dir_fd: usize) -> PathArg {
    PathArg {
        dir_fd: Some(dir_fd),
        ..file(path)
    }
}

const fn file_by_name_at(path: usize, dir_fd: usize) -> PathArg {
    PathArg {
        dir_fd: Some(dir_fd),
        ..file_by_name(path)
    }
}

const fn place(path: usize) -> PathArg {
    PathArg {
        access: Access::Place,
        ..entry(path)
    }
}

const fn place_at(path: usize, dir_fd: usize) -> PathArg {
    PathArg {
        dir_fd: Some(dir_fd),
        ..place(path)
    }
}

const fn moved(path: usize) -> PathArg {
    PathArg {
        access: Access::Move,
        ..entry(path)
    }
}

const fn moved_at(path: usize, dir_fd: usize) -> PathArg {
    PathArg {
        access: Access::Move,
        ..entry_at(path, dir_fd)
    }
}

const fn read(path: usize) -> PathArg {
    PathArg {
        access: Access::Read,
        ..file(path)
    }
}

const fn read_at(path: usize, dir_fd: usize) -> PathArg {
    PathArg {
        access: Access::Read,
        ..file_at(path, dir_fd)
    }
}

/// Every event the rule set names, with its rule.
pub const RULES: &[(&str, Rule)] = &[
    // Processes.
    ("_posixsubprocess.fork_exec", Rule::LowLevelStart),
    ("os.exec", Rule::Start),
    ("os.kill", Rule::Deny),
    ("os.killpg", Rule::Deny),
    ("os.fork", Rule::Fork),
    ("os.forkpty", Rule::Fork),
    ("resource.prlimit", Rule::Limits),
    ("resource.setrlimit", Rule::Deny),
    ("os.posix_spawn", Rule::LowLevelStart),
    ("os.spawn", Rule::Start),
    ("os.startfile", Rule::Start),
    ("os.startfile/2", Rule::Start),
    ("os.system", Rule::Start),
    ("pty.spawn", Rule::Start),
    ("signal.pthread_kill", Rule::Deny),
    ("subprocess.Popen", Rule::Start),
    // The guard and the interpreter's own workings.
    ("_thread.start_joinable_thread", Rule::Thread),
    ("_thread.start_new_thread", Rule::Thread),
    ("audit_perms.add_imports", Rule::Deny),
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
    ("fastaudit.call", Rule::Native),
    ("fastaudit.write", Rule::WriteBytes),
    ("object.__setattr__", Rule::SetAttribute),
    ("os.add_dll_directory", Rule::Deny),
    ("os._clearenv", Rule::RemoveVariables),
    ("os.putenv", Rule::SetVariable),
    ("os.unsetenv", Rule::RemoveVariable),
    ("socket.sethostname", Rule::Deny),
    ("sys.addaudithook", Rule::Deny),
    ("sys.excepthook", Rule::Deny),
    ("sys.monitoring.free_tool_id", Rule::Deny),
    ("sys.monitoring.register_callback", Rule::Deny),
    ("sys.monitoring.set_events", Rule::Deny),
    ("sys.monitoring.set_local_events", Rule::Deny),
    ("sys.remote_exec", Rule::Deny),
    ("sys.unraisablehook", Rule::Deny),
    // What CPython raises no event for (`python::silent`).
    ("_interpreters.call", Rule::Deny),
    ("_interpreters.exec", Rule::Deny),
    ("_interpreters.run_func", Rule::Deny),
    ("_interpreters.run_string", Rule::Deny),
    ("_tkinter.create", Rule::Deny),
    ("faulthandler._fatal_error_c_thread", Rule::Deny),
    ("faulthandler._read_null", Rule::Deny),
    ("faulthandler._sigabrt", Rule::Deny),
    ("faulthandler._sigfpe", Rule::Deny),
    ("faulthandler._sigsegv", Rule::Deny),
    ("faulthandler._stack_overflow", Rule::Deny),
    ("os.chroot", Rule::Deny),
    ("os.initgroups", Rule::Deny),
    ("os.login_tty", Rule::Deny),
    ("os.nice", Rule::Deny),
    ("os.sched_setaffinity", Rule::Deny),
    ("os.sched_setparam", Rule::Deny),
    ("os.sched_setscheduler", Rule::Deny),
    ("os.setegid", Rule::Deny),
    ("os.seteuid", Rule::Deny),
    ("os.setgid", Rule::Deny),
    ("os.setgroups", Rule::Deny),
    ("os.setns", Rule::Deny),
    ("os.setpgid", Rule::Deny),
    ("os.setpgrp", Rule::Deny),
    ("os.setpriority", Rule::Deny),
    ("os.setregid", Rule::Deny),
    ("os.setresgid", Rule::Deny),
    ("os.setresuid", Rule::Deny),
    ("os.setreuid", Rule::Deny),
    ("os.setsid", Rule::Deny),
    ("os.setuid", Rule::Deny),
    ("os.tcsetpgrp", Rule::Deny),
    ("os.unshare", Rule::Deny),
    ("signal.pidfd_send_signal", Rule::Deny),
    ("signal.raise_signal", Rule::Deny),
    ("sys.activate_stack_trampoline", Rule::Deny),
    ("time.clock_settime", Rule::Deny),
    ("time.clock_settime_ns", Rule::Deny),
    ("os._exit", Rule::End),
    ("os.abort", Rule::End),
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
    ("_winapi.CreateProcess", Rule::LowLevelStart),
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
    ("os.chflags", Rule::Entries(&[file_by_name(0)])),
    ("os.chmod", Rule::Entries(&[file_at(0, 2)])),
    ("os.chown", Rule::Entries(&[file_at(0, 3)])),
    ("os.mkdir", Rule::Entries(&[place_at(0, 2)])),
    ("os.mkfifo", Rule::Entries(&[entry_at(0, 2)])),
    ("os.mknod", Rule::Entries(&[entry_at(0, 3)])),
    ("os.remove", Rule::Entries(&[entry_at(0, 1)])),
    ("os.removexattr", Rule::Entries(&[file(0)])),
    ("os.rmdir", Rule::Entries(&[entry_at(0, 1)])),
    ("os.setxattr", Rule::Entries(&[file(0)])),
    ("os.truncate", Rule::Entries(&[file(0)])),
    ("os.utime", Rule::Entries(&[file_at(0, 3)])),
    ("shutil.chown", Rule::Entries(&[file(0)])),
    ("shutil.make_archive", Rule::Entries(&[place(0)])),
    // It lists what it removes: told at once, as `tempfile` tries again what is denied later.
    (
        "shutil.rmtree",
        Rule::Entries(&[entry_at(0, 1), read_at(0, 1)]),
    ),
    ("tempfile.mkdtemp", Rule::Entries(&[entry(0)])),
    ("tempfile.mkstemp", Rule::Entries(&[entry(0)])),
    // The second argument is what changes; the first is read.
    ("shutil.copyfile", Rule::Entries(&[place(1), read(0)])),
    ("shutil.copymode", Rule::Entries(&[place(1), read(0)])),
    ("shutil.copystat", Rule::Entries(&[place(1), read(0)])),
    ("shutil.copytree", Rule::Entries(&[place(1), read(0)])),
    ("shutil.unpack_archive", Rule::Entries(&[place(1), read(0)])),
    ("sqlite3.load_extension", Rule::Entries(&[file_by_name(1)])),
    // Both change.
    (
        "os.link",
        Rule::Entries(&[
            entry_at(0, 2),
            file_by_name_at(0, 2),
            moved_at(1, 3),
            read_at(0, 2),
        ]),
    ),
    (
        "os.rename",
        Rule::Entries(&[moved_at(0, 2), moved_at(1, 3), read_at(0, 2)]),
    ),
    ("shutil.move", Rule::Entries(&[moved(0), place(1), read(0)])),
    // Reading, which only some policies restrict. `glob` and `pathlib` raise these as well.
    ("os.fwalk", Rule::Read(&[read_at(0, 4)])),
    ("os.getxattr", Rule::Read(&[read(0)])),
    ("os.listdir", Rule::Read(&[read(0)])),
    ("os.listxattr", Rule::Read(&[read(0)])),
    ("os.scandir", Rule::Read(&[read(0)])),
    ("os.walk", Rule::Read(&[read(0)])),
    // The network, likewise. What is built on sockets raises these as well.
    ("socket.bind", Rule::Bind),
    ("socket.connect", Rule::Network(NetworkEvent::Connect)),
    ("socket.getaddrinfo", Rule::Network(NetworkEvent::LookUp)),
    ("socket.gethostbyaddr", Rule::Network(NetworkEvent::LookUp)),
    ("socket.gethostbyname", Rule::Network(NetworkEvent::LookUp)),
    (
        "socket.getnameinfo",
        Rule::Network(NetworkEvent::LookUpAddress),
    ),
    ("socket.sendmsg", Rule::Network(NetworkEvent::Send)),
    ("socket.sendto", Rule::Network(NetworkEvent::Send)),
    // Imports, likewise. `importlib.import_module` raises only the second.
    ("import", Rule::Import),
    ("exec", Rule::Exec),
    // Events with rules of their own.
    ("open", Rule::Open),
    ("os.chdir", Rule::ChangeDirectory),
    ("os.symlink", Rule::Symlink),
    ("sqlite3.attach", Rule::Database),
    ("sqlite3.connect", Rule::Database),
];

/// All rules.
static ALL: Index = index(true);
/// Those of fastaudit 0.1.
static CLASSIC: Index = index(false);

const fn index(all: bool) -> Index {
    let mut index = Index::new();
    let mut position = 0;
    while position < RULES.len() {
        let (name, rule) = RULES[position];
        if all || !rule.is_of_policies() {
            index = index.with(name, position);
        }
        position += 1;
    }
    index
}

/// The rule for an event, or `None` when the rule set does not name it.
#[must_use]
pub fn lookup(event: &[u8]) -> Option<Rule> {
    lookup_if(event, true)
}

/// The same; not of `all` rules, but of those alone that each guard needs.
#[must_use]
#[inline]
pub fn lookup_if(event: &[u8], all: bool) -> Option<Rule> {
    let index = if all { &ALL } else { &CLASSIC };
    let position = index.find(event, |position| Some(RULES.get(position)?.0))?;
    Some(RULES.get(position)?.1)
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
        assert_eq!(lookup(b"compile"), None);
        assert_eq!(lookup(b"os.system\0"), None);
        assert_eq!(lookup(b"os.system"), Some(Rule::Start));
        assert!(matches!(lookup(b"os.listdir"), Some(Rule::Read(_))));
        assert_eq!(lookup_if(b"os.listdir", false), None);
        for (name, rule) in RULES {
            let found = lookup_if(name.as_bytes(), false);
            assert_eq!(found, Some(*rule).filter(|rule| !rule.is_of_policies()));
        }
    }
}
