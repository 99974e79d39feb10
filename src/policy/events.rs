//! Every audit event of CPython 3.10 to 3.15: what the operation behind it does to the world, and
//! the rule of each contract for it. The only table of events.
//!
//! Named after CPython's own table, <https://docs.python.org/3/library/audit_events.html>, and what
//! its builds raise: `tests/assurance/test_event_tables.py` reads the names out of each of them.

use super::rules::{
    Index, NetworkEvent, Rule, contents, entry, file, file_by_name, look, moved, place, read,
};
use EventEffect::{
    Code, Descriptor, Directory, Environment, Guard, Import, Inspect, Interpreter, Lock, Log,
    Memory, Native, Network, Nothing, Open, Process, Read, Registry, Thread, Write,
};

/// The effect of an operation on the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventEffect {
    /// Opens a file: for reading or writing, as its arguments say.
    Open,
    /// Reads files or directories.
    Read,
    /// Makes, changes or removes files or directories.
    Write,
    /// Changes the current directory.
    Directory,
    /// Locks files.
    Lock,
    /// Starts or disturbs processes.
    Process,
    /// Starts threads.
    Thread,
    /// Changes environment variables.
    Environment,
    /// Uses the network.
    Network,
    /// Uses the system log.
    Log,
    /// Imports modules.
    Import,
    /// Makes or runs Python code.
    Code,
    /// Loads or calls native code, or goes past the interpreter to memory.
    Native,
    /// Maps memory.
    Memory,
    /// Acts on open descriptors.
    Descriptor,
    /// Uses the registry of Windows.
    Registry,
    /// Changes guards.
    Guard,
    /// Changes the interpreter.
    Interpreter,
    /// Looks into the interpreter.
    Inspect,
    /// None that would matter.
    Nothing,
}

impl EventEffect {
    /// The name that is told: opening a file reads it or writes it.
    pub fn told(self, writes: bool) -> &'static str {
        match self {
            Self::Open if writes => Self::Write.name(),
            Self::Open => Self::Read.name(),
            effect => effect.name(),
        }
    }

    /// Its name, as records and denials give it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Directory => "directory",
            Self::Lock => "lock",
            Self::Process => "process",
            Self::Thread => "thread",
            Self::Environment => "env",
            Self::Network => "network",
            Self::Log => "log",
            Self::Import => "import",
            Self::Code => "code",
            Self::Native => "native",
            Self::Memory => "memory",
            Self::Descriptor => "descriptor",
            Self::Registry => "registry",
            Self::Guard => "guard",
            Self::Interpreter => "interpreter",
            Self::Inspect => "inspect",
            Self::Nothing => "none",
        }
    }
}

/// An audit event of CPython, or of this package.
#[derive(Clone, Copy, Debug)]
pub struct KnownEvent {
    /// Its name.
    pub name: &'static str,
    /// Its effect.
    pub effect: EventEffect,
    /// The operation behind it, in the imperative.
    pub does: &'static str,
    /// The first and the last minor version of Python 3 that raise it, of 10 to 15; `OWN` if this
    /// package does.
    pub versions: (u8, u8),
    /// The rule of fastaudit 0.1, and of policies; without one it passes.
    pub rule: Option<Rule>,
    /// True if it passes under the contract of fastaudit 0.2, which denies any event that it does
    /// not name and has no rule for.
    pub passes_02: bool,
    /// The functions, `module.name`, that raise it under a guard as CPython raises nothing for
    /// them.
    pub raised_by: &'static [&'static str],
}

impl KnownEvent {
    /// Returns whether this package raises it.
    pub fn is_own(&self) -> bool {
        self.versions.1 == 0
    }

    const fn rule(mut self, rule: Rule) -> Self {
        self.rule = Some(rule);
        self
    }

    const fn passes_02(mut self) -> Self {
        self.passes_02 = true;
        self
    }

    const fn by(mut self, functions: &'static [&'static str]) -> Self {
        self.raised_by = functions;
        self
    }
}

const fn on(
    name: &'static str,
    effect: EventEffect,
    does: &'static str,
    versions: (u8, u8),
) -> KnownEvent {
    KnownEvent { name, effect, does, versions, rule: None, passes_02: false, raised_by: &[] }
}

const fn event(name: &'static str, effect: EventEffect, does: &'static str) -> KnownEvent {
    on(name, effect, does, (10, 15))
}

/// The versions of an event that this package raises.
const OWN: (u8, u8) = (0, 0);

const fn own(name: &'static str, effect: EventEffect, does: &'static str) -> KnownEvent {
    on(name, effect, does, OWN)
}

/// All events, those of one subject together.
#[rustfmt::skip]
pub const EVENTS: &[KnownEvent] = &[
    // Files.
    event("open", Open, "open a file").rule(Rule::Open).by(&["readline.write_history_file", "readline.append_history_file", "_dbm.open", "_gdbm.open", "_posixshmem.shm_open", "readline.read_history_file", "readline.read_init_file", "readline.parse_and_bind", "_locale.bindtextdomain", "_ssl._test_decode_cert", "spwd.getspall", "spwd.getspnam"]),
    event("os.chdir", Directory, "change to a directory").rule(Rule::ChangeDirectory),
    event("os.chflags", Write, "change the flags of a file (macOS, BSD)").rule(Rule::Entries(&[file_by_name(0)])),
    event("os.chmod", Write, "change the mode of a file").rule(Rule::Entries(&[file(0).at(2)])),
    event("os.chown", Write, "change the owner of a file").rule(Rule::Entries(&[file(0).at(3)])),
    event("os.link", Write, "hard-link a file").rule(Rule::Entries(&[entry(0).at(2), file_by_name(0).at(2), moved(1).at(3), read(0).at(2)])),
    event("os.mkdir", Write, "make a directory").rule(Rule::Entries(&[place(0).at(2)])),
    event("os.remove", Write, "remove a file").rule(Rule::Entries(&[entry(0).at(1)])).by(&["_posixshmem.shm_unlink"]),
    event("os.removexattr", Write, "change an extended attribute of a file").rule(Rule::Entries(&[file(0)])),
    event("os.rename", Write, "rename a file").rule(Rule::Entries(&[moved(0).at(2), moved(1).at(3), read(0).at(2)])),
    event("os.rmdir", Write, "remove a directory").rule(Rule::Entries(&[entry(0).at(1)])),
    event("os.setxattr", Write, "change an extended attribute of a file").rule(Rule::Entries(&[file(0)])),
    event("os.symlink", Write, "make a symbolic link").rule(Rule::Symlink),
    event("os.truncate", Write, "truncate or extend a file").rule(Rule::Entries(&[contents(0)])),
    event("os.utime", Write, "set the times of a file").rule(Rule::Entries(&[file(0).at(3)])).passes_02(),
    event("shutil.chown", Write, "change the owner of a file").rule(Rule::Entries(&[file(0)])),
    event("shutil.copyfile", Write, "copy the contents of a file").rule(Rule::Entries(&[place(1), read(0)])),
    event("shutil.copymode", Write, "copy the mode or times of a file").rule(Rule::Entries(&[place(1), read(0)])),
    event("shutil.copystat", Write, "copy the mode or times of a file").rule(Rule::Entries(&[place(1), read(0)])),
    event("shutil.copytree", Write, "copy a directory tree").rule(Rule::Entries(&[place(1), read(0)])),
    event("shutil.make_archive", Write, "make an archive").rule(Rule::Entries(&[place(0)])),
    event("shutil.move", Write, "move a file or directory").rule(Rule::Entries(&[moved(0), place(1), read(0)])),
    // It lists what it removes: told at once, as `tempfile` tries again what is denied later.
    event("shutil.rmtree", Write, "remove a directory tree").rule(Rule::Entries(&[entry(0).at(1), read(0).at(1)])),
    event("shutil.unpack_archive", Write, "unpack an archive").rule(Rule::Entries(&[place(1), read(0)])),
    event("sqlite3.connect", Write, "open a database").rule(Rule::Database),
    event("tempfile.mkdtemp", Write, "make a temporary file or directory").rule(Rule::Entries(&[entry(0)])),
    event("tempfile.mkstemp", Write, "make a temporary file or directory").rule(Rule::Entries(&[entry(0)])),
    event("fcntl.flock", Lock, "lock a file"),
    event("fcntl.lockf", Lock, "lock a part of a file"),
    event("os.lockf", Lock, "lock a part of a file").passes_02(),
    event("msvcrt.locking", Lock, "lock a part of a file (Windows)").rule(Rule::Deny),
    event("glob.glob", Read, "list the files that match a pattern").passes_02(),
    event("glob.glob/2", Read, "list the files that match a pattern").passes_02(),
    event("os.fwalk", Read, "walk a directory tree").rule(Rule::Read(&[read(0).at(4)])).passes_02(),
    event("os.getxattr", Read, "read an extended attribute of a file").rule(Rule::Read(&[read(0)])).passes_02(),
    event("os.listdir", Read, "list a directory").rule(Rule::Read(&[read(0)])).passes_02(),
    event("os.listdrives", Read, "list drives or volumes (Windows)").passes_02(),
    event("os.listmounts", Read, "list drives or volumes (Windows)").passes_02(),
    event("os.listvolumes", Read, "list drives or volumes (Windows)").passes_02(),
    event("os.listxattr", Read, "read an extended attribute of a file").rule(Rule::Read(&[read(0)])).passes_02(),
    event("os.scandir", Read, "list a directory").rule(Rule::Read(&[read(0)])).passes_02(),
    event("os.walk", Read, "walk a directory tree").rule(Rule::Read(&[read(0)])).passes_02(),
    event("pathlib.Path.glob", Read, "list the files that match a pattern").passes_02(),
    event("pathlib.Path.rglob", Read, "list the files that match a pattern").passes_02(),
    on("pathlib.Path.walk", Read, "walk a directory tree", (12, 15)).passes_02(),
    // Processes.
    on("_posixsubprocess.fork_exec", Process, "start a program", (14, 15)).rule(Rule::LowLevelStart).by(&["_posixsubprocess.fork_exec"]),
    event("_winapi.CreateProcess", Process, "start a program (Windows)").rule(Rule::LowLevelStart),
    event("_winapi.OpenProcess", Process, "open a process (Windows)").rule(Rule::Deny),
    event("_winapi.TerminateProcess", Process, "end a process (Windows)").rule(Rule::Deny),
    event("ensurepip.bootstrap", Process, "install pip"),
    event("os.exec", Process, "replace the process with a program").rule(Rule::Start),
    event("os.fork", Process, "fork the process").rule(Rule::Fork).passes_02(),
    event("os.forkpty", Process, "fork the process").rule(Rule::Fork).passes_02(),
    event("os.kill", Process, "send a signal to a process").rule(Rule::Deny),
    event("os.killpg", Process, "send a signal to a process").rule(Rule::Deny),
    event("os.posix_spawn", Process, "start a program").rule(Rule::LowLevelStart),
    event("os.spawn", Process, "start a program (Windows)").rule(Rule::Start),
    event("os.startfile", Process, "open a file (Windows)").rule(Rule::Start),
    event("os.startfile/2", Process, "open a file (Windows)").rule(Rule::Start),
    event("os.system", Process, "run a shell command").rule(Rule::Start),
    event("pty.spawn", Process, "start a program").rule(Rule::Start),
    event("resource.prlimit", Process, "set limits of a process").rule(Rule::Limits).passes_02(),
    event("resource.setrlimit", Process, "set limits of this process").rule(Rule::Deny).passes_02(),
    event("signal.pthread_kill", Process, "send a signal to a thread").rule(Rule::Deny),
    event("subprocess.Popen", Process, "start a program").rule(Rule::Start),
    on("sys.remote_exec", Process, "run code in another Python process", (14, 15)).rule(Rule::Deny),
    event("webbrowser.open", Process, "open a web browser").passes_02(),
    // Threads.
    on("_thread.start_joinable_thread", Thread, "start a thread", (13, 15)).rule(Rule::Thread),
    on("_thread.start_new_thread", Thread, "start a thread", (12, 15)).rule(Rule::Thread),
    // The environment.
    on("os._clearenv", Environment, "remove all environment variables", (15, 15)).rule(Rule::RemoveVariables),
    event("os.putenv", Environment, "set an environment variable").rule(Rule::SetVariable),
    event("os.unsetenv", Environment, "remove an environment variable").rule(Rule::RemoveVariable),
    // Network.
    event("ftplib.connect", Network, "connect to a server"),
    event("ftplib.sendcmd", Network, "send to a server"),
    event("http.client.connect", Network, "connect to a server"),
    event("http.client.send", Network, "send to a server"),
    event("imaplib.open", Network, "connect to a server"),
    event("imaplib.send", Network, "send to a server"),
    on("nntplib.connect", Network, "connect to a server", (10, 12)),
    on("nntplib.putline", Network, "send to a server", (10, 12)),
    event("poplib.connect", Network, "connect to a server"),
    event("poplib.putline", Network, "send to a server"),
    event("smtplib.connect", Network, "connect to a server"),
    event("smtplib.send", Network, "send to a server"),
    event("socket.__new__", Network, "make a socket").rule(Rule::Socket).passes_02(),
    event("socket.bind", Network, "bind a socket to an address").rule(Rule::Bind),
    event("socket.connect", Network, "connect to an address").rule(Rule::Network(NetworkEvent::Connect)),
    event("socket.getaddrinfo", Network, "look up a host").rule(Rule::Network(NetworkEvent::LookUp)).passes_02(),
    event("socket.gethostbyaddr", Network, "look up a host").rule(Rule::Network(NetworkEvent::LookUp)).passes_02(),
    event("socket.gethostbyname", Network, "look up a host").rule(Rule::Network(NetworkEvent::LookUp)).passes_02(),
    event("socket.getnameinfo", Network, "look up an address").rule(Rule::Network(NetworkEvent::LookUpAddress)).passes_02(),
    event("socket.sendmsg", Network, "send to an address").rule(Rule::Network(NetworkEvent::Send)),
    event("socket.sendto", Network, "send to an address").rule(Rule::Network(NetworkEvent::Send)),
    event("socket.sethostname", Network, "set the host name").rule(Rule::Deny),
    on("telnetlib.Telnet.open", Network, "connect to a server", (10, 12)),
    on("telnetlib.Telnet.write", Network, "send to a server", (10, 12)),
    event("urllib.Request", Network, "open a URL").passes_02(),
    event("syslog.closelog", Log, "open or close the system log").passes_02(),
    event("syslog.openlog", Log, "open or close the system log").passes_02(),
    event("syslog.setlogmask", Log, "filter the system log").passes_02(),
    event("syslog.syslog", Log, "write to the system log").passes_02(),
    // Code.
    // Imports: of extension modules where their file is from, else likewise.
    // `importlib.import_module` raises only the second.
    event("import", Import, "import a module").rule(Rule::Import),
    event("pickle.find_class", Import, "import what a pickle names").passes_02(),
    event("builtins.breakpoint", Code, "start a debugger").passes_02(),
    event("code.__new__", Code, "make a code object").passes_02(),
    event("compile", Code, "compile source text").passes_02(),
    event("cpython.run_command", Code, "run the program of `python`").rule(Rule::Deny),
    event("cpython.run_file", Code, "run the program of `python`").rule(Rule::Deny),
    event("cpython.run_interactivehook", Code, "run the hook of an interactive session").passes_02(),
    event("cpython.run_module", Code, "run the program of `python`").rule(Rule::Deny),
    event("cpython.run_startup", Code, "run the start-up file of an interactive session").rule(Rule::Deny),
    event("cpython.run_stdin", Code, "run the program of `python`").rule(Rule::Deny),
    on("cpython.remote_debugger_script", Code, "run a script for another process", (14, 15)).rule(Rule::Deny),
    event("exec", Code, "run a code object").rule(Rule::Exec).passes_02(),
    event("function.__new__", Code, "make a function").passes_02(),
    event("marshal.dumps", Code, "serialize or deserialize an object"),
    event("marshal.load", Code, "serialize or deserialize an object"),
    event("marshal.loads", Code, "serialize or deserialize an object"),
    event("pdb.Pdb", Code, "start a debugger").passes_02(),
    // Native code and memory.
    event("array.__new__", Nothing, "make an array").passes_02(),
    event("ctypes.PyObj_FromPtr", Native, "turn an address into an object").rule(Rule::Deny),
    event("ctypes.addressof", Native, "return an object's address").rule(Rule::Deny),
    event("ctypes.call_function", Native, "call native code by its address").rule(Rule::Deny),
    event("ctypes.cdata", Native, "turn an address into a value").rule(Rule::Deny),
    event("ctypes.cdata/buffer", Native, "turn a buffer into a value").rule(Rule::Deny),
    event("ctypes.create_string_buffer", Nothing, "make a buffer").passes_02(),
    event("ctypes.create_unicode_buffer", Nothing, "make a buffer").passes_02(),
    event("ctypes.dlopen", Native, "load a native library").rule(Rule::Deny),
    event("ctypes.dlsym", Native, "look up a native function").rule(Rule::Deny),
    event("ctypes.dlsym/handle", Native, "look up a native function").rule(Rule::Deny),
    event("ctypes.get_errno", Nothing, "read or set the `errno` of `ctypes`").passes_02(),
    on("ctypes.memoryview_at", Native, "turn an address into memory", (14, 15)).rule(Rule::Deny),
    event("ctypes.set_errno", Nothing, "read or set the `errno` of `ctypes`").passes_02(),
    event("ctypes.string_at", Native, "read memory by its address").rule(Rule::Deny),
    event("ctypes.wstring_at", Native, "read memory by its address").rule(Rule::Deny),
    own("fastaudit.call", Native, "call a native function").rule(Rule::Native),
    own("fastaudit.write", Write, "write more than `max_bytes`").rule(Rule::WriteBytes),
    event("mmap.__new__", Memory, "map a file or memory").passes_02(),
    event("os.add_dll_directory", Native, "add a library directory (Windows)").rule(Rule::Deny),
    event("sqlite3.enable_load_extension", Native, "let a database load native code").passes_02(),
    event("sqlite3.load_extension", Native, "load a database extension").rule(Rule::Entries(&[file_by_name(1)])),
    // The interpreter.
    own("audit_perms.add_imports", Guard, "exempt package imports from the guard").rule(Rule::Deny),
    own("audit_perms.set_config", Guard, "make or enter a guard").rule(Rule::Deny),
    own("audit_perms.set_data", Guard, "replace the host data of a guard").rule(Rule::Deny),
    on("cpython.PyConfig_Set", Interpreter, "configure the interpreter", (14, 15)).rule(Rule::Deny),
    event("cpython.PyInterpreterState_Clear", Interpreter, "clear an interpreter").rule(Rule::Deny),
    event("cpython.PyInterpreterState_New", Interpreter, "make another interpreter").rule(Rule::Deny).by(&["_interpreters.create", "_xxsubinterpreters.create"]),
    event("cpython._PySys_ClearAuditHooks", Interpreter, "remove all audit hooks at exit").rule(Rule::Deny),
    event("fcntl.fcntl", Descriptor, "change a descriptor's flags").rule(Rule::Signalling),
    event("fcntl.ioctl", Descriptor, "control a device").rule(Rule::Control),
    event("object.__delattr__", Interpreter, "delete a protected attribute").passes_02(),
    event("object.__setattr__", Interpreter, "set a protected attribute").rule(Rule::SetAttribute),
    event("setopencodehook", Interpreter, "set the hook of `io.open_code`").passes_02(),
    event("sys.addaudithook", Interpreter, "add an audit hook").rule(Rule::Deny),
    event("sys.excepthook", Interpreter, "handle an uncaught exception").rule(Rule::Deny),
    on("sys.monitoring.register_callback", Interpreter, "watch what code runs", (12, 15)).rule(Rule::Deny),
    event("sys.set_asyncgen_hook_finalizer", Nothing, "set a hook of an event loop").passes_02(),
    event("sys.set_asyncgen_hook_firstiter", Nothing, "set a hook of an event loop").passes_02(),
    event("sys.setprofile", Interpreter, "watch what code runs").passes_02(),
    event("sys.settrace", Interpreter, "watch what code runs").passes_02(),
    event("sys.unraisablehook", Interpreter, "handle an unraisable exception").rule(Rule::Deny),
    event("gc.get_objects", Inspect, "find objects and their references"),
    event("gc.get_referents", Inspect, "find objects and their references"),
    event("gc.get_referrers", Inspect, "find objects and their references"),
    event("object.__getattr__", Inspect, "read a protected attribute").passes_02(),
    event("sys._current_exceptions", Inspect, "find the exceptions of all threads").passes_02(),
    event("sys._current_frames", Inspect, "find the frames of all threads").passes_02(),
    event("sys._getframe", Inspect, "find a frame").passes_02(),
    on("sys._getframemodulename", Inspect, "name the module of a frame", (12, 15)).passes_02(),
    event("builtins.id", Nothing, "return an object's identity").passes_02(),
    event("builtins.input", Nothing, "ask the user").passes_02(),
    event("builtins.input/result", Nothing, "return the user's answer").passes_02(),
    event("socket.gethostname", Nothing, "return the host name").passes_02(),
    event("socket.getservbyname", Nothing, "look up a service").passes_02(),
    event("socket.getservbyport", Nothing, "look up a service").passes_02(),
    event("sqlite3.connect/handle", Nothing, "report an opened database").passes_02(),
    on("time.sleep", Nothing, "wait", (13, 15)).passes_02(),
    // Functions that CPython raises no event for.
    own("_interpreters.call", Interpreter, "run code in another interpreter").rule(Rule::Deny).by(&["_interpreters.call"]),
    own("_interpreters.exec", Interpreter, "run code in another interpreter").rule(Rule::Deny).by(&["_interpreters.exec"]),
    own("_interpreters.run_func", Interpreter, "run code in another interpreter").rule(Rule::Deny).by(&["_interpreters.run_func"]),
    own("_interpreters.run_string", Interpreter, "run code in another interpreter").rule(Rule::Deny).by(&["_interpreters.run_string", "_xxsubinterpreters.run_string"]),
    own("_thread.interrupt_main", Process, "send a signal to the main thread").rule(Rule::Deny).by(&["_thread.interrupt_main"]),
    own("_tkinter.create", Native, "make a Tcl interpreter").rule(Rule::Deny).by(&["_tkinter.create"]),
    own("faulthandler._fatal_error_c_thread", Process, "crash the process").rule(Rule::Deny).by(&["faulthandler._fatal_error_c_thread"]),
    own("faulthandler._read_null", Process, "crash the process").rule(Rule::Deny).by(&["faulthandler._read_null"]),
    own("faulthandler._sigabrt", Process, "crash the process").rule(Rule::Deny).by(&["faulthandler._sigabrt"]),
    own("faulthandler._sigfpe", Process, "crash the process").rule(Rule::Deny).by(&["faulthandler._sigfpe"]),
    own("faulthandler.dump_traceback_later", Process, "end the process later").rule(Rule::End).by(&["faulthandler.dump_traceback_later"]),
    own("faulthandler._sigsegv", Process, "crash the process").rule(Rule::Deny).by(&["faulthandler._sigsegv"]),
    own("faulthandler._stack_overflow", Process, "crash the process").rule(Rule::Deny).by(&["faulthandler._stack_overflow"]),
    own("fastaudit.read", Read, "read the user or group database").rule(Rule::Read(&[look(0)])).passes_02().by(&["grp.getgrall", "grp.getgrgid", "grp.getgrnam", "pwd.getpwall", "pwd.getpwnam", "pwd.getpwuid"]),
    own("os._exit", Process, "end the process at once").rule(Rule::End).by(&["posix._exit"]),
    own("os.wait", Process, "reap any child process").rule(Rule::Deny).by(&["posix.wait", "posix.wait3", "posix.wait4", "posix.waitid"]),
    own("os.abort", Process, "abort the process").rule(Rule::End).by(&["posix.abort"]),
    own("os.chroot", Process, "change the root directory").rule(Rule::Deny).by(&["posix.chroot"]),
    own("os.initgroups", Process, "change the user or groups of the process").rule(Rule::Deny).by(&["posix.initgroups"]),
    own("os.login_tty", Process, "change the terminal of the process").rule(Rule::Deny).by(&["posix.login_tty"]),
    own("os.mkfifo", Write, "make a named pipe").rule(Rule::Entries(&[entry(0).at(2)])).by(&["posix.mkfifo"]),
    own("os.mknod", Write, "make a device, named pipe or file").rule(Rule::Node(&[entry(0).at(3)])).by(&["posix.mknod"]),
    own("os.nice", Process, "change the priority of the process").rule(Rule::Deny).by(&["posix.nice"]),
    own("os.sched_setaffinity", Process, "change the processors of a process").rule(Rule::Deny).by(&["posix.sched_setaffinity"]),
    own("os.sched_setparam", Process, "change a process's scheduling").rule(Rule::Deny).by(&["posix.sched_setparam"]),
    own("os.sched_setscheduler", Process, "change a process's scheduling").rule(Rule::Deny).by(&["posix.sched_setscheduler"]),
    own("os.readlink", Read, "read the text of a symbolic link").rule(Rule::Read(&[look(0).at(1)])).passes_02().by(&["posix.readlink"]),
    own("os.setegid", Process, "change the user or groups of the process").rule(Rule::Deny).by(&["posix.setegid"]),
    own("os.seteuid", Process, "change the user or groups of the process").rule(Rule::Deny).by(&["posix.seteuid"]),
    own("os.setgid", Process, "change the user or groups of the process").rule(Rule::Deny).by(&["posix.setgid"]),
    own("os.setgroups", Process, "change the user or groups of the process").rule(Rule::Deny).by(&["posix.setgroups"]),
    own("os.setns", Process, "enter a namespace").rule(Rule::Deny).by(&["posix.setns"]),
    own("os.setpgid", Process, "change a process group").rule(Rule::Deny).by(&["posix.setpgid"]),
    own("os.setpgrp", Process, "change the process group").rule(Rule::Deny).by(&["posix.setpgrp"]),
    own("os.setpriority", Process, "change the priority of a process").rule(Rule::Deny).by(&["posix.setpriority"]),
    own("os.setregid", Process, "change the user or groups of the process").rule(Rule::Deny).by(&["posix.setregid"]),
    own("os.setresgid", Process, "change the user or groups of the process").rule(Rule::Deny).by(&["posix.setresgid"]),
    own("os.setresuid", Process, "change the user or groups of the process").rule(Rule::Deny).by(&["posix.setresuid"]),
    own("os.setreuid", Process, "change the user or groups of the process").rule(Rule::Deny).by(&["posix.setreuid"]),
    own("os.setsid", Process, "make a session").rule(Rule::Deny).by(&["posix.setsid"]),
    own("os.setuid", Process, "change the user or groups of the process").rule(Rule::Deny).by(&["posix.setuid"]),
    own("os.tcsetpgrp", Process, "change the process group of a terminal").rule(Rule::Deny).by(&["posix.tcsetpgrp"]),
    own("os.unshare", Process, "leave a namespace").rule(Rule::Deny).by(&["posix.unshare"]),
    own("signal.pidfd_send_signal", Process, "send a signal to a process").rule(Rule::Deny).by(&["_signal.pidfd_send_signal"]),
    own("signal.raise_signal", Process, "send a signal to this process").rule(Rule::Deny).by(&["_signal.raise_signal"]),
    own("socket.listen", Network, "listen at an address").rule(Rule::Network(NetworkEvent::Bind)),
    own("sqlite3.attach", Write, "open a database").rule(Rule::Database),
    own("sys.monitoring.free_tool_id", Guard, "free the guard's tool id").rule(Rule::Deny),
    own("sys.monitoring.set_events", Guard, "turn the guard's events off").rule(Rule::Deny),
    own("sys.monitoring.set_local_events", Guard, "change the guard's events for a function").rule(Rule::Deny),
    own("sys.set_lazy_imports_filter", Interpreter, "decide which imports are lazy").rule(Rule::Deny).by(&["sys.set_lazy_imports_filter"]),
    own("sys.activate_stack_trampoline", Write, "write a file for profilers").rule(Rule::Deny).by(&["sys.activate_stack_trampoline"]),
    own("time.clock_settime", Process, "set a clock of the machine").rule(Rule::Deny).by(&["time.clock_settime"]),
    own("time.clock_settime_ns", Process, "set a clock of the machine").rule(Rule::Deny).by(&["time.clock_settime_ns"]),
    // Windows.
    event("_winapi.CreateFile", Write, "open a file (Windows)").rule(Rule::Deny),
    event("_winapi.CreateJunction", Write, "make a directory link (Windows)").rule(Rule::Deny),
    event("_winapi.CreateNamedPipe", Write, "make a pipe (Windows)").rule(Rule::Deny),
    event("_winapi.CreatePipe", Descriptor, "make a pipe (Windows)").rule(Rule::Deny),
    event("msvcrt.get_osfhandle", Descriptor, "return a descriptor's handle (Windows)").rule(Rule::Deny),
    event("msvcrt.open_osfhandle", Descriptor, "make a descriptor from a handle (Windows)").rule(Rule::Deny),
    event("winreg.ConnectRegistry", Registry, "open or read the registry (Windows)").passes_02(),
    event("winreg.CreateKey", Registry, "change the registry (Windows)").rule(Rule::Deny),
    event("winreg.DeleteKey", Registry, "change the registry (Windows)").rule(Rule::Deny),
    event("winreg.DeleteValue", Registry, "change the registry (Windows)").rule(Rule::Deny),
    event("winreg.DisableReflectionKey", Registry, "change the registry (Windows)").rule(Rule::Deny),
    event("winreg.EnableReflectionKey", Registry, "change the registry (Windows)").rule(Rule::Deny),
    event("winreg.EnumKey", Registry, "open or read the registry (Windows)").passes_02(),
    event("winreg.EnumValue", Registry, "open or read the registry (Windows)").passes_02(),
    event("winreg.ExpandEnvironmentStrings", Nothing, "expand environment variables (Windows)").passes_02(),
    event("winreg.LoadKey", Registry, "change the registry (Windows)").rule(Rule::Deny),
    event("winreg.OpenKey", Registry, "open or read the registry (Windows)").passes_02(),
    event("winreg.OpenKey/result", Registry, "open or read the registry (Windows)").passes_02(),
    event("winreg.PyHKEY.Detach", Registry, "take a registry key's handle (Windows)").passes_02(),
    event("winreg.QueryInfoKey", Registry, "open or read the registry (Windows)").passes_02(),
    event("winreg.QueryReflectionKey", Registry, "open or read the registry (Windows)").passes_02(),
    event("winreg.QueryValue", Registry, "open or read the registry (Windows)").passes_02(),
    event("winreg.SaveKey", Registry, "save a registry key (Windows)").rule(Rule::Deny),
    event("winreg.SetValue", Registry, "change the registry (Windows)").rule(Rule::Deny),
];

/// The events that have a rule.
static ALL: Index = index(Some(true));
/// The events that have a rule of fastaudit 0.1.
static CLASSIC: Index = index(Some(false));
/// All events.
static KNOWN: Index = index(None);

/// The index of the events with a rule, `Some(false)`: of fastaudit 0.1; `None`: of all events.
const fn index(ruled: Option<bool>) -> Index {
    let mut index = Index::new();
    let mut position = 0;
    while position < EVENTS.len() {
        let known = EVENTS[position];
        let is_in = match (ruled, known.rule) {
            (None, _) => true,
            (Some(all), Some(rule)) => all || !rule.is_of_policies(),
            (Some(_), None) => false,
        };
        if is_in {
            index = index.with(known.name, position);
        }
        position += 1;
    }
    index
}

/// The rule for an event; `None` for one that passes.
pub fn lookup(event: &[u8]) -> Option<Rule> {
    lookup_if(event, true)
}

/// The same, but with the rules alone that each guard needs if not `all`.
#[inline]
pub fn lookup_if(event: &[u8], all: bool) -> Option<Rule> {
    let index = if all { &ALL } else { &CLASSIC };
    let position = index.find(event, |position| Some(EVENTS.get(position)?.name))?;
    EVENTS.get(position)?.rule
}

/// Returns the tables' entry for an event; `None` for one that no supported CPython raises.
pub fn known(name: &str) -> Option<&'static KnownEvent> {
    let position = KNOWN.find(name.as_bytes(), |position| Some(EVENTS.get(position)?.name))?;
    EVENTS.get(position)
}

/// Returns whether the event may pass while an allowed package is imported. The guard's own events
/// may not.
pub fn is_excused_by_import(event: &str) -> bool {
    known(event).is_none_or(|known| match known.effect {
        EventEffect::Guard => false,
        EventEffect::Interpreter => known.name == "object.__setattr__",
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_found_by_its_name() {
        for event in EVENTS {
            let named = EVENTS.iter().filter(|other| other.name == event.name);
            assert_eq!(named.count(), 1, "{}", event.name);
            let classic = event.rule.filter(|rule| !rule.is_of_policies());
            assert_eq!(lookup(event.name.as_bytes()), event.rule);
            assert_eq!(lookup_if(event.name.as_bytes(), false), classic);
        }
        assert_eq!(lookup(b"os.system\0"), None);
    }
}
