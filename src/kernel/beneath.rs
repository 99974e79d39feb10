//! Files below a directory, for a host that does not trust what is in it: no link is followed, and
//! nothing but regular files is opened. `cap-std` follows links that stay below, and opens FIFOs.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fstat, ftruncate, mkdirat, open, openat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::kernel::walk::{self, LOOKING, Next, Visitor};

/// The greatest length of the path of a file, in bytes: what is deeper has no name to open it by.
pub const LONGEST: usize = 4096;
const LISTED: usize = 256 << 20;
/// The number of times that a file is looked for again that others make and remove meanwhile.
const ATTEMPTS: usize = 100;

/// The rights to a directory that is only a step on the way to a file.
const STEP: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::PATH);

/// A FIFO does not block, a link is not followed, a terminal does not become the host's.
const REGULAR: OFlags =
    OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It is, or is reached through, a link.
    Link,
    /// It is no regular file.
    Other,
    /// It has more bytes than were asked for.
    Large,
    System(Errno),
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let other = match error.kind() {
            std::io::ErrorKind::OutOfMemory => Errno::NOMEM,
            _ => Errno::IO,
        };
        Self::System(Errno::from_io_error(&error).unwrap_or(other))
    }
}

pub fn directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
}

pub fn read(root: BorrowedFd<'_>, path: &[OsString], most: u64) -> Result<Vec<u8>, Failure> {
    let (parent, name) = parent(root, path, false)?;
    check(parent.as_fd(), &name)?;
    let file = openat(&parent, &name, REGULAR, Mode::empty()).map_err(refused)?;
    let stat = fstat(&file)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(Failure::Other);
    }
    if u64::try_from(stat.st_size).is_ok_and(|size| size > most) {
        return Err(Failure::Large);
    }
    let mut found = Vec::new();
    // It may grow meanwhile.
    let mut limited = File::from(file).take(most.saturating_add(1));
    limited.read_to_end(&mut found)?;
    if found.len() as u64 > most {
        return Err(Failure::Large);
    }
    Ok(found)
}

pub fn write(root: BorrowedFd<'_>, path: &[OsString], data: &[u8]) -> Result<(), Failure> {
    let (parent, name) = parent(root, path, true)?;
    let file = writable(parent.as_fd(), &name)?;
    if !FileType::from_raw_mode(fstat(&file)?.st_mode).is_file() {
        return Err(Failure::Other);
    }
    ftruncate(&file, 0)?;
    File::from(file).write_all(data)?;
    Ok(())
}

fn writable(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Failure> {
    for _ in 0..ATTEMPTS {
        let opened = match check(parent, name) {
            Ok(()) => openat(parent, name, REGULAR | OFlags::WRONLY, Mode::empty()),
            Err(Failure::System(Errno::NOENT)) => {
                let flags = REGULAR | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                openat(parent, name, flags, Mode::from_raw_mode(0o666))
            }
            Err(failure) => return Err(failure),
        };
        match opened {
            Err(Errno::NOENT | Errno::EXIST) => {}
            opened => return opened.map_err(refused),
        }
    }
    Err(Failure::System(Errno::AGAIN))
}

/// Fails if it is no regular file: opening a device may have an effect already.
fn check(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Failure> {
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(Failure::Link),
        FileType::Directory => Err(Failure::System(Errno::ISDIR)),
        _ => Err(Failure::Other),
    }
}

fn refused(error: Errno) -> Failure {
    match error {
        Errno::LOOP => Failure::Link,
        Errno::NXIO => Failure::Other,
        error => Failure::System(error),
    }
}

fn parent(
    root: BorrowedFd<'_>,
    path: &[OsString],
    makes: bool,
) -> Result<(OwnedFd, CString), Failure> {
    let Some((name, above)) = path.split_last() else {
        return Err(Failure::System(Errno::ISDIR));
    };
    let mut at = openat(root, c".", STEP, Mode::empty())?;
    for step in above {
        let step = terminated(step)?;
        if makes {
            match mkdirat(&at, &step, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        at = match openat(&at, &step, STEP, Mode::empty()) {
            Err(Errno::LOOP | Errno::NOTDIR) if is_link(at.as_fd(), &step) => {
                return Err(Failure::Link);
            }
            opened => opened?,
        };
    }
    Ok((at, terminated(name)?))
}

fn is_link(parent: BorrowedFd<'_>, name: &CStr) -> bool {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink())
}

fn terminated(name: &OsStr) -> Result<CString, Failure> {
    CString::new(name.as_bytes()).map_err(|_| Failure::System(Errno::INVAL))
}

/// Without those too long to be opened by, in order.
pub fn list(root: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Failure> {
    let mut listing = Listing::default();
    walk::walk(root, LOOKING, &mut listing)?;
    if listing.bytes > LISTED {
        return Err(Failure::Large);
    }
    listing.names.sort_unstable();
    Ok(listing.names)
}

#[derive(Default)]
struct Listing {
    place: Vec<u8>,
    names: Vec<Vec<u8>>,
    bytes: usize,
}

impl Visitor for Listing {
    fn entry(&mut self, _directory: BorrowedFd<'_>, name: &CStr, is_directory: bool) -> Next {
        if is_directory {
            return Next::Enter;
        }
        let length = self.place.len() + name.count_bytes();
        if length < LONGEST {
            self.names.push([&self.place, name.to_bytes()].concat());
            self.bytes += length;
        }
        if self.bytes > LISTED {
            return Next::Stop;
        }
        Next::Pass
    }

    fn enter(&mut self, _directory: BorrowedFd<'_>, name: &CStr, _is: walk::Identity) {
        self.place.extend_from_slice(name.to_bytes());
        self.place.push(b'/');
    }

    fn leave(&mut self, _parent: Option<BorrowedFd<'_>>, name: &CStr) {
        let length = self.place.len() - name.count_bytes() - 1;
        self.place.truncate(length);
    }
}

/// Removes a directory with all that is in it, as far as the system lets.
pub fn remove(path: &Path) {
    let rights = Mode::RWXU;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return;
    };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (Ok(parent), Ok(name)) = (open(parent, flags, Mode::empty()), terminated(name)) else {
        return;
    };
    for _ in 0..ATTEMPTS {
        let Ok((root, _)) = walk::open(parent.as_fd(), &name, rights) else {
            return;
        };
        let mut removing = Removing { count: 0 };
        let _ = walk::walk(root.as_fd(), rights, &mut removing);
        let removed = unlinkat(&parent, &name, AtFlags::REMOVEDIR);
        // A list that changes while it is read may lack some.
        if removed.is_ok() || removing.count == 0 {
            return;
        }
    }
}

struct Removing {
    count: usize,
}

impl Removing {
    fn remove(&mut self, parent: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> bool {
        let removed = unlinkat(parent, name, flags).is_ok();
        self.count += usize::from(removed);
        removed
    }
}

impl Visitor for Removing {
    fn entry(&mut self, directory: BorrowedFd<'_>, name: &CStr, is_directory: bool) -> Next {
        let flags = match is_directory {
            true => AtFlags::REMOVEDIR,
            false => AtFlags::empty(),
        };
        if self.remove(directory, name, flags) { Next::Pass } else { Next::Enter }
    }

    fn leave(&mut self, parent: Option<BorrowedFd<'_>>, name: &CStr) {
        if let Some(parent) = parent {
            self.remove(parent, name, AtFlags::REMOVEDIR);
        }
    }
}
