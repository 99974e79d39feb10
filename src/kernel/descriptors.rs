//! What the kernel tells of descriptors; and descriptors of other processes, such as sockets that a
//! host connects in their place.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, Result};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::kernel::started::pid_in;

/// A descriptor of the process of a thread, as one of our own that programs do not inherit: pidfd_getfd(2).
pub fn of_thread(thread: i32, descriptor: i32) -> Result<OwnedFd> {
    if descriptor < 0 {
        return Err(Errno::BADF);
    }
    // Only a process has a descriptor of its own, on kernels before 6.9.
    let process = pid_in(&format!("/proc/{thread}/status"), "Tgid:").ok_or(Errno::SRCH)?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())
}

/// The link of a descriptor by which the kernel asks about system calls: seccomp_unotify(2).
const LISTENER: &str = "anon_inode:seccomp notify";

/// Returns the descriptors of this process by which the kernel asks it about system calls of others.
pub fn listeners() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let are_such = entries
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == LISTENER));
    are_such.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns whether this process has the other end of a terminal `/dev/pts/NUMBER` open: pts(4).
pub fn has_other_end(number: &str) -> bool {
    let told = fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
    let mut told = told.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let is_it =
        |line: &str| line.strip_prefix("tty-index:").is_some_and(|own| own.trim() == number);
    told.any(|told| told.lines().any(is_it))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_descriptor_of_a_thread_is_the_same_file() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        // No thread has this number: that of one which was joined may be there a moment longer.
        assert_eq!(of_thread(i32::MAX, 0).err(), Some(Errno::SRCH));
        let here = rustix::thread::gettid().as_raw_nonzero().get();
        let taken = of_thread(here, reader.as_raw_fd()).unwrap();
        drop(reader);
        writer.write_all(b"x").unwrap();
        drop(writer);
        let mut found = Vec::new();
        fs::File::from(taken).read_to_end(&mut found).unwrap();
        assert_eq!(found, b"x");
        assert_eq!(of_thread(here, -1).err(), Some(Errno::BADF));
    }
}
