//! A filter of system calls (seccomp(2)) for the processes of a sandbox: the part of a policy that
//! Landlock does not know, and acts on processes outside.
//!
//! It stands beside the filter of the package `sandlock`; the kernel obeys the strictest.
//! A system call of another architecture, such as a 32-bit one by `int 0x80`, ends the process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{self, Eq, Gt, Lt, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use crate::policy::written::spec::NetworkUse;
use crate::policy::written::values::Choice;

/// Protocols of Internet sockets that Landlock and `sandlock` know: the default one, ICMP, TCP, UDP,
/// and ICMP for IPv6. MPTCP, SCTP, DCCP, SMC and others connect past their rules.
const PROTOCOLS: [i32; 5] = [
    libc::IPPROTO_IP,
    libc::IPPROTO_ICMP,
    libc::IPPROTO_TCP,
    libc::IPPROTO_UDP,
    libc::IPPROTO_ICMPV6,
];

/// The bits of the type of a socket that are no flags.
const TYPE: u64 = 0xf;
/// `SOCK_DCCP`, which is the only type of DCCP.
const DCCP: u64 = 6;
/// `SYS_memfd_secret` on all machines; not all C libraries name it.
const MEMFD_SECRET: i64 = 447;

/// System calls that make, remove and use message queues, which are the user's; those that tell of
/// changes to files and directories that need not be open to the caller; and one whose requests the
/// machine counts.
const ABSENT: &[i64] = &[
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_io_setup,
];

/// The requests of ioctl(2) for file systems, by the letter or number that they have in common.
/// Most need no descriptor that is open for writing: they change attributes and snapshots of files
/// that may only be read. The ones that are named read, or need such a descriptor.
const REQUESTS: [(u8, &[u64]); 6] = [
    // FS_IOC_GETFLAGS
    (b'f', &[0x8008_6601]),
    // FS_IOC_GETVERSION
    (b'v', &[0x8008_7601]),
    // FS_IOC_FSGETXATTR
    (b'X', &[0x801c_581f]),
    // FAT_IOCTL_GET_ATTRIBUTES
    (b'r', &[0x8004_7210]),
    // FICLONE, FICLONERANGE: also the requests of Btrfs
    (0x94, &[0x4004_9409, 0x4020_940d]),
    // F2FS
    (0xf5, &[]),
];

/// `F_SETLEASE` and `F_NOTIFY` of fcntl(2): others wait for a lease before they open the file.
const HELD: [i32; 2] = [1024, 1026];

/// The version of Landlock that holds all that a sandbox needs (Linux 6.12), and those that first
/// hold requests for devices, ports of TCP, and `truncate`.
const WHOLE: i32 = 6;
const KNOWS_DEVICES: i32 = 5;
const KNOWS_TCP: i32 = 4;
const KNOWS_TRUNCATE: i32 = 3;

/// The requests of ioctl(2) that change no device: TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX,
/// FIOCLEX, FIOASYNC, FIOQSIZE, FIGETBSZ. Besides, those of sockets, and of `REQUESTS`.
const HARMLESS: [u64; 9] = [0x5401, 0x5413, 0x541b, 0x5421, 0x5450, 0x5451, 0x5452, 0x5460, 2];
const OF_SOCKETS: [u64; 2] = [0x8900, 0x89ff];

/// Requests that have signals sent to others: FIOSETOWN and SIOCSPGRP of ioctl(2), and `F_SETOWN` and
/// `F_SETOWN_EX` of fcntl(2).
const OWNERS: [u64; 2] = [0x8901, 0x8902];
const OWNED: [i32; 2] = [8, 15];

/// True once this process, and so each copy of it, has no sockets but Unix sockets.
static ONLY_UNIX_SOCKETS: AtomicBool = AtomicBool::new(false);

/// Rules for each system call, by its number; one that matches denies.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

pub struct Filters(Vec<BpfProgram>);

/// What the system holds besides.
#[derive(Clone, Copy)]
pub struct Beside {
    /// Whether there may be files in memory (memfd_create(2)), which only a control group counts.
    pub memory_files: bool,
    /// The version of Landlock.
    pub landlock: i32,
    /// Whether the network is one of the sandbox's own, whose abstract sockets are too.
    pub own_network: bool,
}

/// Returns the filters for a policy's network. They hold what that version of Landlock does not.
pub fn filters(network: &NetworkUse, beside: Beside) -> Result<Filters, Error> {
    let Beside { memory_files, landlock, own_network } = beside;
    let mut rules = processes()?;
    rules.extend(devices()?);
    rules.extend(descriptors(landlock)?);
    if landlock < KNOWS_TRUNCATE {
        rules.extend(truncating()?);
    }
    rules.extend(match network {
        NetworkUse::All(true) => Rules::new(),
        NetworkUse::All(false) => no_sockets()?,
        NetworkUse::Rules(known) => {
            let is_held = landlock >= KNOWS_TCP || known.listen == Choice::All(true);
            known_sockets(known.listen == Choice::All(false) || !is_held)?
        }
    });
    if landlock < WHOLE && !own_network {
        // Pairs remain: they are made without an address.
        let unix = rule([(0, Dword, Eq, number(libc::AF_UNIX))])?;
        rules.entry(libc::SYS_socket).or_default().push(unix);
    }
    if !memory_files {
        rules.extend([libc::SYS_memfd_create, MEMFD_SECRET].map(always));
    }
    let unread = (landlock < KNOWS_TRUNCATE).then_some(libc::SYS_openat2);
    let absent = ABSENT.iter().copied().chain(unread).map(always).collect();
    // An answer and no end of the process: code can go on without. Programs have other ways where a
    // kernel lacks a call.
    Ok(Filters(vec![program(rules, libc::EPERM)?, program(absent, libc::ENOSYS)?]))
}

/// Returns the filters for code, beside those of the process that ends it: signals by a descriptor,
/// which nobody judges where Landlock does not hold signals.
pub fn filters_of_code(landlock: i32) -> Result<Filters, Error> {
    let unseen = (landlock < WHOLE).then_some(libc::SYS_pidfd_send_signal);
    let denied = unseen.map(|call| program(Rules::from([always(call)]), libc::ENOSYS));
    Ok(Filters(denied.into_iter().collect::<Result<_, _>>()?))
}

/// On the current thread, and the threads and programs that it starts, for good.
pub fn apply(filters: &Filters) -> Result<(), Error> {
    let mut each = filters.0.iter();
    each.try_for_each(|each| seccompiler::apply_filter(each))
}

fn program(rules: Rules, error: i32) -> Result<BpfProgram, Error> {
    let machine = std::env::consts::ARCH.try_into()?;
    let denied = SeccompAction::Errno(error.unsigned_abs());
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, denied, machine)?.try_into()?)
}

pub fn note_no_network() {
    ONLY_UNIX_SOCKETS.store(true, Ordering::Relaxed);
}

pub fn has_only_unix_sockets() -> bool {
    ONLY_UNIX_SOCKETS.load(Ordering::Relaxed)
}

/// Limits and priorities of other processes of the same user: signals of theirs by other means.
fn processes() -> Result<Rules, BackendError> {
    let others = || rule([(0, Dword, Ne, 0)]);
    Ok(Rules::from([
        (libc::SYS_prlimit64, vec![rule([(0, Dword, Ne, 0), (2, Qword, Ne, 0)])?]),
        // Of a process, not of a group or a user.
        (libc::SYS_setpriority, vec![others()?, rule([(1, Dword, Ne, 0)])?]),
        (libc::SYS_ioprio_set, vec![rule([(0, Dword, Ne, 1)])?, rule([(1, Dword, Ne, 0)])?]),
        (libc::SYS_sched_setaffinity, vec![others()?]),
        (libc::SYS_sched_setscheduler, vec![others()?]),
        (libc::SYS_sched_setparam, vec![others()?]),
        (libc::SYS_sched_setattr, vec![others()?]),
    ]))
}

fn devices() -> Result<Rules, BackendError> {
    let kinds = [libc::S_IFCHR, libc::S_IFBLK].map(u64::from);
    let kind = MaskedEq(libc::S_IFMT.into());
    let made = |mode| {
        let each = kinds.map(|wanted| rule([(mode, Dword, kind.clone(), wanted)]));
        each.into_iter().collect::<Result<Vec<_>, _>>()
    };
    Ok(Rules::from([
        (libc::SYS_mknodat, made(2)?),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, made(1)?),
    ]))
}

/// Requests that change files by a descriptor that only reads, or that have others wait for it.
fn descriptors(landlock: i32) -> Result<Rules, BackendError> {
    let mut requests = Vec::new();
    let mut commands = HELD.to_vec();
    if landlock < WHOLE {
        commands.extend(OWNED);
        for request in OWNERS {
            requests.push(rule([(1, Dword, Eq, request)])?);
        }
    }
    if landlock < KNOWS_DEVICES {
        for beside in [(1, Dword, Lt, OF_SOCKETS[0]), (1, Dword, Gt, OF_SOCKETS[1])] {
            let read = REQUESTS.iter().flat_map(|(_, allowed)| *allowed);
            let others = HARMLESS.iter().chain(read).map(|request| (1, Dword, Ne, *request));
            requests.push(rule(others.chain([beside]))?);
        }
    }
    for (common, allowed) in REQUESTS {
        let others = allowed.iter().map(|request| (1, Dword, Ne, *request));
        let of_letter = (1, Dword, MaskedEq(0xff00), u64::from(common) << 8);
        requests.push(rule(others.chain([of_letter]))?);
    }
    let held = commands.into_iter().map(|command| rule([(1, Dword, Eq, number(command))]));
    Ok(Rules::from([
        (libc::SYS_ioctl, requests),
        (libc::SYS_fcntl, held.collect::<Result<_, _>>()?),
    ]))
}

/// Opening a file to truncate it that is not opened for writing, which Landlock decides about. Access
/// of the kind 3 is for requests alone: open(2).
fn truncating() -> Result<Rules, BackendError> {
    let opened = |flags| {
        let each = [libc::O_RDONLY, libc::O_ACCMODE].map(|access| {
            let mask = number(libc::O_ACCMODE | libc::O_TRUNC);
            rule([(flags, Dword, MaskedEq(mask), number(access | libc::O_TRUNC))])
        });
        each.into_iter().collect::<Result<Vec<_>, _>>()
    };
    Ok(Rules::from([
        (libc::SYS_openat, opened(2)?),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, opened(1)?),
    ]))
}

fn no_sockets() -> Result<Rules, BackendError> {
    let others = || rule([(0, Dword, Ne, number(libc::AF_UNIX))]);
    Ok(Rules::from([(libc::SYS_socket, vec![others()?]), (libc::SYS_socketpair, vec![others()?])]))
}

fn known_sockets(no_listen: bool) -> Result<Rules, BackendError> {
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let mut sockets = vec![rule(none_of(0, &families))?];
    for family in [libc::AF_INET, libc::AF_INET6].map(number) {
        sockets.push(rule(none_of(2, &PROTOCOLS).chain([(0, Dword, Eq, family)]))?);
        // SCTP and DCCP are the default protocols of these types.
        for kind in [number(libc::SOCK_SEQPACKET), DCCP] {
            sockets.push(rule([(0, Dword, Eq, family), (1, Dword, MaskedEq(TYPE), kind)])?);
        }
    }
    // Sending with this flag connects, and no rule for connecting sees it.
    let flag = number(libc::MSG_FASTOPEN);
    let fast = |place| rule([(place, Dword, MaskedEq(flag), flag)]);
    let option = [
        (1, Dword, Eq, number(libc::IPPROTO_TCP)),
        (2, Dword, Eq, number(libc::TCP_FASTOPEN_CONNECT)),
    ];
    let mut found = Rules::from([
        (libc::SYS_socket, sockets),
        (libc::SYS_sendto, vec![fast(3)?]),
        (libc::SYS_sendmsg, vec![fast(2)?]),
        (libc::SYS_sendmmsg, vec![fast(3)?]),
        (libc::SYS_setsockopt, vec![rule(option)?]),
    ]);
    if no_listen {
        // Listening at a socket without a port opens a free one.
        found.extend([always(libc::SYS_listen)]);
    }
    Ok(found)
}

fn always(call: i64) -> (i64, Vec<SeccompRule>) {
    (call, Vec::new())
}

fn none_of(place: u8, known: &[i32]) -> impl Iterator<Item = Condition> {
    let known = known.iter().copied().map(number);
    known.map(move |value| (place, Dword, Ne, value))
}

/// The number of an argument, how much of it counts, and how it compares to a value.
type Condition = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);

fn rule(conditions: impl IntoIterator<Item = Condition>) -> Result<SeccompRule, BackendError> {
    let conditions = conditions.into_iter();
    let conditions = conditions
        .map(|(place, length, how, value)| SeccompCondition::new(place, length, how, value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

fn number(constant: i32) -> u64 {
    constant.unsigned_abs().into()
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, Protocol, RawProtocol, SocketType, listen, socket};

    use super::*;

    const BESIDE: Beside = Beside { memory_files: false, landlock: WHOLE, own_network: false };

    #[test]
    fn rules_let_known_protocols_alone_pass() {
        let network = NetworkUse::Rules(Box::default());
        let thread = std::thread::spawn(move || {
            apply(&filters(&network, BESIDE).unwrap()).unwrap();
            let made = |kind, protocol| {
                let protocol = Protocol::from_raw(RawProtocol::new(protocol).unwrap());
                socket(AddressFamily::INET, kind, Some(protocol)).err()
            };
            assert_eq!(made(SocketType::STREAM, 6), None);
            assert_eq!(made(SocketType::DGRAM, 17), None);
            for protocol in [132, 136, 256, 262] {
                assert_eq!(made(SocketType::STREAM, protocol), Some(Errno::PERM));
            }
            let without = |kind| socket(AddressFamily::INET, kind, None).err();
            assert_eq!(without(SocketType::STREAM), None);
            assert_eq!(without(SocketType::SEQPACKET), Some(Errno::PERM));
            let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            assert_eq!(listen(bound, 1).err(), Some(Errno::PERM));
        });
        thread.join().unwrap();
    }
}
