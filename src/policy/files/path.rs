//! The place that a name leads to: resolution of the paths that audit events carry.
//!
//! The rules are those of `os.path.realpath(strict=False)`: symbolic links are followed, `..`
//! goes up from where the path really is, and a tail that does not exist is taken as written.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memmem, memrchr};

use crate::policy::files::fs::{FileSystem, Link, Passes, PathBuf};

/// Links that one path may go through; past it the kernel says `ELOOP` (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The bytes of all the paths that one walk looks up, each of which the system reads from its start.
/// Only a path that was made to take long needs more.
const MAX_LOOKED_UP: usize = 1 << 20;

/// An argument of an event where a path is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    Path(&'a [u8]),
    Descriptor(i32),
    /// Something that does not name a file, or whose name cannot be known before it is used.
    Unreadable,
}

/// The directory that a relative path starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    #[default]
    CurrentDir,
    /// The directory open as this descriptor (a `dir_fd`).
    Descriptor(i32),
}

/// The target of an operation: a name and where it starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    pub name: Name<'a>,
    /// The start of a relative name.
    pub base: Base,
}

impl<'a> Target<'a> {
    /// A path relative to the current directory, or absolute.
    pub fn path(path: &'a [u8]) -> Self {
        Self { name: Name::Path(path), base: Base::CurrentDir }
    }

    /// Resolves it as a directory to change to.
    pub fn directory(self, fs: &impl FileSystem) -> Option<Resolved> {
        match self.name {
            Name::Path(path) => resolve(fs, path, self.base),
            Name::Descriptor(fd) => resolve(fs, b".", Base::Descriptor(fd)),
            Name::Unreadable => None,
        }
    }
}

/// An absolute path without links, `.` or `..`. Only resolution makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved(PathBuf);

impl Resolved {
    /// The path's bytes, beginning with `/` and ending with one only for the root itself.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_path(self) -> PathBuf {
        self.0
    }

    /// Returns the directory that it is in; for the top directory, itself.
    pub fn parent(&self) -> &[u8] {
        let slash = memrchr(b'/', &self.0).unwrap_or(0);
        &self.0[..slash.max(1)]
    }

    pub fn join(&self, name: &[u8]) -> PathBuf {
        let mut path = PathBuf::from_slice(&self.0);
        push(&mut path, name);
        path
    }
}

/// Returns whether a path is a directory or lies below it, by component.
pub fn is_within(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || dir.ends_with(b"/"))
}

/// Splits a path into the directory that holds its last component and that component, as
/// `posixpath.split` does. A trailing slash makes the last component empty.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let Some(slash) = memrchr(b'/', path) else {
        return (b"", path);
    };
    let (head, tail) = (&path[..=slash], &path[slash + 1..]);
    let end = head.iter().rposition(|&byte| byte != b'/').map_or(head.len(), |last| last + 1);
    (&head[..end], tail)
}

/// Returns whether the last component of a path names no entry of the directory before it.
pub fn is_unnamed(name: &[u8]) -> bool {
    matches!(name, b"" | b"." | b"..")
}

/// Resolves the directory that holds the last component of a path.
pub fn parent(fs: &impl FileSystem, path: &[u8], base: Base) -> Option<Resolved> {
    resolve(fs, split(path).0, base)
}

/// Returns the directory entry that a path names, or the place it leads to if it names none.
pub fn entry(fs: &impl FileSystem, path: &[u8], base: Base) -> Option<PathBuf> {
    match split(path).1 {
        name if is_unnamed(name) => resolve(fs, path, base).map(Resolved::into_path),
        name => Some(parent(fs, path, base)?.join(name)),
    }
}

/// Resolves a path. `None` if it cannot be known where it leads: a NUL inside, a current directory
/// or base that is gone, or a system that would not say.
pub fn resolve(fs: &impl FileSystem, path: &[u8], base: Base) -> Option<Resolved> {
    find(fs, path, base).map(|found| found.landing)
}

/// The place that a path leads to.
#[derive(Debug)]
pub struct Resolution {
    pub landing: Resolved,
    /// It was seen to be there; if not, nobody looked, or it is not.
    pub is_there: bool,
    /// No link was on the way: the entry that the path names is the landing.
    pub is_direct: bool,
}

/// Resolves a path as `resolve` does, and tells what was seen on the way.
pub fn find(fs: &impl FileSystem, path: &[u8], base: Base) -> Option<Resolution> {
    let start = if path.starts_with(b"/") {
        PathBuf::from_slice(b"/")
    } else {
        match base {
            Base::CurrentDir => fs.current_dir()?,
            Base::Descriptor(fd) => fs.descriptor_path(fd)?,
        }
    };
    resolve_from(fs, path, start)
}

/// The absolute path that a name spells, links not followed.
pub fn spelled(fs: &impl FileSystem, name: &[u8]) -> Option<PathBuf> {
    if name.starts_with(b"/") {
        return Some(without_dots(PathBuf::from_slice(name)));
    }
    let mut whole = fs.current_dir()?;
    push(&mut whole, name);
    Some(without_dots(whole))
}

/// Resolves a path that starts from an already resolved directory.
pub fn resolve_beside(fs: &impl FileSystem, path: &[u8], dir: &Resolved) -> Option<Resolved> {
    if path.starts_with(b"/") {
        return resolve(fs, path, Base::CurrentDir);
    }
    resolve_from(fs, path, dir.0.clone()).map(|found| found.landing)
}

#[inline]
fn resolve_from(fs: &impl FileSystem, path: &[u8], start: PathBuf) -> Option<Resolution> {
    if memchr(0, path).is_some() {
        return None;
    }
    let mut whole = start.clone();
    push(&mut whole, path);
    let found = fs.passes_no_link(&whole);
    let passes = match found {
        Passes::Whole => true,
        // A part that does not exist has no `..`: below it the path is taken as written.
        Passes::UpToMissing => !has_dot_dot(&whole),
        Passes::Unknown => false,
    };
    if passes {
        // As far as it is there no component is a link, so `..` is the one before it.
        let plain = Resolved(without_dots(whole));
        debug_assert_eq!(walk(fs, start, path), Some(plain.clone()));
        return Some(Resolution {
            landing: plain,
            is_there: found == Passes::Whole,
            is_direct: true,
        });
    }
    let landing = walk(fs, start, path)?;
    Some(Resolution { landing, is_there: false, is_direct: false })
}

fn has_dot_dot(path: &[u8]) -> bool {
    memmem::find(path, b"/..").is_some()
}

/// Returns whether the path may contain an empty, `.` or `..` component. If not, there is no
/// component to leave out.
fn may_have_dots(path: &[u8]) -> bool {
    memchr_iter(b'/', path).any(|slash| matches!(path.get(slash + 1), None | Some(b'/' | b'.')))
}

fn without_dots(path: PathBuf) -> PathBuf {
    if !may_have_dots(&path) {
        return path;
    }
    let mut plain = PathBuf::from_slice(b"/");
    for component in path.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => pop(&mut plain),
            component => push(&mut plain, component),
        }
    }
    plain
}

/// Looks at the components one by one.
fn walk(fs: &impl FileSystem, mut real: PathBuf, path: &[u8]) -> Option<Resolved> {
    let mut text = Cow::Borrowed(path);
    let mut at = 0;
    let mut links = 0;
    let mut looked_up = 0;
    // Up to where the path exists, once it was found not to: there is nothing to look up below.
    let mut exists_to = usize::MAX;
    while at < text.len() {
        let end = memchr(b'/', &text[at..]).map_or(text.len(), |slash| at + slash);
        match &text[at..end] {
            b"" | b"." => {}
            b".." => {
                pop(&mut real);
                if real.len() <= exists_to {
                    exists_to = usize::MAX;
                }
            }
            component => {
                let parent = real.len();
                push(&mut real, component);
                let link = if parent > exists_to || links >= MAX_LINKS {
                    Link::None
                } else {
                    looked_up += real.len();
                    if looked_up > MAX_LOOKED_UP {
                        return None;
                    }
                    fs.read_link(&real)
                };
                match link {
                    Link::None => {}
                    Link::Missing => exists_to = parent,
                    Link::Unknown => return None,
                    Link::To(mut to) => {
                        links += 1;
                        real.truncate(if to.starts_with(b"/") { 1 } else { parent });
                        to.extend_from_slice(&text[end..]);
                        text = Cow::Owned(to);
                        at = 0;
                        continue;
                    }
                }
            }
        }
        at = end + 1;
    }
    Some(Resolved(real))
}

fn push(path: &mut PathBuf, component: &[u8]) {
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(component);
}

fn pop(path: &mut PathBuf) {
    let slash = memrchr(b'/', path).unwrap_or(0);
    path.truncate(slash.max(1));
}
