"""Acts of ordinary code that harm nothing pass under a policy; their harmful kin do not."""

import _thread
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path

import pytest

from fastaudit_rs import AuditDenied, Network, Policy, mk_audit


@pytest.fixture
def perms(places):
    return Policy.preset("workspace").replace(write=[places.ok]).guard(monitor_calls=False)


def touch(path):
    with open(path, "w"):
        pass


class TestSignals:
    """To the process itself."""

    @pytest.fixture(params=["os.kill", "raise_signal", "pthread_kill", "pidfd_send_signal"])
    def send(self, request):
        process, before = os.pidfd_open(os.getpid()), signal.getsignal(signal.SIGUSR1)
        target = {
            "os.kill": lambda: os.getpid(),
            "pthread_kill": threading.get_ident,
            "pidfd_send_signal": lambda: process,
        }.get(request.param)
        send = os.kill if request.param == "os.kill" else getattr(signal, request.param)
        yield lambda number: send(target(), number) if target else send(number)
        signal.signal(signal.SIGUSR1, before)
        os.close(process)

    def test_with_a_handler_of_the_code(self, perms, send):
        seen = []
        with perms() as guard:
            signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
            send(signal.SIGUSR1)
        assert seen == [signal.SIGUSR1] and guard.violations == []

    def test_with_one_of_the_host(self, perms, send):
        seen = []
        signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
        with perms(), pytest.raises(AuditDenied, match="send a signal to"):
            send(signal.SIGUSR1)
        assert seen == []

    def test_that_would_end_it(self, perms, send):
        with perms(), pytest.raises(AuditDenied, match="send a signal to"):
            send(signal.SIGTERM)

    def test_to_a_process_that_is_gone(self, perms):
        """It fails as without a guard: code that ends its children tries it."""
        with subprocess.Popen(["true"]) as process:
            process.wait()
        with perms() as guard, pytest.raises(ProcessLookupError, match="No such process"):
            os.kill(process.pid, signal.SIGTERM)
        assert guard.violations == []

    def test_interrupt_main(self, perms):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with perms() as guard, pytest.raises(KeyboardInterrupt):
                _thread.interrupt_main()
            assert guard.violations == []
            signal.signal(signal.SIGINT, lambda *_: None)
            with perms(), pytest.raises(AuditDenied, match="send a signal to the main thread"):
                _thread.interrupt_main()
        finally:
            signal.signal(signal.SIGINT, before)

    @pytest.mark.parametrize("number", [-1, signal.NSIG, 1 << 20, (1 << 31) - 1])
    def test_no_signal(self, perms, send, number):
        """It fails as without a guard."""
        with perms() as guard:
            with pytest.raises(ValueError, match="signal number out of range"):
                _thread.interrupt_main(number)
            with pytest.raises((OSError, ValueError)) as raised:
                send(number)
        assert guard.violations == [] and not isinstance(raised.value, AuditDenied)
        for event in ("_thread.interrupt_main", "signal.raise_signal"):
            # `mk_audit` denies it as `fastaudit` does.
            with mk_audit([])(), pytest.raises(AuditDenied, match=event):
                sys.audit(event, number)

    def test_an_interrupt(self, perms, send):
        """As by Ctrl-C: the code that sends it is interrupted itself."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        errors = []

        def elsewhere():
            try:
                with perms():
                    send(signal.SIGINT)
            except AuditDenied as denied:
                errors.append(denied.event)

        try:
            with perms(), pytest.raises(KeyboardInterrupt):
                send(signal.SIGINT)
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
        finally:
            signal.signal(signal.SIGINT, before)
        assert len(errors) == 1


class TestWhatIsNotThere:
    REMOVES = (os.remove, os.rmdir, shutil.rmtree)

    @pytest.mark.parametrize("remove", REMOVES)
    def test_removing_it_fails_as_ever(self, perms, places, remove):
        with perms() as guard:
            with pytest.raises(FileNotFoundError):
                remove(places.out + "/missing")
            Path(places.out + "/missing").unlink(missing_ok=True)
            shutil.rmtree(places.out + "/missing", ignore_errors=True)
        assert guard.violations == []

    @pytest.mark.parametrize("remove", REMOVES)
    def test_what_is_there_stays(self, perms, places, remove):
        path = places.out + "/there"
        touch(path) if remove is os.remove else os.mkdir(path)
        with perms(), pytest.raises(AuditDenied):
            remove(path)
        assert os.path.exists(path)

    def test_a_link_that_leads_nowhere_is_there(self, perms, places):
        os.symlink("nowhere", places.out + "/link")
        with perms(), pytest.raises(AuditDenied):
            os.remove(places.out + "/link")


class TestDirectories:
    """The current directory may be any; where may be written stays."""

    def test_changing_it_writes_nothing(self, places, monkeypatch):
        monkeypatch.chdir(places.ok)
        perms = Policy(write=["."]).guard(monitor_calls=False)
        os.mkdir("sub")
        with perms() as guard:
            os.chdir(places.out)
            assert os.listdir() == []
            with pytest.raises(AuditDenied, match="open the file 'a'"):
                touch("a")
            touch(places.ok + "/a")
            os.chdir(places.ok + "/sub")
            touch("../b")
        assert len(guard.violations) == 1
        assert sorted(os.listdir(places.ok)) == ["a", "b", "sub"]

    def test_the_next_guard_does_not_begin_where_code_went(self, places, monkeypatch):
        monkeypatch.chdir(places.ok)
        policy = Policy(write=["."])
        for directory in (places.out, "/", places.out):
            with policy.guard(monitor_calls=False)():
                os.chdir(directory)
                with pytest.raises(AuditDenied):
                    touch("a")
                touch(places.ok + "/a")
        # The host goes elsewhere itself.
        os.chdir(places.cwd)
        with policy.guard(monitor_calls=False)():
            touch("a")
            with pytest.raises(AuditDenied):
                touch(places.ok + "/b")

    def test_inside_the_roots_it_does(self, places, monkeypatch):
        monkeypatch.chdir(places.ok)
        os.mkdir("sub")
        policy = Policy(write=["."])
        with policy.guard(monitor_calls=False)():
            os.chdir("sub")
        with policy.guard(monitor_calls=False)():
            touch("a")
            with pytest.raises(AuditDenied):
                touch("../b")

    def test_what_is_blocked_is_closed(self, places):
        perms = Policy(write=[places.ok], block=[places.out]).guard(monitor_calls=False)
        with perms(), pytest.raises(AuditDenied):
            os.chdir(places.out)


class TestFunctions:
    def test_the_codes_own(self, perms):
        given = {}
        code = """
def f(a=1, *, b=2): return a, b
f.__defaults__, f.__kwdefaults__ = (3,), {"b": 4}
first = f()
f.__code__ = (lambda a=1, *, b=2: "other").__code__
second = f()
"""
        with perms() as guard:
            exec(code, given)
        assert (given["first"], given["second"], guard.violations) == ((3, 4), "other", [])

    def test_the_hosts(self, perms):
        def own():
            return "host"

        with perms(), pytest.raises(AuditDenied, match="__code__"):
            exec("own.__code__ = (lambda: 'code').__code__", {"own": own})
        assert own() == "host"


class TestNamesOfAddresses:
    NUMBERS = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV

    @pytest.mark.parametrize("network", [False, Network(hosts=[], lookup=False)])
    def test_writing_one_out_looks_nothing_up(self, places, network):
        perms = Policy(write=[places.ok], network=network).guard(monitor_calls=False)
        with perms():
            assert socket.getnameinfo(("192.0.2.1", 80), self.NUMBERS) == ("192.0.2.1", "80")
            with pytest.raises(AuditDenied):
                socket.getnameinfo(("192.0.2.1", 80), socket.NI_NUMERICSERV)


def test_an_archive_is_unpacked_here(perms, places, monkeypatch):
    monkeypatch.chdir(places.ok)
    Path("data").mkdir()
    touch("data/a")
    archive = shutil.make_archive(places.cwd + "/data", "tar", places.ok, "data")
    shutil.rmtree("data")
    with perms():
        shutil.unpack_archive(archive)
    assert os.listdir("data") == ["a"]
    monkeypatch.chdir(places.out)
    with perms(), pytest.raises(AuditDenied, match=r"data.tar' to '.': '.' is not in"):
        shutil.unpack_archive(archive)
    assert os.listdir() == []


def test_terminals_of_its_own(perms):
    with perms():
        ends = os.openpty()
        name = os.ttyname(ends[1])
        os.close(os.open(name, os.O_RDWR | os.O_NOCTTY))
    for end in ends:
        os.close(end)
    script = "import os, sys; master, _ = os.openpty(); print(os.ttyname(_), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        name = other.stdout.readline().strip()
        with perms(), pytest.raises(AuditDenied):
            os.open(name, os.O_RDWR | os.O_NOCTTY)
        other.communicate("\n")


def test_the_directory_for_temporary_files_is_one_object(perms):
    with perms():
        assert tempfile.gettempdir() is tempfile.gettempdir()


def test_an_uuid_of_the_time(perms):
    """The system's library asks a daemon, and a file of its own, when it made the last one."""
    with perms() as guard:
        assert uuid.uuid1() != uuid.uuid1()
    assert guard.violations == []


@pytest.mark.parametrize("command", ["no-such-program", "./none", "/srv/none"])
def test_a_program_that_is_not_there(perms, command):
    """Code that tries whether there is one goes on."""
    with perms() as guard, pytest.raises(FileNotFoundError) as raised:
        subprocess.run([command])
    assert guard.violations == []
    with pytest.raises(FileNotFoundError) as bare:
        subprocess.run([command])
    assert raised.value.args == bare.value.args


def test_ids_that_stay_as_they_are(perms):
    with perms() as guard:
        os.setuid(os.getuid())
        os.setegid(os.getegid())
        os.setresuid(-1, os.getuid(), -1)
        for change in (lambda: os.setuid(1234), lambda: os.setresgid(-1, -1, 1234)):
            with pytest.raises(AuditDenied):
                change()
    assert len(guard.violations) == 2


def limited():
    os.setsid()
    os.nice(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def test_a_program_in_a_session_of_its_own(places):
    """What `preexec_fn` does to the copy of the process that becomes the program."""
    with Policy(commands=["true"], write=[places.ok]).guard(monitor_calls=False)() as guard:
        subprocess.run(["true"], preexec_fn=limited, check=True)
        with pytest.raises(AuditDenied):
            os.setsid()
        with pytest.raises(AuditDenied):
            os.nice(1)
    assert len(guard.violations) == 2


@pytest.mark.parametrize("act", ["nice", "limit"])
def test_a_copy_gets_no_more_than_its_process(places, act):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = before[1]

    def widen():
        if act == "nice":
            os.nice(-1)
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], most - 1), most))
    try:
        with Policy(commands=["true"], write=[places.ok]).guard(monitor_calls=False)() as guard:
            with pytest.raises(subprocess.SubprocessError):
                subprocess.run(["true"], preexec_fn=widen)
            # In the process itself as well.
            with pytest.raises(AuditDenied):
                widen()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(guard.violations) == 1
