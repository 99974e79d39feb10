//! Native functions of the standard library that change the world without an audit event of
//! CPython's: under a guard each raises one first. The table of events says which raises which.
//!
//! A function that does the same as an operation with an event, opening a file for example, raises
//! that event.

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::LazyLock;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString, PyTuple};

use crate::policy::events::EVENTS;
use crate::policy::files::path::Base;
use crate::policy::judge::Follows;
use crate::python::configuration::temporary;
use crate::python::cpython::arguments::CallArguments;
use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::{calling, ffi as raw};
use crate::python::guard::event::{self, CallNote, NOTHING};
use crate::python::guard::scope;
use crate::python::values::decode;

/// The event that a function without one raises, and how.
pub struct Silent {
    pub event: &'static CStr,
    pub raises: Raises,
}

#[derive(Clone, Copy)]
pub enum Raises {
    AsGiven,
    /// The same if the arguments say so.
    When(Condition),
    /// The arguments of these names, the first a path; -1 for a missing `dir_fd`, else `None`.
    Entry(&'static [&'static CStr]),
    /// `open`, with the argument at this place, of this name, as a path, and with this mode.
    Opens(usize, &'static CStr, Mode),
    /// `open` for reading, with each of the arguments at these places, of these names, as a path.
    Reads(&'static [(usize, &'static CStr)]),
    /// `open` of this file for reading.
    ReadsFile(&'static str),
    /// `fastaudit.read` of these files of the system.
    ReadsForSystem(fn() -> Vec<PathBuf>),
    /// `open` of the file for reading that a line of readline(3)'s settings includes.
    Includes,
    /// `open` of a shared memory object, or `os.remove` of it: shm_overview(7).
    Shared,
    Starts,
}

#[derive(Clone, Copy)]
pub enum Mode {
    /// In this way; without a file, the one of readline(3)'s history.
    History(&'static str),
    /// For reading, by readline(3), which knows `~`; without a file, the one of its settings.
    Settings,
    /// As the flags of a `dbm` say, the second argument; the names of its files have these endings.
    Dbm(&'static [&'static str]),
}

pub type Condition = fn(Python<'_>, CallArguments<'_>) -> bool;

/// The endings of the names of files of a `dbm`, of all libraries that there are for it.
const NDBM: &[&str] = &["", ".db", ".dir", ".pag"];

/// How functions raise their event that do not raise it with all arguments as they are given.
#[rustfmt::skip]
const HOW: &[(&str, Raises)] = &[
    // Files.
    ("posix.mkfifo", Raises::Entry(&[c"path", c"mode", c"dir_fd"])),
    ("posix.mknod", Raises::Entry(&[c"path", c"mode", c"device", c"dir_fd"])),
    ("readline.write_history_file", Raises::Opens(0, c"filename", Mode::History("w"))),
    ("readline.append_history_file", Raises::Opens(1, c"filename", Mode::History("a"))),
    ("_dbm.open", Raises::Opens(0, c"filename", Mode::Dbm(NDBM))),
    ("_gdbm.open", Raises::Opens(0, c"filename", Mode::Dbm(&[""]))),
    ("_posixshmem.shm_open", Raises::Shared),
    ("_posixshmem.shm_unlink", Raises::Shared),
    // Files that are only read.
    ("posix.readlink", Raises::Entry(&[c"path", c"dir_fd"])),
    ("readline.read_history_file", Raises::Opens(0, c"filename", Mode::History("r"))),
    ("readline.read_init_file", Raises::Opens(0, c"filename", Mode::Settings)),
    ("readline.parse_and_bind", Raises::Includes),
    ("_locale.bindtextdomain", Raises::Reads(&[(1, c"")])),
    ("_ssl._test_decode_cert", Raises::Reads(&[(0, c"")])),
    ("spwd.getspall", Raises::ReadsFile("/etc/shadow")),
    ("spwd.getspnam", Raises::ReadsFile("/etc/shadow")),
    ("grp.getgrall", Raises::ReadsForSystem(groups)),
    ("grp.getgrgid", Raises::ReadsForSystem(groups)),
    ("grp.getgrnam", Raises::ReadsForSystem(groups)),
    ("pwd.getpwall", Raises::ReadsForSystem(users)),
    ("pwd.getpwnam", Raises::ReadsForSystem(users)),
    ("pwd.getpwuid", Raises::ReadsForSystem(users)),
    // Processes.
    ("_posixsubprocess.fork_exec", Raises::Starts),
    ("posix.wait4", Raises::When(waits_for_some)),
    ("posix.waitid", Raises::When(waits_by_kind)),
    ("faulthandler.dump_traceback_later", Raises::When(ends_later)),
];

/// The functions in the table of events for which this package raises the event, by their module.
static FUNCTIONS: LazyLock<Vec<(&str, &str, Silent)>> = LazyLock::new(|| {
    let functions = EVENTS.iter().flat_map(|known| {
        let event = CString::new(known.name).unwrap_or_default();
        let event: &'static CStr = Box::leak(event.into_boxed_c_str());
        known.raised_by.iter().filter_map(move |function| {
            let (module, name) = function.split_once('.')?;
            let how = HOW.iter().find(|(own, _)| own == function);
            let raises = how.map_or(Raises::AsGiven, |(_, raises)| *raises);
            Some((module, name, Silent { event, raises }))
        })
    });
    functions.collect()
});

impl Silent {
    /// True if only policies that restrict reading ask.
    fn only_reads(&self) -> bool {
        match self.raises {
            Raises::Reads(_) | Raises::ReadsFile(_) | Raises::ReadsForSystem(_) => true,
            Raises::Includes | Raises::Opens(_, _, Mode::Settings) => true,
            Raises::Opens(_, _, Mode::History(mode)) => mode == "r",
            Raises::Entry(_) => self.event == c"os.readlink",
            _ => false,
        }
    }
}

pub fn modules() -> Vec<&'static str> {
    let mut modules: Vec<_> = FUNCTIONS.iter().map(|(module, ..)| *module).collect();
    modules.sort_unstable();
    modules.dedup();
    modules
}

pub fn of(module: &str) -> impl Iterator<Item = (&'static str, &'static Silent)> {
    let own = FUNCTIONS.iter().filter(move |(of, ..)| *of == module);
    own.map(|(_, name, silent)| (*name, silent))
}

pub fn call(called: Called<'_>, silent: &Silent) -> Returned {
    match silent.raises {
        Raises::Shared => return share(called, silent),
        _ if !scope::may_be_guarded() => return called.make(),
        _ if silent.only_reads() && !scope::any_guard_restricts_more() => return called.make(),
        Raises::Reads(files) => return read_all(called, files),
        _ => {}
    }
    match called.ours(|py| called.arguments.raise(py, silent)) {
        None => Returned::failed(),
        Some(None) => called.make(),
        Some(Some((at, path))) => called.replacing(at, path, |called| called.make()),
    }
}

/// Makes a call after the events of the files that these arguments name.
fn read_all(called: Called<'_>, files: &[(usize, &CStr)]) -> Returned {
    let Some(((index, name), rest)) = files.split_first() else {
        return called.make();
    };
    let Some(position) = called.arguments.position(*index, Some(name)) else {
        return read_all(called, rest);
    };
    let judged = |py| {
        if called.arguments.at(py, position).is_none() {
            return Ok(None);
        }
        let (path, replaced) = called.arguments.path(py, position);
        opened(py, &path, "r")?;
        Ok(replaced.map(|(_, path)| path))
    };
    called.replacing_with(position, judged, |called| read_all(called, rest))
}

/// Raises the event of shared memory, and makes the call. What is made under a guard is marked for
/// the process that removes what is left of it, and then that of the host as well.
fn share(called: Called<'_>, silent: &Silent) -> Returned {
    let is_guarded = scope::may_be_guarded();
    let has_told = temporary::has_told();
    if !is_guarded && !has_told {
        return called.make();
    }
    let marks = called.ours(|py| {
        let call = called.arguments;
        if is_guarded {
            call.raise(py, silent)?;
        }
        let flags = call.find(py, 1, Some(c"flags"));
        let flags = flags.and_then(|flags| raw::int_value(&flags)).unwrap_or(0);
        let anew = i64::from(libc::O_CREAT | libc::O_EXCL);
        let is_new = silent.event == c"open" && flags & anew == anew;
        let is_guards = !scope::in_force(py)?.is_empty();
        Ok((is_new && (has_told || is_guards)).then_some(is_guards))
    });
    let Some(marks) = marks else {
        return Returned::failed();
    };
    let made = called.make();
    let fd = made.object(called.py).and_then(|fd| raw::i32_value(&fd));
    if let (Some(fd), Some(is_guards)) = (fd, marks) {
        temporary::put_mark(fd, is_guards);
    }
    made
}

/// A path in place of the argument at a position.
type Replaced<'py> = Option<(usize, Bound<'py, PyAny>)>;

impl CallArguments<'_> {
    /// The path at a position, asked of an object for it once.
    fn path<'py>(&self, py: Python<'py>, position: usize) -> (Bound<'py, PyAny>, Replaced<'py>) {
        let given = self.at(py, position);
        match calling::fs_path(&given) {
            Ok(path) if !path.is(&given) => (path.clone(), Some((position, path))),
            // Without a path the function raises the error itself; nothing is approved by it.
            _ => (given, None),
        }
    }

    /// Raises the event of a call; returns the path to use if that is another object: a path-like object
    /// would be asked again.
    fn raise<'py>(&self, py: Python<'py>, silent: &Silent) -> PyResult<Replaced<'py>> {
        let mut replaced = None;
        match silent.raises {
            // Each file in turn.
            Raises::Reads(_) => {}
            Raises::ReadsFile(path) => opened(py, path, "r")?,
            Raises::ReadsForSystem(files) => {
                for file in files() {
                    // A policy blocks the target of a link.
                    let file = file.canonicalize().unwrap_or(file);
                    raw::audit(py, silent.event, (file.as_os_str(),))?;
                }
            }
            Raises::Includes => {
                let line = self.find(py, 0, Some(c""));
                let line = line.and_then(|line| decode::root_name(&line).ok());
                if let Some(path) = line.as_deref().and_then(included) {
                    opened(py, path, "r")?;
                }
            }
            Raises::When(is_so) if !is_so(py, *self) => {}
            Raises::AsGiven | Raises::When(_) => {
                let given = (0..self.positional()).map(|index| self.at(py, index));
                let given = PyTuple::new(py, given.collect::<Vec<_>>())?;
                raw::audit(py, silent.event, given)?;
            }
            Raises::Entry(names) => {
                let Some(position) = self.position(0, Some(names[0])) else {
                    return Ok(None);
                };
                let (path, by) = self.path(py, position);
                replaced = by;
                let mut args = vec![path];
                for (index, name) in names.iter().enumerate().skip(1) {
                    // A `dir_fd` is given by name alone.
                    let is_dir_fd = *name == c"dir_fd";
                    let index = if is_dir_fd { usize::MAX } else { index };
                    args.push(match self.find(py, index, Some(name)) {
                        Some(given) => given,
                        None if is_dir_fd => (-1i32).into_pyobject(py)?.into_any(),
                        None => py.None().into_bound(py),
                    });
                }
                raw::audit(py, silent.event, PyTuple::new(py, args)?)?;
            }
            Raises::Opens(index, name, mode) => {
                let given = self.position(index, Some(name));
                match given.filter(|position| !self.at(py, *position).is_none()) {
                    Some(position) => {
                        let (path, by) = self.path(py, position);
                        replaced = by;
                        self.open_given(&path, mode)?;
                    }
                    None => open_usual(py, mode)?,
                }
            }
            Raises::Shared => {
                let given = self.find(py, 0, Some(c"path"));
                let Some(Ok(name)) = given.as_ref().map(|given| given.cast::<PyString>()) else {
                    return Ok(None);
                };
                let name = name.to_string_lossy();
                let path = format!("/dev/shm/{}", name.trim_start_matches('/'));
                match silent.event == c"os.remove" {
                    true => raw::audit(py, silent.event, (path, -1))?,
                    false => {
                        let flags = self.find(py, 1, Some(c"flags"));
                        raw::audit(py, silent.event, (path, py.None(), flags))?;
                    }
                }
            }
            Raises::Starts => {
                let at = |index| self.find(py, index, None);
                raw::audit(py, silent.event, (at(1), at(0), at(5)))?;
            }
        }
        Ok(replaced)
    }

    /// Raises the events of the files that a library finds by a path.
    fn open_given(&self, path: &Bound<'_, PyAny>, mode: Mode) -> PyResult<()> {
        let py = path.py();
        let opens = match mode {
            Mode::History(opens) => opens,
            Mode::Settings => "r",
            Mode::Dbm(_) => match self.find(py, 1, Some(c"flags")) {
                Some(flags) if !reads(&flags) => "w",
                _ => "r",
            },
        };
        match (mode, decode::root_name(path)) {
            (Mode::History(_), _) | (_, Err(_)) => opened(py, path, opens),
            (Mode::Settings, Ok(name)) => opened(py, expanded(&name), opens),
            (Mode::Dbm(endings), Ok(name)) => endings.iter().try_for_each(|ending| {
                let name = [&name[..], ending.as_bytes()].concat();
                opened(py, OsString::from_vec(name), opens)
            }),
        }
    }
}

/// Raises the event of the file that readline(3) uses if none is named.
fn open_usual(py: Python<'_>, mode: Mode) -> PyResult<()> {
    match mode {
        Mode::History(mode) => opened(py, in_home("/.history"), mode),
        Mode::Settings => opened(py, settings(), "r"),
        Mode::Dbm(_) => Ok(()),
    }
}

fn reads(flags: &Bound<'_, PyAny>) -> bool {
    let flags = flags.cast_exact::<PyString>();
    flags.is_ok_and(|flags| flags.to_str().is_ok_and(|flags| flags.starts_with('r')))
}

fn opened<'py>(py: Python<'py>, path: impl IntoPyObject<'py>, mode: &str) -> PyResult<()> {
    raw::audit(py, c"open", (path, mode, 0))
}

// Arguments of native functions that their audit events leave out.
//
// Without the `dir_fd` of `os.open` a relative name cannot be judged: with the current directory
// inside a root, any `os.open(name, flags, dir_fd=fd)` would pass. Without `follow_symlinks` the
// file that `os.chmod` changes is not known. So such functions note them for the duration of the call.

/// The functions, and whether they follow links by default.
pub const NOTING: &[(&str, Follows)] = &[
    ("open", Follows::Always),
    ("chmod", Follows::Always),
    ("chown", Follows::Always),
    ("utime", Follows::Always),
    ("setxattr", Follows::Always),
    ("removexattr", Follows::Always),
    ("chflags", Follows::Always),
    ("lchown", Follows::Never),
    ("lchmod", Follows::Never),
    ("lchflags", Follows::Never),
];

pub fn note(called: Called<'_>, follows: Follows) -> Returned {
    noting(called, left_out(follows, called))
}

/// `socket.getnameinfo(address, flags)`, whose event leaves out the flags.
pub fn note_flags(called: Called<'_>) -> Returned {
    if !scope::may_be_guarded() {
        return called.make();
    }
    let flags = called.arguments.find(called.py, 1, None);
    let flags = flags.filter(|flags| flags.is_exact_instance_of::<PyInt>());
    let is_numeric = flags
        .and_then(|flags| raw::i32_value(&flags))
        .is_some_and(|flags| flags & libc::NI_NUMERICHOST != 0);
    noting(called, CallNote { is_numeric, ..NOTHING })
}

fn noting(called: Called<'_>, noted: CallNote) -> Returned {
    // Noted for this call alone. A call may raise an event whose hook opens files itself.
    let before = event::replace_note(noted);
    let result = called.make();
    event::replace_note(before);
    result
}

fn left_out(follows: Follows, called: Called<'_>) -> CallNote {
    let mut noted = CallNote { follows, ..NOTHING };
    let arguments = called.arguments;
    if arguments.named() == 0 {
        return noted;
    }
    let named = |name| arguments.find(called.py, usize::MAX, Some(name));
    if let Some(fd) = named(c"dir_fd").filter(|fd| !fd.is_none()) {
        // An object with `__index__` has no known number before it is used.
        noted.base = Base::Descriptor(raw::i32_value(&fd).unwrap_or(-1));
    }
    if let Some(follows) = named(c"follow_symlinks") {
        noted.follows = match follows.cast_exact::<PyBool>() {
            Ok(follows) if follows.is_true() => Follows::Always,
            Ok(_) => Follows::Never,
            Err(_) => Follows::Unknown,
        };
    }
    noted
}

// Functions without an event that are judged with some arguments alone.

/// Returns whether `faulthandler.dump_traceback_later` is to end the process.
fn ends_later(py: Python<'_>, call: CallArguments<'_>) -> bool {
    let exit = call.find(py, 3, Some(c"exit"));
    let exits =
        |exit: Bound<'_, PyAny>| !exit.cast_exact::<PyBool>().is_ok_and(|exit| !exit.is_true());
    exit.is_some_and(exits)
}

/// Returns whether `os.wait4` waits for more than one process.
fn waits_for_some(py: Python<'_>, call: CallArguments<'_>) -> bool {
    call.find(py, 0, Some(c"pid")).is_some_and(|pid| is_some(&pid))
}

/// Returns whether a number stands for more than one process, or is not known.
pub fn is_some(pid: &Bound<'_, PyAny>) -> bool {
    raw::int_value(pid).is_none_or(|pid| pid <= 0)
}

/// Returns whether `os.waitid` does: for another kind than `P_PID` and `P_PIDFD`.
fn waits_by_kind(py: Python<'_>, call: CallArguments<'_>) -> bool {
    let kind = call.find(py, 0, Some(c""));
    kind.is_some_and(|kind| !matches!(raw::int_value(&kind), Some(1 | 3)))
}

// The files that the libraries behind the standard library find by themselves.

fn users() -> Vec<PathBuf> {
    vec!["/etc/passwd".into()]
}

fn groups() -> Vec<PathBuf> {
    vec!["/etc/group".into()]
}

/// A path below the home directory, which it begins after.
fn in_home(rest: &str) -> OsString {
    let mut path = std::env::var_os("HOME").unwrap_or_default();
    path.push(rest);
    path
}

/// The file of readline(3)'s settings, if none is named.
fn settings() -> OsString {
    let named = std::env::var_os("INPUTRC").filter(|path| !path.is_empty());
    named.map_or_else(|| in_home("/.inputrc"), |path| expanded(path.as_bytes()))
}

/// The path that readline(3) makes of one with `~`, or `~user`, before it.
fn expanded(path: &[u8]) -> OsString {
    let given = || OsString::from_vec(path.to_vec());
    let Some(rest) = path.strip_prefix(b"~") else {
        return given();
    };
    let end = memchr::memchr(b'/', rest).unwrap_or(rest.len());
    let (user, rest) = rest.split_at(end);
    let home = match user {
        b"" => Some(in_home("").into_vec()),
        user => home_of(user),
    };
    home.map_or_else(given, |home| OsString::from_vec([&home[..], rest].concat()))
}

fn home_of(user: &[u8]) -> Option<Vec<u8>> {
    let users = std::fs::read("/etc/passwd").ok()?;
    let mut lines = users.split(|&byte| byte == b'\n');
    lines.find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        (fields.next()? == user).then(|| fields.nth(4).map(<[u8]>::to_vec))?
    })
}

/// The file that a line of readline(3)'s settings includes.
fn included(line: &[u8]) -> Option<OsString> {
    let directive = skip_blanks(skip_blanks(line).strip_prefix(b"$")?);
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let end = directive.iter().position(is_blank)?;
    let (name, path) = directive.split_at(end);
    if !name.eq_ignore_ascii_case(b"include") {
        return None;
    }
    let path = skip_blanks(path);
    let end = memchr::memchr2(b'\n', 0, path).unwrap_or(path.len());
    Some(expanded(&path[..end]))
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !matches!(byte, b' ' | b'\t'));
    &text[start.unwrap_or(text.len())..]
}
