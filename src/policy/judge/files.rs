//! Events with paths among their arguments.

use memchr::memmem;
use smallvec::SmallVec;

use super::arguments::{Arguments, Named, PathLikes, is_open_for_appending, is_open_for_reading};
use super::event::Judge;
use super::surroundings::{Follows, Reason, Surroundings};
use crate::policy::files::fs::{FileSystem, Link};
use crate::policy::files::path::{self, Base, Name, Target};
use crate::policy::operation::{Operation, Why};
use crate::policy::rules::{Access, PathArg, Rule};

/// The files that describe the machine, and the share of it that this process has: proc(5),
/// cgroups(7), os-release(5), tzfile(5), mime.types(5).
const OF_MACHINE: &[&[u8]] = &[
    b"/etc/localtime",
    b"/etc/mime.types",
    b"/etc/os-release",
    b"/etc/timezone",
    b"/proc/cpuinfo",
    b"/proc/loadavg",
    b"/proc/meminfo",
    b"/proc/self/cgroup",
    b"/proc/self/mountinfo",
    b"/proc/self/status",
    b"/proc/stat",
    b"/proc/sys/vm/overcommit_memory",
    b"/sys/devices/system/*",
    b"/sys/fs/cgroup/*",
    b"/sys/kernel/mm/transparent_hugepage/*",
    b"/usr/lib/os-release",
    b"/usr/share/zoneinfo/*",
];

/// Returns whether a path leads to what describes the machine. Libraries ask there how many threads
/// they may have, and go on without an answer: a denial would say nothing to anybody.
fn is_of_machine(path: &[u8]) -> bool {
    OF_MACHINE.iter().any(|known| match known.strip_suffix(b"*") {
        Some(start) => path.starts_with(start) && memmem::find(path, b"..").is_none(),
        None => path == *known,
    })
}

impl<'a, S: Surroundings> Judge<'a, S> {
    /// Judges the paths of an event. Each is asked for its text once, though it may be judged in
    /// more than one way: a path-like object can answer differently the next time.
    pub(super) fn paths(&self, paths: &[PathArg]) -> Result<(), S::Error> {
        let mut told = SmallVec::<[(usize, <S::Arguments as Arguments>::Name<'a>); 1]>::new();
        for (number, path) in paths.iter().enumerate() {
            if matches!(path.access, Access::Read | Access::Look)
                && !self.0.records()
                && !self.0.policy().checks_reads()
            {
                continue;
            }
            if let Some((_, name)) = told.iter().find(|(index, _)| *index == path.path) {
                self.path(*path, name)?;
                continue;
            }
            let name = self.name_at(path.path, path.descriptor)?;
            self.path(*path, &name)?;
            if name.is_text() && paths[number + 1..].iter().any(|next| next.path == path.path) {
                told.push((path.path, name));
            }
        }
        Ok(())
    }

    fn path(&self, path: PathArg, name: &impl Named) -> Result<(), S::Error> {
        let mut target = name.target(self.args().base(path.dir_fd));
        match path.access {
            Access::Contents if matches!(target.name, Name::Descriptor(_)) => return Ok(()),
            // `os.listdir()` and others read the current directory then.
            Access::Read if self.args().is_none(path.path) => target.name = Name::Path(b"."),
            // `shutil.unpack_archive()` writes there; fastaudit denies it.
            Access::Place
                if self.args().is_none(path.path) && self.0.policy().allows_any_directory() =>
            {
                target.name = Name::Path(b".");
            }
            _ => {}
        }
        operations(path.access, target, || self.0.follows())
            .try_for_each(|operation| self.judge(operation, path.path))
    }

    pub(super) fn open(&self) -> Result<(), S::Error> {
        let args = self.args();
        if args.count() < 3 {
            return self.deny(Reason::Event);
        }
        // Only `os.open` leaves the mode out, and only it takes a `dir_fd`.
        let base = match args.is_none(1) {
            true => self.0.base(),
            false => Base::CurrentDir,
        };
        let reads = !self.0.reads_passed() && is_open_for_reading(args, Rule::Open);
        if reads && !self.0.records() && !self.0.policy().checks_reads() {
            return Ok(());
        }
        // All but `io.FileIO` pass the text of a path-like object; `io.FileIO` passes the object,
        // and asks it again itself.
        let name = args.name(0, true, PathLikes::AskedLater)?;
        let target = name.target(base);
        let operation = if reads {
            let operation = Operation::Read(target);
            if let Name::Path(path) = target.name
                && is_of_machine(path)
                && self.check(operation) == Err(Why::Unreadable)
            {
                return Ok(());
            }
            operation
        } else if is_open_for_appending(args) {
            Operation::OpenForAppending(target)
        } else {
            Operation::OpenForWriting(target)
        };
        self.judge(operation, 0)
    }

    pub(super) fn change_directory(&self) -> Result<(), S::Error> {
        let to = self.name_at(0, true)?;
        let to = to.target(Base::CurrentDir);
        if self.0.policy().allows_any_directory() {
            self.judge(Operation::Look(to), 0)?;
            self.0.policy().note_change_of_directory(self.0.fs(), to);
            return Ok(());
        }
        let left = self.0.first_dir();
        self.judge(Operation::ChangeDirectory { to, left }, 0)
    }

    pub(super) fn symlink(&self) -> Result<(), S::Error> {
        if self.args().count() < 2 {
            return self.deny(Reason::Event);
        }
        let (text, link) = (self.name_at(0, false)?, self.name_at(1, false)?);
        let at = link.target(self.args().base(Some(2)));
        let text = text.name();
        self.judge(Operation::LinkTo { text, at }, 0)?;
        self.judge(Operation::MoveEntry(at), 1)
    }

    /// Judges a relative link that gets another place by where it leads from there. Links in a
    /// directory that is moved are not looked for.
    pub(super) fn moved_link(&self, paths: &[PathArg]) -> Result<(), S::Error> {
        match moved_link(self.args(), self.0.fs(), paths, PathLikes::CheckedAgain)? {
            Some(moved) => self.judge(moved.operation(), 0),
            None => Ok(()),
        }
    }

    pub(super) fn database(&self) -> Result<(), S::Error> {
        let name = self.args().name(0, false, PathLikes::AskedLater)?;
        self.judge(Operation::OpenDatabase(name.name()), 0)
    }
}

/// Returns the operations of an access: a change of a file is judged by the place that the call
/// which raised the event goes to.
#[inline]
pub(super) fn operations<'a>(
    access: Access,
    target: Target<'a>,
    follows: impl FnOnce() -> Follows,
) -> impl Iterator<Item = Operation<'a>> {
    let (entry, file) = (Operation::ChangeEntry(target), Operation::ChangeFile(target));
    let (first, second) = match access {
        Access::Change => (entry, None),
        Access::Move => (Operation::MoveEntry(target), None),
        Access::Place => (Operation::ChangePlace(target), None),
        Access::Look => (Operation::Look(target), None),
        Access::Read => (Operation::Read(target), None),
        Access::File | Access::Contents => match follows() {
            Follows::Always => (file, None),
            Follows::Never => (entry, None),
            Follows::Unknown => (entry, Some(file)),
        },
    };
    std::iter::once(first).chain(second)
}

/// A relative link that gets another place, by a rename or as a hard link.
pub(super) struct MovedLink<N> {
    text: Vec<u8>,
    to: N,
    base: Base,
}

impl<N: Named> MovedLink<N> {
    /// What making it there would be.
    pub(super) fn operation(&self) -> Operation<'_> {
        Operation::LinkTo { text: Name::Path(&self.text), at: self.to.target(self.base) }
    }
}

/// Returns the relative link that an event gives another place.
pub(super) fn moved_link<'a, A: Arguments>(
    args: &'a A,
    fs: &impl FileSystem,
    paths: &[PathArg],
    path_likes: PathLikes,
) -> Result<Option<MovedLink<A::Name<'a>>>, A::Error> {
    let is_target = |path: &&PathArg| path.path == 1 && path.access == Access::Move;
    let Some((from, to)) = paths.first().zip(paths.iter().find(is_target)) else {
        return Ok(None);
    };
    let source = args.name(from.path, false, path_likes)?;
    let link = args.name(to.path, false, path_likes)?;
    let (Name::Path(old), Name::Path(new)) = (source.name(), link.name()) else {
        return Ok(None);
    };
    let base = args.base(to.dir_fd);
    let old_dir = path::parent(fs, old, args.base(from.dir_fd));
    let Some((old_dir, new_dir)) = old_dir.zip(path::parent(fs, new, base)) else {
        return Ok(None);
    };
    Ok(match fs.read_link(&old_dir.join(path::split(old).1)) {
        Link::To(text) if old_dir != new_dir && !text.starts_with(b"/") => {
            Some(MovedLink { text, to: link, base })
        }
        _ => None,
    })
}
