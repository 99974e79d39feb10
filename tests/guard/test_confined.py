"""`Policy.call`: a function on a thread that a guard and the kernel confine."""

import contextvars
import functools
import os
import platform
import socket
import subprocess
import sys
import traceback
import weakref

import at_once
import cffi
import programs
import pytest
import runner

from fastaudit_rs import AuditDenied, Policy, _native

FFI = cffi.FFI()
FFI.cdef("""
    int open(const char *path, int flags, int mode);
    int close(int descriptor);
    int creat(const char *path, int mode);
    int mkdir(const char *path, int mode);
    int mkfifo(const char *path, int mode);
    int mknod(const char *path, int mode, unsigned long device);
    int unlink(const char *path);
    int truncate(const char *path, long length);
    int rename(const char *old, const char *new);
    int system(const char *command);
    int socket(int domain, int type, int protocol);
    int connect(int socket, const void *address, unsigned int length);
""")
#: The C library: no audit hook sees what it does, and its functions are native code.
LIBC = FFI.dlopen(None)


def write_unseen(path):
    """Open a file for writing by the C library."""
    descriptor = LIBC.open(os.fsencode(path), os.O_CREAT | os.O_WRONLY, 0o600)
    if descriptor < 0:
        return os.strerror(FFI.errno)
    LIBC.close(descriptor)
    return "written"


@pytest.fixture
def policy(places):
    """A policy whose guard lets native code run."""
    return Policy(write=[places.ok], native=True, network=False, threads="inherit")


class TestCalling:
    def test_what_it_returns_and_takes(self, policy):
        assert policy.call(divmod, 7, 2) == (3, 1)
        assert policy.call(lambda *args, **kwargs: (args, kwargs), 1, function=2) == (
            (1,),
            {"function": 2},
        )

    def test_what_it_raises(self, policy):
        def fail():
            raise ZeroDivisionError("why")

        with pytest.raises(ZeroDivisionError, match="why") as raised:
            policy.call(fail)
        assert "in fail" in "".join(traceback.format_tb(raised.value.__traceback__))
        with pytest.raises(SystemExit):
            policy.call(sys.exit)

    def test_a_denial(self, policy, places):
        with pytest.raises(AuditDenied) as raised:
            policy.call(open, places.out + "/a", "w")
        assert raised.value.path == places.out + "/a"
        policy.call(open, places.ok + "/a", "w").close()

    def test_it_sees_context_variables_and_does_not_set_them(self, policy):
        variable = contextvars.ContextVar("variable", default=0)
        variable.set(1)

        def change():
            seen = variable.get()
            variable.set(2)
            return seen

        assert policy.call(change) == 1
        assert variable.get() == 1

    def test_it_keeps_nothing(self, policy):
        class Given:
            pass

        given = Given()
        gone = weakref.ref(given)

        def fail(given):
            raise ValueError

        assert policy.call(id, given) == id(given)
        with pytest.raises(ValueError):
            policy.call(fail, given)
        del given
        assert gone() is None

    def test_bad_arguments(self, policy):
        with pytest.raises(TypeError, match="function must be callable, not int"):
            policy.call(3)
        with pytest.raises(TypeError):
            policy.call()

    def test_side_by_side(self, policy, places):
        other = Policy(write=[places.out], native=True)
        found = []

        def attempt(policy):
            for _ in range(20):
                found.append((policy is other, *policy.call(lambda: [*map(write_unseen, PATHS)])))

        PATHS = [places.ok + "/a", places.out + "/a"]
        at_once.run(*(functools.partial(attempt, one) for one in (policy, other) * 2))
        denied = "Permission denied"
        assert set(found) == {(False, "written", denied), (True, denied, "written")}


class TestKernel:
    """Operations that no audit hook sees."""

    def test_the_c_library(self, policy, places):
        assert policy.call(write_unseen, places.ok + "/a") == "written"
        assert policy.call(write_unseen, places.out + "/a") == "Permission denied"
        assert os.listdir(places.out) == []

    @pytest.mark.parametrize(
        ("name", "args"),
        [
            *((name, (b"new", 0o600)) for name in ("mkfifo", "mkdir", "creat")),
            ("mknod", (b"new", 0o600, 0)),
            ("unlink", (b"there",)),
            ("truncate", (b"there", 0)),
            ("rename", (b"there", b"new")),
        ],
    )
    def test_what_makes_and_changes_entries(self, policy, places, monkeypatch, name, args):
        monkeypatch.chdir(places.out)
        open("there", "w").close()
        assert policy.call(getattr(LIBC, name), *args) == -1
        assert os.listdir() == ["there"]

    def test_the_rest_of_the_process_stays_free(self, policy, places):
        policy.call(int)
        assert write_unseen(places.out + "/a") == "written"
        status = open("/proc/self/status").read()
        assert "NoNewPrivs:\t0" in status

    def test_threads_that_it_starts(self, policy, places):
        found = []

        def begin():
            at_once.run(lambda: found.append(write_unseen(places.out + "/a")))

        policy.call(begin)
        assert found == ["Permission denied"]

    def test_programs_that_it_starts(self, policy, places):
        policy = policy.replace(commands=["/bin/sh"])
        script = f"echo x > {places.out}/a; echo x > {places.ok}/b; echo done"
        done = policy.call(
            subprocess.run, ["/bin/sh", "-c", script], capture_output=True, text=True
        )
        assert done.stdout == "done\n"
        assert (os.listdir(places.out), os.listdir(places.ok)) == ([], ["b"])

    def test_no_programs(self, policy):
        # The guard would stop it first.
        unjudged = policy.replace(native="unjudged")
        # glibc says that the shell cannot be run, musl that there is none.
        failed = 127 << 8 if platform.libc_ver()[0] == "glibc" else -1
        assert unjudged.call(LIBC.system, b"exit 3") == failed

    def test_reading(self, policy, places):
        for directory in (places.ok, places.out):
            open(directory + "/secret", "w").close()
        policy = policy.replace(read=[places.ok])

        def read_unseen(path):
            descriptor = LIBC.open(os.fsencode(path), os.O_RDONLY, 0)
            return descriptor >= 0 and LIBC.close(descriptor) == 0

        assert policy.call(read_unseen, places.ok + "/secret")
        assert not policy.call(read_unseen, places.out + "/secret")

        def use_libraries():
            import calendar
            import decimal

            return decimal.Decimal(1), calendar, socket.gethostbyname("localhost")

        policy.replace(network=True).call(use_libraries)

    def test_tcp(self, policy):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            family = socket.AF_INET.to_bytes(2, sys.byteorder)
            address = family + port.to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)

            def connect_unseen():
                descriptor = LIBC.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
                try:
                    return LIBC.connect(descriptor, FFI.from_buffer(address), len(address))
                finally:
                    LIBC.close(descriptor)

            assert connect_unseen() == 0
            assert policy.replace(network=True).call(connect_unseen) == 0
            assert policy.call(connect_unseen) == -1

    def test_a_root_that_is_a_file_or_missing(self, policy, places):
        open(places.out + "/a", "w").close()
        policy = policy.replace(write=[places.out + "/a", places.out + "/missing"])
        assert policy.call(write_unseen, places.out + "/a") == "written"
        assert policy.call(write_unseen, places.out + "/b") == "Permission denied"

    def test_a_root_that_is_made_later(self, policy, places):
        later = places.out + "/later"
        policy = policy.replace(write=[later])
        assert policy.call(write_unseen, later + "/a") == "No such file or directory"
        os.mkdir(later)
        assert policy.call(write_unseen, later + "/a") == "written"

    def test_a_root_that_leads_elsewhere_later(self, policy, places):
        link = places.cwd + "/link"
        policy = policy.replace(write=[link])
        for target, other in ((places.ok, places.out), (places.out, places.ok)):
            os.symlink(target, link)
            policy.call(os.mkdir, target + "/a")
            assert policy.call(write_unseen, target + "/b") == "written"
            assert policy.call(write_unseen, other + "/c") == "Permission denied"
            with pytest.raises(AuditDenied):
                policy.call(os.mkdir, other + "/d")
            os.remove(link)

    def test_the_current_directory(self, policy, places, monkeypatch):
        policy = policy.replace(write=["."])
        for directory in (places.ok, places.out):
            monkeypatch.chdir(directory)
            assert policy.call(write_unseen, directory + "/a") == "written"
            assert policy.call(write_unseen, places.cwd + "/a") == "Permission denied"

    def test_devices(self, policy):
        assert policy.call(write_unseen, "/dev/null") == "written"


class TestRefusal:
    def test_where_the_kernel_cannot(self, policy, places, monkeypatch):
        """Nothing is called that is not confined."""
        called = []

        class Refuses:
            def __init__(self, *arguments):
                pass

            def enter(self):
                raise OSError("it cannot be confined: no")

        monkeypatch.setattr("fastaudit_rs.confined._Confinement", Refuses)
        policy = policy.replace(block=[places.ok + "/none"])
        with pytest.raises(OSError, match="cannot be confined"):
            policy.call(called.append, 1)
        assert called == []

    def test_the_main_thread_is_left_alone(self, policy, places):
        code = (
            "from fastaudit_rs import Policy, _native\n"
            "try:\n    _native._Confinement(Policy(), []).enter()\n"
            "except RuntimeError as error:\n    print(error)\n"
            f"open({places.out + '/a'!r}, 'w').close()"
        )
        told = "the main thread would be confined for good: use policy.call()\n"
        assert programs.printed(code) == told

    def test_a_process_with_threads_is_left_alone(self):
        code = """
            import threading
            from fastaudit_rs import Policy, _native
            ended = threading.Event()
            threading.Thread(target=ended.wait).start()
            try:
                _native._Confinement(Policy(), []).enter_process()
            except RuntimeError as error:
                print(error)
            ended.set()
        """
        told = "the process has 2 threads, and only the current one can be confined\n"
        assert programs.printed(code) == told

    def test_bad_arguments(self):
        with pytest.raises(TypeError):
            _native._Confinement("policy", [])

    def test_guarded_code_makes_no_guards(self, policy, places):
        other = policy.replace(write=[places.out])
        assert other.call(int) == 0
        with policy.guard(monitor_calls=False)(), pytest.raises(AuditDenied, match="set_config"):
            policy.call(int)
        with pytest.raises(AuditDenied, match="set_config"):
            policy.call(other.call, int)

    def test_one_in_another(self, policy, places):
        def nested():
            return policy.call(write_unseen, places.ok + "/a"), policy.call(
                write_unseen, places.out + "/a"
            )

        assert policy.call(nested) == ("written", "Permission denied")


#: Scenarios that a call on another thread cannot run, or cannot hold.
NOT_FOR_CALLS = {
    "a socket that was connected before": "the descriptor is open already",
    **dict.fromkeys(
        (
            "a copy that does nothing wrong",
            "a copy that ends by sys.exit",
            "waiting for any child of one's own",
        ),
        "os.fork() is denied where other threads run",
    ),
    "a copy made in a handler of a signal": "only the main thread sets handlers",
    "a line at the end of standard output": "the kernel opens no file outside the roots",
    "a terminal of one's own": "the kernel opens no device to make it by",
    "a handler for a signal, and an alarm": "only the main thread sets handlers",
    "a timeout by a signal": "only the main thread sets handlers",
    "a signal handler that outlives the block": "only the main thread sets handlers: it waits",
    **dict.fromkeys(
        ("a mode, by the C library", "times, by the C library", "attributes, by the C library"),
        "Landlock does not know metadata",
    ),
    **dict.fromkeys(
        (
            "writing to a descriptor that was open before",
            "truncating a descriptor that was open before",
            "a mode by a descriptor that was open before",
        ),
        "the descriptor is open already",
    ),
    "a signal, by the C library": "signals are the process's",
    "a datagram of a program's": "Landlock does not know UDP",
}


@pytest.mark.nightly
def test_scenarios():
    """Scenarios that a guard must stop are stopped in such a call, and ordinary code passes."""
    scenarios = [one for one in runner.load() if one["name"] not in NOT_FOR_CALLS]
    assert len(runner.load()) - len(scenarios) == len(NOT_FOR_CALLS)
    kind = "ours, a confined call"
    found = runner.results(scenarios, [kind], {})
    wrong = [
        (scenarios[at]["name"], said)
        for (at, _), (went_well, said) in found.items()
        if went_well is False
    ]
    assert wrong == []
    assert sum(went_well is not None for went_well, _ in found.values()) >= 200


ACTS_ON_THE_MACHINE = """
import ctypes, os, socket
from fastaudit_rs import Policy

libc = ctypes.CDLL(None)
umask, chroot, sethostname, acct, chdir = (
    libc.umask, libc.chroot, libc.sethostname, libc.acct, libc.chdir
)
os.makedirs("ok/root")

def acts():
    umask(0o777)
    done = (chroot(b"ok/root"), sethostname(b"taken", 5), acct(b"ok/log"))
    fine = os.stat("ok").st_uid, os.chown("ok", 1, 1), chdir(b"ok/root")
    program = os.system("chroot / true 2>/dev/null")
    return done, fine, program

before = os.listdir("/"), socket.gethostname(), os.getcwd()
policy = Policy(write=["ok"], native=True, threads="inherit", commands=True)
print(*policy.call(acts))
print((os.listdir("/"), socket.gethostname(), os.getcwd()) == before, oct(os.umask(0o22)))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone has them")
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="ctypes raises an event for each call")
def test_native_code_of_root_acts_on_no_machine(tmp_path):
    """In a process with a host name of its own."""
    command = ["unshare", "-u", sys.executable, "-c", ACTS_ON_THE_MACHINE]
    ran = programs.run(command, cwd=tmp_path)
    if "unshare failed" in ran.stderr:
        pytest.skip(ran.stderr)
    assert ran.stderr == ""
    done, left = ran.stdout.splitlines()
    assert done.startswith("(-1, -1, -1) (0, None, 0) ") and not done.endswith(" 0")
    assert left == "True 0o22"


@pytest.mark.parametrize(
    ("landlock", "policy", "told"),
    [
        (1, Policy(), ["truncating files (Linux 6.2)", "requests for devices (Linux 6.10)"]),
        (3, Policy(write=None, network=False), ["ports of TCP (Linux 6.7)", "abstract Unix"]),
        (6, Policy(network=False), []),
    ],
)
def test_an_older_kernel_is_told(monkeypatch, recwarn, landlock, policy, told):
    monkeypatch.setattr("fastaudit_rs._landlock.version", lambda: landlock)
    # One that no other test has called by.
    policy = policy.replace(write=policy.write and [*policy.write, f"/older-{landlock}"])
    assert policy.call(int, "3") == 3
    texts = [str(warning.message) for warning in recwarn]
    assert len(texts) == bool(told) and all(part in texts[0] for part in told)


def test_under_an_installed_policy():
    """What the kernel is asked is nothing that the policy denies."""
    done = programs.python(
        "-c",
        "from fastaudit_rs import Policy\nPolicy(write=['.'], threads='inherit').install()\n"
        "print(Policy(write=[]).call(int, '3'))",
    )
    assert done.stdout == "3\n", done.stderr
