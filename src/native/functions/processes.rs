//! Functions that start programs, send signals, and change where the process is: execve(2),
//! posix_spawn(3), system(3), kill(2), chdir(2).

use std::ffi::{CStr, c_char, c_int};

use libc::{FILE, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use super::{Path, number, text, value, with_text};
use crate::native::asking::{self, ActJudge};
use crate::policy::judge::{Act, Value};

/// The words of a command, or of an environment.
type Words = *const *const c_char;

pub(super) fn starts<'a>(event: &'static CStr, program: Option<&'a CStr>) -> Option<Act<'a>> {
    Some(Act::new(event, &[value(program?), Value::None, Value::None]))
}

pub(super) fn goes_to<'a>(directory: c_int) -> Act<'a> {
    Act::new(c"os.chdir", &[number(directory)])
}

pub(super) fn takes_root(path: Option<&CStr>) -> Act<'_> {
    Act::new(c"os.chroot", &[path.map_or(Value::None, value)])
}

/// Signal 0 asks whether there is such a process.
pub(super) fn signals<'a>(event: &'static CStr, process: pid_t, signal: c_int) -> Option<Act<'a>> {
    let arguments = [process, signal].map(number);
    (signal != 0).then(|| Act::new(event, &arguments))
}

/// pidfd_spawn(3) and pidfd_spawnp(3), which the C library has since glibc 2.39: an import of them
/// would keep older ones from loading this.
///
/// # Safety
/// Called as those functions, one of which `name` is.
unsafe fn spawns<J: ActJudge>(
    name: &CStr,
    descriptor: *mut c_int,
    program: Path,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    words: *const *mut c_char,
    environment: *const *mut c_char,
) -> c_int {
    type Spawn = unsafe extern "C" fn(
        *mut c_int,
        Path,
        *const posix_spawn_file_actions_t,
        *const posix_spawnattr_t,
        *const *mut c_char,
        *const *mut c_char,
    ) -> c_int;
    let Some(real) = J::tables().real(name) else {
        return libc::ENOSYS;
    };
    // SAFETY: the C library's function of that name, by the caller's arguments.
    unsafe {
        let real = std::mem::transmute::<usize, Spawn>(real);
        real(descriptor, program, actions, attributes, words, environment)
    }
}

unsafe extern "C" fn may_execute<J: ActJudge>(program: Path) -> bool {
    // SAFETY: the functions below hand on what they are called with.
    asking::allows::<J>(|| starts(c"os.exec", unsafe { text(program) }))
}

/// Functions of execl(3), which take as many words as a caller likes: asks about the program, and
/// goes on to the C library's own with all registers and the stack as they were. The library that
/// calls is not found across them: native code executes in a copy of the process, which tells nobody.
macro_rules! with_words {
    ($($function:ident),*) => {$(
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        unsafe extern "C" fn $function<J: ActJudge>(program: Path) -> c_int {
            std::arch::naked_asm!(
                "push rdi; push rsi; push rdx; push rcx; push r8; push r9; push rax",
                "call {may}",
                "mov r11d, eax",
                "pop rax; pop r9; pop r8; pop rcx; pop rdx; pop rsi; pop rdi",
                "test r11b, r11b",
                "je 2f",
                "jmp qword ptr [rip + {real}@GOTPCREL]",
                "2: mov eax, -1",
                "ret",
                may = sym may_execute::<J>,
                real = sym libc::$function,
            )
        }

        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        unsafe extern "C" fn $function<J: ActJudge>(program: Path) -> c_int {
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "stp x0, x1, [sp, #16]; stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]; stp x6, x7, [sp, #64]",
                "bl {may}",
                "mov w9, w0",
                "ldp x0, x1, [sp, #16]; ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]; ldp x6, x7, [sp, #64]",
                "ldp x29, x30, [sp], #80",
                "tbz w9, #0, 2f",
                "b {real}",
                "2: mov w0, #-1",
                "ret",
                may = sym may_execute::<J>,
                real = sym libc::$function,
            )
        }
    )*};
}
with_words!(execl, execle, execlp);

pub(super) fn table<J: ActJudge>() -> impl Iterator<Item = (&'static CStr, *const ())> {
    fixed::<J>().chain([
        (c"execl", execl::<J> as *const ()),
        (c"execle", execle::<J> as *const ()),
        (c"execlp", execlp::<J> as *const ()),
    ])
}

super::replaced! {
    fixed;

    [c"execve"]
    fn execve(program: Path, words: Words, environment: Words) -> c_int
    = starts(c"os.exec", text(program)), else -1;

    [c"execv"]
    fn execv(program: Path, words: Words) -> c_int = starts(c"os.exec", text(program)), else -1;

    [c"execvp"]
    fn execvp(program: Path, words: Words) -> c_int = starts(c"os.exec", text(program)), else -1;

    [c"execvpe"]
    fn execvpe(program: Path, words: Words, environment: Words) -> c_int
    = starts(c"os.exec", text(program)), else -1;

    [c"fexecve"]
    fn fexecve(program: c_int, words: Words, environment: Words) -> c_int
    = Some(Act::new(c"os.exec", &[number(program), Value::None, Value::None])),
    else -1;

    [c"posix_spawn"]
    fn posix_spawn(
        pid: *mut pid_t,
        program: Path,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int
    = starts(c"os.posix_spawn", text(program)), else libc::EACCES;

    [c"posix_spawnp"]
    fn posix_spawnp(
        pid: *mut pid_t,
        program: Path,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int
    = starts(c"os.posix_spawn", text(program)), else libc::EACCES;

    [c"pidfd_spawn"]
    fn pidfd_spawn(
        descriptor: *mut c_int,
        program: Path,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int
    = starts(c"os.posix_spawn", text(program)),
    do spawns::<J>(c"pidfd_spawn", descriptor, program, actions, attributes, words, environment),
    else libc::EACCES;

    [c"pidfd_spawnp"]
    fn pidfd_spawnp(
        descriptor: *mut c_int,
        program: Path,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        words: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int
    = starts(c"os.posix_spawn", text(program)),
    do spawns::<J>(c"pidfd_spawnp", descriptor, program, actions, attributes, words, environment),
    else libc::EACCES;

    [c"system"]
    fn system(command: *const c_char) -> c_int = with_text(c"os.system", text(command)), else -1;

    [c"popen"]
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE
    = with_text(c"os.system", text(command)), else std::ptr::null_mut();

    [c"kill"]
    fn kill(process: pid_t, signal: c_int) -> c_int
    = signals(c"os.kill", process, signal), else -1;

    [c"killpg"]
    fn killpg(group: pid_t, signal: c_int) -> c_int
    = signals(c"os.killpg", group, signal), else -1;

    [c"chdir"]
    fn chdir(path: Path) -> c_int = with_text(c"os.chdir", text(path)), else -1;

    [c"fchdir"]
    fn fchdir(directory: c_int) -> c_int
    = Some(goes_to(directory)), else -1;

    [c"chroot"]
    fn chroot(path: Path) -> c_int = Some(takes_root(text(path))), else -1;
}
