//! The children of a process that waits for their ends, and for those of the processes they leave
//! behind.
//!
//! Nothing here allocates: in a sandbox whose host is gone the kernel answers neither brk(2) nor
//! open(2) any more.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, pread};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpgrp, getpid, getppid, kill_current_process_group,
    kill_process, pidfd_open, pidfd_send_signal, set_child_subreaper,
    set_parent_process_death_signal, wait,
};

/// The time to wait for children that were killed.
const BUSY: Duration = Duration::from_secs(1);
/// The time between looks at a process that has no other way to tell that it ended.
const INTERVAL: Duration = Duration::from_millis(1);

pub struct ChildProcesses {
    /// The kernel's list of the direct children: proc(5). Opened in advance.
    list: Option<File>,
}

impl ChildProcesses {
    /// Makes this process the reaper of its descendants: prctl(2). It ends with its parent if that is
    /// named, and with no other.
    pub fn adopt(parent: Option<Pid>) -> std::io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        set_parent_process_death_signal(parent.map(|_| Signal::KILL))?;
        // It may have ended before.
        if parent.is_some() && getppid() != parent {
            return Err(Errno::SRCH.into());
        }
        let pid = getpid().as_raw_nonzero();
        let list = File::open(format!("/proc/self/task/{pid}/children")).ok();
        Ok(Self { list })
    }

    /// Waits for the end of a child, and returns its exit status, or minus the number of a signal.
    /// Returns `None` if the other end of `connection` speaks or closes first.
    pub fn status(&self, child: Pid, connection: BorrowedFd<'_>) -> Result<Option<i32>, Errno> {
        loop {
            while let Some((ended, status)) = wait(WaitOptions::NOHANG)? {
                if ended == child {
                    let by_signal = status.terminating_signal().map(|signal| -signal);
                    return Ok(Some(status.exit_status().or(by_signal).unwrap_or(1)));
                }
            }
            if !wait_for(child, connection)? {
                return Ok(None);
            }
        }
    }

    /// Waits for all children but `kept`, and kills them after `patience`; true if none is left.
    pub fn end(&self, patience: Duration, kept: &[Pid]) -> bool {
        let begun = Instant::now();
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(error) => return error == Errno::CHILD,
            }
            let waited = begun.elapsed();
            if waited >= patience {
                match self.kill_all(kept) {
                    // The children of one that has ended are ours before it can be waited for.
                    Some(0) if !kept.is_empty() => return true,
                    Some(_) if waited <= BUSY + patience => {}
                    _ => return false,
                }
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Returns how many were killed; `None` if none can be listed. Their children are ours next.
    fn kill_all(&self, kept: &[Pid]) -> Option<usize> {
        let mut listed = [0; 1 << 12];
        let length = pread(self.list.as_ref()?, &mut listed, 0).ok()?;
        let mut killed = 0;
        // A number at the end that is not followed by a space may be cut off.
        for number in listed[..length].split_inclusive(|byte| *byte == b' ') {
            let number = number.strip_suffix(b" ").map(str::from_utf8);
            let number = number.and_then(Result::ok).map(str::parse);
            let child = number.and_then(Result::ok).and_then(Pid::from_raw);
            if let Some(child) = child.filter(|child| !kept.contains(child)) {
                killed += 1;
                // A child that has ended keeps its number until it is waited for: no other process
                // has it.
                kill(child);
            }
        }
        Some(killed)
    }
}

pub fn is_over(connection: BorrowedFd<'_>) -> bool {
    let mut first = [0; 1];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(connection, &mut first, flags) {
        Ok((read, _)) => read == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}

// It reads nothing: in a sandbox the host would be asked about recv(2).
pub fn wait_to_go_on(connection: BorrowedFd<'_>) -> bool {
    events(connection) == PollFlags::IN
}

/// Waits until there is something to read, or the other end is gone.
fn events(connection: BorrowedFd<'_>) -> PollFlags {
    loop {
        let mut watched = [PollFd::from_borrowed_fd(connection, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) => return watched[0].revents(),
            Err(Errno::INTR) => {}
            Err(_) => return PollFlags::ERR,
        }
    }
}

/// A connection between a process and a copy of it, which programs do not inherit.
pub fn connection() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Hands a descriptor over.
pub fn hand(connection: BorrowedFd<'_>, handed: BorrowedFd<'_>) -> Result<(), Errno> {
    let handed = [handed];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&handed));
    sendmsg(connection, &[IoSlice::new(b"0")], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a descriptor that is handed over; `None` if the other end is gone.
pub fn received(connection: BorrowedFd<'_>) -> Option<OwnedFd> {
    // The other end is closed once it has been handed over.
    if !events(connection).contains(PollFlags::IN) {
        return None;
    }
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let into = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(connection, into, &mut beside, RecvFlags::CMSG_CLOEXEC).ok()?;
    beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut handed) => handed.next(),
        _ => None,
    })
}

/// Returns true if a child has ended, and not the connection has something to say.
fn wait_for(child: Pid, connection: BorrowedFd<'_>) -> Result<bool, Errno> {
    let speaks = PollFd::from_borrowed_fd(connection, PollFlags::IN);
    let ends = pidfd_open(child, PidfdFlags::empty())?;
    let mut watched = [speaks, PollFd::new(&ends, PollFlags::IN)];
    match poll(&mut watched, None) {
        Ok(_) => Ok(watched[0].revents().is_empty()),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error),
    }
}

pub fn end_with(children: &ChildProcesses) {
    let is_clean = children.end(Duration::ZERO, &[]);
    if !is_clean && getpgrp() == getpid() {
        // They are made faster than they are killed one by one.
        let _ = kill_current_process_group(Signal::KILL);
    }
    kill(getpid());
}

/// Kills a process of the sandbox. On older kernels the host is asked about kill(2), and it may be
/// gone: code in the sandbox alone is denied to kill by a descriptor there.
fn kill(process: Pid) {
    let by_descriptor = pidfd_open(process, PidfdFlags::empty())
        .and_then(|process| pidfd_send_signal(&process, Signal::KILL));
    let _ = by_descriptor.or_else(|_| kill_process(process, Signal::KILL));
}
