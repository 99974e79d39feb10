"""A sandbox: code in a process of its own, under a policy, with the kernel behind it.

The policy is installed in the process for good before any of the code runs, so that a denial is a
Python error with a hint. Behind it the package ``sandlock`` makes the kernel (Landlock, seccomp)
enforce the limits and the part of the same policy that it can.
"""

import contextlib
import functools
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ... import AuditDenied, AuditLog, Policy
from ..._keywords import checked
from ..._threads import apart, awaited, when_forgotten
from ...results import Result
from ...sessions.arguments import CALLS, SNAPSHOTS, Tools, policy_of, tools_of
from ...sessions.server_tools import servers_of
from ..install import Install, install_of
from ..limits import Limits
from ..secrets import Secret, secrets_of
from .calls import check_ask, told, warn_of_held, within
from .causes import kernel
from .commands import SandboxCommands
from .files import READ, Files, code_of, remove_own
from .guest_files import SandboxFiles
from .network import check_carried
from .packages import Packages
from .policies import absolute, bound
from .pool import Pool, Workers, WorkerSource
from .process import fill_standard, names_descriptors
from .run import run
from .runner import InFlight, Runner, RunRequest, SandboxConfig
from .setup import Setup, directories, environment, module_names
from .watcher import Steps, Watched, driven

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .session import SandboxSession

CONFINE = ("require", "prefer", "audit")


@checked("Sandbox")
class Sandbox(Runner):
    """Runs code in processes that the kernel confines, in a directory of its own.

    Args:
        policy: What code may do; by default the preset ``"sandbox"``. ``"."`` in it is the
            sandbox's directory, which code may always write. Without ``read`` code reads the
            standard library, installed packages and that directory; ``read=["/"]`` opens
            everything.
        limits: The limits of each run and step.
        env: Variables that code gets besides those that all programs need: names of the host's
            variables, or a mapping from names to values.
        path: Directories of modules that code can import, besides installed ones.
        preload: Modules that runs and sessions find imported, such as ``"numpy"``. A confined
            process imports them before the policy applies.
        parent: Where the sandbox makes its directory; by default among temporary files.
        confine: ``"require"`` is an error if the kernel cannot enforce the policy. ``"prefer"``
            runs code all the same, and ``"audit"`` always without the kernel; `Result.confined`
            says so.
        backend: ``"process"``, or ``"docker"`` to run each run in a container.
        image: The image of the containers, which has Python with this package.
        on_ask: A function that is asked before the guard denies an operation, as in `Policy.guard`,
            by each run, and by sessions without their own. It runs with the host's rights: a plain
            function in the thread that waits for the run, a coroutine function in the event loop
            of `arun`. Its time counts for the run. The answers ``"guard"`` and ``"pattern"`` hold
            until the run ends.
        ask_seconds: The seconds that a coroutine function has for its answer.
        approvable: The most that answers can allow. The kernel enforces this wider policy
            (``write``, ``read``, ``commands``, ``network``), and the guard asks about what only it
            allows. Native code is not asked about files and programs; the host asks about hosts
            before it connects. Without it no answer opens what these fields deny.
        secrets: A `Secret` for each value that the host puts into requests in place of what code
            finds in the variable of its name.
        log: An `AuditLog`, or its path, for the decisions of the guards, as the code's process
            reports them (``"source": "guest"``), and for requests, as the host saw them.
        install: Packages that the host installs for the code, from wheels. `Install` also names
            packages that the code of a session may install itself.

    Raises:
        SandboxError: A package is missing, the kernel lacks what ``confine="require"`` or `secrets`
            need, or no descriptor is left (``ulimit -n``).
        TypeError: An argument has another type; the message names it.
        ValueError: `confine` or `backend` is not a listed value, or does not fit `image`; the
            policy names no hosts for `secrets`, or lets code write where `install` puts packages.

    Examples:
        >>> from fastaudit_rs import Limits, Sandbox
        >>> with Sandbox(limits=Limits(memory="500M", wall_seconds=10)) as sandbox:
        ...     sandbox.run("6 * 7", value=True).value
        42
    """

    def __init__(
        self,
        policy: Policy | None = None,
        limits: Limits | None = None,
        *,
        env: Mapping[str, str] | Iterable[str] = (),
        path: Iterable[str | os.PathLike[str]] = (),
        preload: Iterable[str] = (),
        parent: str | os.PathLike[str] | None = None,
        confine: Literal["require", "prefer", "audit"] = "require",
        backend: Literal["process", "docker"] = "process",
        image: str | None = None,
        on_ask: Callable[[AuditDenied], object] | None = None,
        ask_seconds: float | None = None,
        approvable: Policy | None = None,
        secrets: Iterable[Secret] = (),
        log: AuditLog | str | os.PathLike[str] | None = None,
        install: Install | Iterable[str] | None = None,
    ) -> None:
        policy_of("policy", policy)
        policy_of("approvable", approvable)
        policy = policy or Policy.preset("sandbox")
        if limits is not None and not isinstance(limits, Limits):
            instead = ": write Limits(**fields)" if isinstance(limits, Mapping) else ""
            raise TypeError(f"limits must be Limits, not {type(limits).__name__}{instead}")
        check_backend(backend, image, confine)
        check_ask(on_ask, ask_seconds)
        if backend != "process":
            for name, given in (("on_ask", on_ask), ("approvable", approvable)):
                if given is not None:
                    raise ValueError(f"{name} needs backend='process': containers do not ask")
            if log is not None:
                raise ValueError("log needs backend='process': containers have no log")
            if preload:
                raise ValueError("preload needs backend='process': containers are not copied")
        policy._warn_of_missing()
        fill_standard()
        self._on_ask, self._ask_seconds = on_ask, ask_seconds
        decided = log if log is None or isinstance(log, AuditLog) else AuditLog(log)
        self.limits = limits or Limits()
        self.env = environment(env)
        self.path = directories(path)
        modules = module_names(preload)
        self._docker = docker = None
        if image is not None:
            from .docker import Docker

            self._docker = docker = Docker(image)
        values = secrets_of(secrets)
        wanted = install_of(install)
        sandlock = None if docker is not None else kernel(confine)
        if sandlock is not None:
            warn_of_held(on_ask, approvable)
        check_carried(sandlock, policy.network, bound(policy, approvable).network, values)
        with names_descriptors(), contextlib.ExitStack() as failing:
            base = os.path.realpath(tempfile.mkdtemp(prefix="fastaudit-rs-", dir=parent))
            failing.callback(remove_own, os.getpid(), base)
            self.directory = Path(base, "work")
            self.directory.mkdir()
            self._packages = packages = None
            if wanted is not None:
                held = [one for one in (policy, approvable) if one is not None]
                held = [absolute(one, str(self.directory)) for one in held]
                self._packages = packages = Packages(wanted, os.path.dirname(base), held)
                failing.callback(packages.close)
                self.path = [*self.path, packages.directory]
            self._files = Files(self.directory)
            self.policy = absolute(policy, str(self.directory))
            if docker is None and policy.read is None:
                self.policy = self.policy.replace(read=[])
            self._config = config = SandboxConfig(
                policy=self.policy,
                limits=self.limits,
                env=self.env,
                path=self.path,
                preload=modules,
                base=base,
                kernel=sandlock,
                in_container=docker is not None,
                asks=on_ask is not None,
                approvable=approvable and absolute(approvable, str(self.directory)),
                secrets=values,
                log=decided,
            )
            self._setup = Setup(config)
            self._remove = when_forgotten(
                self, _remove, os.getpid(), base, self._setup, self._files, packages
            )
            failing.pop_all()
        self._workers = Workers(self._setup)
        self._in_flight = InFlight("the sandbox")
        self._sessions: weakref.WeakSet[SandboxSession] = weakref.WeakSet()
        #: The directory where code begins, if not its own.
        self._cwd: str | None = None

    def __repr__(self) -> str:
        closed = "" if self._remove.alive else ", closed"
        return f"<Sandbox in {str(self.directory)!r}: {self.policy._shown()}{closed}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):
                # What a notebook looks for, and this itself before it is made.
                raise AttributeError(f"'Sandbox' object has no attribute {name!r}", name=name)
            from ..._near import of_sandbox

            raise AttributeError(of_sandbox(name, dir(self)), name=name, obj=self)

    def close(self) -> None:
        """End its runs and processes, and remove its directory. It runs nothing any more.

        A run that another thread waits for raises `RuntimeError`.
        """
        self._in_flight.close()
        for session in list(self._sessions):
            session.close()
        self._workers.close()
        self._remove()

    @property
    def files(self) -> SandboxFiles:
        """The files in its directory: to list, open, copy and remove them.

        Examples:
            >>> with Sandbox() as sandbox:
            ...     sandbox.files.make_dir("data")
            ...     sandbox.files.exists("data")
            True
            True
        """
        return SandboxFiles(self._files, self._check_open)

    @property
    def commands(self) -> SandboxCommands:
        """Programs, run in its directory as its code would start them."""
        return SandboxCommands(lambda request: driven(self._run(request)), self._arun)

    @checked("Sandbox.write_file")
    def write_file(self, name: str | os.PathLike[str], data: str | bytes) -> None:
        """Write a file in the sandbox's directory, and make the directories that it is in.

        Raises:
            OSError: It cannot be written, or is not a regular file.
            RuntimeError: The sandbox is closed.
            TypeError: An argument has another type.
            ValueError: The name leads out of the directory, or through a link.
        """
        self.files.write(name, data)

    @checked("Sandbox.read_file")
    def read_file(
        self, name: str | os.PathLike[str], *, max_bytes: int | str | None = READ
    ) -> bytes:
        """Read a file in the sandbox's directory.

        Args:
            name: Its name there.
            max_bytes: The most bytes to read, as a number or a size such as ``"100M"``; ``None``
                sets no limit.

        Raises:
            OSError: It cannot be read, is not a regular file, or has more than ``max_bytes``.
            RuntimeError: The sandbox is closed.
            TypeError: An argument has another type.
            ValueError: The name leads out of the directory, or through a link, or `max_bytes` is
                not a size.
        """
        return self.files.read(name, max_bytes=max_bytes)

    def list_files(self) -> list[str]:
        """The names of all files in its directory, in order, links among them.

        Links are not followed; names longer than a path can be (4,095 bytes) are left out.

        Raises:
            OSError: The names are longer than 256 MB together.
            RuntimeError: The sandbox is closed.
        """
        self._check_open()
        return self._files.names()

    def _check_open(self) -> None:
        if not self._remove.alive:
            raise RuntimeError("the sandbox is closed")

    def _writable(self) -> list[str]:
        write = self.policy.write
        return [str(self.directory), *(["/"] if write is None else write)]

    def _run(
        self,
        request: RunRequest,
        workers: WorkerSource | None = None,
        room: Watched | None = None,
    ) -> Steps[Result]:
        """Run code; `room` is waited for before it takes one of these workers."""
        config = self._config
        path = None if request.path is None else os.path.abspath(request.path)
        text = request.code if path is None else code_of(path, self._writable())
        if self._docker is not None and request.tools:
            raise ValueError("tools need backend='process': containers do not ask")
        job = config.job(
            text,
            "<sandbox>" if path is None else path,
            args=request.args,
            value=request.value,
            cwd=self._cwd,
            asks=config.asks,
            variables=request.variables,
            tools=told(request.tools),
            command=request.command,
        )
        with (
            names_descriptors(),
            self._in_flight.running(request.cancel),
            self._files.changes() as changed,
        ):
            if room is not None:
                yield room
            if self._docker is not None:
                result = self._docker.run(self._setup, job, request)
            else:
                ask = within(self._on_ask, self._ask_seconds)
                source = workers or self._workers.worker
                result = yield from run(config, source, job, request, ask)
        return replace(result, changed=changed)

    def _begun(self, request: RunRequest) -> "Future[Result]":
        if self._docker is None:
            return super()._begun(request)
        # A container is waited for.
        return apart(functools.partial(driven, self._run(request)), "container")

    def pool(self, size: int, preload: Iterable[str] = ()) -> Pool:
        """Start processes in advance, for many short runs.

        Args:
            size: How many runs it has at a time.
            preload: Modules that each run finds imported. A confined process imports them before
                the policy applies: name none that sandboxed code can write.

        Raises:
            RuntimeError: The sandbox is closed.
            SandboxError: A process does not start, or a module cannot be imported.
            TypeError: An argument has another type.
            ValueError: `size` is not positive, or the sandbox runs containers.

        Examples:
            >>> with Sandbox() as sandbox, sandbox.pool(2, preload=["decimal"]) as pool:
            ...     pool.run("import decimal; str(decimal.Decimal(2).sqrt())[:6]", value=True).value
            '1.4142'
        """
        self._check_open()
        if self._docker is not None:
            raise ValueError("a pool needs backend='process': containers are not copied")
        return Pool(self._run, self._setup, size, preload)

    apool = awaited(pool)
    """Make a pool as `pool` does, without stopping the event loop."""

    @checked("Sandbox.session")
    def session(
        self,
        *,
        id: str | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
        undo_depth: int = 1,
        snapshots: int = SNAPSHOTS,
        tool_calls: int = CALLS,
        on_ask: Callable[[AuditDenied], object] | None = None,
        ask_seconds: float | None = None,
        pending_seconds: float | None = None,
    ) -> "SandboxSession":
        """Make a session: steps that share names, imports and a working directory, in one process.

        Limits apply to each step, except ``cpu_seconds``, which counts the whole session.

        Args:
            id: The name under which `Session.save` keeps it in a store; a random one by default.
            tools: What steps may call, as for `Policy.session`. Functions run with the host's
                rights: plain ones in the thread that waits for the step, coroutine functions in the
                event loop of `Session.arun`. Their time counts for the step.
            timeout: The seconds that a step may take; ``limits.wall_seconds`` by default.
            undo_depth: How many steps `Session.undo` can go back. Each keeps a copy of the process.
            snapshots: How many states `Session.snapshot` keeps at a time, each a copy too.
            tool_calls: How many calls of tools, and how many questions, a step may make.
            on_ask: As for `Sandbox`, whose function it is by default. It runs as `tools` do. What
                it can allow is ``approvable`` of `Sandbox`.
            ask_seconds: The seconds that a coroutine function has for its answer.
            pending_seconds: The seconds in which `Session.answer` takes an answer, after ``on_ask``
                answered ``"pending"``; ``None`` sets no limit.

        Raises:
            RuntimeError: The sandbox is closed.
            SandboxError: The process does not start.
            TypeError: An argument has another type; the message names it.
            ValueError: A number is too small, code cannot use a name, or the sandbox runs
                containers.
        """
        self._check_open()
        if self._docker is not None:
            raise ValueError("a session needs backend='process': containers are not copied")
        check_ask(on_ask, ask_seconds)
        own = tools_of(tools)
        # Whoever is asked about tools of servers may be asked about nothing else.
        if self._config.kernel is not None and not servers_of(own):
            warn_of_held(on_ask, self._config.approvable)
        if on_ask is None:
            on_ask, ask_seconds = self._on_ask, ask_seconds or self._ask_seconds
        from .session import SandboxSession

        with names_descriptors():
            session = SandboxSession(
                self._config,
                # The sandbox is there as long as the session is. One copy more is there for a
                # moment.
                lambda: self._setup.session_worker(
                    undo_depth and undo_depth + 1, asks=on_ask is not None
                ),
                self._files,
                self._in_flight,
                own if self._packages is None else {**own, **self._packages.tools},
                timeout,
                undo_depth,
                snapshots,
                tool_calls,
                within(on_ask, ask_seconds),
                pending_seconds,
                id,
            )
        self._sessions.add(session)
        return session

    asession = awaited(session)
    """Make a session as `session` does, without stopping the event loop meanwhile.

    Examples:
        >>> import asyncio
        >>> async def main():
        ...     async with Sandbox() as sandbox, await sandbox.asession() as session:
        ...         return (await session.arun("6 * 7")).value
        >>> asyncio.run(main())
        42
    """

    def rules_for_model(self) -> str:
        """What its code may do, as a short text for a model; see `Session.rules_for_model`."""
        return self._config.rules_for_model(self.limits.wall_seconds)

    def explain(self) -> dict[str, str]:
        """Return the rings (guard, kernel, container) that hold each field and each limit.

        Besides there are ``"privileges"``, of which a process has none and gets none, and
        ``"other_processes"``: signals, limits and priorities of processes outside.
        """
        return self._setup.rings()


def check_backend(backend: str, image: str | None, confine: str) -> None:
    if confine not in CONFINE:
        raise ValueError(f"confine must be 'require', 'prefer' or 'audit', not {confine!r}")
    if backend not in ("process", "docker"):
        raise ValueError(f"backend must be 'process' or 'docker', not {backend!r}")
    if backend == "process":
        if image is not None:
            raise ValueError("image is for backend='docker'")
        return
    if not isinstance(image, str):
        raise TypeError(f"image must be a str for backend='docker', not {type(image).__name__}")
    if confine != "require":
        raise ValueError(f"backend='docker' needs confine='require', not {confine!r}")


def _remove(process: int, base: str, setup: Setup, files: Files, packages: Packages | None) -> None:
    setup.end_all()
    files.close()
    remove_own(process, base)
    if packages is not None:
        remove_own(process, packages.base)
