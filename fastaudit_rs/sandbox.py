"""A sandbox: code in a process of its own, under a policy, with the kernel behind it.

The policy is installed in the process for good before any of the code runs, so that what it denies
is a Python error with a hint. Behind it the package ``sandlock`` has the kernel (Landlock, seccomp)
hold what it can of the same policy, and the limits.
"""

import asyncio
import contextlib
import fnmatch
import importlib
import json
import math
import os
import pickle
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from . import AuditDenied, Network, Policy
from .confined import needed
from .limits import Limits
from .sandbox_child import Job

#: Variables that pass from the host: what programs need to run at all.
PASSED = ("PATH", "LANG", "LANGUAGE", "LC_*", "TZ")

#: What runs in the process.
COMMAND = [sys.executable, "-I", "-c", "from fastaudit_rs.sandbox_child import main; main()"]

#: How often a run is looked at, in seconds.
INTERVAL = 0.05

#: How much is read of what a run tells of itself, in bytes.
REPORT = 16 << 20


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


class Sandbox:
    """Runs code in processes of their own, in one directory.

    Args:
        policy: What the code may do. It may also write to the directory of the sandbox.
        limits: What it may use.
        env: Variables that it has besides those that programs need to run at all: names, whose
            values are the host's, or a mapping.
        confine: ``"require"`` refuses to run where the kernel cannot hold the policy; ``"prefer"``
            runs all the same, and says so in the result.

    Raises:
        SandboxError: The package ``sandlock`` is not there, or the kernel lacks what it needs,
            under ``confine="require"``.
        TypeError: An argument has another type.
        ValueError: `confine` is neither.
    """

    def __init__(
        self,
        policy: Policy,
        limits: Limits | None = None,
        *,
        env: Mapping[str, str] | Iterable[str] = (),
        confine: Literal["require", "prefer"] = "require",
    ) -> None:
        """Make one, with a directory of its own."""
        if not isinstance(policy, Policy):
            raise TypeError(f"policy must be a Policy, not {type(policy).__name__}")
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits must be Limits, not {type(limits).__name__}")
        if confine not in ("require", "prefer"):
            raise ValueError(f"confine must be 'require' or 'prefer', not {confine!r}")
        self.policy = _absolute(policy)
        self.limits = limits or Limits()
        self.env = _environment(env)
        self._kernel = _kernel(confine)
        self._base = tempfile.mkdtemp(prefix="fastaudit-rs-")
        self._remove = weakref.finalize(self, shutil.rmtree, self._base, ignore_errors=True)
        self.directory = Path(os.path.realpath(self._base), "work")
        self.directory.mkdir()

    def __enter__(self) -> "Sandbox":
        """Use it."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove its directory."""
        self.close()

    def close(self) -> None:
        """Remove its directory. It runs nothing any more."""
        self._remove()

    def write_file(self, name: str, data: str | bytes) -> None:
        """Write a file in its directory, and make the directories that it is in.

        Raises:
            ValueError: The name leads out of the directory.
        """
        path = self._inside(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)

    def read_file(self, name: str) -> bytes:
        """Read a file in its directory.

        Raises:
            OSError: It cannot be read.
            ValueError: The name leads out of the directory.
        """
        return self._inside(name).read_bytes()

    def list_files(self) -> list[str]:
        """The names of all files in its directory, in order. Links are not followed."""
        found = []
        for directory, _, names in os.walk(self.directory):
            found += [
                Path(directory, name).relative_to(self.directory).as_posix() for name in names
            ]
        return sorted(found)

    def _inside(self, name: str) -> Path:
        """A path in the directory: what ran there may have made links."""
        path = Path(os.path.realpath(self.directory / name))
        if not path.is_relative_to(self.directory) or path == self.directory:
            raise ValueError(f"{name!r} is not in the directory of the sandbox")
        return path

    def run(
        self,
        code: str | os.PathLike[str],
        args: Sequence[str] = (),
        input: str | bytes = b"",
        *,
        value: bool = False,
    ) -> Result:
        """Run code, and wait for it.

        Args:
            code: Python code, or the path of a file of it.
            args: Its arguments, in ``sys.argv``.
            input: What it reads from standard input.
            value: Whether the value of the last expression is wanted.

        Returns:
            What became of it; also where a limit ended it.

        Raises:
            OSError: The file cannot be read.
            RuntimeError: The sandbox is closed.
        """
        if not self._remove.alive:
            raise RuntimeError("the sandbox is closed")
        file = "<sandbox>" if isinstance(code, str) else os.path.abspath(code)
        text = code if isinstance(code, str) else Path(code).read_text(encoding="utf-8")
        handle, report = tempfile.mkstemp(dir=self._base, prefix="report-")
        os.close(handle)
        job = Job(
            policy=self._own_policy(),
            code=text,
            file=file,
            args=tuple(args),
            value=value,
            cpu_seconds=self.limits.cpu_seconds,
            report=report,
        )
        pickled = pickle.dumps(job)
        given = input.encode() if isinstance(input, str) else input
        try:
            run = _Run(self, report, len(pickled).to_bytes(8, "big") + pickled + given)
            return _told(run.result(), report)
        finally:
            os.unlink(report)

    async def arun(
        self,
        code: str | os.PathLike[str],
        args: Sequence[str] = (),
        input: str | bytes = b"",
        *,
        value: bool = False,
    ) -> Result:
        """Run code as `run` does, in a thread of the event loop's executor."""
        return await asyncio.to_thread(self.run, code, args, input, value=value)

    def explain(self) -> dict[str, str]:
        """Which ring holds which field of the policy, and which limit."""
        kernel = self._kernel is not None
        network = self.policy.network
        held = {
            "write": "guard and kernel",
            "read": "guard and kernel",
            "block": "guard and kernel" if _existing(self.policy.block) else "guard",
            "network": "guard and kernel" if isinstance(network, bool) else "guard",
        }
        fields = ("protect", "max_bytes", "commands", "env", "imports", "import_allow", "threads")
        told = {**held, **dict.fromkeys((*fields, "native", "unknown_events"), "guard")}
        if not kernel:
            told = dict.fromkeys(told, "guard")
        own = ("wall_seconds", "disk", "output")
        limits = dict.fromkeys(own, "host") | {"cpu_seconds": "process"}
        of_kernel = ("memory", "cpu_percent", "processes", "open_files")
        limits |= dict.fromkeys(of_kernel, "kernel" if kernel else "nothing")
        return told | limits

    def _own_policy(self) -> Policy:
        """The policy, which lets its directory be written too."""
        policy = self.policy
        directory = str(self.directory)
        if policy.write is not None:
            policy = policy.replace(write=[*policy.write, directory])
        if policy.read is not None:
            policy = policy.replace(read=[*policy.read, directory])
        return policy

    def _confinement(self, report: str) -> dict[str, Any]:
        """What the kernel is to hold, as `sandlock` takes it."""
        policy = self._own_policy()
        write = read = ["/"]
        if policy.write is not None:
            write = [*policy.write, "/dev/null"]
        if policy.read is not None:
            program = Path(sys.executable)
            programs = [str(program.parent), str(program.resolve().parent)]
            # What is beside the host's own program is not the sandbox's.
            own = needed((str(Path(__file__).parent.parent), f"{sys.prefix}/pyvenv.cfg"))
            read = [*policy.read, *own, *programs]
        open_to_all = ["*:*", "udp://*:*"]
        limits = self.limits
        return {
            "fs_readable": _existing(read),
            "fs_writable": [*_existing(write), report],
            "fs_denied": _existing(policy.block),
            "net_allow": [] if policy.network is False else open_to_all,
            "net_allow_bind": ["*"] if _listens(policy.network) else [],
            "max_memory": limits.memory,
            "max_processes": limits.processes,
            "max_open_files": limits.open_files,
            "max_cpu": limits.cpu_percent,
            "cwd": str(self.directory),
            "clean_env": True,
            "env": {**self.env, "HOME": str(self.directory), "TMPDIR": str(self.directory)},
            "no_coredump": True,
        }


def _absolute(policy: Policy) -> Policy:
    """The policy with the places that it names here: the sandbox has another home and directory."""
    changes: dict[str, Any] = {}
    for name in ("write", "read", "block"):
        paths: Sequence[str] | None = getattr(policy, name)
        if paths is not None:
            changes[name] = [os.path.realpath(os.path.expanduser(path)) for path in paths]
    return policy.replace(**changes)


def _listens(network: bool | Network) -> bool:
    return network if isinstance(network, bool) else network.listen is not False


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


def _environment(named: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    """What programs need to run at all, and what is named."""
    if isinstance(named, str):
        raise TypeError("env must be a mapping or names, not str")
    passed = {
        name: value
        for name, value in os.environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in PASSED)
    }
    if isinstance(named, Mapping):
        return passed | {str(name): str(value) for name, value in named.items()}
    return passed | {name: os.environ[name] for name in named if name in os.environ}


def _kernel(confine: Literal["require", "prefer"]) -> Any:
    """The package `sandlock`, where it and the kernel can do what is needed."""
    if os.name != "posix":
        raise SandboxError("sandboxes need a POSIX system")
    try:
        sandlock: Any = importlib.import_module("sandlock")
    except ImportError:
        why = "it needs sandlock: pip install 'fastaudit-rs[sandbox]'"
    else:
        if sandlock.landlock_abi_version() >= sandlock.min_landlock_abi():
            return sandlock
        why = "this kernel has too old a Landlock, or none"
    if confine == "require":
        raise SandboxError(
            f"the kernel cannot hold the policy: {why}; confine='prefer' runs without it"
        )
    return None


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


class _Run:
    """One run, watched until it ends."""

    def __init__(self, sandbox: Sandbox, report: str, given: bytes) -> None:
        self._limits = sandbox.limits
        self._base = sandbox._base
        self._given = given
        self._killed_by: str | None = None
        self._kernel = sandbox._kernel
        self._options = sandbox._confinement(report)
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
        if self._killed_by is None and ended.was_killed and self._limits.memory is not None:
            # Nobody else kills it: signals do not leave a sandbox, nor come in.
            self._killed_by = "memory" if self._kernel is not None else None
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
            killed = self._kernel.Reason.KILLED if hasattr(self._kernel, "Reason") else 2
            self._ended = _Ended(max(ended.exit_code, 0), ended.signal, ended.reason == killed)

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


def _told(result: Result, report: str) -> Result:
    """The result with what the run told of itself. What is not well formed is left out."""
    violations: list[AuditDenied] = []
    value = None
    with open(report, "rb") as file:
        for line in file.read(REPORT).splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                told = json.loads(line)
                if "denied" in told:
                    violations.append(AuditDenied.from_dict(told["denied"]))
                else:
                    value = told["value"]
    return replace(result, violations=violations, value=value)
