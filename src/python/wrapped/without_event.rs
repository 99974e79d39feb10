//! Native functions of the standard library that change the world without an audit event of
//! CPython's: under a guard each raises one first. The table of events says which raises which.
//!
//! A function that does the same as an operation with an event, opening a file for example, raises
//! that event.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyString};

use crate::policy::events::EVENTS;
use crate::python::configuration::temporary;
use crate::python::cpython::arguments::CallArguments;
use crate::python::cpython::called::{Called, Returned};
use crate::python::cpython::{calling, ffi as raw};
use crate::python::guard::scope;
use crate::python::wrapped::kinds::{Mode, Raises, Silent, What};

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

pub fn of(module: &str) -> impl Iterator<Item = (&'static str, What)> {
    let own = FUNCTIONS.iter().filter(move |(of, ..)| *of == module);
    own.map(|(_, name, silent)| match silent.raises {
        // CPython raises its event since 3.14.
        Raises::Starts => {
            let silent = (!cfg!(Py_3_14)).then_some(silent);
            (*name, What::StartsProgram(silent))
        }
        Raises::Shared => (*name, What::Shares(silent)),
        _ => (*name, What::Raises(silent)),
    })
}

pub fn call(called: Called<'_>, silent: &Silent) -> Returned {
    if silent.only_reads() && !scope::any_guard_restricts_more() {
        return called.make();
    }
    let paths = called.ours(|py| called.arguments.raise(py, silent));
    // The values that were checked are used: a path-like object would be asked again.
    match paths {
        None => Returned::failed(),
        Some([None, None]) => called.make(),
        Some([Some((at, path)), None] | [None, Some((at, path))]) => {
            called.replacing(at, path, |called| called.make())
        }
        Some([Some((at, path)), Some((next, other))]) => called
            .replacing(at, path, |called| called.replacing(next, other, |called| called.make())),
    }
}

/// Raises the event of shared memory, and makes the call. What is made under a guard is marked for
/// the process that removes what is left of it, and then that of the host as well.
pub fn share(called: Called<'_>, silent: &Silent) -> Returned {
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
        Ok(is_new && (has_told || !scope::in_force(py)?.is_empty()))
    });
    let Some(marks) = marks else {
        return Returned::failed();
    };
    let made = called.make();
    let fd = made.object(called.py).filter(|_| marks);
    if let Some(fd) = fd.and_then(|fd| raw::i32_value(&fd)) {
        temporary::put_mark(fd);
    }
    made
}

/// A path in place of the argument at a position.
type Replaced<'py> = Option<(usize, Bound<'py, PyAny>)>;

impl CallArguments<'_> {
    /// The path at a position, asked of an object for it once.
    fn path<'py>(
        &self,
        py: Python<'py>,
        position: usize,
    ) -> PyResult<(Bound<'py, PyAny>, Replaced<'py>)> {
        let given = self.at(py, position);
        if given.is_instance_of::<PyString>() || given.is_instance_of::<PyBytes>() {
            return Ok((given, None));
        }
        match calling::fs_path(&given) {
            Ok(path) => Ok((path.clone(), Some((position, path)))),
            // The function raises the error itself; nothing is approved by it.
            Err(_) => Ok((given, None)),
        }
    }

    /// Raises the events of a call; returns the paths to use if those are other objects.
    fn raise<'py>(&self, py: Python<'py>, silent: &Silent) -> PyResult<[Replaced<'py>; 2]> {
        match silent.raises {
            Raises::Reads(places) => {
                let mut kept = [const { None }; 2];
                for ((index, name), kept) in places.iter().zip(&mut kept) {
                    let Some(position) = self.position(*index, Some(name)) else {
                        continue;
                    };
                    if self.at(py, position).is_none() {
                        continue;
                    }
                    let (path, replaced) = self.path(py, position)?;
                    *kept = replaced;
                    opened_for_reading(&path)?;
                }
                Ok(kept)
            }
            _ => Ok([self.raise_one(py, silent)?, None]),
        }
    }

    /// The same for a function that takes one path at most.
    fn raise_one<'py>(&self, py: Python<'py>, silent: &Silent) -> PyResult<Replaced<'py>> {
        let none = || py.None().into_bound(py);
        match silent.raises {
            Raises::Reads(_) => Ok(None),
            Raises::ReadsFile(path) => {
                let path = PyString::new(py, path);
                opened_for_reading(path.as_any()).map(|()| None)
            }
            Raises::ReadsForSystem(files) => {
                for file in files() {
                    // A policy blocks the target of a link.
                    let file = file.canonicalize().unwrap_or(file);
                    raw::audit(py, silent.event, &[&path_object(py, &file)?])?;
                }
                Ok(None)
            }
            Raises::Includes => {
                let line = self.find(py, 0, Some(c""));
                let line = line.and_then(|line| line.cast_into::<PyString>().ok());
                let Some(line) = line else {
                    return Ok(None);
                };
                match included(raw::fs_encode(line.as_borrowed())?.as_bytes()) {
                    Some(path) => opened_for_reading(&path_object(py, &path)?).map(|()| None),
                    None => Ok(None),
                }
            }
            Raises::When(is_so) if !is_so(py, *self) => Ok(None),
            Raises::AsGiven | Raises::When(_) => {
                let given: Vec<_> =
                    (0..self.positional()).map(|index| self.at(py, index)).collect();
                raw::audit(py, silent.event, &given.iter().collect::<Vec<_>>())?;
                Ok(None)
            }
            Raises::Entry(names) => {
                let Some(position) = self.position(0, Some(names[0])) else {
                    return Ok(None);
                };
                let (path, replaced) = self.path(py, position)?;
                let mut args = vec![path];
                for (index, name) in names.iter().enumerate().skip(1) {
                    let absent = || match *name == c"dir_fd" {
                        true => (-1i32).into_pyobject(py).map(Bound::into_any),
                        false => Ok(none().into_any()),
                    };
                    // A `dir_fd` is given by name alone.
                    let index = match *name == c"dir_fd" {
                        true => usize::MAX,
                        false => index,
                    };
                    args.push(self.find(py, index, Some(name)).map_or_else(absent, Ok)?);
                }
                raw::audit(py, silent.event, &args.iter().collect::<Vec<_>>())?;
                Ok(replaced)
            }
            Raises::Opens(index, name, mode) => {
                let given = self.position(index, Some(name));
                let given = given.filter(|position| !self.at(py, *position).is_none());
                let (path, replaced) = match (given, mode) {
                    (Some(position), _) => self.path(py, position)?,
                    (None, Mode::Dbm(_)) => return Ok(None),
                    // readline(3) uses these then.
                    (None, Mode::History(_)) => (path_object(py, &in_home(".history"))?, None),
                    (None, Mode::Settings) => (path_object(py, &settings())?, None),
                };
                match mode {
                    Mode::History(mode) => opened(&path, PyString::new(py, mode).as_any())?,
                    Mode::Settings => match bytes_of(&path)? {
                        Some(bytes) => opened_for_reading(&path_object(py, &expanded(&bytes))?)?,
                        None => opened_for_reading(&path)?,
                    },
                    Mode::Dbm(endings) => {
                        let mode = match self.find(py, 1, Some(c"flags")) {
                            None => PyString::new(py, "r").into_any(),
                            Some(flags) if reads(&flags) => flags,
                            Some(_) => PyString::new(py, "w").into_any(),
                        };
                        for ending in endings {
                            opened(&with_ending(&path, ending)?, &mode)?;
                        }
                    }
                }
                Ok(replaced)
            }
            Raises::Shared => {
                let given = self.find(py, 0, Some(c"path"));
                let Some(Ok(name)) = given.as_ref().map(|given| given.cast::<PyString>()) else {
                    return Ok(None);
                };
                let name = name.to_string_lossy();
                let path = PyString::new(py, &format!("/dev/shm/{}", name.trim_start_matches('/')));
                if silent.event == c"os.remove" {
                    let no_fd = (-1i32).into_pyobject(py)?.into_any();
                    return raw::audit(py, silent.event, &[path.as_any(), &no_fd]).map(|()| None);
                }
                let flags = self.find(py, 1, Some(c"flags")).unwrap_or_else(none);
                raw::audit(py, silent.event, &[path.as_any(), &none(), &flags]).map(|()| None)
            }
            Raises::Starts => {
                let at = |index| self.find(py, index, Some(c"")).unwrap_or_else(none);
                raw::audit(py, silent.event, &[&at(1), &at(0), &at(5)]).map(|()| None)
            }
        }
    }
}

fn reads(flags: &Bound<'_, PyAny>) -> bool {
    let flags = flags.cast_exact::<PyString>();
    flags.is_ok_and(|flags| flags.to_str().is_ok_and(|flags| flags.starts_with('r')))
}

fn opened_for_reading(path: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = path.py();
    opened(path, PyString::new(py, "r").as_any())
}

fn opened(path: &Bound<'_, PyAny>, mode: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = path.py();
    let flags = 0i32.into_pyobject(py)?.into_any();
    raw::audit(py, c"open", &[path, mode, &flags])
}

/// A path with another ending; the path itself if the ending is empty, or it is not a path.
fn with_ending<'py>(given: &Bound<'py, PyAny>, ending: &str) -> PyResult<Bound<'py, PyAny>> {
    if !ending.is_empty()
        && let Some(bytes) = bytes_of(given)?
    {
        let path = [&bytes[..], ending.as_bytes()].concat();
        return Ok(raw::fs_decode(given.py(), &path)?.into_any());
    }
    Ok(given.clone())
}

fn bytes_of(path: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if let Ok(path) = path.cast::<PyString>() {
        return Ok(Some(raw::fs_encode(path.as_borrowed())?.as_bytes().to_vec()));
    }
    let path = path.cast::<PyBytes>();
    Ok(path.ok().map(|path| path.as_bytes().to_vec()))
}

fn path_object<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyAny>> {
    Ok(path.as_os_str().into_pyobject(py)?.into_any())
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

pub fn users() -> Vec<PathBuf> {
    vec!["/etc/passwd".into()]
}

pub fn groups() -> Vec<PathBuf> {
    vec!["/etc/group".into()]
}

pub fn in_home(name: &str) -> PathBuf {
    Path::new(&home()).join(name)
}

fn home() -> OsString {
    std::env::var_os("HOME").unwrap_or_default()
}

/// The file of readline(3)'s settings, if none is named.
pub fn settings() -> PathBuf {
    let named = std::env::var_os("INPUTRC").filter(|path| !path.is_empty());
    named.map_or_else(|| in_home(".inputrc"), |path| expanded(path.as_bytes()))
}

/// The path that readline(3) makes of one with `~`, or `~user`, before it.
pub fn expanded(path: &[u8]) -> PathBuf {
    let Some(rest) = path.strip_prefix(b"~") else {
        return OsStr::from_bytes(path).into();
    };
    let end = memchr::memchr(b'/', rest).unwrap_or(rest.len());
    let (user, rest) = rest.split_at(end);
    let home = match user {
        b"" => Some(home().into_vec()),
        user => home_of(user),
    };
    match home {
        Some(home) => OsString::from_vec([&home[..], rest].concat()).into(),
        None => OsStr::from_bytes(path).into(),
    }
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
pub fn included(line: &[u8]) -> Option<PathBuf> {
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
