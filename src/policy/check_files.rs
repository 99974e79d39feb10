//! The verdict on operations of files and directories.

use super::check::Policy;
use super::operation::{Aim, Verdict, Why, allow_if};
use crate::policy::files::current;
use crate::policy::files::descriptors;
use crate::policy::files::descriptors::is_standing_device;
use crate::policy::files::fs::{DescriptorPlace, FileSystem};
use crate::policy::files::path::{
    self, Base, Name, Resolution, Resolved, Target, is_unnamed, parent,
};
use crate::policy::sql::{self, Database, UriTarget};

impl Policy {
    pub(super) fn change(&self, fs: &impl FileSystem, target: Target<'_>, aim: Aim) -> Verdict {
        match target.name {
            Name::Path(path) => self.change_path(fs, path, target.base, aim),
            Name::Descriptor(fd) => self.change_open(fs, fd),
            Name::Unreadable => Err(Why::Unapproved),
        }
    }

    /// Judges by the directory that holds the changed entry, and by the blocked paths.
    fn change_path(&self, fs: &impl FileSystem, path: &[u8], base: Base, aim: Aim) -> Verdict {
        let name = path::split(path).1;
        let by_entry = match aim {
            Aim::Entry | Aim::Moved => !is_unnamed(name),
            Aim::Place => true,
            Aim::File => false,
        };
        if by_entry {
            let contained =
                parent(fs, path, base).is_some_and(|dir| self.contains_entry(fs, &dir, name));
            allow_if(contained, Why::Unapproved)?;
            return self.restrict(fs, path, base, aim == Aim::Moved);
        }
        let found = path::find(fs, path, base).ok_or(Why::Unapproved)?;
        // `tar` archives have attributes for ".": a root's own, where they are extracted.
        let is_place = aim == Aim::File && is_unnamed(name);
        let contained = self.contains_file(fs, &found.landing)
            || (is_place && self.contains(fs, &found.landing));
        allow_if(contained, Why::Unapproved)?;
        self.restrict_found(fs, path, base, &found, aim == Aim::Moved)
    }

    /// Judges a change of the file that a descriptor leads to.
    fn change_open(&self, fs: &impl FileSystem, fd: i32) -> Verdict {
        let path = match descriptors::to_approve(fs, fd) {
            DescriptorPlace::Nowhere => return Ok(()),
            DescriptorPlace::At(path) => path,
            DescriptorPlace::Unknown => return Err(Why::Unapproved),
        };
        match self.change_path(fs, &path, Base::CurrentDir, Aim::File) {
            // A root's own attributes, as by the name ".".
            Err(Why::Unapproved) if self.roots.has(fs, &path) || self.temporary.hold(&path) => {
                self.restrict(fs, &path, Base::CurrentDir, false)
            }
            verdict => verdict,
        }
    }

    /// Returns whether the path is a root, or below one or a temporary directory.
    pub(super) fn contains(&self, fs: &impl FileSystem, path: &Resolved) -> bool {
        self.roots.contain(fs, path) || self.temporary.hold(path.as_bytes())
    }

    /// Returns whether the roots approve changing the entry of this name in a directory.
    fn contains_entry(&self, fs: &impl FileSystem, dir: &Resolved, name: &[u8]) -> bool {
        self.contains(fs, dir)
            || (self.approves_root_entries
                && !is_unnamed(name)
                && self.roots.has(fs, &dir.join(name)))
            || self.temporary.keeps(dir.as_bytes(), name)
    }

    /// Returns whether the roots approve changing the file at this path.
    #[inline(always)]
    fn contains_file(&self, fs: &impl FileSystem, landing: &Resolved) -> bool {
        self.roots.contain_path(fs, landing.parent())
            || (self.approves_root_entries && self.roots.has(fs, landing.as_bytes()))
            || self.temporary.hold(landing.parent())
            || {
                let (dir, name) = (landing.parent(), path::split(landing.as_bytes()).1);
                self.temporary.keeps(dir, name)
            }
    }

    /// Judges by the blocked paths: the entry itself, and its target.
    #[inline]
    fn restrict(&self, fs: &impl FileSystem, path: &[u8], base: Base, moves: bool) -> Verdict {
        if self.blocked.is_empty() && self.protected.is_empty() {
            return Ok(());
        }
        let found = path::find(fs, path, base).ok_or(Why::Unapproved)?;
        self.restrict_found(fs, path, base, &found, moves)
    }

    /// The same, where it is known to what the path leads.
    #[inline(never)]
    fn restrict_found(
        &self,
        fs: &impl FileSystem,
        path: &[u8],
        base: Base,
        found: &Resolution,
        moves: bool,
    ) -> Verdict {
        if self.blocked.is_empty() && self.protected.is_empty() {
            return Ok(());
        }
        let landing = found.landing.as_bytes();
        // A name that is no link is the entry itself.
        let other = match found.is_direct {
            true => None,
            false => Some(path::entry(fs, path, base).ok_or(Why::Unapproved)?),
        };
        let entry = other.as_deref().unwrap_or(landing);
        let places = || [Some(landing), other.as_deref()].into_iter().flatten();
        if places().any(|place| self.blocked.holds(place))
            || (moves && self.blocked.is_below(entry))
        {
            return Err(Why::Blocked);
        }
        if places().any(|place| self.protected.holds(place))
            || (moves && self.protected.may_be_below(entry))
            || self.protected.holds_by_link(fs, landing)
        {
            return Err(Why::Protected);
        }
        Ok(())
    }

    pub(super) fn open(&self, fs: &impl FileSystem, target: Target<'_>, appends: bool) -> Verdict {
        let path = match target.name {
            Name::Path(path) => path,
            Name::Descriptor(_) => return Ok(()),
            Name::Unreadable => return Err(Why::Unapproved),
        };
        let found = path::find(fs, path, target.base).ok_or(Why::Unapproved)?;
        let landing = &found.landing;
        if self.contains_file(fs, landing) {
            return self.restrict_found(fs, path, target.base, &found, false);
        }
        let entry = parent(fs, path, target.base).map(|dir| dir.join(path::split(path).1));
        if entry.is_some_and(|entry| is_standing_device(fs, &entry, appends)) {
            return Ok(());
        }
        // A root itself, opened as a directory: `O_TMPFILE`, and `tempfile`, which names the
        // directory to `open` and hands it an opener. Without one of these it fails: a directory
        // cannot be opened for writing.
        let path_of_root = landing.as_bytes();
        let is_root = (self.roots.has(fs, path_of_root) || self.temporary.hold(path_of_root))
            && fs.is_dir(path_of_root);
        allow_if(is_root, Why::Unapproved)?;
        self.restrict_found(fs, path, target.base, &found, false)
    }

    pub(super) fn read(&self, fs: &impl FileSystem, target: Target<'_>) -> Verdict {
        if !self.checks_reads() {
            return Ok(());
        }
        let path = match target.name {
            Name::Path(path) => path,
            Name::Descriptor(_) => return Ok(()),
            Name::Unreadable => return Err(Why::Unreadable),
        };
        let landing = path::resolve(fs, path, target.base).ok_or(Why::Unreadable)?;
        // A link in a blocked directory is blocked itself, wherever it leads.
        if self.blocked.holds(landing.as_bytes())
            || (!self.blocked.is_empty()
                && parent(fs, path, target.base)
                    .is_none_or(|dir| self.blocked.holds(dir.as_bytes())))
        {
            return Err(Why::Blocked);
        }
        match &self.read {
            Some(roots)
                if !roots.contain(fs, &landing) && !self.temporary.hold(landing.as_bytes()) =>
            {
                Err(Why::Unreadable)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn look(&self, fs: &impl FileSystem, target: Target<'_>) -> Verdict {
        if self.blocked.is_empty() {
            return Ok(());
        }
        let path = match target.name {
            Name::Path(path) => path,
            Name::Descriptor(_) => return Ok(()),
            Name::Unreadable => return Err(Why::Unreadable),
        };
        let entry = path::entry(fs, path, target.base).ok_or(Why::Unreadable)?;
        allow_if(!self.blocked.holds(&entry), Why::Blocked)
    }

    /// Notes the directory that code leaves for one where it may not write.
    pub(super) fn note_change_of_directory(&self, fs: &impl FileSystem, to: Target<'_>) {
        if let Some(to) = to.directory(fs).filter(|to| !self.contains(fs, to)) {
            current::note_left(fs, &to);
        }
    }

    pub(super) fn enter(
        &self,
        fs: &impl FileSystem,
        to: Target<'_>,
        left: Option<&[u8]>,
    ) -> Verdict {
        let dir = to.directory(fs).ok_or(Why::Unapproved)?;
        if left == Some(dir.as_bytes()) {
            return Ok(());
        }
        if self.blocked.holds(dir.as_bytes()) {
            return Err(Why::Blocked);
        }
        allow_if(self.contains(fs, &dir), Why::Unapproved)
    }

    pub(super) fn link(&self, fs: &impl FileSystem, text: Name<'_>, at: Target<'_>) -> Verdict {
        let Name::Path(text) = text else {
            return Err(Why::Unapproved);
        };
        if text.starts_with(b"/") {
            self.change_path(fs, text, Base::CurrentDir, Aim::Place)?;
            let landing = path::resolve(fs, text, Base::CurrentDir);
            let contained = landing.is_some_and(|landing| self.contains(fs, &landing));
            return allow_if(contained, Why::Unapproved);
        }
        let Name::Path(link) = at.name else {
            return Err(Why::Unapproved);
        };
        let landing =
            parent(fs, link, at.base).and_then(|dir| path::resolve_beside(fs, text, &dir));
        let landing = landing.ok_or(Why::Unapproved)?;
        if self.blocked.holds(landing.as_bytes()) {
            return Err(Why::Blocked);
        }
        if self.protected.holds(landing.as_bytes()) {
            return Err(Why::Protected);
        }
        allow_if(self.contains(fs, &landing), Why::Unapproved)
    }

    pub(super) fn open_database(&self, fs: &impl FileSystem, name: &[u8]) -> Verdict {
        let write = |path: &[u8]| self.change_path(fs, path, Base::CurrentDir, Aim::File);
        match sql::database_of(name) {
            Database::Private => return Ok(()),
            Database::File => return write(name),
            Database::Uri(UriTarget::Memory) => {}
            Database::Uri(UriTarget::Read(path)) => self.read(fs, Target::path(&path))?,
            Database::Uri(UriTarget::ReadShared(path)) => {
                self.read(fs, Target::path(&path))?;
                let landing = path::resolve(fs, &path, Base::CurrentDir);
                if landing.is_none_or(|at| sql::is_kept(fs, at.as_bytes())) {
                    write(&path)?;
                }
            }
            Database::Uri(UriTarget::Write(path)) => write(&path)?,
        }
        // Without uri=True the same text is a relative path, "file:" its first directory. If it
        // does not exist, nothing can be opened by it.
        if memchr::memchr(b'/', name).is_none()
            || !parent(fs, name, Base::CurrentDir).is_some_and(|dir| fs.exists(dir.as_bytes()))
        {
            return Ok(());
        }
        write(name)
    }
}
