//! A walk through a directory whose owner is not to be trusted: of any depth, with any names and
//! modes, and changed by others meanwhile.
//!
//! A path is never followed: each step opens one name below an open directory. So no link leads
//! out, and no path is too long. A few descriptors are open at a time, whatever the depth.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fchmod, fstat, openat, statat};
use rustix::io::Errno;

pub const LOOKING: Mode = Mode::RUSR.union(Mode::XUSR);

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A file, whatever its name: its device and its number there.
pub type Identity = (u64, u64);

pub enum Next {
    Enter,
    /// Goes on without entering it.
    Pass,
    Stop,
}

pub trait Visitor {
    fn entry(&mut self, directory: BorrowedFd<'_>, name: &CStr, is_directory: bool) -> Next;

    /// A directory below the first one, before its entries.
    fn enter(&mut self, _directory: BorrowedFd<'_>, _name: &CStr, _is: Identity) {}

    /// After all that is below a directory, with the one that it is in, if that is still there.
    fn leave(&mut self, _parent: Option<BorrowedFd<'_>>, _name: &CStr) {}
}

struct Frame {
    name: CString,
    is: Identity,
    below: Vec<CString>,
}

/// Passes over what cannot be opened; where this process can open nothing, it fails. An owner who
/// lacks one of the `rights` gets all.
pub fn walk(root: BorrowedFd<'_>, rights: Mode, visitor: &mut impl Visitor) -> Result<(), Errno> {
    let (mut at, is) = open(root, c".", rights)?;
    let Some(below) = entries(at.as_fd(), visitor)? else {
        return Ok(());
    };
    let mut frames = vec![Frame { name: CString::default(), is, below }];
    while let Some(frame) = frames.last_mut() {
        if let Some(name) = frame.below.pop() {
            let Some((opened, is)) = passed(open(at.as_fd(), &name, rights))? else {
                continue;
            };
            visitor.enter(opened.as_fd(), &name, is);
            let Some(below) = entries(opened.as_fd(), visitor)? else {
                return Ok(());
            };
            frames.push(Frame { name, is, below });
            at = opened;
        } else if let Some(left) = frames.pop() {
            if frames.is_empty() {
                break;
            }
            let Some((above, depth)) = above(root, at.as_fd(), &frames, rights)? else {
                break;
            };
            let is_there = depth == frames.len();
            visitor.leave(is_there.then(|| above.as_fd()), &left.name);
            for lost in frames.drain(depth..).rev() {
                visitor.leave(None, &lost.name);
            }
            at = above;
        }
    }
    Ok(())
}

/// `None` for what cannot be opened itself: what lacks here would be missed everywhere.
fn passed<T>(opened: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match opened {
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(error),
        opened => Ok(opened.ok()),
    }
}

/// Opens a directory, to which its owner gets all rights if he lacks one of these.
pub fn open(
    parent: BorrowedFd<'_>,
    name: &CStr,
    rights: Mode,
) -> Result<(OwnedFd, Identity), Errno> {
    let opened = match openat(parent, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            grant(parent, name)?;
            openat(parent, name, DIRECTORY, Mode::empty())?
        }
        opened => opened?,
    };
    let stat = fstat(&opened)?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    if !mode.contains(rights) {
        // Another user's cannot be changed: it is looked at as far as it lets.
        let _ = fchmod(&opened, mode | Mode::RWXU);
    }
    let is = identity(&stat);
    Ok((opened, is))
}

/// Gives its owner all rights to a directory that cannot be opened for lack of some. With fewer, an
/// owner who takes and gives them meanwhile could lack one.
fn grant(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    // Its name may stand for a link by now; the descriptor stands for the directory.
    let place = openat(parent, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let mode = Mode::from_raw_mode(fstat(&place)?.st_mode);
    rustix::fs::chmod(through(place.as_fd()), mode | Mode::RWXU)
}

/// Returns a path for the file that a descriptor of this process stands for.
pub fn through(descriptor: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;

    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// `None` if the walk ends.
fn entries(
    directory: BorrowedFd<'_>,
    visitor: &mut impl Visitor,
) -> Result<Option<Vec<CString>>, Errno> {
    let mut below = Vec::new();
    let Some(listed) = passed(Dir::read_from(directory))? else {
        return Ok(Some(below));
    };
    // An error ends the list.
    for entry in listed.map_while(Result::ok) {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let is_directory = match entry.file_type() {
            FileType::Unknown => statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir()),
            known => known.is_dir(),
        };
        match visitor.entry(directory, name, is_directory) {
            Next::Enter if is_directory => below.push(name.to_owned()),
            Next::Enter | Next::Pass => {}
            Next::Stop => return Ok(None),
        }
    }
    Ok(Some(below))
}

/// Returns the directory that this one was entered from, and the number of frames. If it was moved
/// elsewhere meanwhile, the last directory on the way down that is still there, and its number.
fn above(
    root: BorrowedFd<'_>,
    at: BorrowedFd<'_>,
    frames: &[Frame],
    rights: Mode,
) -> Result<Option<(OwnedFd, usize)>, Errno> {
    let wanted = frames.last().map(|frame| frame.is);
    // "..", as any other step, is checked before it counts.
    if let Some(above) = passed(openat(at, c"..", DIRECTORY, Mode::empty()))?
        && fstat(&above).is_ok_and(|stat| Some(identity(&stat)) == wanted)
    {
        return Ok(Some((above, frames.len())));
    }
    let Some((mut found, _)) = passed(open(root, c".", rights))? else {
        return Ok(None);
    };
    for (depth, frame) in frames.iter().enumerate().skip(1) {
        match passed(open(found.as_fd(), &frame.name, rights))? {
            Some((next, is)) if is == frame.is => found = next,
            _ => return Ok(Some((found, depth))),
        }
    }
    Ok(Some((found, frames.len())))
}

#[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
pub fn identity(stat: &Stat) -> Identity {
    (stat.st_dev as u64, stat.st_ino as u64)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::kernel::beneath;

    /// Moves a directory elsewhere as soon as the walk is in it.
    struct Mover {
        from: PathBuf,
        to: PathBuf,
        seen: Vec<String>,
        way: usize,
    }

    impl Visitor for Mover {
        fn entry(&mut self, _directory: BorrowedFd<'_>, name: &CStr, _is: bool) -> Next {
            let name = name.to_str().unwrap().to_owned();
            if name == "inner" {
                std::fs::rename(&self.from, &self.to).unwrap();
            }
            self.seen.push(name);
            Next::Enter
        }

        fn enter(&mut self, _directory: BorrowedFd<'_>, _name: &CStr, _is: Identity) {
            self.way += 1;
        }

        fn leave(&mut self, _parent: Option<BorrowedFd<'_>>, _name: &CStr) {
            self.way -= 1;
        }
    }

    fn walked(root: &Path, from: PathBuf, to: PathBuf) -> Vec<String> {
        let mut mover = Mover { from, to, seen: Vec::new(), way: 0 };
        let root = beneath::directory(root).unwrap();
        walk(root.as_fd(), LOOKING, &mut mover).unwrap();
        assert_eq!(mover.way, 0);
        mover.seen.sort();
        mover.seen
    }

    #[test]
    fn a_directory_that_is_moved_out_leads_nowhere_else() {
        let place = tempfile::tempdir().unwrap();
        let (root, out) = (place.path().join("root"), place.path().join("out"));
        std::fs::create_dir_all(root.join("a/inner/deep")).unwrap();
        std::fs::create_dir(&out).unwrap();
        std::fs::write(out.join("secret"), "").unwrap();
        for name in ["0", "z"] {
            std::fs::create_dir(root.join(name)).unwrap();
            std::fs::write(root.join(name).join(format!("in-{name}")), "").unwrap();
        }
        let seen = walked(&root, root.join("a"), out.join("a"));
        assert_eq!(seen, ["0", "a", "deep", "in-0", "in-z", "inner", "z"]);
    }
}
