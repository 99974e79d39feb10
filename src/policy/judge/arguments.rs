//! The arguments of an audit event, as plain values.

use std::borrow::Cow;

use super::address::{Endpoint, Host};
use crate::policy::commands;
use crate::policy::files::fs::{FileSystem, PathBuf};
use crate::policy::files::opening::{open_appends, open_may_write};
use crate::policy::files::path::{Base, Name, Target};
use crate::policy::rules::Rule;

/// A name among the arguments, with whatever keeps its bytes alive.
pub trait Named {
    /// Returns the name as the policy takes it.
    fn name(&self) -> Name<'_>;

    /// Returns whether the name is a text that its object gave: another time it may give another
    /// one.
    fn is_text(&self) -> bool {
        matches!(self.name(), Name::Path(_))
    }

    /// Returns the name as the target of an operation.
    fn target(&self, base: Base) -> Target<'_> {
        Target {
            name: self.name(),
            base,
        }
    }
}

/// The treatment of an object that is not `str`, `bytes` or `int` by the operation behind an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathLikes {
    /// Everything that the operation does with the object raises events of its own.
    CheckedAgain,
    /// The operation asks the object for its path after the event, and no event follows.
    AskedLater,
}

/// The arguments of an audit event. Anybody may raise one with fewer arguments, or with others.
///
/// Values are read from the objects' own buffers: a method that a subclass overrides decides
/// nothing.
pub trait Arguments {
    /// The error that reading an argument raises.
    type Error;
    /// A name among them.
    type Name<'a>: Named
    where
        Self: 'a;

    /// Returns how many there are.
    fn count(&self) -> usize;
    /// Returns whether the argument is there and `None`.
    fn is_none(&self, index: usize) -> bool;
    /// Returns whether the argument is a `str`, `bytes` or `bytearray`.
    fn is_texts(&self, index: usize) -> bool;
    /// Returns the value of an `int`.
    fn integer(&self, index: usize) -> Option<i64>;
    /// Returns the text of a `str`; characters that cannot be encoded are replaced.
    fn text(&self, index: usize) -> Option<Cow<'_, str>>;
    /// Reads the bytes of a `str`, `None` if the file system has none for it; does not call `read`
    /// if the argument is not a `str`.
    fn with_encoded<R>(&self, index: usize, read: impl FnOnce(Option<&[u8]>) -> R) -> Option<R>;
    /// Reads a name.
    ///
    /// # Errors
    /// Errors of an object that was asked for its path, if they are not an `Exception`.
    fn name(
        &self,
        index: usize,
        descriptor: bool,
        path_likes: PathLikes,
    ) -> Result<Self::Name<'_>, Self::Error>;

    /// Returns the path in a `str`, a `bytes` or a path of the standard library.
    fn path(&self, index: usize) -> Option<PathBuf>;
    /// Returns the paths at the beginning of a list or tuple, up to the first item that is not a
    /// path.
    fn paths(&self, index: usize) -> Option<Vec<PathBuf>>;
    /// Returns the `PATH` of the environment for a child; `own` is that of this process, which is
    /// taken if the argument is absent or `None`.
    fn search_path(&self, index: usize, own: &dyn Fn() -> Vec<u8>) -> Option<Vec<u8>>;

    /// Returns the family and the descriptor of a socket, whatever a subclass says they are.
    fn socket(&self, index: usize) -> Option<(i64, i32)>;
    /// Reads an argument as a host.
    fn host(&self, index: usize) -> Option<Host>;
    /// Reads the first item of a tuple as a host.
    fn first_host(&self, index: usize) -> Option<Host>;
    /// Reads a tuple as an address with a port.
    fn endpoint(&self, index: usize) -> Option<Endpoint>;
    /// Reads the name of a Unix socket.
    fn socket_name(&self, index: usize) -> Option<Vec<u8>>;

    /// Reads a `dir_fd`; it may be absent, `None` or -1, all of which mean the current directory.
    fn base(&self, index: Option<usize>) -> Base {
        let Some(index) = index.filter(|index| *index < self.count()) else {
            return Base::CurrentDir;
        };
        if self.is_none(index) {
            return Base::CurrentDir;
        }
        match self.integer(index) {
            Some(-1) => Base::CurrentDir,
            // A number that is not a descriptor has no path, and so nothing can be approved under
            // it.
            value => Base::Descriptor(value.and_then(|fd| i32::try_from(fd).ok()).unwrap_or(-1)),
        }
    }
}

/// Returns whether the event is an `open` that only reads, by far the most frequent one with a
/// rule.
#[inline]
pub fn is_open_for_reading(args: &impl Arguments, rule: Rule) -> bool {
    if !matches!(rule, Rule::Open) || args.count() < 3 {
        return false;
    }
    if args.is_none(1) {
        let flags = args.integer(2);
        return flags.is_some_and(|flags| !open_may_write(None, flags));
    }
    let by_mode = args.with_encoded(1, |mode| {
        // A mode that cannot be encoded opens nothing, but is not known to only read.
        mode.is_some_and(|mode| !open_may_write(Some(mode), 0))
    });
    by_mode.unwrap_or(false)
}

/// Returns whether an `open` that may write only adds to the end.
pub(super) fn is_open_for_appending(args: &impl Arguments) -> bool {
    let by_mode = args.with_encoded(1, |mode| {
        mode.is_some_and(|mode| open_appends(Some(mode), 0))
    });
    by_mode.unwrap_or_else(|| {
        args.integer(2)
            .is_some_and(|flags| open_appends(None, flags))
    })
}

// The program that an event is going to start.

/// The program that runs the command of `os.system`.
pub const SHELL: &str = "/bin/sh";

/// Returns the program that an event is going to start; `None` if that cannot be told. `own_path`
/// is the `PATH` of this process.
pub fn program(
    fs: &impl FileSystem,
    event: &[u8],
    args: &impl Arguments,
    own_path: &dyn Fn() -> Vec<u8>,
) -> Option<PathBuf> {
    // A name without a slash is looked for on the `PATH` of the new environment, or of this
    // process.
    let search = |name: PathBuf, environment: Option<usize>| -> Option<PathBuf> {
        if name.contains(&b'/') {
            return Some(name);
        }
        let path = match environment {
            Some(index) => args.search_path(index, own_path)?,
            None => own_path(),
        };
        commands::find(fs, &name, &path)
    };
    match event {
        b"subprocess.Popen" => {
            let found = search(args.path(0)?, Some(3))?;
            // The child changes its directory first.
            if found.starts_with(b"/") || args.count() <= 2 || args.is_none(2) {
                return Some(found);
            }
            let mut whole = args.path(2)?;
            whole.push(b'/');
            whole.extend_from_slice(&found);
            Some(whole)
        }
        b"os.exec" | b"os.posix_spawn" => search(args.path(0)?, Some(2)),
        b"os.system" => Some(PathBuf::from_slice(SHELL.as_bytes())),
        b"pty.spawn" => search(args.paths(0)?.into_iter().next()?, None),
        b"_posixsubprocess.fork_exec" => {
            // The paths to try, from PATH: the first that can be executed is started.
            let places = args.paths(0)?;
            places.into_iter().find(|place| fs.is_executable(place))
        }
        _ => None,
    }
}
