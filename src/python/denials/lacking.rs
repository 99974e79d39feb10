//! The permissions that a denied event needs and its policy does not give.

use std::ffi::CString;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::policy::commands;
use crate::policy::events;
use crate::policy::files::fs::{FileSystem, Link, Os};
use crate::policy::files::path::{self, Base, Name, Resolved, Target};
use crate::policy::judge::{Arguments, Follows, Named, PathLikes, is_open_for_reading};
use crate::policy::learn::{self, Need};
use crate::policy::rules::{Access, PathArg, Rule};
use crate::policy::written::widening::Lack;
use crate::policy::{Operation, Verdict, Why};
use crate::python::cpython::ffi as raw;
use crate::python::denials::denied_event::{Lacking, Noted};
use crate::python::denials::lacking_network;
use crate::python::values::call_notes;
use crate::python::values::command;
use crate::python::values::decode;
use crate::python::values::distributions;
use crate::python::values::simple;

/// The number of arguments that paths are among.
const MOST_PATHS: usize = 2;

impl Noted {
    /// Notes it while the event is going on.
    pub fn now(args: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let mut opaque = 0;
        for index in 0..args.len().min(MOST_PATHS) {
            let arg = raw::tuple_item(args, index);
            if raw::int_value(&arg).is_none() && !arg.is_none() && simple::text(&arg)?.is_none() {
                opaque |= 1 << index;
            }
        }
        Ok(Self {
            base: call_notes::base(),
            follows: call_notes::follows(),
            opaque,
        })
    }
}

/// Returns whether the needs of a denied event would differ later: a relative path starts from a
/// directory that may be left or closed, and names of hosts are forgotten with the guard.
pub fn is_of_the_moment(event: &str, args: &Bound<'_, PyTuple>, why: Why) -> bool {
    match why {
        Why::Network(_) => true,
        Why::Unapproved | Why::Unreadable | Why::Blocked | Why::Protected => {
            let is_relative = |index: usize| {
                let Ok(arg) = args.get_borrowed_item(index) else {
                    return false;
                };
                // A descriptor, which may be closed then.
                if index == 0 && raw::int_value(&arg).is_some() {
                    return true;
                }
                match simple::text(&arg) {
                    Ok(Some(text)) => !text.to_string_lossy().starts_with('/'),
                    _ => false,
                }
            };
            (0..MOST_PATHS).any(is_relative)
        }
        // It may have a `PATH` of its own.
        Why::Command => event != "os.system",
        _ => false,
    }
}

impl Lacking<'_, '_> {
    /// Returns the permissions that the event needs and the policy does not give; empty if they
    /// cannot be told. Names of hosts come from the look-ups seen.
    pub fn lacks(&self, why: Why, seen: &crate::python::values::seen::Seen) -> PyResult<Vec<Lack>> {
        let one = |need: Option<Need>| -> Vec<Lack> {
            need.map(|need| Lack::new(need, why)).into_iter().collect()
        };
        Ok(match why {
            Why::Unapproved | Why::Unreadable | Why::Blocked | Why::Protected => self.places()?,
            Why::Network(part) => lacking_network::lacks(self, part, seen)?,
            Why::Environment => one(self.text(0)?.map(Need::Variable)),
            Why::Command => one(self.program()?.map(|program| Need::Program(program.into()))),
            Why::Import => one(self.text(0)?.map(Need::Module)),
            Why::Native if self.event == "import" => {
                let module = self.text(0)?;
                let package = module.as_deref().and_then(|name| name.split('.').next());
                one(package.map(|package| Need::Native(package.to_owned())))
            }
            Why::Native => one(self
                .text(1)?
                .as_deref()
                .map(distributions::package_of)
                .map(Need::Native)),
            Why::Thread => one(Some(Need::Thread)),
            Why::Unknown => one(Some(Need::UnknownEvent)),
            Why::TooMuch => one(self.bytes().map(Need::Bytes)),
        })
    }

    fn text(&self, index: usize) -> PyResult<Option<String>> {
        let Ok(arg) = self.args.get_item(index) else {
            return Ok(None);
        };
        let text = simple::text(&arg)?;
        Ok(text.and_then(|text| Some(text.to_str().ok()?.to_owned())))
    }

    /// Returns the number of bytes there would be in all: `(fd, more, before)`.
    fn bytes(&self) -> Option<u64> {
        let number = |index| u64::try_from(raw::int_value(&self.args.get_item(index).ok()?)?).ok();
        number(1)?.checked_add(number(2)?)
    }

    /// Returns the program as a policy names it: by its name if this process finds it by that.
    /// `None` if there is no program, an empty name if it cannot be told which it is.
    fn program(&self) -> PyResult<Option<String>> {
        let Ok(event) = CString::new(self.event) else {
            return Ok(None);
        };
        let Some(found) = command::program(&event, self.args) else {
            let is_named = command::shown(self.event, self.args).is_some();
            return Ok((!is_named).then(String::new));
        };
        if !Os.is_executable(&found) {
            return Ok(None);
        }
        let shown = command::shown(self.event, self.args);
        if let Some(name) = shown.and_then(|name| Some(name.to_str().ok()?.to_owned())) {
            let is_found = || {
                commands::find(&Os, name.as_bytes(), &command::own_path())
                    .is_some_and(|own| own == found)
            };
            if name.starts_with('/') || (!name.contains('/') && is_found()) {
                return Ok(Some(name));
            }
        }
        let (dir, name) = path::split(&found);
        let dir = path::resolve(&Os, dir, Base::CurrentDir);
        let place = dir.map(|dir| dir.join(name).to_vec());
        Ok(place.and_then(|place| String::from_utf8(place).ok()))
    }

    fn places(&self) -> PyResult<Vec<Lack>> {
        let Some(rule) = events::lookup(self.event.as_bytes()) else {
            return Ok(Vec::new());
        };
        let mut lacks = Vec::new();
        match rule {
            Rule::Entries(paths) | Rule::Read(paths) => {
                for path in paths {
                    self.path(*path, &mut lacks)?;
                }
            }
            Rule::Open => {
                let is_by_os = self.args.get_item(1).is_ok_and(|mode| mode.is_none());
                let base = match is_by_os {
                    true => self.noted.base,
                    false => Base::CurrentDir,
                };
                let reads = is_open_for_reading(self.args, rule);
                self.at(0, base, |target| match reads {
                    true => self.note(Operation::Read(target), &mut lacks),
                    false => self.note(Operation::OpenForWriting(target), &mut lacks),
                })?;
            }
            Rule::ChangeDirectory => self.at(0, Base::CurrentDir, |to| {
                self.note(Operation::ChangeDirectory { to, left: None }, &mut lacks);
            })?,
            Rule::Symlink => {
                let base = self.args.base(Some(2));
                let link = decode::name_at(self.args, 1, false, PathLikes::AskedLater)?;
                let at = link.target(base);
                self.at(0, Base::CurrentDir, |text| {
                    let text = text.name;
                    self.note(Operation::LinkTo { text, at }, &mut lacks);
                })?;
                self.note(Operation::MoveEntry(at), &mut lacks);
            }
            Rule::Database => self.at(0, Base::CurrentDir, |database| {
                self.note(Operation::OpenDatabase(database.name), &mut lacks);
            })?,
            Rule::Bind => self.change_entry(1, &mut lacks)?,
            Rule::Control => self.at(0, Base::CurrentDir, |target| {
                self.note(Operation::ChangeFile(target), &mut lacks);
            })?,
            _ => {}
        }
        Ok(lacks)
    }

    fn path(&self, path: PathArg, lacks: &mut Vec<Lack>) -> PyResult<()> {
        if matches!(path.access, Access::Read | Access::Look) && !self.policy.checks_reads() {
            return Ok(());
        }
        let base = self.args.base(path.dir_fd);
        self.at(path.path, base, |target| match path.access {
            Access::Change => self.note(Operation::ChangeEntry(target), lacks),
            Access::Move => self.note(Operation::MoveEntry(target), lacks),
            Access::Place => self.note(Operation::ChangePlace(target), lacks),
            Access::Read => self.note(Operation::Read(target), lacks),
            Access::Look => self.note(Operation::Look(target), lacks),
            Access::File | Access::Contents => {
                if self.noted.follows != Follows::Always {
                    self.note(Operation::ChangeEntry(target), lacks);
                }
                if self.noted.follows != Follows::Never {
                    self.note(Operation::ChangeFile(target), lacks);
                }
            }
        })
    }

    /// Notes the reason against making the entry that an argument names.
    pub fn change_entry(&self, index: usize, lacks: &mut Vec<Lack>) -> PyResult<()> {
        self.at(index, Base::CurrentDir, |target| {
            self.note(Operation::ChangeEntry(target), lacks);
        })
    }

    /// Looks at the place that an argument names, if it can be told.
    fn at(&self, index: usize, base: Base, look: impl FnOnce(Target<'_>)) -> PyResult<()> {
        if self.noted.opaque & 1_u8.checked_shl(index as u32).unwrap_or(0) != 0 {
            return Ok(());
        }
        let name = decode::name_at(self.args, index, true, PathLikes::AskedLater)?;
        let is_none = self.args.get_item(index).is_ok_and(|arg| arg.is_none());
        look(match is_none {
            // `os.listdir()` and others read the current directory then.
            true => Target::path(b"."),
            false => name.target(base),
        });
        Ok(())
    }

    fn note(&self, operation: Operation<'_>, lacks: &mut Vec<Lack>) {
        let Verdict::Deny(why) = self.policy.check(&Os, operation) else {
            return;
        };
        let mut whys = vec![why];
        if matches!(why, Why::Unapproved | Why::Unreadable)
            && let Some(beside) = self.policy.denies_beside_roots(&Os, operation)
        {
            whys.push(beside);
        }
        for why in whys {
            if matches!(why, Why::Blocked | Why::Protected) {
                let places = places_of(operation).into_iter();
                lacks.extend(places.map(|place| Lack::new(Need::Write(place), why)));
                continue;
            }
            let root = root_of(operation);
            let needs = learn::needs(&Os, operation).into_iter();
            lacks.extend(needs.map(|need| Lack {
                need: self.told(need),
                why,
                root: root.clone(),
                is_file: matches!(
                    operation,
                    Operation::OpenForWriting(_) | Operation::ChangeFile(_)
                ),
            }));
        }
    }

    /// Returns the need, or that of its directory if the place could not be a root, or has another
    /// name the next time.
    fn told(&self, need: Need) -> Need {
        match need {
            Need::Write(path) => {
                let dir = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                let dir = &path[..dir];
                // A root that is a link is the place it leads to.
                let is_link = || matches!(Os.read_link(&path), Link::To(_));
                let is_passing =
                    self.event.starts_with("tempfile.") || holds_passing_files(dir) || is_link();
                match !dir.is_empty() && is_passing {
                    true => Need::Write(dir.to_vec()),
                    false => Need::Write(path),
                }
            }
            need => need,
        }
    }
}

/// Returns whether a directory is one for temporary files, which all may write to (`/tmp`,
/// `/dev/shm`).
#[cfg(unix)]
fn holds_passing_files(dir: &[u8]) -> bool {
    use rustix::fs::Mode;
    let found = rustix::fs::stat(dir).map(|found| Mode::from_raw_mode(found.st_mode));
    found.is_ok_and(|mode| mode.contains(Mode::SVTX | Mode::WOTH))
}

#[cfg(not(unix))]
fn holds_passing_files(_dir: &[u8]) -> bool {
    false
}

/// The target of an operation on a place.
fn target_of<'a>(operation: Operation<'a>) -> Option<Target<'a>> {
    match operation {
        Operation::ChangeEntry(target)
        | Operation::MoveEntry(target)
        | Operation::ChangeFile(target)
        | Operation::ChangePlace(target)
        | Operation::OpenForWriting(target)
        | Operation::Read(target)
        | Operation::Look(target)
        | Operation::ChangeDirectory { to: target, .. } => Some(target),
        Operation::OpenDatabase(name) | Operation::LinkTo { text: name, .. } => Some(Target {
            name,
            base: Base::CurrentDir,
        }),
        _ => None,
    }
}

/// Returns the entry that a path names, and the place it leads to: either may be blocked or
/// protected.
fn places_of(operation: Operation<'_>) -> Vec<Vec<u8>> {
    let Some(Target {
        name: Name::Path(path),
        base,
    }) = target_of(operation)
    else {
        return Vec::new();
    };
    if let Operation::LinkTo { .. } = operation {
        let landings = learn::needs(&Os, operation).into_iter();
        return landings
            .filter_map(|need| match need {
                Need::Write(path) => Some(path),
                _ => None,
            })
            .collect();
    }
    let mut places = Vec::new();
    let (dir, name) = path::split(path);
    if !matches!(name, b"" | b"." | b"..")
        && let Some(dir) = path::resolve(&Os, dir, base)
    {
        places.push(dir.join(name).to_vec());
    }
    if let Some(landing) = path::resolve(&Os, path, base)
        && !places.iter().any(|place| place[..] == *landing.as_bytes())
    {
        places.push(landing.as_bytes().to_vec());
    }
    places
}

/// Returns the least root that approves an operation, if a root approves only the entries below it.
fn root_of(operation: Operation<'_>) -> Option<Vec<u8>> {
    if let Operation::ChangeFile(Target {
        name: Name::Descriptor(_),
        ..
    }) = operation
    {
        return match learn::needs(&Os, operation).pop()? {
            Need::Write(path) => learn::parent_of(&path).or(Some(b"/".to_vec())),
            _ => None,
        };
    }
    let Name::Path(path) = target_of(operation)?.name else {
        return None;
    };
    let base = target_of(operation)?.base;
    let parent = |landing: Resolved| landing.parent().to_vec();
    match operation {
        Operation::ChangeDirectory { .. } | Operation::Read(_) => {
            Some(path::resolve(&Os, path, base)?.as_bytes().to_vec())
        }
        Operation::OpenForWriting(_) => {
            let landing = path::resolve(&Os, path, base)?;
            Some(match Os.is_dir(landing.as_bytes()) {
                true => landing.as_bytes().to_vec(),
                false => parent(landing),
            })
        }
        Operation::ChangeFile(_) => path::resolve(&Os, path, base).map(parent),
        Operation::OpenDatabase(_) => match learn::needs(&Os, operation).pop()? {
            Need::Write(path) => learn::parent_of(&path).or(Some(b"/".to_vec())),
            _ => None,
        },
        Operation::LinkTo { .. } => match learn::needs(&Os, operation).pop()? {
            Need::Write(landing) if path.starts_with(b"/") => {
                learn::parent_of(&landing).or(Some(b"/".to_vec()))
            }
            Need::Write(landing) => Some(landing),
            _ => None,
        },
        _ => {
            let (dir, name) = path::split(path);
            match name {
                b"" | b"." | b".." => path::resolve(&Os, path, base).map(parent),
                _ => Some(path::resolve(&Os, dir, base)?.as_bytes().to_vec()),
            }
        }
    }
}
