"""One run in a sandbox: a process that is watched until it ends."""

import contextlib
import math
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import AuditDenied
from .limits import Limits

#: What runs in the process.
COMMAND = [sys.executable, "-I", "-c", "from fastaudit_rs.sandbox_child import main; main()"]

#: How often a run is looked at, in seconds.
INTERVAL = 0.05


class SandboxError(RuntimeError):
    """A sandbox cannot run code as it was asked to."""


@dataclass(frozen=True)
class Result:
    """What became of a run.

    Attributes:
        returncode: The exit status; minus the number of the signal that ended it.
        stdout: What it wrote to standard output, up to the limit.
        stderr: The same of standard error.
        duration: How long it took, in seconds.
        killed_by: The limit that ended it, a name of `Limits`; ``None`` where none did. Where
            memory has a limit, what kills itself by SIGKILL cannot be told from what hit that.
        violations: What its policy denied, as it told itself.
        value: That of the last expression, if it was asked for: what JSON can hold, else its
            ``repr()``.
        confined: Whether the kernel held the policy.
    """

    returncode: int
    stdout: str
    stderr: str
    duration: float
    killed_by: str | None
    violations: list[AuditDenied] = field(default_factory=list)
    value: Any = None
    confined: bool = True

    @property
    def success(self) -> bool:
        """Whether it ended by itself, with the status 0."""
        return self.returncode == 0 and self.killed_by is None

    @property
    def timed_out(self) -> bool:
        """Whether it took longer than it may."""
        return self.killed_by == "wall_seconds"


class _Plain:
    """A process without the kernel part, in the shape of that of `sandlock`."""

    def __init__(self, command: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        self._process = process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> "_Ended":
        status = self._process.wait()
        # What it started in its session goes with it.
        self.kill()
        return _Ended(max(status, 0), -status if status < 0 else -1, was_killed=status == -9)


@dataclass
class _Ended:
    exit_code: int
    signal: int
    was_killed: bool


class Run:
    """One run, watched until it ends."""

    def __init__(
        self, limits: Limits, base: str, kernel: Any, options: dict[str, Any], given: bytes
    ) -> None:
        """Prepare one.

        Args:
            limits: What it may use.
            base: The directory that counts as its disk.
            kernel: The package `sandlock`, or `None`.
            options: What `sandlock` is asked to hold.
            given: What is on its standard input.
        """
        self._limits = limits
        self._base = base
        self._given = given
        self._killed_by: str | None = None
        self._kernel = kernel
        self._options = options
        self._texts: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._ended: _Ended | None = None

    def result(self) -> Result:
        """Run it to its end."""
        begun = time.monotonic()
        process = self._start()
        waiter = threading.Thread(target=self._serve, args=(process,), daemon=True)
        waiter.start()
        try:
            self._watch(process, waiter, begun)
        except BaseException:
            process.kill()
            raise
        finally:
            waiter.join()
            for stream in (process.stdout, process.stderr):
                stream.close()
        ended = self._ended
        assert ended is not None
        limits_memory = self._kernel is not None and self._limits.memory is not None
        if self._killed_by is None and ended.was_killed and limits_memory:
            # `sandlock` kills it for that, and tells it no differently from a SIGKILL of its own.
            self._killed_by = "memory"
        if ended.signal == signal.SIGXCPU:
            self._killed_by = "cpu_seconds"
        returncode = ended.exit_code
        if ended.was_killed or self._killed_by is not None:
            returncode = -signal.SIGKILL
        if ended.signal > 0:
            returncode = -ended.signal
        return Result(
            returncode=returncode,
            stdout=self._texts["stdout"].decode(errors="replace"),
            stderr=self._texts["stderr"].decode(errors="replace"),
            duration=time.monotonic() - begun,
            killed_by=self._killed_by,
            confined=self._kernel is not None,
        )

    def _start(self) -> Any:
        if self._kernel is None:
            return _Plain(COMMAND, self._options["cwd"], self._options["env"])
        try:
            piped = self._kernel.StdioMode.PIPED
            sandbox = self._kernel.Sandbox(**self._options)
            return sandbox.popen(COMMAND, piped, piped, piped)
        except (self._kernel.SandlockError, RuntimeError, ValueError) as error:
            raise SandboxError(f"the kernel cannot hold the policy: {error}") from error

    def _serve(self, process: Any) -> None:
        """Give it its job and its input, and wait for its end: waiting closes its input."""
        with contextlib.suppress(OSError), process.stdin:
            given = memoryview(self._given)
            while given:
                given = given[process.stdin.write(given) :]
        ended = process.wait()
        if isinstance(ended, _Ended):
            self._ended = ended
        else:
            was_killed = ended.reason == self._kernel.ExitReason.KILLED
            self._ended = _Ended(max(ended.exit_code, 0), ended.signal, was_killed)

    def _watch(self, process: Any, waiter: threading.Thread, begun: float) -> None:
        """Read what it writes, until it has ended; end it where it goes beyond a limit."""
        with selectors.DefaultSelector() as selector:
            for name in self._texts:
                selector.register(getattr(process, name), selectors.EVENT_READ, name)
            looked = begun
            while waiter.is_alive() or selector.get_map():
                ready = selector.select(INTERVAL)
                for key, _ in ready:
                    self._read(process, selector, key)
                now = time.monotonic()
                if not waiter.is_alive() and not ready:
                    # What it left running may still hold the pipes.
                    return
                if now - begun > (self._limits.wall_seconds or math.inf):
                    self._end(process, "wall_seconds")
                if self._limits.disk is not None and now - looked > INTERVAL:
                    looked = now
                    if _used(self._base) > int(self._limits.disk):
                        self._end(process, "disk")

    def _read(self, process: Any, selector: selectors.BaseSelector, key: Any) -> None:
        data = os.read(key.fd, 1 << 16)
        if not data:
            selector.unregister(key.fileobj)
            return
        text = self._texts[key.data]
        room = sys.maxsize if self._limits.output is None else int(self._limits.output) - len(text)
        text += data[:room]
        if len(data) > room:
            self._end(process, "output")

    def _end(self, process: Any, limit: str) -> None:
        if self._killed_by is None:
            self._killed_by = limit
            process.kill()


def _used(directory: str) -> int:
    """How many bytes are in a directory."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total
