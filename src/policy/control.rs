//! The requests of ioctl(2) that change the file that a descriptor leads to.
//!
//! Many do not need a descriptor that was opened for writing, above all those of file systems
//! (`chattr`, `FS_IOC_FSSETXATTR`). The numbers are those of Linux on most machines: in the upper
//! bits the direction and the size of the argument, then a byte for the kind of file, then a
//! number: <https://docs.kernel.org/userspace-api/ioctl/ioctl-number.html>.

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

/// The effect of a request.
pub fn effect(request: i64) -> ControlEffect {
    if !cfg!(any(target_os = "linux", target_os = "android")) {
        return ControlEffect::None;
    }
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

/// The requests, by their numbers on most machines.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod requests {
    /// `F_SETOWN`, `F_SETSIG`, `F_SETOWN_EX`, `F_SETLEASE`, `F_NOTIFY`.
    pub const SENDING: &[i64] = &[8, 10, 15, 1024, 1026];
    /// `F_SETFL`, and the flag `O_ASYNC`.
    pub const FLAGS: (i64, i64) = (4, 0o20000);
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod requests {
    /// `F_SETOWN`.
    pub const SENDING: &[i64] = &[6];
    /// `F_SETFL`, and the flag `O_ASYNC`.
    pub const FLAGS: (i64, i64) = (4, 0x40);
}

/// Returns whether a request has signals sent. `argument` is `None` for one that is not a number.
pub fn has_signals_sent(request: i64, argument: Option<i64>) -> bool {
    let (flags, asynchronous) = requests::FLAGS;
    // The kernel takes the lower half alone.
    let request = request & 0xffff_ffff;
    requests::SENDING.contains(&request)
        || (request == flags && argument.is_none_or(|argument| argument & asynchronous != 0))
}
