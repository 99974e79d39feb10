//! The places that a denied event lacks.

use super::arguments::{Arguments, Named, PathLikes, is_open_for_reading};
use super::files::{moved_link, operations};
use super::lacking::Denied;
use crate::policy::environment::files_named;
use crate::policy::events;
use crate::policy::files::descriptors::open_makes_new;
use crate::policy::files::fs::{FileSystem, Link};
use crate::policy::files::path::{self, Base, Name, Resolved, Target};
use crate::policy::learn::{self, Need};
use crate::policy::operation::{Operation, Why};
use crate::policy::rules::{Access, PathArg, Rule};
use crate::policy::written::widening::Lack;

impl<A: Arguments, F: FileSystem> Denied<'_, A, F> {
    pub(super) fn places(&self, why: Why) -> Result<Vec<Lack>, A::Error> {
        let Some(rule) = events::lookup(self.event.as_bytes()) else {
            return Ok(Vec::new());
        };
        let mut lacks = Vec::new();
        match rule {
            Rule::Entries(paths) | Rule::Node(paths) | Rule::Read(paths) => {
                for path in paths {
                    self.path(*path, &mut lacks)?;
                }
                if matches!(rule, Rule::Entries(_)) && self.moment.opaque == 0 {
                    let moved = moved_link(self.args, self.fs, paths, PathLikes::AskedLater)?;
                    if let Some(moved) = moved {
                        self.note(moved.operation(), &mut lacks);
                    }
                }
            }
            Rule::Open => {
                let is_by_os = self.args.is_none(1);
                let base = match is_by_os {
                    true => self.moment.base,
                    false => Base::CurrentDir,
                };
                let reads = is_open_for_reading(self.args, rule);
                let is_new = is_by_os && self.args.integer(2).is_some_and(open_makes_new);
                // It is one operation: the denial said why.
                self.at(0, base, |target| match reads {
                    true => self.note_denied(why, Operation::Read(target), &mut lacks),
                    false => {
                        let target = match is_new && why == Why::Unapproved {
                            true => directory_of_new(target),
                            false => target,
                        };
                        self.note_denied(why, Operation::OpenForWriting(target), &mut lacks);
                    }
                })?;
            }
            Rule::ChangeDirectory => self.at(0, Base::CurrentDir, |to| {
                let operation = match self.policy.allows_any_directory() {
                    true => Operation::Look(to),
                    false => Operation::ChangeDirectory { to, left: None },
                };
                self.note(operation, &mut lacks);
            })?,
            Rule::Symlink => {
                let base = self.args.base(Some(2));
                let link = self.args.name(1, false, PathLikes::AskedLater)?;
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
            Rule::SetVariable => {
                let name = self.args.name(0, false, PathLikes::AskedLater)?;
                let value = self.args.name(1, false, PathLikes::AskedLater)?;
                if let (Name::Path(name), Name::Path(value)) = (name.name(), value.name()) {
                    for path in files_named(name, value) {
                        self.note(Operation::Read(Target::path(&path)), &mut lacks);
                    }
                }
            }
            _ => {}
        }
        Ok(lacks)
    }

    fn path(&self, path: PathArg, lacks: &mut Vec<Lack>) -> Result<(), A::Error> {
        if matches!(path.access, Access::Read | Access::Look) && !self.policy.checks_reads() {
            return Ok(());
        }
        let base = self.args.base(path.dir_fd);
        self.at(path.path, base, |target| {
            let operations = operations(path.access, target, || self.moment.follows);
            operations.for_each(|operation| self.note(operation, lacks));
        })
    }

    /// Notes the reason against making the entry that an argument names.
    pub(super) fn change_entry(&self, index: usize, lacks: &mut Vec<Lack>) -> Result<(), A::Error> {
        self.at(index, Base::CurrentDir, |target| {
            self.note(Operation::ChangeEntry(target), lacks);
        })
    }

    /// Looks at the place that an argument names, if it can be told.
    fn at(&self, index: usize, base: Base, look: impl FnOnce(Target<'_>)) -> Result<(), A::Error> {
        if self.moment.opaque & 1_u8.checked_shl(index as u32).unwrap_or(0) != 0 {
            return Ok(());
        }
        let name = self.args.name(index, true, PathLikes::AskedLater)?;
        let is_none = self.args.is_none(index);
        look(match is_none {
            // `os.listdir()` and others read the current directory then.
            true => Target::path(b"."),
            false => name.target(base),
        });
        Ok(())
    }

    fn note(&self, operation: Operation<'_>, lacks: &mut Vec<Lack>) {
        if let Err(why) = self.policy.check(self.fs, operation) {
            self.note_denied(why, operation, lacks);
        }
    }

    fn note_denied(&self, why: Why, operation: Operation<'_>, lacks: &mut Vec<Lack>) {
        let mut whys = vec![why];
        if matches!(why, Why::Unapproved | Why::Unreadable)
            && let Some(beside) = self.policy.denies_beside_roots(self.fs, operation)
        {
            whys.push(beside);
        }
        for why in whys {
            if matches!(why, Why::Blocked | Why::Protected) {
                let places = places_of(self.fs, operation).into_iter();
                lacks.extend(places.map(|place| Lack::new(Need::Write(place), why)));
                continue;
            }
            let root = root_of(self.fs, operation);
            let needs = learn::needs(self.fs, operation).into_iter();
            lacks.extend(needs.map(|need| {
                let need = self.told(need);
                let place = match &need {
                    Need::Write(path) | Need::Read(path) => Some(path),
                    _ => None,
                };
                let is_of_file =
                    matches!(operation, Operation::OpenForWriting(_) | Operation::ChangeFile(_));
                Lack {
                    is_dir: place.is_some_and(|path| self.fs.is_dir(path)),
                    is_file: is_of_file && place.is_some_and(|path| self.fs.exists(path)),
                    need,
                    why,
                    root: root.clone(),
                }
            }));
        }
    }

    /// Returns the need, or that of its directory if the place could not be a root, or has another
    /// name the next time.
    fn told(&self, need: Need) -> Need {
        match need {
            Need::Write(path) => {
                // A root that is a link is the place it leads to.
                let is_link = || matches!(self.fs.read_link(&path), Link::To(_));
                let is_temporary = self.event.starts_with("tempfile.");
                match learn::parent_of(&path) {
                    Some(dir) if is_temporary || holds_passing_files(&dir) || is_link() => {
                        Need::Write(dir)
                    }
                    _ => Need::Write(path),
                }
            }
            need => need,
        }
    }
}

/// The directory of a file that is to be made under a name that is another one each time.
fn directory_of_new(target: Target<'_>) -> Target<'_> {
    let Name::Path(path) = target.name else {
        return target;
    };
    match path::split(path).0 {
        b"" | b"/" => target,
        directory => Target { name: Name::Path(directory), ..target },
    }
}

/// Returns whether a directory is one for temporary files, which all may write to (`/tmp`,
/// `/dev/shm`).
fn holds_passing_files(dir: &[u8]) -> bool {
    use rustix::fs::Mode;
    let found = rustix::fs::stat(dir).map(|found| Mode::from_raw_mode(found.st_mode));
    found.is_ok_and(|mode| mode.contains(Mode::SVTX | Mode::WOTH))
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
        Operation::OpenDatabase(name) | Operation::LinkTo { text: name, .. } => {
            Some(Target { name, base: Base::CurrentDir })
        }
        _ => None,
    }
}

/// Returns the entry that a path names, and the place it leads to: either may be blocked or
/// protected.
fn places_of(fs: &impl FileSystem, operation: Operation<'_>) -> Vec<Vec<u8>> {
    let Some(Target { name, base }) = target_of(operation) else {
        return Vec::new();
    };
    let Name::Path(path) = name else {
        return Vec::new();
    };
    if let Operation::LinkTo { .. } = operation {
        return written(fs, operation).into_iter().collect();
    }
    let landing = path::resolve(fs, path, base).map(Resolved::into_path);
    let places = path::entry(fs, path, base).into_iter().chain(landing);
    let mut places: Vec<_> = places.map(|place| place.to_vec()).collect();
    places.dedup();
    places
}

/// Returns the place that an operation has to be allowed to write.
fn written(fs: &impl FileSystem, operation: Operation<'_>) -> Option<Vec<u8>> {
    match learn::needs(fs, operation).pop()? {
        Need::Write(path) => Some(path),
        _ => None,
    }
}

/// Returns the least root that approves an operation, if a root approves only the entries below it.
fn root_of(fs: &impl FileSystem, operation: Operation<'_>) -> Option<Vec<u8>> {
    let above = |path: Vec<u8>| learn::parent_of(&path).unwrap_or_else(|| b"/".to_vec());
    let Target { name, base } = target_of(operation)?;
    let path = match (name, operation) {
        (Name::Path(path), _) => path,
        (Name::Descriptor(_), Operation::ChangeFile(_)) => {
            return written(fs, operation).map(above);
        }
        _ => return None,
    };
    let landing = || path::resolve(fs, path, base);
    let parent = |landing: Resolved| landing.parent().to_vec();
    let itself = |landing: Resolved| landing.as_bytes().to_vec();
    match operation {
        Operation::ChangeDirectory { .. } | Operation::Read(_) => landing().map(itself),
        Operation::OpenForWriting(_) => landing().map(|at| match fs.is_dir(at.as_bytes()) {
            true => itself(at),
            false => parent(at),
        }),
        Operation::ChangeFile(_) => landing().map(parent),
        Operation::LinkTo { .. } if !path.starts_with(b"/") => written(fs, operation),
        Operation::OpenDatabase(_) | Operation::LinkTo { .. } => written(fs, operation).map(above),
        _ if path::is_unnamed(path::split(path).1) => landing().map(parent),
        _ => path::parent(fs, path, base).map(itself),
    }
}
