"""Signals: to processes that were started under the guard they pass, to no others."""

import asyncio
import contextlib  # noqa: F401
import multiprocessing  # noqa: F401
import os
import signal
import subprocess
import sys
import textwrap
import time

import programs
import pytest

from fastaudit_rs import (  # noqa: F401
    AuditDenied,
    Policy,
    mk_audit as first_mk_audit,
    v02,
)

SLEEP = ["sleep", "30"]


def starts(event, *rest):
    return event in ("subprocess.Popen", "os.posix_spawn", "_posixsubprocess.fork_exec")


#: Guards that let a program start, as text: some tests need a process where no other thread runs.
GUARDS = {
    "mk_audit": "first_mk_audit([], starts, monitor_calls=False)()",
    "v02": "v02.mk_audit([], starts, monitor_calls=False)()",
    "policy": "Policy(commands=['sleep', 'sh']).guard(monitor_calls=False)()",
}


@pytest.fixture(params=GUARDS)
def kind(request):
    return GUARDS[request.param]


@pytest.fixture
def guard(kind):
    return eval(kind)


PROGRAM = """
import os, signal, sys, time
sys.path[:] = {path!r}
from test_signals_to_children import *
{before}
with {guard}:
{code}
print("done")
"""


def in_a_process(code, guard, before=""):
    """Run code under a guard in a process of its own; what it prints."""
    program = PROGRAM.format(
        path=sys.path,
        before=before,
        guard=guard,
        code=textwrap.indent(textwrap.dedent(code), "    "),
    )
    done = programs.ran(program, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def hosts_child():
    """A process of the host's."""
    child = subprocess.Popen(SLEEP)
    yield child
    child.kill()
    child.wait()


def is_alive(child):
    time.sleep(0.05)
    return child.poll() is None


class TestSignalZero:
    """It asks whether there is such a process, and does nothing."""

    def test_passes(self, guard, hosts_child):
        with guard:
            os.kill(os.getpid(), 0)
            os.kill(hosts_child.pid, 0)
            os.killpg(os.getpgid(0), 0)
            with pytest.raises(ProcessLookupError):
                os.kill(2**22 - 1, 0)

    @pytest.mark.skipif(not hasattr(signal, "pidfd_send_signal"), reason="Linux")
    def test_passes_by_a_pidfd(self, guard, hosts_child):
        descriptor = os.pidfd_open(hosts_child.pid)
        with guard:
            signal.pidfd_send_signal(descriptor, 0)
        os.close(descriptor)


class TestChildrenOfTheGuard:
    def test_a_timeout_is_one(self, guard):
        begun = time.monotonic()
        with guard, pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(SLEEP, timeout=0.3)
        assert time.monotonic() - begun < 5

    @pytest.mark.parametrize("end", ["kill", "terminate"])
    def test_a_program_can_be_ended(self, guard, end):
        with guard:
            child = subprocess.Popen(SLEEP)
            getattr(child, end)()
            assert child.wait(5) < 0

    def test_started_by_posix_spawn(self, guard):
        with guard:
            pid = os.posix_spawn("/bin/sleep", SLEEP, os.environ)
            os.kill(pid, signal.SIGTERM)
            assert os.waitpid(pid, 0)[1] == signal.SIGTERM

    def test_a_copy(self, kind):
        code = """
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
        os.kill(pid, signal.SIGTERM)
        assert os.waitpid(pid, 0)[1] == signal.SIGTERM
        """
        assert in_a_process(code, kind) == "done\n"

    @pytest.mark.skipif(not hasattr(signal, "pidfd_send_signal"), reason="Linux")
    def test_by_a_pidfd(self, guard):
        with guard:
            child = subprocess.Popen(SLEEP)
            descriptor = os.pidfd_open(child.pid)
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            os.close(descriptor)
            assert child.wait(5) == -signal.SIGTERM

    def test_its_group(self, guard):
        with guard:
            child = subprocess.Popen(["sh", "-c", "sleep 30 & wait"], start_new_session=True)
            time.sleep(0.1)
            os.killpg(child.pid, signal.SIGTERM)
            assert child.wait(5) == -signal.SIGTERM
            child = subprocess.Popen(SLEEP, start_new_session=True)
            time.sleep(0.1)
            os.kill(-child.pid, signal.SIGTERM)
            assert child.wait(5) == -signal.SIGTERM

    def test_what_it_started(self, guard):
        with guard:
            child = subprocess.Popen(["sh", "-c", "sleep 30 & echo $!; wait"], stdout=-1, text=True)
            inner = int(child.stdout.readline())
            os.kill(inner, signal.SIGTERM)
            child.terminate()
            child.stdout.close()
            child.wait(5)

    def test_a_process_of_multiprocessing(self, kind):
        code = """
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
        process.start()
        process.terminate()
        process.join(5)
        assert process.exitcode == -signal.SIGTERM
        """
        assert in_a_process(code, kind) == "done\n"

    def test_asyncio(self, kind):
        if sys.version_info < (3, 12):
            # There asyncio waits for a child in a thread.
            kind = kind.replace("Policy(", "Policy(threads='inherit', ")

        async def main():
            child = await asyncio.create_subprocess_exec(*SLEEP)
            child.kill()
            return await child.wait()

        with eval(kind):
            assert asyncio.run(main()) == -signal.SIGKILL

    def test_in_another_block_of_the_same_guard(self):
        audit_perms = Policy(commands=["sleep"]).guard(monitor_calls=False)
        with audit_perms():
            child = subprocess.Popen(SLEEP)
        with audit_perms():
            child.kill()
        assert child.wait(5) == -signal.SIGKILL

    @pytest.mark.slow
    def test_under_an_installed_policy_and_a_guard(self):
        guard = "Policy(commands=['sleep']).guard(monitor_calls=False)()"
        before = "Policy(commands=['sleep'], env=True).install(monitor_calls=False)"
        code = """
        child = subprocess.Popen(SLEEP)
        child.kill()
        assert child.wait(5) == -signal.SIGKILL
        """
        assert in_a_process(code, guard, before) == "done\n"
        before += f"\nwith {guard}:\n    child = subprocess.Popen(SLEEP)\n"
        code = "child.kill(); child.wait(5)"
        assert in_a_process(code, "contextlib.nullcontext()", before) == "done\n"


class TestOthers:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGWINCH])
    def test_a_child_of_the_host(self, guard, hosts_child, number):
        with guard:
            for send in (
                lambda: os.kill(hosts_child.pid, number),
                lambda: hosts_child.send_signal(number),
            ):
                with pytest.raises(AuditDenied, match="kill"):
                    send()
        assert is_alive(hosts_child)

    def test_itself_its_group_and_all(self, guard):
        with guard:
            for pid in (0, -1, 1, os.getppid(), -os.getpgid(0)):
                with pytest.raises(AuditDenied, match=r"os\.kill"):
                    os.kill(pid, signal.SIGCONT)
            with pytest.raises(AuditDenied, match=r"os\.kill"):
                os.kill(os.getpid(), signal.SIGUSR1)

    def test_the_group_of_the_host(self, guard):
        with guard:
            for group in (0, os.getpgid(0)):
                with pytest.raises(AuditDenied, match=r"os\.killpg"):
                    os.killpg(group, signal.SIGCONT)

    def test_a_child_that_was_waited_for(self, guard):
        """Its number may be another's by now."""
        with guard:
            child = subprocess.Popen(["sleep", "0"])
            child.wait()
            # Without a guard it fails: so it does under a policy.
            with pytest.raises((AuditDenied, ProcessLookupError), match=r"os\.kill|No such"):
                os.kill(child.pid, signal.SIGTERM)

    def test_a_child_of_another_guard(self, guard):
        with Policy(commands=["sleep"]).guard(monitor_calls=False)():
            child = subprocess.Popen(SLEEP)
        with guard, pytest.raises(AuditDenied, match=r"os\.kill"):
            child.kill()
        child.kill()
        child.wait()

    def test_in_a_copy_the_copied_process_has_no_children(self, kind):
        code = """
        child = subprocess.Popen(SLEEP)
        pid = os.fork()
        if pid == 0:
            try:
                os.kill(child.pid, signal.SIGTERM)
            except AuditDenied:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        child.kill()
        child.wait()
        """
        assert in_a_process(code, kind) == "done\n"

    def test_a_number_that_is_an_object(self, guard, hosts_child):
        class Number:
            def __index__(self):
                return hosts_child.pid

        with guard, pytest.raises((AuditDenied, TypeError)):
            os.kill(Number(), signal.SIGTERM)
        assert is_alive(hosts_child)


class TestThatChangeNothing:
    """An ignored signal, a priority and limits as they are."""

    def test_an_ignored_signal_to_itself(self, kind):
        code = """
        signal.raise_signal(signal.SIGWINCH)
        signal.raise_signal(signal.SIGURG)
        signal.raise_signal(signal.SIGUSR1)
        """
        before = "signal.signal(signal.SIGUSR1, signal.SIG_IGN)"
        assert in_a_process(code, kind, before) == "done\n"

    def test_the_priority_as_it_is(self, guard):
        with guard:
            assert os.nice(0) == os.nice(0)

    def test_limits_as_they_are(self, guard):
        import resource

        for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_AS):
            with guard:
                resource.setrlimit(limit, resource.getrlimit(limit))

        for number in (0, os.getpid()):
            with guard:
                os.setpriority(os.PRIO_PROCESS, number, os.getpriority(os.PRIO_PROCESS, number))

    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux")
    def test_processors_as_they_are(self, guard):
        own = os.sched_getaffinity(0)
        for given in (own, list(own), tuple(own), frozenset(own), [*own, *own]):
            with guard:
                os.sched_setaffinity(0, given)
                os.sched_setaffinity(os.getpid(), given)

    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux")
    def test_other_processors(self, guard):
        own = os.sched_getaffinity(0)

        class Others(set):
            def __iter__(self):
                return iter(own if not hasattr(self, "asked") else [])

        for given in ([], [*own, 1023], [min(own)] if len(own) > 1 else [], [-1], Others(own)):
            with guard, pytest.raises(AuditDenied, match="sched_setaffinity"):
                os.sched_setaffinity(0, given)
        with guard, pytest.raises(AuditDenied, match="sched_setaffinity"):
            os.sched_setaffinity(1, own)

    @pytest.mark.parametrize("name", ["SIGTERM", "SIGCHLD", "SIGUSR1", "SIGWINCH"])
    def test_those_that_are_handled_do_not(self, guard, name):
        """Also where they are ignored by default."""
        number = getattr(signal, name)
        before = signal.signal(number, lambda *args: None)
        try:
            with guard, pytest.raises(AuditDenied, match="raise_signal"):
                signal.raise_signal(number)
        finally:
            signal.signal(number, before)

    def test_another_priority(self, guard):
        with guard, pytest.raises(AuditDenied, match=r"os\.nice"):
            os.nice(1)
        now = os.getpriority(os.PRIO_PROCESS, 0)
        for which, who, priority in (
            (os.PRIO_PROCESS, 0, now + 1),
            (os.PRIO_PROCESS, 1, now),
            (os.PRIO_PGRP, 0, now),
            (os.PRIO_USER, 0, now),
        ):
            with guard, pytest.raises(AuditDenied, match=r"os\.setpriority"):
                os.setpriority(which, who, priority)
