//! The program that an event is going to start.

use super::arguments::Arguments;
use crate::policy::commands;
use crate::policy::files::fs::{FileSystem, PathBuf};

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
