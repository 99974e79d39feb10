"""A process start that the host approved runs, whatever events CPython raises for it; no other."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import programs
import pytest

TRUE = "/bin/true"


@pytest.fixture
def asked():
    """The events that the host was asked about."""
    return []


@pytest.fixture
def host(guard, asked):
    """A guard whose host approves `subprocess.Popen`, and nothing else."""

    def before_deny(event, args, frame, message, data):
        asked.append(event)
        return event == "subprocess.Popen"

    return guard(before_deny=before_deny)


# 3.13 and later use posix_spawn for a path, 3.14 raises an event for fork_exec too.
FORMS = {
    "path": (lambda: subprocess.run([TRUE]), (3, 13)),
    "name": (lambda: subprocess.run(["true"]), (3, 14)),
    "shell": (lambda: subprocess.run("true", shell=True), (3, 13)),
    "path-like": (lambda: subprocess.run([Path(TRUE)]), (3, 13)),
    "executable": (lambda: subprocess.run(["other"], executable=TRUE), (3, 13)),
    "cwd": (lambda: subprocess.run([TRUE], cwd="/"), (3, 14)),
    "env": (lambda: subprocess.run([TRUE], env={"A": "b"}), (3, 13)),
    "tuple": (lambda: subprocess.run((TRUE, "x")), (3, 13)),
    "string": (lambda: subprocess.run(TRUE), (3, 13)),
    "bytes": (lambda: subprocess.run([os.fsencode(TRUE)]), (3, 13)),
    "capture": (lambda: subprocess.run([TRUE], capture_output=True), (3, 13)),
    "input": (lambda: subprocess.run([TRUE], input=b""), None),
    "devnull": (lambda: subprocess.run([TRUE], stdin=subprocess.DEVNULL), None),
    "close_fds": (lambda: subprocess.run([TRUE], close_fds=False), (3, 13)),
    "new session": (lambda: subprocess.run(["true"], start_new_session=True), (3, 14)),
}


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=pytest.mark.original_fails(since=since), id=name)
        for name, (form, since) in FORMS.items()
    ],
)
def test_an_approved_command_runs(host, asked, form):
    with host:
        form().check_returncode()
    assert asked == ["subprocess.Popen"]


@pytest.mark.original_fails()
def test_input_and_output_go_through(host, asked):
    with host:
        result = programs.run(["cat"], input="in")
        assert result.stdout == "in"
        with os.popen("cat", "w") as pipe:
            pipe.write("")
    assert asked == ["subprocess.Popen"] * 2


@pytest.mark.original_fails()
def test_asyncio_runs_it_too(host, asked):
    async def main():
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)
        return await process.communicate(b"in")

    with host:
        assert asyncio.run(main()) == (b"in", None)
    assert set(asked) == {"subprocess.Popen"}


def test_a_command_that_is_not_approved_does_not_run(guard):
    with guard(), pytest.raises(PermissionError, match=r"^Audit: subprocess\.Popen blocked"):
        subprocess.run([TRUE])


def test_each_command_is_asked_about(guard):
    def before_deny(event, args, frame, message, data):
        return event == "subprocess.Popen" and args[1] == ["echo"]

    with guard(before_deny=before_deny):
        subprocess.run(["echo"], stdout=subprocess.PIPE)
        with pytest.raises(PermissionError, match="'true'"):
            subprocess.run(["true"])


def approve(arguments):
    sys.audit("subprocess.Popen", TRUE, arguments, None, None)


def spawn(path, arguments):
    os.posix_spawn(path, arguments, {})


def spawn_from_below(path, arguments):
    spawn(path, arguments)


def approve_in_a_function(arguments):
    approve(arguments)
    os.posix_spawn(TRUE, arguments, {})


def spawn_in_a_function(arguments):
    approve(arguments)
    spawn(TRUE, arguments)


def spawn_deeper(arguments):
    """Deeper than `subprocess` makes it."""
    sys.audit("subprocess.Popen", TRUE, arguments, None, None)
    spawn_from_below(TRUE, arguments)


def change_arguments(arguments):
    sys.audit("subprocess.Popen", TRUE, arguments, None, None)
    arguments.append("more")
    sys.audit("os.posix_spawn", TRUE, arguments, {})


def another_event(arguments):
    sys.audit("subprocess.Popen", TRUE, arguments, None, None)
    os.system("true")


class TestWhatItDoesNotCover:
    @pytest.mark.parametrize(
        ("start", "event"),
        [
            (approve_in_a_function, r"os\.posix_spawn"),
            (spawn_in_a_function, r"os\.posix_spawn"),
            (spawn_deeper, r"os\.posix_spawn"),
            (change_arguments, r"os\.posix_spawn"),
            (another_event, r"os\.system"),
        ],
    )
    def test_a_start_that_is_another(self, host, start, event):
        with host, pytest.raises(PermissionError, match=event):
            start(["true"])

    @pytest.mark.original_fails()
    @pytest.mark.parametrize("event", ["os.posix_spawn", "_posixsubprocess.fork_exec"])
    def test_other_arguments_another_executable_a_second_time(self, host, event):
        arguments = ["true", "x"]

        def places(path):
            return (os.fsencode(path),) if event == "_posixsubprocess.fork_exec" else path

        def start(path, given):
            sys.audit("subprocess.Popen", TRUE, arguments, None, None)
            sys.audit(event, places(path), given, {})

        with host:
            start(TRUE, arguments)
            start(TRUE, list(arguments))
            for path, given in [
                (TRUE, ["true", "".join(["x", "y"])]),
                (TRUE, ["true"]),
                (TRUE, "true"),
                ("/bin/false", arguments),
                ("/bin/true2", arguments),
                ("/bin/untrue", arguments),
            ]:
                with pytest.raises(PermissionError, match=event):
                    start(path, given)

            def twice():
                start(TRUE, arguments)
                sys.audit(event, places(TRUE), arguments, {})

            with pytest.raises(PermissionError, match=event):
                twice()

            approve(arguments)
            with pytest.raises(PermissionError, match=event):
                sys.audit(event, places(TRUE), arguments, {})

    def test_a_command_that_was_denied(self, guard):
        arguments = [TRUE]

        def start():
            with pytest.raises(PermissionError):
                sys.audit("subprocess.Popen", TRUE, arguments, None, None)
            sys.audit("os.posix_spawn", TRUE, arguments, {})

        with guard(before_deny=lambda *args: False):
            with pytest.raises(PermissionError, match=r"os\.posix_spawn"):
                start()

    def test_another_thread(self, mk_audit, places):
        audit_perms = mk_audit(
            [places.ok], lambda event, *_: event == "subprocess.Popen", monitor_calls=False
        )
        arguments, denied = [TRUE], []

        def other():
            with audit_perms():
                try:
                    sys.audit("os.posix_spawn", TRUE, arguments, {})
                except PermissionError:
                    denied.append(True)

        thread = threading.Thread(target=other)
        with audit_perms():
            sys.audit("subprocess.Popen", TRUE, arguments, None, None)
        thread.start()
        thread.join()
        assert denied == [True]

    def test_fork_exec_by_itself(self, host):
        import _posixsubprocess

        read, write = os.pipe()
        with host, pytest.raises(PermissionError, match="fork_exec"):
            _posixsubprocess.fork_exec(
                [b"true"], (b"/bin/true",), True, (write,), None, None, -1, -1, -1, -1, -1, -1,
                read, write, True, False, 0, None, None, None, -1, None,
            )  # fmt: skip
        os.close(read)
        os.close(write)
