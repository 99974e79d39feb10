"""Each native function of the modules that change the world is one of a known kind.

A function that a new Python brings fails this test: it has to be looked at, and put into the tables
of the guard where it changes anything.
"""

import importlib
import types

import pytest
from event_rows import RAISED, ROWS

# CPython raises an event for it; or it is part of one that does.
EVENT, READS, DESCRIPTORS, LIMIT = "event", "reads", "descriptors", "limit"

# The functions that this package raises an event for are in `docs/events.md`.
FUNCTIONS = {
    "posix": {
        EVENT: """
            chdir chmod chown execv execve fchdir fchmod fchown fork forkpty kill killpg lchown
            lchmod chflags lchflags link lockf mkdir open posix_spawn posix_spawnp putenv remove
            removexattr rename replace rmdir setxattr symlink system truncate ftruncate unlink
            unsetenv utime listdir scandir listxattr getxattr listmounts _clearenv
            """,
        READS: """
            WCOREDUMP WEXITSTATUS WIFCONTINUED WIFEXITED WIFSIGNALED WIFSTOPPED WSTOPSIG WTERMSIG
            _is_inputhook_installed _path_normpath _path_splitroot_ex _path_exists _path_lexists
            _path_isdir _path_isfile _path_islink _path_isdevdrive _path_isjunction _path_splitroot
            access confstr cpu_count ctermid device_encoding fpathconf fspath fstat fstatvfs
            get_blocking get_inheritable get_terminal_size getcwd getcwdb getegid geteuid getgid
            getgrouplist getgroups getloadavg getlogin getpgid getpgrp getpid getppid getpriority
            getrandom getresgid getresuid getsid getuid isatty lstat major makedev minor pathconf
            pidfd_open sched_get_priority_max sched_get_priority_min sched_getaffinity
            sched_getparam sched_getscheduler sched_rr_get_interval sched_yield stat statvfs statx
            strerror sync sysconf tcgetpgrp times ttyname uname urandom waitpid
            waitstatus_to_exitcode ptsname timerfd_gettime timerfd_gettime_ns
            _supports_virtual_terminal _emscripten_debugger _create_environ
            """,
        # It acts on what is open, or opens what has no name.
        DESCRIPTORS: """
            close closerange copy_file_range dup dup2 eventfd eventfd_read eventfd_write fdatasync
            fsync grantpt lseek memfd_create openpty pipe pipe2 posix_fadvise posix_fallocate
            posix_openpt pread preadv pwrite pwritev read readv sendfile set_blocking
            set_inheritable splice timerfd_create timerfd_settime timerfd_settime_ns unlockpt write
            writev readinto process_vm_readv
            """,
        LIMIT: "umask register_at_fork _inputhook plock",
    },
    "_signal": {
        EVENT: "pthread_kill",
        READS: """
            default_int_handler getsignal getitimer pause sigpending sigtimedwait sigwait
            sigwaitinfo strsignal valid_signals
            """,
        LIMIT: "alarm signal setitimer set_wakeup_fd siginterrupt pthread_sigmask",
    },
    "time": {
        READS: """
            asctime clock_getres clock_gettime clock_gettime_ns ctime get_clock_info gmtime
            localtime mktime monotonic monotonic_ns perf_counter perf_counter_ns process_time
            process_time_ns pthread_getcpuclockid sleep strftime strptime thread_time
            thread_time_ns time time_ns tzset
            """,
    },
    "resource": {
        EVENT: "prlimit setrlimit",
        READS: "getpagesize getrlimit getrusage",
    },
    "faulthandler": {
        READS: "is_enabled dump_traceback dump_c_stack",
        LIMIT: "enable disable register unregister cancel_dump_traceback_later",
    },
    "_posixsubprocess": {},
    "_posixshmem": {},
    "readline": {
        READS: """
            add_history backend clear_history get_begidx get_completer get_completer_delims
            get_completion_type get_current_history_length get_endidx get_history_item
            get_history_length get_line_buffer get_pre_input_hook insert_text redisplay
            remove_history_item replace_history_item
            set_auto_history set_completer set_completer_delims set_completion_display_matches_hook
            set_history_length set_pre_input_hook set_startup_hook
            """,
    },
}


def native_functions(module):
    return {
        name
        for name, value in vars(module).items()
        if isinstance(value, types.BuiltinFunctionType) and not name.startswith("__")
    }


def raised_by_us(module):
    """The functions of a module that this package raises an event for."""
    return [name.partition(".")[2] for name in RAISED if name.startswith(f"{module}.")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_is_known(name):
    module = pytest.importorskip(name)
    known = [function for names in FUNCTIONS[name].values() for function in names.split()]
    known += raised_by_us(name)
    assert len(known) == len(set(known))
    assert sorted(native_functions(module) - set(known)) == []


def test_they_raise(guard):
    """Each that is said to does, before it looks at its arguments."""
    from fastaudit_rs import AuditDenied

    for name in ("posix", "_signal", "faulthandler"):
        module = importlib.import_module(name)
        for function in raised_by_us(name):
            called = getattr(module, function, None)
            row = ROWS[RAISED[f"{name}.{function}"]]
            # Some are asked by their arguments.
            asks = row.event in ("os.wait", "faulthandler.dump_traceback_later")
            if called is None or asks or not row.verdict.startswith("denied"):
                continue
            with guard(), pytest.raises(AuditDenied):
                called()
