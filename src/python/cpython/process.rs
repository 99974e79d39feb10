//! The process: its copies, its end, its environment, its output and its descriptors.

use std::ffi::{CStr, OsStr};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use rustix::io::{Errno, FdFlags, dup2, fcntl_setfd};

use crate::python::cpython::calling::{self, Calling};
use crate::python::cpython::ffi as raw;
use crate::python::cpython::once::Once;

/// Copies the process, with CPython's own preparations. Returns 0 in the copy, which does `first` before
/// it goes on: `first` does system calls alone.
pub fn fork(_py: Python<'_>, first: impl FnOnce()) -> std::io::Result<i32> {
    // SAFETY: the code that runs in the copy is what runs after `os.fork`, and CPython's hooks are
    // called as it calls them itself (PyOS_BeforeFork and its likes in the C API).
    let child = unsafe {
        ffi::PyOS_BeforeFork();
        let child = libc::fork();
        if child == 0 {
            first();
            ffi::PyOS_AfterFork_Child();
        } else {
            ffi::PyOS_AfterFork_Parent();
        }
        child
    };
    match child {
        0.. => Ok(child),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Gives the current thread a current directory and a umask of its own.
///
/// # Errors
/// The kernel refuses, as it does in some containers.
pub fn own_directory() -> rustix::io::Result<()> {
    // SAFETY: descriptors stay shared; the directory and the umask are no memory.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }
}

/// Moves the current thread into a network of its own, which is empty (network_namespaces(7)). The
/// threads and programs that it starts are in it too.
///
/// # Errors
/// The kernel refuses: it takes `CAP_SYS_ADMIN`.
pub fn own_network() -> rustix::io::Result<()> {
    // SAFETY: descriptors stay shared, and open sockets stay in their network; it is no memory.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
}

/// Ends the process at once: nothing runs that is registered for its end. The data that C streams hold
/// back are written if `flushes`.
pub fn end_at_once(status: i32, flushes: bool) -> ! {
    // SAFETY: null stands for all streams, each of which is locked while it is written; `_exit` may be
    // called at any time, and does not return.
    unsafe {
        if flushes {
            libc::fflush(std::ptr::null_mut());
        }
        libc::_exit(status)
    }
}

pub fn at_end(work: extern "C" fn()) {
    // SAFETY: a safe function may be called at any time, and this one lives for ever.
    unsafe { libc::atexit(work) };
}

/// Has a function called when this Python is finalized. Returns false if it cannot be.
pub fn at_finalize(_py: Python<'_>, work: extern "C" fn()) -> bool {
    // SAFETY: the function lives for ever; it is called without an interpreter, which it cannot use
    // as it takes none.
    unsafe { ffi::Py_AtExit(Some(work)) == 0 }
}

/// Writes a text to `sys.stderr`, or to the process's own if there is none.
pub fn write_to_stderr(_py: Python<'_>, text: &CStr) {
    // SAFETY: the format takes one text, which is NUL-terminated. It is cut after 1,000 bytes.
    unsafe { ffi::PySys_WriteStderr(c"%s".as_ptr(), text.as_ptr()) };
}

/// The name was read from the environment, and so has no `=`.
pub fn set_variable(_py: Python<'_>, name: &OsStr, value: &OsStr) {
    // SAFETY: the thread is attached, as Python has it where it changes the environment itself.
    unsafe { std::env::set_var(name, value) };
}

/// The handler that the process has for a signal, as sigaction(2) tells it.
pub fn signal_handler(signal: i32) -> Option<libc::sighandler_t> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: null sets nothing; where the call succeeds the kernel has filled in the action.
    unsafe {
        let told = libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        (told == 0).then(|| action.assume_init().sa_sigaction)
    }
}

/// The soft and the hard limit that the process has of a resource.
pub fn limits(resource: i32) -> Option<[libc::rlim_t; 2]> {
    let mut now = std::mem::MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: where the call succeeds the kernel has filled in the limits.
    let now = unsafe {
        let told = libc::getrlimit(resource as _, now.as_mut_ptr());
        (told == 0).then(|| now.assume_init())
    };
    now.map(|now| [now.rlim_cur, now.rlim_max])
}

/// The version of the kernel's Landlock; below 1 without it: landlock_create_ruleset(2).
pub fn landlock_version() -> i64 {
    const VERSION: u32 = 1;
    let nothing = std::ptr::null::<u8>();
    // SAFETY: with this flag the call reads no memory.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION) }
}

// Copies of the process (fork(2)): the number of copies from the first process to this one.

static FORKS: AtomicUsize = AtomicUsize::new(0);

/// The number of them that went on in place of their original, as states of a session do.
static IN_PLACE: AtomicUsize = AtomicUsize::new(0);

/// The number of copies up to the last one that Python code made.
static OF_PYTHON: AtomicUsize = AtomicUsize::new(0);

/// `_thread._count`, as it was.
static COUNT: Once<Py<PyAny>> = Once::new();

/// Returns how often the process was copied: a copy has another number than its original.
#[inline]
pub fn generation() -> usize {
    FORKS.load(Ordering::Relaxed)
}

/// The same without copies that went on in place of their original: a guard takes them for it.
#[inline]
pub fn branch() -> usize {
    generation() - IN_PLACE.load(Ordering::Relaxed)
}

/// Notes that this process, a copy that was made just now, goes on in place of its original.
pub fn note_in_place() {
    IN_PLACE.fetch_add(1, Ordering::Relaxed);
}

pub fn note_python() {
    OF_PYTHON.store(generation(), Ordering::Relaxed);
}

/// Returns whether native code made this copy. No Python code may run in it: other threads had locks
/// that nobody unlocks here.
pub fn is_of_native_code() -> bool {
    OF_PYTHON.load(Ordering::Relaxed) != generation()
}

extern "C" fn is_copy() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Begins to count.
pub fn install(py: Python<'_>) -> PyResult<()> {
    COUNT.get_or_try_init(py, || {
        // SAFETY: the function does nothing that is not allowed in a copy (pthread_atfork(3)).
        unsafe {
            libc::pthread_atfork(None, None, Some(is_copy));
        }
        calling::import(py, "_thread")?.attr("_count").map(Bound::unbind)
    })?;
    Ok(())
}

/// Returns whether Python runs other threads than this one.
pub fn has_other_threads(py: Python<'_>) -> PyResult<bool> {
    let Some(count) = COUNT.get(py) else {
        return Ok(true);
    };
    // All but the main thread, the one that runs this among them.
    let count = count.bind(py).invoke0()?;
    Ok(raw::int_value(&count) != Some(0))
}

/// The clock that files get their times from, the system's last tick: clock_gettime(2).
const CLOCK: libc::clockid_t = libc::CLOCK_REALTIME_COARSE;

/// The seconds and nanoseconds that a file would have that was changed now.
pub fn time_of_files() -> (i64, i64) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `now` alone.
    unsafe { libc::clock_gettime(CLOCK, &raw mut now) };
    (now.tv_sec, now.tv_nsec)
}

/// Has the process end with this status when `exit` ends it, whatever its own is: atexit(3). What was
/// registered before is not called.
pub fn end_later(status: i32) {
    static STATUS: AtomicI32 = AtomicI32::new(0);

    extern "C" fn end() {
        end_at_once(STATUS.load(Ordering::Relaxed), true)
    }

    if STATUS.swap(status, Ordering::Relaxed) == 0 {
        at_end(end);
    }
}

// File descriptors as the numbers that Python code knows them by.

/// Calls a function with a descriptor, to be passed to system calls; `None` for a negative number.
pub fn with_descriptor<R>(number: i32, call: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
    // SAFETY: -1 alone cannot be one. The number is passed to system calls and to nothing else, and
    // they take any: an error is all that a closed descriptor can lead to.
    (number >= 0).then(|| call(unsafe { BorrowedFd::borrow_raw(number) }))
}

/// Makes a descriptor another one of the file `by`, which programs do not inherit if `closes`; the
/// file that it was of is closed.
///
/// # Errors
/// `EBADF` for a negative number, and those of dup2(2).
pub fn replace_descriptor(number: i32, by: impl AsFd, closes: FdFlags) -> rustix::io::Result<()> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: as it is never dropped, nothing is closed that somebody else owns; -1 is left out.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    dup2(by, &mut place)?;
    fcntl_setfd(&*place, closes)
}
