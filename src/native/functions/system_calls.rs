//! syscall(2): a system call by its number, judged as the function of that name is.

use std::ffi::{CStr, c_int, c_long};

#[cfg(target_arch = "x86_64")]
use super::CWD;
use super::files::{
    cuts, is_link, links, makes, moves, opens, removes, sets_attribute, sets_mode, sets_owner,
    sets_times,
};
use super::{Path, network, processes, text, with_text};
use crate::native::asking::{self, ActJudge};
use crate::policy::judge::Act;

/// fchmodat2(2), of Linux 6.6, which has one number everywhere.
const SYS_FCHMODAT2: c_long = 452;

/// What a system call is about to do; `None` for the many that need nobody's leave.
///
/// # Safety
/// The arguments are those of the system call.
unsafe fn does<'a>(number: c_long, given: [c_long; 6]) -> Option<Act<'a>> {
    let fd = |index: usize| given[index] as c_int;
    // SAFETY: by the caller.
    let path = |index: usize| unsafe { text(given[index] as Path) };
    // SAFETY: by the caller.
    unsafe {
        match number {
            libc::SYS_openat => opens(fd(0), path(1), fd(2)),
            libc::SYS_openat2 => {
                // The first field of `struct open_how`.
                let flags = (given[2] as *const u64).as_ref()?;
                opens(fd(0), path(1), *flags as c_int)
            }
            libc::SYS_unlinkat => removes(fd(0), path(1), fd(2) & libc::AT_REMOVEDIR != 0),
            libc::SYS_mkdirat => makes(c"os.mkdir", fd(0), path(1), given[2] as _),
            libc::SYS_mknodat => makes(c"os.mknod", fd(0), path(1), given[2] as _),
            libc::SYS_renameat | libc::SYS_renameat2 => {
                moves(c"os.rename", (fd(0), path(1)), (fd(2), path(3)))
            }
            libc::SYS_linkat => moves(c"os.link", (fd(0), path(1)), (fd(2), path(3))),
            libc::SYS_symlinkat => links(path(0), fd(1), path(2)),
            libc::SYS_truncate => cuts(path(0), given[1]),
            libc::SYS_fchmodat => sets_mode(fd(0), path(1), given[2] as _, false),
            SYS_FCHMODAT2 => sets_mode(fd(0), path(1), given[2] as _, is_link(fd(3))),
            libc::SYS_fchownat => {
                sets_owner(fd(0), path(1), (given[2] as _, given[3] as _), is_link(fd(4)))
            }
            libc::SYS_utimensat => sets_times(fd(0), path(1), is_link(fd(3))),
            libc::SYS_setxattr => sets_attribute(c"os.setxattr", path(0), path(1), false),
            libc::SYS_lsetxattr => sets_attribute(c"os.setxattr", path(0), path(1), true),
            libc::SYS_removexattr => sets_attribute(c"os.removexattr", path(0), path(1), false),
            libc::SYS_lremovexattr => sets_attribute(c"os.removexattr", path(0), path(1), true),
            libc::SYS_socket => Some(network::makes(fd(0), fd(1), fd(2))),
            libc::SYS_connect => network::connects(fd(0), given[1] as _, given[2] as _),
            libc::SYS_bind => network::binds(fd(0), network::address(given[1] as _, given[2] as _)),
            libc::SYS_listen => network::listens(fd(0)),
            libc::SYS_sendto => network::reaches(
                c"socket.sendto",
                fd(0),
                network::address(given[4] as _, given[5] as _),
            ),
            libc::SYS_sendmsg => network::sends(fd(0), given[1] as _),
            libc::SYS_execve => processes::starts(c"os.exec", path(0)),
            libc::SYS_execveat => processes::starts(c"os.exec", path(1)),
            libc::SYS_chdir => with_text(c"os.chdir", path(0)),
            libc::SYS_fchdir => Some(processes::goes_to(fd(0))),
            libc::SYS_chroot => Some(processes::takes_root(path(0))),
            libc::SYS_kill => processes::signals(c"os.kill", fd(0), fd(1)),
            _ => does_by_name(number, given),
        }
    }
}

/// The same for system calls that newer machines do not have any more.
///
/// # Safety
/// The arguments are those of the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn does_by_name<'a>(number: c_long, given: [c_long; 6]) -> Option<Act<'a>> {
    // SAFETY: by the caller.
    let path = |index: usize| unsafe { text(given[index] as Path) };
    match number {
        libc::SYS_open => opens(CWD, path(0), given[1] as c_int),
        libc::SYS_creat => {
            let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
            opens(CWD, path(0), flags)
        }
        libc::SYS_unlink => removes(CWD, path(0), false),
        libc::SYS_rmdir => removes(CWD, path(0), true),
        libc::SYS_mkdir => makes(c"os.mkdir", CWD, path(0), given[1] as _),
        libc::SYS_rename => moves(c"os.rename", (CWD, path(0)), (CWD, path(1))),
        libc::SYS_link => moves(c"os.link", (CWD, path(0)), (CWD, path(1))),
        libc::SYS_symlink => links(path(0), CWD, path(1)),
        libc::SYS_mknod => makes(c"os.mknod", CWD, path(0), given[1] as _),
        libc::SYS_chown => sets_owner(CWD, path(0), (given[1] as _, given[2] as _), false),
        libc::SYS_lchown => sets_owner(CWD, path(0), (given[1] as _, given[2] as _), true),
        libc::SYS_utime | libc::SYS_utimes => sets_times(CWD, path(0), false),
        libc::SYS_futimesat => sets_times(given[0] as c_int, path(1), false),
        libc::SYS_chmod => sets_mode(CWD, path(0), given[1] as _, false),
        _ => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn does_by_name<'a>(_number: c_long, _given: [c_long; 6]) -> Option<Act<'a>> {
    None
}

/// syscall(2), with as many arguments as a system call may have: on the supported platforms what a
/// caller left out is read from registers and from its stack, and nobody uses it.
///
/// # Safety
/// Called as syscall(2).
unsafe extern "C" fn syscall<J: ActJudge>(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    let given = [first, second, third, fourth, fifth, sixth];
    // What is asked for in a ring (io_uring(7)) cannot be judged: libraries do without one.
    if number == libc::SYS_io_uring_setup && J::may_judge() && J::is_guarded() {
        asking::set_errno(libc::ENOSYS);
        return -1;
    }
    // SAFETY: by the caller.
    unsafe {
        if number == libc::SYS_sendmmsg {
            let (socket, messages) = (first as c_int, second as *mut libc::mmsghdr);
            return network::each_sent::<J>(socket, messages, third as _, fourth as _).into();
        }
        match asking::allows::<J>(|| does(number, given)) {
            true => libc::syscall(number, first, second, third, fourth, fifth, sixth),
            false => -1,
        }
    }
}

pub(super) fn table<J: ActJudge>() -> impl Iterator<Item = (&'static CStr, *const ())> {
    [(c"syscall", syscall::<J> as *const ())].into_iter()
}
