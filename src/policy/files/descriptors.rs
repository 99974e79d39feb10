//! Open descriptors, and what may be done to a file through them: opening, and requests of ioctl(2) and
//! fcntl(2).
//!
//! The access of a descriptor that was opened for writing was decided then. One that was opened for
//! reading may still have its mode changed, say, and reading is allowed in more places.

use crate::policy::files::fs::{Descriptor, DescriptorPlace, FileSystem, OpenDescriptor};

/// The place that has to be approved to change the file that a descriptor leads to.
pub(crate) fn to_approve(fs: &impl FileSystem, fd: i32) -> DescriptorPlace {
    match fs.descriptor(fd) {
        Descriptor::Closed => DescriptorPlace::Nowhere,
        Descriptor::Open(opened) if opened.writes => DescriptorPlace::Nowhere,
        Descriptor::Open(opened) => opened.place,
        Descriptor::Unknown => DescriptorPlace::Unknown,
    }
}

/// The rest of a path to or below the directory in `/proc` of this process; empty or from a slash on.
pub(crate) fn in_own_proc(path: &[u8]) -> Option<&[u8]> {
    let number = path.strip_prefix(b"/proc/")?;
    let end = memchr::memchr(b'/', number).unwrap_or(number.len());
    let (number, rest) = number.split_at(end);
    (number == std::process::id().to_string().as_bytes()).then_some(rest)
}

/// The descriptor of this process that a directory entry stands for. The path is absolute, and its
/// directory resolved.
pub(crate) fn named_by(entry: &[u8]) -> Option<i32> {
    match entry {
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => {}
    }
    let number = entry.strip_prefix(b"/dev/fd/").or_else(|| {
        let rest = in_own_proc(entry)?.strip_prefix(b"/")?;
        let of_thread = || {
            let rest = rest.strip_prefix(b"task/")?;
            rest[memchr::memchr(b'/', rest)?..].strip_prefix(b"/fd/")
        };
        rest.strip_prefix(b"fd/").or_else(of_thread)
    })?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The system's word on a descriptor.
pub(crate) fn describe(fs: &impl FileSystem, fd: i32) -> Descriptor {
    use rustix::fs::{FileType, Mode};
    use rustix::io::Errno;

    // A negative one stands for an unknown number.
    if fd < 0 {
        return Descriptor::Unknown;
    }
    let name = format!("/proc/self/fd/{fd}");
    // proc_pid_fd(5): the link's own mode says what the descriptor was opened for. It has neither
    // bit where that was `O_PATH`.
    let link = match rustix::fs::lstat(&name) {
        Ok(link) => link,
        Err(Errno::NOENT) if rustix::fs::stat("/proc/self/fd").is_ok() => {
            return Descriptor::Closed;
        }
        Err(_) => return Descriptor::Unknown,
    };
    let Ok(file) = rustix::fs::stat(&name) else {
        return Descriptor::Unknown;
    };
    let kind = FileType::from_raw_mode(file.st_mode);
    Descriptor::Open(OpenDescriptor {
        writes: Mode::from_raw_mode(link.st_mode).contains(Mode::WUSR),
        streams: matches!(kind, FileType::Fifo | FileType::CharacterDevice),
        place: match file.st_nlink {
            0 => DescriptorPlace::Nowhere,
            _ => place(fs, &name, fd),
        },
    })
}

fn place(fs: &impl FileSystem, name: &str, fd: i32) -> DescriptorPlace {
    if let Some(path) = fs.descriptor_path(fd) {
        return DescriptorPlace::At(path.to_vec());
    }
    let text = rustix::fs::readlinkat(rustix::fs::CWD, name, Vec::new());
    match text {
        // "pipe:[1]", "socket:[2]", "anon_inode:[eventfd]". A file that lost this name, but not all
        // its names, begins with "/", and one that cannot be reached with "(".
        Ok(text) if !matches!(text.as_bytes().first(), None | Some(b'/' | b'(')) => {
            DescriptorPlace::Nowhere
        }
        _ => DescriptorPlace::Unknown,
    }
}

/// Returns whether opening this entry of a directory for writing changes no file: it discards, or
/// stands for a descriptor that this process has open for writing, which leads to no file or is
/// `appended` to. Opening it in another way begins at the start of the file: what the host wrote
/// there is lost.
pub(crate) fn is_standing_device(fs: &impl FileSystem, entry: &[u8], appends: bool) -> bool {
    if entry == b"/dev/null" {
        return true;
    }
    let Some(fd) = named_by(entry) else {
        return false;
    };
    match fs.descriptor(fd) {
        Descriptor::Open(opened) => opened.writes && (opened.streams || appends),
        Descriptor::Closed | Descriptor::Unknown => false,
    }
}

/// Returns whether `open(path, mode, flags)` may write. `mode` is `None` for `os.open`, whose flags
/// then decide, as in open(2).
pub fn open_may_write(mode: Option<&[u8]>, flags: i64) -> bool {
    match mode {
        Some(mode) => mode.iter().any(|letter| b"wax+".contains(letter)),
        None => flags & i64::from(WRITE_FLAGS) != 0,
    }
}

/// Returns whether `open(path, mode, flags)`, which may write, keeps the contents.
pub fn open_appends(mode: Option<&[u8]>, flags: i64) -> bool {
    match mode {
        Some(mode) => mode.contains(&b'a'),
        None => flags & i64::from(APPEND) != 0 && flags & i64::from(TRUNCATE) == 0,
    }
}

/// Returns whether `os.open(path, flags)` makes a file that is not to be there, as what makes
/// temporary files does: its name is another one each time.
pub fn open_makes_new(flags: i64) -> bool {
    flags & i64::from(EXCLUSIVE) != 0
}

const EXCLUSIVE: u32 = rustix::fs::OFlags::EXCL.bits();

const APPEND: u32 = rustix::fs::OFlags::APPEND.bits();
const TRUNCATE: u32 = rustix::fs::OFlags::TRUNC.bits();

const WRITE_FLAGS: u32 = {
    use rustix::fs::OFlags;
    OFlags::WRONLY
        .union(OFlags::RDWR)
        .union(OFlags::CREATE)
        .union(OFlags::TRUNC)
        .union(OFlags::APPEND)
        .bits()
};

// The requests of ioctl(2) that change the file that a descriptor leads to.
//
// Many do not need a descriptor that was opened for writing, above all those of file systems
// (`chattr`, `FS_IOC_FSSETXATTR`). The numbers are those of Linux on most machines: in the upper
// bits the direction and the size of the argument, then a byte for the kind of file, then a
// number: <https://docs.kernel.org/userspace-api/ioctl/ioctl-number.html>.

/// The effect that a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlEffect {
    /// It only returns information, or is about a terminal, a socket or the descriptor itself.
    None,
    /// It types into a terminal, whose text the shell that it belongs to reads, takes a terminal,
    /// or has the kernel send signals.
    Disturbs,
    /// It may change a file, or is unknown.
    Changes,
}

/// The requests that disturb, from ioctl_tty(2) and ioctl(2).
const DISTURBING: &[u32] = &[
    0x540e, // TIOCSCTTY
    0x5410, // TIOCSPGRP
    0x5412, // TIOCSTI
    0x541c, // TIOCLINUX
    0x541d, // TIOCCONS
    0x5422, // TIOCNOTTY
    0x5437, // TIOCVHANGUP
    0x5452, // FIOASYNC
    0x8901, // FIOSETOWN
    0x8902, // SIOCSPGRP
];

/// Requests that only return information, though their direction does not say so.
const TELLING: &[u32] = &[
    0x0001,      // FIBMAP
    0x0002,      // FIGETBSZ
    0x0301,      // HDIO_GETGEO
    0x125e,      // BLKROGET
    0x1260,      // BLKGETSIZE
    0x1263,      // BLKRAGET
    0x1268,      // BLKSSZGET
    0x1278,      // BLKIOMIN
    0x1279,      // BLKIOOPT
    0x127a,      // BLKALIGNOFF
    0x127b,      // BLKPBSZGET
    0x127c,      // BLKDISCARDZEROES
    0x127e,      // BLKROTATIONAL
    0xc009_6616, // FS_IOC_GET_ENCRYPTION_POLICY_EX
    0xc020_660b, // FS_IOC_FIEMAP
];

/// Requests that change something, though their direction says that they read.
const CHANGING: &[u32] = &[
    0x8004_587d, // FS_IOC_SHUTDOWN
    0x800c_6613, // FS_IOC_SET_ENCRYPTION_POLICY
];

/// Requests to terminals, and those of all files about the descriptor (`FIONREAD`, `FIOCLEX`); to
/// sockets.
const KINDS_OF_STREAMS: [u32; 2] = [0x54, 0x89];

/// The direction of an argument that the kernel fills.
const READS: u32 = 2;

pub fn effect(request: i64) -> ControlEffect {
    // The kernel takes the lower half alone.
    let request = (request & 0xffff_ffff) as u32;
    if DISTURBING.contains(&request) {
        return ControlEffect::Disturbs;
    }
    let (direction, kind) = (request >> 30, request >> 8 & 0xff);
    let tells = TELLING.contains(&request)
        || KINDS_OF_STREAMS.contains(&kind)
        || (direction == READS && !CHANGING.contains(&request));
    match tells {
        true => ControlEffect::None,
        false => ControlEffect::Changes,
    }
}

// Requests of fcntl(2) by which the kernel sends signals: they end a process that does not expect
// them, and the process that gets them need not be this one.

/// `F_SETOWN`, `F_SETSIG`, `F_SETOWN_EX`, `F_SETLEASE`, `F_NOTIFY`, by their numbers on most machines.
const SENDING: &[i64] = &[8, 10, 15, 1024, 1026];
/// `F_SETFL`, and the flag `O_ASYNC`.
const SET_FLAGS: (i64, i64) = (4, 0o20000);

/// Returns whether a request has signals sent. `argument` is `None` for one that is not a number.
pub fn has_signals_sent(request: i64, argument: Option<i64>) -> bool {
    let (flags, asynchronous) = SET_FLAGS;
    // The kernel takes the lower half alone.
    let request = request & 0xffff_ffff;
    SENDING.contains(&request)
        || (request == flags && argument.is_none_or(|argument| argument & asynchronous != 0))
}
