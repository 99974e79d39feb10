//! The programs that may be started, and the workers of pools among them.

use std::ffi::OsString;

use ahash::AHashSet;

use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::path::{self, Base};

/// The programs that may be started.
#[derive(Clone, Debug, Default)]
pub enum Commands {
    #[default]
    None,
    All,
    /// The programs at these places: the resolved directory and the name in it. A link and its
    /// target are two programs, as many programs act by the name they are called by. [`PYTHON`]
    /// stands for this interpreter, at any place.
    At(AHashSet<PathBuf>),
}

const PYTHON: &[u8] = b"python";

/// The program of this process.
const THIS: &[u8] = b"/proc/self/exe";

/// Returns whether a name stands for the interpreter of this process.
pub fn is_python(name: &[u8]) -> bool {
    matches!(name, PYTHON | b"python3")
}

/// The name of a program in a policy: `python` for the interpreter of this process.
pub fn name_of(fs: &impl FileSystem, program: Vec<u8>) -> Vec<u8> {
    match is_this(fs, &program) {
        true => PYTHON.to_vec(),
        false => program,
    }
}

fn is_this(fs: &impl FileSystem, program: &[u8]) -> bool {
    let is_named = path::split(program).1.starts_with(PYTHON);
    is_named && fs.identity(program).is_some_and(|this| fs.identity(THIS) == Some(this))
}

impl Commands {
    /// The programs of these names and paths. A name without a slash is the program that `search`
    /// finds first; if it finds none, the name starts nothing.
    pub fn named<'a>(
        fs: &impl FileSystem,
        names: impl IntoIterator<Item = &'a [u8]>,
        search: &[u8],
    ) -> Self {
        let mut places = AHashSet::new();
        for name in names {
            let found = match name.contains(&b'/') {
                true => Some(PathBuf::from_slice(name)),
                false => find(fs, name, search),
            };
            places.extend(found.and_then(|found| place(fs, &found)));
            if is_python(name) {
                places.insert(PathBuf::from_slice(PYTHON));
            }
        }
        Self::At(places)
    }

    /// Returns the programs of both.
    pub(super) fn with(&self, more: &Self) -> Self {
        match (self, more) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::None, more) => more.clone(),
            (own, Self::None) => own.clone(),
            (Self::At(own), Self::At(more)) => Self::At(own.union(more).cloned().collect()),
        }
    }

    /// Returns whether the program at this path may be started.
    pub fn allow(&self, fs: &impl FileSystem, program: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::At(places) => {
                place(fs, program).is_some_and(|place| places.contains(&place))
                    || (places.contains(PYTHON) && is_this(fs, program))
            }
        }
    }
}

/// Returns the place of a program: the resolved directory and the name in it.
fn place(fs: &impl FileSystem, program: &[u8]) -> Option<PathBuf> {
    match path::is_unnamed(path::split(program).1) {
        true => None,
        false => path::entry(fs, program, Base::CurrentDir),
    }
}

/// What an environment without a `PATH` has: `os.defpath`, and that of execvp(3).
pub const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

pub fn own_path() -> Vec<u8> {
    std::env::var_os("PATH").map_or_else(|| DEFAULT_PATH.to_vec(), OsString::into_encoded_bytes)
}

/// Returns where a program of this name may be, by the directories of a `PATH`; an empty one is the
/// current directory. `subprocess` makes the same paths.
pub fn places(name: &[u8], search: &[u8]) -> impl Iterator<Item = PathBuf> {
    search.split(|&byte| byte == b':').map(move |directory| {
        let mut place = PathBuf::from_slice(directory);
        if !directory.is_empty() && !directory.ends_with(b"/") {
            place.push(b'/');
        }
        place.extend_from_slice(name);
        place
    })
}

/// Returns the program that a name starts: the first place that can be executed (execvp(3)).
pub fn find(fs: &impl FileSystem, name: &[u8], search: &[u8]) -> Option<PathBuf> {
    places(name, search).find(|place| fs.is_executable(place))
}

// The command lines by which `multiprocessing`, `concurrent.futures` and `loky` start the
// processes of their pools: Python, running their own code and nothing else.

/// The modules whose code runs, the function of each that it calls, and whether its arguments may
/// be texts, not just numbers.
const MODULES: &[(&str, &str, bool)] = &[
    ("multiprocessing.spawn", "spawn_main", false),
    ("multiprocessing.resource_tracker", "main", false),
    ("multiprocessing.forkserver", "main", true),
    ("loky.backend.resource_tracker", "main", false),
    ("joblib.externals.loky.backend.resource_tracker", "main", false),
];

/// The modules that are run as a program (`-m`).
const PROGRAMS: &[&str] =
    &["loky.backend.popen_loky_posix", "joblib.externals.loky.backend.popen_loky_posix"];

/// Options of the interpreter that have no argument, or another program's name in theirs.
const FLAGS: &[u8] = b"BEIOPSbdqsv";

/// The names that may follow `-X`.
const IMPLEMENTATION: &[&str] = &[
    "dev",
    "faulthandler",
    "frozen_modules",
    "gil",
    "importtime",
    "int_max_str_digits",
    "no_debug_ranges",
    "showrefcount",
    "tracemalloc",
    "utf8",
    "warn_default_encoding",
];

/// The module that has the functions by which a process is started, and their names.
pub const STARTERS: &[(&str, &str)] = &[
    ("multiprocessing.util", "spawnv_passfds"),
    ("loky.backend.fork_exec", "fork_exec"),
    ("joblib.externals.loky.backend.fork_exec", "fork_exec"),
];

/// The packages whose code calls them.
pub const PACKAGES: &[&str] = &["multiprocessing", "loky", "joblib.externals.loky"];

/// A command line of a worker.
#[derive(Debug, PartialEq, Eq)]
pub struct Worker<'a> {
    /// The words before the code: the interpreter and its options.
    before: &'a [&'a str],
    after: &'a [&'a str],
    runs: Runs<'a>,
}

#[derive(Debug, PartialEq, Eq)]
enum Runs<'a> {
    /// This code, of this module.
    Code(&'a str, &'static str),
    /// This module, as a program.
    Program(&'static str),
}

impl<'a> Worker<'a> {
    /// Returns the worker that a command line, whose first word is the interpreter's, starts;
    /// `None` for any other command line.
    pub fn of(arguments: &'a [&'a str]) -> Option<Self> {
        let mut at = 1;
        loop {
            match *arguments.get(at)? {
                "-c" | "-m" => break,
                "-X" => {
                    let (name, _) = split(arguments.get(at + 1)?, '=');
                    IMPLEMENTATION.contains(&name).then_some(())?;
                    at += 2;
                }
                option => {
                    is_harmless(option).then_some(())?;
                    at += 1;
                }
            }
        }
        let (before, given) = (&arguments[..at], arguments.get(at + 1)?);
        let after = &arguments[at + 2..];
        let runs = if arguments[at] == "-c" {
            Runs::Code(given, module_of(given)?)
        } else {
            Runs::Program(PROGRAMS.iter().find(|program| *program == given)?)
        };
        Some(Self { before, after, runs })
    }

    pub fn module(&self) -> &'static str {
        match self.runs {
            Runs::Code(_, module) | Runs::Program(module) => module,
        }
    }

    /// The command line that first runs other code, which guards the rest. If that fails, nothing
    /// else runs.
    pub fn after(&self, first: &str) -> Vec<String> {
        let code = match self.runs {
            Runs::Code(code, _) => format!("{first}\n{code}"),
            Runs::Program(module) => {
                format!("{first}\nimport runpy; runpy._run_module_as_main({module:?})")
            }
        };
        let mut words: Vec<_> = self.before.iter().map(|word| (*word).to_owned()).collect();
        words.extend(["-c".to_owned(), code]);
        words.extend(self.after.iter().map(|word| (*word).to_owned()));
        words
    }
}

fn split(text: &str, by: char) -> (&str, &str) {
    text.split_once(by).unwrap_or((text, ""))
}

/// Returns whether an option of the interpreter loads nothing.
fn is_harmless(option: &str) -> bool {
    let Some(flags) = option.strip_prefix('-') else {
        return false;
    };
    match flags.as_bytes() {
        [] => false,
        // The category of a warning is imported if its name has a module in it.
        [b'W', filter @ ..] => !filter.contains(&b'.'),
        // In one word with its name.
        [b'X', ..] => IMPLEMENTATION.contains(&split(&flags[1..], '=').0),
        flags => flags.iter().all(|flag| FLAGS.contains(flag)),
    }
}

/// Returns the module of code that calls one function of it alone.
fn module_of(code: &str) -> Option<&'static str> {
    let rest = code.strip_prefix("import sys; ").unwrap_or(code);
    let rest = rest.strip_prefix("from ")?;
    let found = MODULES.iter().find_map(|(module, function, takes_texts)| {
        let rest = rest.strip_prefix(module)?.strip_prefix(" import ")?;
        let rest = rest.strip_prefix(function)?.strip_prefix(';')?;
        let rest = rest.trim_start_matches(' ').strip_prefix(function)?;
        let given = rest.strip_prefix('(')?.strip_suffix(')')?;
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_=, ".contains(letter);
        let fits = *takes_texts || given.chars().all(is_plain);
        fits.then_some(*module)
    })?;
    (!code.contains('\n')).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAWN: &str = "from multiprocessing.spawn import spawn_main; \
                         spawn_main(tracker_fd=5, pipe_handle=7)";
    const TRACKER: &str = "from multiprocessing.resource_tracker import main;main(4)";
    const SERVER: &str = "from multiprocessing.forkserver import main; \
                          main(6, 7, ['__main__'], **{'sys_path': ['/a b']})";
    const LATER_SERVER: &str = "import sys; from multiprocessing.forkserver import main; \
                                main(6, 7, [], sys_argv=sys.argv[1:], **{})";
    const LOKY: &str = "joblib.externals.loky.backend.popen_loky_posix";

    #[test]
    #[rustfmt::skip]
    fn workers() {
        for (arguments, module) in [
            (&["python", "-c", SPAWN, "--multiprocessing-fork"][..], "multiprocessing.spawn"),
            (&["python", "-BI", "-X", "dev", "-Wignore", "-Xutf8=1", "-c", TRACKER], "multiprocessing.resource_tracker"),
            (&["python", "-c", SERVER], "multiprocessing.forkserver"),
            (&["python", "-c", LATER_SERVER, "a"], "multiprocessing.forkserver"),
            (&["python", "-m", LOKY, "--pipe", "5"], LOKY),
        ] {
            let worker = Worker::of(arguments).unwrap();
            assert_eq!(worker.module(), module);
        }
        let words = Worker::of(&["python", "-m", LOKY]).unwrap().after("first");
        let code = format!("first\nimport runpy; runpy._run_module_as_main(\"{LOKY}\")");
        assert_eq!(words, ["python", "-c", &code]);
    }

    #[test]
    #[rustfmt::skip]
    fn other_command_lines() {
        for arguments in [
            &["python"][..],
            &["python", "-c"],
            &["python", "-c", "print()"],
            &["python", "script.py"],
            &["python", "-", "-c", SPAWN],
            &["python", "-m", "pip"],
            &["python", "-m", "multiprocessing.spawn"],
            &["python", "-i", "-c", SPAWN],
            &["python", "-Werror::own.Warning", "-c", SPAWN],
            &["python", "-X", "presite=own", "-c", SPAWN],
            &["python", "-Xpresite=own", "-c", SPAWN],
            &["python", "-W", "error::own.Warning", "-c", SPAWN],
            &["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(f())"],
            &["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(1);x()"],
            &["python", "-c", "from multiprocessing.spawn import main; main(1)"],
            &["python", "-c", "from multiprocessing.resource_tracker import main;main(4)\nx"],
            &["python", "-c", "from own import main;main(4)"],
        ] {
            assert_eq!(Worker::of(arguments), None, "{arguments:?}");
        }
    }
}
