//! Open descriptors: their access modes, and their files.
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

/// The descriptor of this process that a directory entry stands for. The path is absolute, and its
/// directory resolved.
pub(crate) fn named_by(entry: &[u8]) -> Option<i32> {
    match entry {
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => {}
    }
    let number = entry.strip_prefix(b"/dev/fd/").or_else(|| {
        let own = format!("/proc/{}/", std::process::id());
        let rest = entry.strip_prefix(own.as_bytes())?;
        let of_thread = || {
            let rest = rest.strip_prefix(b"task/")?;
            rest[memchr::memchr(b'/', rest)?..].strip_prefix(b"/fd/")
        };
        rest.strip_prefix(b"fd/").or_else(of_thread)
    })?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The system's word on a descriptor.
#[cfg(any(target_os = "linux", target_os = "android"))]
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

#[cfg(any(target_os = "linux", target_os = "android"))]
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

/// The same by /dev/fd, which macOS (untested) opens only with the descriptor's own access mode.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
pub(crate) fn describe(fs: &impl FileSystem, fd: i32) -> Descriptor {
    use rustix::fs::{FileType, Mode, OFlags};
    use rustix::io::Errno;

    if fd < 0 {
        return Descriptor::Unknown;
    }
    let name = format!("/dev/fd/{fd}");
    let open = |flags| rustix::fs::open(&name, flags | OFlags::CLOEXEC, Mode::empty());
    let (writes, file) = match open(OFlags::WRONLY) {
        Ok(file) => (true, Ok(file)),
        Err(Errno::BADF) => return Descriptor::Closed,
        Err(_) => (false, open(OFlags::RDONLY)),
    };
    let Some(stat) = file.ok().and_then(|file| rustix::fs::fstat(&file).ok()) else {
        return Descriptor::Unknown;
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    let streams = matches!(kind, FileType::Fifo | FileType::CharacterDevice);
    let place = match fs.descriptor_path(fd) {
        Some(path) => DescriptorPlace::At(path.to_vec()),
        None if matches!(kind, FileType::Fifo | FileType::Socket) => DescriptorPlace::Nowhere,
        None => DescriptorPlace::Unknown,
    };
    Descriptor::Open(OpenDescriptor {
        writes,
        streams,
        place,
    })
}
