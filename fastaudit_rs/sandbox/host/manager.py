"""Named sandboxes, for agents that keep one each."""

import contextlib
import functools
import inspect
import os
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ... import AuditDenied, Policy
from ..._keywords import checked, twin
from ..._threads import Closing, awaited
from ...results import Result
from ...sessions.arguments import CALLS, SNAPSHOTS, Tools, count, policy_of
from ...sessions.values import pack
from ..install import Install, install_of
from ..limits import Limits
from ..secrets import Secret, secrets_of
from . import copies
from .files import remove_own
from .policies import absolute
from .sandbox import Sandbox, check_backend
from .setup import directories, module_names

if TYPE_CHECKING:
    from .session import SandboxSession


#: The bytes of the results in the history of a sandbox, but for one that is larger.
HISTORY = 256 << 20

#: The arguments of a session that is given none.
USUAL = {
    name: one.default
    for name, one in inspect.signature(Sandbox.session).parameters.items()
    if name not in ("self", "id")
}


@dataclass(frozen=True)
class HistoryEntry:
    """One run in a sandbox, or one step of a session there.

    Attributes:
        code: The code, or the path of its file.
        args: Its arguments.
        began: When it began, in seconds since the epoch.
        result: The result.
    """

    code: str
    args: tuple[str, ...]
    began: float
    result: Result


@dataclass(eq=False)
class _Environment:
    sandbox: Sandbox
    #: The entries, with the bytes of their results.
    history: deque[tuple[HistoryEntry, int]]
    session: "SandboxSession | None" = None
    #: The arguments of the session.
    options: dict[str, object] = field(default_factory=dict)
    #: Held while a session is made.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def noted(
        self, code: str | os.PathLike[str], args: Sequence[str], began: float, result: Result
    ) -> Result:
        entry = HistoryEntry(os.fspath(code), tuple(map(str, args)), began, result)
        self.history.append((entry, _size(result)))
        while len(self.history) > 1 and sum(size for _, size in [*self.history]) > HISTORY:
            with contextlib.suppress(IndexError):
                self.history.popleft()
        return result


def _size(result: Result) -> int:
    """The bytes of a result, about: code chooses how large its values and displays are."""
    shown = [text for one in result.display for text in one.values()]
    denied = [repr(one.event_args) for one in result.violations]
    size = sum(map(len, (result.stdout, result.stderr, *shown, *denied)))
    with contextlib.suppress(TypeError, ValueError):
        size += len(pack(result.value))
    return size


@checked("SandboxManager")
class SandboxManager(Closing):
    """Named sandboxes, each with a directory, a policy, limits and a history of its own.

    Nothing of one reaches another: each reads the files that programs need to run at all, the
    places that its policy names, and its own directory, as a `Sandbox` does. Arguments that are not
    named here are those of each `Sandbox`.

    Args:
        policy: The policy of a sandbox that is made without one; the preset ``"sandbox"`` by
            default.
        limits: The limits of a sandbox that is made without any.
        history: The number of runs of each that are kept, the last ones, of at most 256 MB.

    Raises:
        TypeError: An argument has another type.
        ValueError: An argument is not accepted.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        limits: Limits | None = None,
        *,
        env: Mapping[str, str] | Iterable[str] = (),
        path: Iterable[str | os.PathLike[str]] = (),
        preload: Iterable[str] = (),
        confine: Literal["require", "prefer", "audit"] = "require",
        backend: Literal["process", "docker"] = "process",
        image: str | None = None,
        history: int = 100,
        secrets: Iterable[Secret] = (),
        install: Install | Iterable[str] | None = None,
    ) -> None:
        policy_of("policy", policy)
        check_backend(backend, image, confine)
        self._policy = policy
        self._limits = limits
        self._path = directories(path)
        self._made = functools.partial(
            Sandbox,
            env=env if isinstance(env, (str, Mapping)) else list(env),
            path=self._path,
            preload=module_names(preload),
            confine=confine,
            backend=backend,
            image=image,
            secrets=secrets_of(secrets),
            install=install_of(install),
        )
        self._most = count("history", history)
        self._environments: dict[str, _Environment] = {}
        self.begin_anew()
        self._base = os.path.realpath(tempfile.mkdtemp(prefix="fastaudit-rs-"))
        self._remove = weakref.finalize(self, remove_own, os.getpid(), self._base)
        copies.note(self)

    def begin_anew(self) -> None:
        """Keep the sandboxes, which begin anew themselves."""
        self._lock = threading.Lock()
        for environment in self._environments.values():
            environment.lock, environment.session = threading.Lock(), None

    @checked("SandboxManager.create")
    def create(
        self, name: str, policy: Policy | None = None, limits: Limits | None = None
    ) -> Sandbox:
        """Make a sandbox, and return it: for its files, or a pool.

        Raises:
            RuntimeError: The manager is closed.
            SandboxError: The kernel cannot hold the policy.
            TypeError: An argument has another type.
            ValueError: There is an open sandbox of this name, or the policy or `path` opens
                others.
        """
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, not {type(name).__name__}")
        if not name:
            raise ValueError("name must not be empty")
        policy_of("policy", policy)
        own = policy or self._policy
        self._check(own)
        with self._lock:
            self._check_free(name)
        # Others go on meanwhile: it may install packages.
        sandbox = self._made(own, limits or self._limits, parent=self._base)
        with contextlib.ExitStack() as failing:
            failing.callback(sandbox.close)
            with self._lock:
                self._check_free(name)
                self._environments[name] = _Environment(sandbox, deque(maxlen=self._most))
            failing.pop_all()
        return sandbox

    def _check_free(self, name: str) -> None:
        if not self._remove.alive:
            raise RuntimeError("the manager is closed")
        there = self._environments.get(name)
        if there is not None and there.sandbox._remove.alive:
            raise ValueError(f"there is a sandbox {name!r} already: remove({name!r}) it")

    def _check(self, policy: Policy | None) -> None:
        own = os.path.join(self._base, "own")
        opened: dict[str, Iterable[str]] = {"path": self._path}
        if policy is not None:
            policy = absolute(policy, own)
            if policy.write is None:
                raise ValueError(
                    "policy.write must be a list of paths, not None: that is every sandbox"
                )
            network = policy.network
            unix = () if isinstance(network, bool) else network.unix or ()
            opened |= {
                "policy.write": policy.write,
                "policy.read": policy.read or (),
                "policy.network.unix": unix,
            }
        for name, places in opened.items():
            for place in places:
                common = os.path.commonpath((place, self._base)) if os.path.isabs(place) else ""
                if common == place:
                    raise ValueError(f"{name} must not have {place!r}: every sandbox is in it")
                if common == self._base and place != own:
                    raise ValueError(f"{name} must not have {place!r}: it is in another sandbox")

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.list())) or "no sandboxes"
        return f"<SandboxManager: {names}{'' if self._remove.alive else ', closed'}>"

    def list(self) -> list[str]:
        """The names of the sandboxes, in the order in which they were made."""
        with self._lock:
            return [*self._environments]

    def __iter__(self) -> Iterator[str]:
        return iter(self.list())

    def __getitem__(self, name: str) -> Sandbox:
        """The sandbox of this name.

        Raises:
            KeyError: There is no sandbox of this name.
        """
        return self._environment(name).sandbox

    def _environment(self, name: str) -> _Environment:
        with self._lock:
            try:
                return self._environments[name]
            except KeyError:
                known = ", ".join(map(repr, self._environments)) or "none"
                raise KeyError(f"there is no sandbox {name!r}; there are: {known}") from None

    def run(
        self,
        name: str,
        code: str | os.PathLike[str],
        args: Sequence[str] = (),
        stdin: str | bytes = b"",
        *,
        value: bool = False,
        variables: Mapping[str, object] | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run code in a sandbox as `Sandbox.run` does, and note it in its history.

        Raises:
            KeyError: There is no sandbox of this name.
            OSError: The file cannot be read.
            RuntimeError: The sandbox is closed meanwhile.
        """
        environment = self._environment(name)
        began = time.time()
        result = environment.sandbox.run(
            code, args, stdin, value=value, variables=variables, tools=tools, timeout=timeout
        )
        return environment.noted(code, args, began, result)

    @twin("SandboxManager.arun", run)
    async def arun(
        self,
        name: str,
        code: str | os.PathLike[str],
        args: Sequence[str] = (),
        stdin: str | bytes = b"",
        **given: Any,
    ) -> Result:
        """Run code as `run` does, without stopping the event loop. Cancelling ends the run."""
        environment = self._environment(name)
        began = time.time()
        result = await environment.sandbox.arun(code, args, stdin, **given)
        return environment.noted(code, args, began, result)

    @checked("SandboxManager.session")
    def session(
        self,
        name: str,
        *,
        tools: Tools | None = None,
        timeout: float | None = None,
        undo_depth: int = 1,
        snapshots: int = SNAPSHOTS,
        tool_calls: int = CALLS,
        on_ask: Callable[[AuditDenied], object] | None = None,
        ask_seconds: float | None = None,
        pending_seconds: float | None = None,
    ) -> "SandboxSession":
        """The session of a sandbox, made as by `Sandbox.session`; `history` has each step.

        Calls give the same session until it is closed. Its id is the name of the sandbox, with
        which it is closed too. Steps and runs share the directory.

        Examples:
            >>> with SandboxManager() as manager:
            ...     sandbox = manager.create("agent")
            ...     with manager.session("agent") as session:
            ...         value = session.run("6 * 7").value
            ...     (value, len(manager.history("agent")))
            (42, 1)

        Raises:
            KeyError: There is no sandbox of this name.
            RuntimeError: The sandbox is closed meanwhile.
            SandboxError: Its process does not start.
            TypeError: An argument has another type.
            ValueError: An argument is not accepted, or the session that there is was made with
                others.
        """
        options: dict[str, Any] = {
            "tools": tools,
            "timeout": timeout,
            "undo_depth": undo_depth,
            "snapshots": snapshots,
            "tool_calls": tool_calls,
            "on_ask": on_ask,
            "ask_seconds": ask_seconds,
            "pending_seconds": pending_seconds,
        }
        environment = self._environment(name)
        with environment.lock:
            session = environment.session
            if session is not None and not session.is_closed:
                if options not in (environment.options, USUAL):
                    raise ValueError(
                        f"the sandbox {name!r} has a session with other arguments: close() it, "
                        "or leave them out"
                    )
                return session
            session = environment.sandbox.session(id=name, **options)
            session._noted = environment.noted
            environment.session, environment.options = session, options
        return session

    asession = awaited(session)
    """Make a session as `session` does, without stopping the event loop meanwhile."""

    def history(self, name: str) -> Sequence[HistoryEntry]:
        """The last runs and steps in a sandbox, in the order in which they ended.

        Raises:
            KeyError: There is no sandbox of this name.
        """
        return [entry for entry, _ in [*self._environment(name).history]]

    def remove(self, name: str) -> None:
        """Close a sandbox, with everything in it. Another one may have its name then.

        Raises:
            KeyError: There is no sandbox of this name.
        """
        environment = self._environment(name)
        with self._lock:
            if self._environments.get(name) is environment:
                del self._environments[name]
        environment.sandbox.close()

    def close(self, name: str | None = None) -> None:
        """Close all sandboxes for good, with everything in them; or `remove` one.

        Raises:
            KeyError: There is no sandbox of this name.
        """
        if name is not None:
            self.remove(name)
            return
        with self._lock:
            environments = [*self._environments.values()]
            self._environments.clear()
            self._remove()
        for environment in environments:
            environment.sandbox.close()
