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
import os
import pickle
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from . import AuditDenied, Network, Policy
from .confined import needed
from .limits import Limits
from .sandbox_child import Job
from .sandbox_run import Result, Run, SandboxError

#: Variables that pass from the host: what programs need to run at all.
PASSED = ("PATH", "LANG", "LANGUAGE", "LC_*", "TZ")

#: How much is read of what a run tells of itself, in bytes.
REPORT = 16 << 20


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
            given = len(pickled).to_bytes(8, "big") + pickled + given
            options = self._confinement(report)
            run = Run(self.limits, self._base, self._kernel, options, given)
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
