//! The text of a denial: its first line, and the call chain that it shows.

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTraceback, PyTuple};

use crate::policy::events::{self, KnownEvent};
use crate::policy::files::fs::FileSystem;
use crate::policy::files::os::Os;
use crate::policy::judge::Reason;
use crate::policy::rules::{NetworkEvent, Rule};
use crate::policy::wording::{Line, NamedRoots, noun, operation};
use crate::policy::written::wording::{printable, shell_word};
use crate::python::configuration::config::AuditCfg;
use crate::python::cpython::calling::Calling;
use crate::python::cpython::ffi as raw;
use crate::python::cpython::frames;
use crate::python::cpython::once::intern;
use crate::python::frames::stack::{self, Site};
use crate::python::guard::entered_at;
use crate::python::values::simple::{self, shown};

// The first line of a denial, or the facts to write it from: most denials are caught, and nobody
// reads their text.

const USUAL_MESSAGE: usize = 160;
/// The characters of one object that a line names.
const SHOWN_OBJECT: usize = 200;
/// The places that a line names; of many, as in a sandbox, the first ones.
const NAMED_PLACES: usize = 4;

pub struct FirstLine {
    line: Line,
    /// The position of the path that it shows; `None` if it shows all arguments.
    pub path: Option<usize>,
    count: usize,
    roots: Option<Py<PyTuple>>,
    is_of_policy: bool,
    max_bytes: Option<u64>,
}

impl FirstLine {
    /// Notes the facts. `count` is the number of arguments that are shown, if they are.
    pub fn of(config: &AuditCfg, py: Python<'_>, reason: Reason, count: usize) -> Self {
        let writable = named(config, config.oks(py));
        let readable = || named(config, config.readable(py));
        let line = Line::of(
            reason,
            // fastaudit writes the empty tuple, and so does `mk_audit`.
            || !(config.is_of_policy() && writable.is_empty()),
            || !readable().is_empty(),
        );
        Self {
            line,
            path: match reason {
                Reason::Event | Reason::Switch(_) => None,
                Reason::Path(index, _) => Some(index),
            },
            count,
            roots: line.roots().map(|roots| match roots {
                NamedRoots::Write => writable.unbind(),
                NamedRoots::Read => readable().unbind(),
            }),
            is_of_policy: config.is_of_policy(),
            max_bytes: config.policy().rest().max_bytes,
        }
    }

    pub fn write<'py>(
        &self,
        event: &str,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyString>> {
        let py = args.py();
        let mut text = String::with_capacity(USUAL_MESSAGE);
        if self.is_of_policy {
            self.write_plain(&mut text, event, args)?;
            return Ok(PyString::new(py, &text));
        }
        let given = match self.path {
            Some(index) => shown(&args.get_item(index)?)?,
            None if self.count < args.len() => shown_all(&args.get_slice(0, self.count))?,
            None => shown_all(args)?,
        };
        let roots = match &self.roots {
            Some(roots) => roots.bind(py).shown()?,
            None => given.clone(),
        };
        match self.line.write(&mut text, &event, &given, &roots) {
            Ok(()) => Ok(PyString::new(py, &text)),
            Err(_) => Err(unwritten()),
        }
    }

    fn write_plain(
        &self,
        text: &mut String,
        event: &str,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let known = events::known(event);
        let objects = known.map_or(Ok(Vec::new()), |known| objects(known, args))?;
        let mut operation = match known {
            Some(known) if known.rule == Some(Rule::WriteBytes) && args.len() == 3 => format!(
                "write {} bytes{}: {} are written already, and max_bytes is {}",
                shown_at(args, 1)?,
                to_file(args)?,
                shown_at(args, 2)?,
                self.max_bytes.unwrap_or_default(),
            ),
            Some(known) => operation(known.does, &objects.join(" to ")),
            None => format!(
                "the unknown audit event {} with the arguments {}",
                cut(&printable(event), SHOWN_OBJECT),
                cut(&shown_all(args)?.to_string_lossy(), SHOWN_OBJECT)
            ),
        };
        if known.and_then(|known| known.rule) == Some(Rule::Open) {
            operation.push_str(match self.line {
                Line::NothingWritten | Line::NotIn => " for writing",
                Line::NothingRead | Line::NotReadable => " for reading",
                _ => "",
            });
        }
        let path = match self.path {
            Some(index) if objects.len() > 1 => Some(shown_path(args, index)?),
            _ => None,
        };
        let roots = match &self.roots {
            Some(roots) => named_places(roots.bind(args.py()))?,
            None => String::new(),
        };
        let written = self.line.write_plain(text, &operation, path.as_deref(), &roots);
        written.map_err(|_| unwritten())
    }
}

/// Returns the roots without those that denials leave out.
fn named<'py>(config: &AuditCfg, roots: Bound<'py, PyTuple>) -> Bound<'py, PyTuple> {
    let unnamed = config.told().map_or(&[][..], |told| &told.unnamed);
    if unnamed.is_empty() {
        return roots;
    }
    let is_named = |root: &Bound<'_, PyAny>| {
        !root.extract::<&str>().is_ok_and(|root| unnamed.iter().any(|other| other == root))
    };
    PyTuple::new(roots.py(), roots.iter().filter(is_named).collect::<Vec<_>>()).unwrap_or(roots)
}

fn unwritten() -> PyErr {
    PyRuntimeError::new_err("the message could not be written")
}

/// Returns the arguments that say what an operation is about, as a line shows them.
fn objects(known: &KnownEvent, args: &Bound<'_, PyTuple>) -> PyResult<Vec<String>> {
    let at = |positions: &[usize]| -> PyResult<Vec<String>> {
        let given = positions.iter().filter(|index| **index < args.len());
        given.map(|index| shown_at(args, *index)).collect()
    };
    let one = |object: Option<String>| {
        object.map(|object| cut(&printable(&object), SHOWN_OBJECT)).into_iter().collect()
    };
    match known.rule {
        Some(Rule::Entries(paths) | Rule::Node(paths) | Rule::Read(paths)) => {
            let mut paths: Vec<_> = paths.iter().map(|path| path.path).collect();
            paths.sort_unstable();
            paths.dedup();
            let given = paths.into_iter().filter(|index| *index < args.len());
            given.map(|index| shown_path(args, index)).collect()
        }
        Some(Rule::Symlink) => at(&[1, 0]),
        Some(Rule::Database) => at(&[0]),
        Some(Rule::SetAttribute) => at(&[1]),
        Some(Rule::Start | Rule::LowLevelStart) => Ok(one(command(args)?.map(lossy))),
        Some(Rule::Network(NetworkEvent::LookUp)) => at(&[0]),
        Some(Rule::Network(NetworkEvent::LookUpAddress)) => address(args, 0).map(one),
        Some(Rule::Network(_) | Rule::Bind) => address(args, 1).map(one),
        Some(Rule::Native) => Ok(one(text_at(args, 1)?.map(lossy))),
        Some(Rule::WriteBytes) => Ok(Vec::new()),
        _ => match args.get_item(0) {
            Ok(first) if is_text(&first) || is_process(known, &first) => at(&[0]),
            _ => match args.get_item(1) {
                Ok(second) if is_text(&second) => at(&[1]),
                _ => Ok(Vec::new()),
            },
        },
    }
}

pub fn text_at<'py>(
    args: &Bound<'py, PyTuple>,
    index: usize,
) -> PyResult<Option<Bound<'py, PyString>>> {
    match args.get_item(index) {
        Ok(arg) => simple::text(&arg),
        Err(_) => Ok(None),
    }
}

fn lossy(text: Bound<'_, PyString>) -> String {
    text.to_string_lossy().into_owned()
}

fn shown_at(args: &Bound<'_, PyTuple>, index: usize) -> PyResult<String> {
    let arg = args.get_item(index)?;
    let arg = simple::text(&arg)?.map_or(arg, Bound::into_any);
    Ok(cut(&shown(&arg)?.to_string_lossy(), SHOWN_OBJECT))
}

/// The words for the file that a descriptor is of; empty if it has no name.
fn to_file(args: &Bound<'_, PyTuple>) -> PyResult<String> {
    let fd = raw::i32_value(&args.get_item(0)?);
    let path = fd.and_then(|fd| Os.descriptor_path(fd));
    let path = path.map(|path| raw::fs_decode(args.py(), &path)).transpose()?;
    let shown = path.map(|path| shown(path.as_any())).transpose()?;
    Ok(shown.map_or_else(String::new, |path| {
        format!(" to {}", cut(&path.to_string_lossy(), SHOWN_OBJECT))
    }))
}

/// The same of a path; `os.listdir()` and `shutil.unpack_archive()` mean the current directory.
fn shown_path(args: &Bound<'_, PyTuple>, index: usize) -> PyResult<String> {
    match args.get_item(index)?.is_none() {
        true => Ok("'.'".to_owned()),
        false => shown_at(args, index),
    }
}

fn is_text(object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance_of::<PyString>() || object.is_exact_instance_of::<PyBytes>()
}

/// Returns whether it is the number of a process; 0 and less stand for this one, or for many.
fn is_process(known: &KnownEvent, object: &Bound<'_, PyAny>) -> bool {
    let is_of_one = |(_, noun): (&str, &str)| noun.starts_with("process") || noun == "thread";
    noun(known.does).is_some_and(is_of_one) && raw::int_value(object).is_some_and(|id| id > 0)
}

/// Returns the command that an event starts, as a shell reads it.
pub fn command<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyString>>> {
    for index in [1, 0] {
        if let Some(text) = text_at(args, index)? {
            return Ok(Some(text));
        }
        let Ok(arg) = args.get_item(index) else {
            continue;
        };
        if let Some(words) = simple::texts(&arg)? {
            let mut words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            // Its file says what is started, whatever the program is told that it is.
            let file = text_at(args, 0)?;
            if let (Some(file), Some(first)) = (&file, words.first_mut()) {
                let file = file.to_string_lossy();
                if last_name(&file) != last_name(first) {
                    *first = file;
                }
            }
            let words: Vec<_> = words.iter().map(|word| shell_word(word)).collect();
            return Ok(Some(PyString::new(args.py(), &words.join(" "))));
        }
    }
    Ok(None)
}

fn last_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the address at a position: `host:port`, or the path of a Unix socket.
fn address(args: &Bound<'_, PyTuple>, index: usize) -> PyResult<Option<String>> {
    let Ok(address) = args.get_item(index) else {
        return Ok(None);
    };
    if let Some(path) = simple::text(&address)? {
        return Ok(Some(shown(&path)?.to_string_lossy().into_owned()));
    }
    let Ok(address) = address.cast_into::<PyTuple>() else {
        return Ok(None);
    };
    let (Ok(host), Ok(port)) = (address.get_item(0), address.get_item(1)) else {
        return Ok(None);
    };
    let (Some(host), Some(port)) = (simple::text(&host)?, raw::int_value(&port)) else {
        return Ok(None);
    };
    let host = host.to_string_lossy();
    let host = match host.is_empty() {
        true => String::new(),
        false => shell_word(&host),
    };
    Ok(Some(match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }))
}

/// Returns the text without what is beyond so many characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn named_places(places: &Bound<'_, PyTuple>) -> PyResult<String> {
    let named = if places.len() > 2 * NAMED_PLACES { NAMED_PLACES } else { places.len() };
    let current = Os.current_dir();
    let is_current = |place: &Bound<'_, PyAny>| {
        let text = place.cast_exact::<PyString>().ok().and_then(|place| place.to_str().ok());
        text.is_some_and(|text| current.as_deref() == Some(text.as_bytes()))
    };
    let py = places.py();
    let mut text = joined(places.iter().take(named).map(|place| match is_current(&place) {
        true => Ok(PyString::new(py, "'.'")),
        false => place.shown(),
    }))?;
    if places.len() > named {
        text.push_str(&format!(", … {} more", places.len() - named));
    }
    Ok(text)
}

/// Returns `repr(args)`, item by item if that fails.
fn shown_all<'py>(args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyString>> {
    let py = args.py();
    match args.shown() {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            let mut items = joined(args.iter().map(|item| shown(&item)))?;
            if args.len() == 1 {
                items.push(',');
            }
            PyString::from_fmt(py, format_args!("({items})"))
        }
        repr => repr,
    }
}

fn joined<'py>(items: impl Iterator<Item = PyResult<Bound<'py, PyString>>>) -> PyResult<String> {
    let items = items.map(|item| Ok(item?.to_string_lossy().into_owned()));
    Ok(items.collect::<PyResult<Vec<_>>>()?.join(", "))
}

// The call chain that a denial shows: the functions that led to it, without those of runners of
// the user's code and of the import system.

/// Packages that run the code of others: their functions lead to every operation.
const RUNNERS: [&str; 9] = [
    "IPython",
    "_pytest",
    "execnet",
    "fastaudit_rs",
    "ipykernel",
    "pluggy",
    "pytest",
    "pytest_asyncio",
    "xdist",
];

/// The runner that starts a process of its own, so that nothing before it is the user's.
const STARTER: &str = "execnet";

/// Modules whose functions stand between those of the user and explain nothing: the import system.
const BETWEEN: [&str; 5] = [
    "_frozen_importlib",
    "_frozen_importlib_external",
    "importlib._bootstrap",
    "importlib._bootstrap_external",
    "runpy",
];

const SCRIPTS: [&str; 2] = ["bin", "Scripts"];

/// The functions that lead to the end of a traceback, or to the running code; the outermost first.
pub fn call_chain(
    py: Python<'_>,
    traceback: Option<Bound<'_, PyTraceback>>,
) -> PyResult<Vec<String>> {
    let frame = match &traceback {
        Some(traceback) => frames::outer(&frames::traceback_frame(traceback)),
        None => frames::current_frame(py),
    };
    let mut sites = stack::sites_of(frame)?;
    sites.reverse();
    let mut entry = traceback;
    while let Some(current) = entry {
        sites.push(stack::site(&frames::traceback_frame(&current))?);
        let next = current.attr(intern!(py, "tb_next"))?;
        entry = next.cast_into().ok();
    }
    let sites = of_the_user(py, &sites)?;
    sites.into_iter().map(|site| site.name(py)).collect()
}

/// The sites without those of runners, and of the libraries that led to a runner.
fn of_the_user<'a>(py: Python<'_>, sites: &'a [Site]) -> PyResult<Vec<&'a Site>> {
    let mut runners_left = sites.iter().filter(|site| is_runner(py, site)).count();
    let mut kept = Vec::with_capacity(sites.len());
    // Sites from here on are dropped with the next runner.
    let mut since_user = 0;
    for site in sites {
        let module = site.module(py);
        if is_runner(py, site) {
            runners_left -= 1;
            if package_of(module) == STARTER {
                since_user = 0;
            }
            kept.truncate(since_user);
            continue;
        }
        if BETWEEN.contains(&module) {
            continue;
        }
        kept.push(site);
        if runners_left > 0 && !is_installed(site.code(py))? {
            since_user = kept.len();
        }
    }
    Ok(kept)
}

fn package_of(module: &str) -> &str {
    module.split('.').next().unwrap_or_default()
}

/// Hooks in a `conftest.py`, which pytest calls, count as pytest's.
fn is_runner(py: Python<'_>, site: &Site) -> bool {
    let module = site.module(py);
    if module.rsplit('.').next() == Some("conftest") {
        return site.name(py).is_ok_and(|name| name.contains(".pytest_"));
    }
    RUNNERS.contains(&package_of(module))
}

fn is_installed(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    if entered_at::is_of_library(code)? {
        return Ok(true);
    }
    let file = entered_at::file_of(code)?;
    let file = file.to_string_lossy();
    let mut parts = file.rsplit(['/', '\\']);
    let is_bare = parts.next().is_some_and(|name| !name.contains('.'));
    Ok(is_bare && parts.next().is_some_and(|parent| SCRIPTS.contains(&parent)))
}
