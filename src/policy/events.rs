//! Every audit event of CPython 3.10 to 3.15, and what the operation behind it does to the world.
//!
//! Named after CPython's own table, <https://docs.python.org/3/library/audit_events.html>, and what
//! its builds raise: `tests/test_event_tables.py` reads the names out of each of them.

use Effect::{
    Code, Descriptor, Directory, Environment, Guard, Import, Inspect, Interpreter, Lock, Log,
    Memory, Native, Network, Nothing, Open, Process, Read, Registry, Thread, Write,
};

/// What an operation does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
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

impl Effect {
    /// Its name, as records and denials give it.
    #[must_use]
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
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// Its effect.
    pub effect: Effect,
    /// What the operation behind it does, in a few words.
    pub does: &'static str,
    /// The first and the last minor version of Python 3 that raise it, of 10 to 15; none where this
    /// package does.
    pub versions: (u8, u8),
}

impl Known {
    /// Whether it is this package that raises it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.versions.1 == 0
    }

    /// Whether only Python on Windows raises it.
    #[must_use]
    pub fn is_of_windows(&self) -> bool {
        self.does.ends_with("(Windows)")
    }
}

const fn on(name: &'static str, effect: Effect, does: &'static str, versions: (u8, u8)) -> Known {
    Known {
        name,
        effect,
        does,
        versions,
    }
}

const fn event(name: &'static str, effect: Effect, does: &'static str) -> Known {
    on(name, effect, does, (10, 15))
}

/// The versions of an event that this package raises.
const OWN: (u8, u8) = (0, 0);

const fn own(name: &'static str, effect: Effect, does: &'static str) -> Known {
    on(name, effect, does, OWN)
}

/// All events, those of one subject together.
#[rustfmt::skip]
pub const EVENTS: &[Known] = &[
    // Files.
    event("open", Open, "opens a file"),
    event("os.chdir", Directory, "changes the current directory"),
    event("os.chflags", Write, "changes the flags of a file (macOS, BSD)"),
    event("os.chmod", Write, "changes the mode of a file"),
    event("os.chown", Write, "changes the owner of a file"),
    event("os.link", Write, "makes a hard link"),
    event("os.mkdir", Write, "makes a directory"),
    event("os.remove", Write, "removes a file"),
    event("os.removexattr", Write, "removes an extended attribute"),
    event("os.rename", Write, "renames or replaces a file"),
    event("os.rmdir", Write, "removes a directory"),
    event("os.setxattr", Write, "sets an extended attribute"),
    event("os.symlink", Write, "makes a symbolic link"),
    event("os.truncate", Write, "cuts or extends a file"),
    event("os.utime", Write, "sets the times of a file"),
    event("shutil.chown", Write, "changes the owner of a file"),
    event("shutil.copyfile", Write, "copies the contents of a file"),
    event("shutil.copymode", Write, "copies the mode of a file"),
    event("shutil.copystat", Write, "copies the mode and times of a file"),
    event("shutil.copytree", Write, "copies a directory tree"),
    event("shutil.make_archive", Write, "makes an archive"),
    event("shutil.move", Write, "moves a file or directory"),
    event("shutil.rmtree", Write, "removes a directory tree"),
    event("shutil.unpack_archive", Write, "unpacks an archive"),
    event("sqlite3.connect", Write, "opens a database"),
    event("tempfile.mkdtemp", Write, "makes a temporary directory"),
    event("tempfile.mkstemp", Write, "makes a temporary file"),
    event("fcntl.flock", Lock, "locks a file"),
    event("fcntl.lockf", Lock, "locks a part of a file"),
    event("os.lockf", Lock, "locks a part of a file"),
    event("msvcrt.locking", Lock, "locks a part of a file (Windows)"),
    event("glob.glob", Read, "lists the files that match a pattern"),
    event("glob.glob/2", Read, "lists the files that match a pattern"),
    event("os.fwalk", Read, "walks a directory tree"),
    event("os.getxattr", Read, "reads an extended attribute"),
    event("os.listdir", Read, "lists a directory"),
    event("os.listdrives", Read, "lists the drives (Windows)"),
    event("os.listmounts", Read, "lists the mount points of a volume (Windows)"),
    event("os.listvolumes", Read, "lists the volumes (Windows)"),
    event("os.listxattr", Read, "lists extended attributes"),
    event("os.scandir", Read, "lists a directory"),
    event("os.walk", Read, "walks a directory tree"),
    event("pathlib.Path.glob", Read, "lists the files that match a pattern"),
    event("pathlib.Path.rglob", Read, "lists the files that match a pattern"),
    on("pathlib.Path.walk", Read, "walks a directory tree", (12, 15)),
    // Processes.
    on("_posixsubprocess.fork_exec", Process, "starts a program, below `subprocess`", (14, 15)),
    event("_winapi.CreateProcess", Process, "starts a program (Windows)"),
    event("_winapi.OpenProcess", Process, "opens a process (Windows)"),
    event("_winapi.TerminateProcess", Process, "ends a process (Windows)"),
    event("ensurepip.bootstrap", Process, "installs pip"),
    event("os.exec", Process, "replaces the process by a program"),
    event("os.fork", Process, "copies the process"),
    event("os.forkpty", Process, "copies the process, with a terminal"),
    event("os.kill", Process, "sends a signal to a process"),
    event("os.killpg", Process, "sends a signal to a process group"),
    event("os.posix_spawn", Process, "starts a program"),
    event("os.spawn", Process, "starts a program (Windows)"),
    event("os.startfile", Process, "opens a file by its program (Windows)"),
    event("os.startfile/2", Process, "opens a file by its program (Windows)"),
    event("os.system", Process, "runs a shell command"),
    event("pty.spawn", Process, "starts a program in a terminal"),
    event("resource.prlimit", Process, "sets limits of a process"),
    event("resource.setrlimit", Process, "sets limits of this process"),
    event("signal.pthread_kill", Process, "sends a signal to a thread"),
    event("subprocess.Popen", Process, "starts a program"),
    on("sys.remote_exec", Process, "runs code in another Python process", (14, 15)),
    event("webbrowser.open", Process, "opens a web browser"),
    // Threads.
    on("_thread.start_joinable_thread", Thread, "starts a thread", (13, 15)),
    on("_thread.start_new_thread", Thread, "starts a thread", (12, 15)),
    // The environment.
    on("os._clearenv", Environment, "removes all environment variables", (15, 15)),
    event("os.putenv", Environment, "sets an environment variable"),
    event("os.unsetenv", Environment, "removes an environment variable"),
    // Network.
    event("ftplib.connect", Network, "connects to an FTP server"),
    event("ftplib.sendcmd", Network, "sends an FTP command"),
    event("http.client.connect", Network, "connects to an HTTP server"),
    event("http.client.send", Network, "sends to an HTTP server"),
    event("imaplib.open", Network, "connects to an IMAP server"),
    event("imaplib.send", Network, "sends to an IMAP server"),
    on("nntplib.connect", Network, "connects to an NNTP server", (10, 12)),
    on("nntplib.putline", Network, "sends to an NNTP server", (10, 12)),
    event("poplib.connect", Network, "connects to a POP server"),
    event("poplib.putline", Network, "sends to a POP server"),
    event("smtplib.connect", Network, "connects to an SMTP server"),
    event("smtplib.send", Network, "sends to an SMTP server"),
    event("socket.__new__", Network, "makes a socket"),
    event("socket.bind", Network, "gives a socket an address"),
    event("socket.connect", Network, "connects a socket"),
    event("socket.getaddrinfo", Network, "looks up a host"),
    event("socket.gethostbyaddr", Network, "looks up a host"),
    event("socket.gethostbyname", Network, "looks up a host"),
    event("socket.getnameinfo", Network, "looks up an address"),
    event("socket.sendmsg", Network, "sends from a socket"),
    event("socket.sendto", Network, "sends from a socket"),
    event("socket.sethostname", Network, "sets the name of the machine"),
    on("telnetlib.Telnet.open", Network, "connects to a Telnet server", (10, 12)),
    on("telnetlib.Telnet.write", Network, "sends to a Telnet server", (10, 12)),
    event("urllib.Request", Network, "opens a URL"),
    event("syslog.closelog", Log, "closes the system log"),
    event("syslog.openlog", Log, "opens the system log"),
    event("syslog.setlogmask", Log, "sets what goes to the system log"),
    event("syslog.syslog", Log, "writes to the system log"),
    // Code.
    event("import", Import, "imports a module"),
    event("pickle.find_class", Import, "imports what a pickle names"),
    event("builtins.breakpoint", Code, "starts a debugger"),
    event("code.__new__", Code, "makes a code object"),
    event("compile", Code, "compiles source text"),
    event("cpython.run_command", Code, "runs the command of `python -c`"),
    event("cpython.run_file", Code, "runs the file of `python FILE`"),
    event("cpython.run_interactivehook", Code, "runs the hook of an interactive session"),
    event("cpython.run_module", Code, "runs the module of `python -m`"),
    event("cpython.run_startup", Code, "runs the start-up file of an interactive session"),
    event("cpython.run_stdin", Code, "runs what comes from standard input"),
    on("cpython.remote_debugger_script", Code, "runs a script for another process", (14, 15)),
    event("exec", Code, "runs a code object"),
    event("function.__new__", Code, "makes a function"),
    event("marshal.dumps", Code, "writes an object in the format of code files"),
    event("marshal.load", Code, "reads an object in the format of code files"),
    event("marshal.loads", Code, "reads an object in the format of code files"),
    event("pdb.Pdb", Code, "starts a debugger"),
    // Native code and memory.
    event("array.__new__", Nothing, "makes an array"),
    event("ctypes.PyObj_FromPtr", Native, "takes an address for an object"),
    event("ctypes.addressof", Native, "tells the address of an object"),
    event("ctypes.call_function", Native, "calls a function by its address"),
    event("ctypes.cdata", Native, "takes an address for a value"),
    event("ctypes.cdata/buffer", Native, "takes a buffer for a value"),
    event("ctypes.create_string_buffer", Nothing, "makes a buffer"),
    event("ctypes.create_unicode_buffer", Nothing, "makes a buffer"),
    event("ctypes.dlopen", Native, "loads a native library"),
    event("ctypes.dlsym", Native, "looks up a name in a native library"),
    event("ctypes.dlsym/handle", Native, "looks up a name in a native library"),
    event("ctypes.get_errno", Nothing, "reads the copy of the system's error number"),
    on("ctypes.memoryview_at", Native, "takes an address for memory", (14, 15)),
    event("ctypes.set_errno", Nothing, "sets the copy of the system's error number"),
    event("ctypes.string_at", Native, "reads memory by its address"),
    event("ctypes.wstring_at", Native, "reads memory by its address"),
    own("fastaudit.call", Native, "calls native code that is not in the standard library"),
    own("fastaudit.write", Write, "writes more than a policy's `max_bytes` to files"),
    event("mmap.__new__", Memory, "maps a file, or memory"),
    event("os.add_dll_directory", Native, "adds a directory to load libraries from (Windows)"),
    event("sqlite3.enable_load_extension", Native, "lets a database load native code"),
    event("sqlite3.load_extension", Native, "loads native code into a database"),
    // The interpreter.
    own("audit_perms.add_imports", Guard, "adds packages whose import may do what is denied"),
    own("audit_perms.set_config", Guard, "makes or enters a guard"),
    own("audit_perms.set_data", Guard, "replaces the host data of a guard"),
    on("cpython.PyConfig_Set", Interpreter, "changes the configuration of the interpreter", (14, 15)),
    event("cpython.PyInterpreterState_Clear", Interpreter, "takes an interpreter down"),
    event("cpython.PyInterpreterState_New", Interpreter, "makes another interpreter"),
    event("cpython._PySys_ClearAuditHooks", Interpreter, "removes all audit hooks, at the end"),
    event("fcntl.fcntl", Descriptor, "changes how a descriptor behaves"),
    event("fcntl.ioctl", Descriptor, "controls a device"),
    event("object.__delattr__", Interpreter, "deletes a protected attribute"),
    event("object.__setattr__", Interpreter, "sets a protected attribute"),
    event("setopencodehook", Interpreter, "sets how code files are opened"),
    event("sys.addaudithook", Interpreter, "adds an audit hook"),
    event("sys.excepthook", Interpreter, "calls a hook for an exception that nobody caught"),
    on("sys.monitoring.register_callback", Interpreter, "watches what code runs", (12, 15)),
    event("sys.set_asyncgen_hook_finalizer", Nothing, "sets a hook of an event loop"),
    event("sys.set_asyncgen_hook_firstiter", Nothing, "sets a hook of an event loop"),
    event("sys.setprofile", Interpreter, "watches what code runs"),
    event("sys.settrace", Interpreter, "watches what code runs"),
    event("sys.unraisablehook", Interpreter, "calls a hook for an exception that nobody can catch"),
    event("gc.get_objects", Inspect, "finds the objects of the process"),
    event("gc.get_referents", Inspect, "finds what an object refers to"),
    event("gc.get_referrers", Inspect, "finds what refers to an object"),
    event("object.__getattr__", Inspect, "reads a protected attribute"),
    event("sys._current_exceptions", Inspect, "finds the exceptions of all threads"),
    event("sys._current_frames", Inspect, "finds the frames of all threads"),
    event("sys._getframe", Inspect, "finds a frame"),
    on("sys._getframemodulename", Inspect, "names the module of a frame", (12, 15)),
    event("builtins.id", Nothing, "tells the identity of an object"),
    event("builtins.input", Nothing, "asks the user"),
    event("builtins.input/result", Nothing, "tells what the user answered"),
    event("socket.gethostname", Nothing, "tells the name of the machine"),
    event("socket.getservbyname", Nothing, "tells the port of a service"),
    event("socket.getservbyport", Nothing, "tells the service of a port"),
    event("sqlite3.connect/handle", Nothing, "tells of a database that was opened"),
    on("time.sleep", Nothing, "waits", (13, 15)),
    // What CPython raises no event for (`python::silent`).
    own("_interpreters.call", Interpreter, "runs code in another interpreter"),
    own("_interpreters.exec", Interpreter, "runs code in another interpreter"),
    own("_interpreters.run_func", Interpreter, "runs code in another interpreter"),
    own("_interpreters.run_string", Interpreter, "runs code in another interpreter"),
    own("_tkinter.create", Native, "makes a Tcl interpreter"),
    own("faulthandler._fatal_error_c_thread", Process, "crashes the process"),
    own("faulthandler._read_null", Process, "crashes the process"),
    own("faulthandler._sigabrt", Process, "crashes the process"),
    own("faulthandler._sigfpe", Process, "crashes the process"),
    own("faulthandler._sigsegv", Process, "crashes the process"),
    own("faulthandler._stack_overflow", Process, "crashes the process"),
    own("os._exit", Process, "ends the process at once"),
    own("os.abort", Process, "aborts the process"),
    own("os.chroot", Process, "changes the root directory"),
    own("os.initgroups", Process, "changes the groups of the process"),
    own("os.login_tty", Process, "changes the terminal of the process"),
    own("os.mkfifo", Write, "makes a named pipe"),
    own("os.mknod", Write, "makes a device or a named pipe"),
    own("os.nice", Process, "changes the priority of the process"),
    own("os.sched_setaffinity", Process, "changes the processors of a process"),
    own("os.sched_setparam", Process, "changes how a process is scheduled"),
    own("os.sched_setscheduler", Process, "changes how a process is scheduled"),
    own("os.setegid", Process, "changes the group of the process"),
    own("os.seteuid", Process, "changes the user of the process"),
    own("os.setgid", Process, "changes the group of the process"),
    own("os.setgroups", Process, "changes the groups of the process"),
    own("os.setns", Process, "enters a namespace"),
    own("os.setpgid", Process, "changes a process group"),
    own("os.setpgrp", Process, "changes the process group"),
    own("os.setpriority", Process, "changes the priority of a process"),
    own("os.setregid", Process, "changes the group of the process"),
    own("os.setresgid", Process, "changes the group of the process"),
    own("os.setresuid", Process, "changes the user of the process"),
    own("os.setreuid", Process, "changes the user of the process"),
    own("os.setsid", Process, "makes a session"),
    own("os.setuid", Process, "changes the user of the process"),
    own("os.tcsetpgrp", Process, "changes the process group of a terminal"),
    own("os.unshare", Process, "leaves a namespace"),
    own("signal.pidfd_send_signal", Process, "sends a signal to a process"),
    own("signal.raise_signal", Process, "sends a signal to this process"),
    own("sqlite3.attach", Write, "opens a database by an SQL statement"),
    own("sys.monitoring.free_tool_id", Guard, "takes the monitor's tool id from it"),
    own("sys.monitoring.set_events", Guard, "switches the monitor's events off"),
    own("sys.monitoring.set_local_events", Guard, "changes the monitor's events for a function"),
    own("sys.activate_stack_trampoline", Write, "writes a file for profilers"),
    own("time.clock_settime", Process, "sets a clock of the machine"),
    own("time.clock_settime_ns", Process, "sets a clock of the machine"),
    // Windows.
    event("_winapi.CreateFile", Write, "opens a file (Windows)"),
    event("_winapi.CreateJunction", Write, "makes a link to a directory (Windows)"),
    event("_winapi.CreateNamedPipe", Write, "makes a pipe (Windows)"),
    event("_winapi.CreatePipe", Descriptor, "makes a pipe (Windows)"),
    event("msvcrt.get_osfhandle", Descriptor, "tells the handle of a descriptor (Windows)"),
    event("msvcrt.open_osfhandle", Descriptor, "makes a descriptor of a handle (Windows)"),
    event("winreg.ConnectRegistry", Registry, "connects to a registry (Windows)"),
    event("winreg.CreateKey", Registry, "makes a registry key (Windows)"),
    event("winreg.DeleteKey", Registry, "deletes a registry key (Windows)"),
    event("winreg.DeleteValue", Registry, "deletes a registry value (Windows)"),
    event("winreg.DisableReflectionKey", Registry, "changes a registry key (Windows)"),
    event("winreg.EnableReflectionKey", Registry, "changes a registry key (Windows)"),
    event("winreg.EnumKey", Registry, "reads the registry (Windows)"),
    event("winreg.EnumValue", Registry, "reads the registry (Windows)"),
    event("winreg.ExpandEnvironmentStrings", Nothing, "puts environment variables into a text (Windows)"),
    event("winreg.LoadKey", Registry, "loads a registry key (Windows)"),
    event("winreg.OpenKey", Registry, "opens a registry key (Windows)"),
    event("winreg.OpenKey/result", Registry, "tells of a registry key that was opened (Windows)"),
    event("winreg.PyHKEY.Detach", Registry, "takes the handle of a registry key (Windows)"),
    event("winreg.QueryInfoKey", Registry, "reads the registry (Windows)"),
    event("winreg.QueryReflectionKey", Registry, "reads the registry (Windows)"),
    event("winreg.QueryValue", Registry, "reads the registry (Windows)"),
    event("winreg.SaveKey", Registry, "saves a registry key (Windows)"),
    event("winreg.SetValue", Registry, "sets a registry value (Windows)"),
];

/// What the tables say of an event; `None` for one that no supported CPython raises.
#[must_use]
pub fn known(name: &str) -> Option<&'static Known> {
    EVENTS.iter().find(|known| known.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::rules::RULES;

    #[test]
    fn each_event_is_named_once() {
        let mut names: Vec<_> = EVENTS.iter().map(|known| known.name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
    }

    #[test]
    fn each_event_with_a_rule_is_known() {
        for (name, _) in RULES {
            assert!(known(name).is_some(), "{name}");
        }
    }
}
