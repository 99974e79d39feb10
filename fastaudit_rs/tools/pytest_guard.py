"""The guard that one test of pytest runs under."""

import _thread
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from .. import AuditDenied, Guard, Network, Policy
from .options import changed

#: The most frames that `monkeypatch` and `mock` have between them and a change of the environment.
_BETWEEN = 10

#: The data of guards that the fixture makes: a test may enter them instead of its own.
OF_FIXTURE = object()


def with_roots(policy: Policy, root: Path | None, kept: tuple[Path, ...] = ()) -> Policy:
    """Return the policy with the root to write, and to make Unix sockets in.

    What pytest and its plugins keep in the directories ``kept`` is written in tests too.
    """
    roots = [*kept, *([] if root is None else [root])]
    if policy.write is not None:
        policy = policy.replace(write=[*policy.write, *roots])
    network = policy.network
    if root is not None and isinstance(network, Network) and network.unix is not None:
        policy = policy.replace(network=changed(network, unix=[*network.unix, root]))
    return policy


class GuardedTest:
    """A test under a guard; its fixtures are set up outside of it."""

    def __init__(self, policy: Policy, on_denied: Callable[[AuditDenied], object] | None) -> None:
        perms = policy.guard(self._allows, on_denied=on_denied)
        self.guard: Guard = perms()._keep()
        self._thread: int | None = None
        self._other_threads = 0
        self._is_trusted = False

    def run(self, test: Callable[[], object]) -> None:
        __tracebackhide__ = True
        self._other_threads = _thread._count()
        self._thread = _thread.get_ident()
        # Not by a `with` statement: a guard that one entered is left by its end alone.
        self.guard.__enter__()
        try:
            test()
        finally:
            self._thread = None
            self.guard.__exit__(None, None, None)

    @contextlib.contextmanager
    def left(self) -> Generator[None]:
        """Do something outside of the guard, if the test runs now, and in this thread."""
        here = _thread.get_ident()
        if self._thread != here or self._is_trusted:
            yield
            return
        try:
            self.guard.__exit__(None, None, None)
        except (RuntimeError, ValueError):
            # In a task, whose context is a copy: there the guard can only allow it.
            self._is_trusted = True
            try:
                yield
            finally:
                self._is_trusted = False
            return
        self._thread = None
        try:
            yield
        finally:
            self._thread = here
            self.guard.__enter__()

    def _allows(
        self,
        event: str,
        args: tuple[Any, ...],
        frame: FrameType | None,
        message: str,
        data: object,
    ) -> bool:
        """Return whether an event is not the test's own act, or is undone after it."""
        if event == "audit_perms.set_config":
            return getattr(args[0], "data", None) is OF_FIXTURE
        if event in ("os.putenv", "os.unsetenv", "os._clearenv"):
            return is_put_back(frame)
        if event in ("os.fork", "os.forkpty"):
            # The threads from before the test are those of pytest's plugins.
            return _thread._count() <= self._other_threads
        return self._is_trusted and self._thread == _thread.get_ident()


def kept_by_plugins(config: pytest.Config) -> tuple[Path, ...]:
    """The directories in which pytest and Hypothesis keep what they know of tests."""
    named = os.environ.get("HYPOTHESIS_STORAGE_DIRECTORY", ".hypothesis")
    places = [config.rootpath / named, config.invocation_params.dir / named]
    if config.pluginmanager.has_plugin("cacheprovider"):
        cache = os.path.expanduser(os.path.expandvars(config.getini("cache_dir")))
        places.append(config.rootpath / cache)
    return tuple(dict.fromkeys(places))


def is_put_back(frame: FrameType | None) -> bool:
    """Return whether monkeypatch or mock changes the environment; they put it back."""
    patches = _code_that_puts_back()
    for _ in range(_BETWEEN):
        if frame is None:
            return False
        if frame.f_code in patches:
            return True
        frame = frame.f_back
    return False


def _code_that_puts_back() -> set[CodeType]:
    functions: list[Any] = [
        pytest.MonkeyPatch.setitem,
        pytest.MonkeyPatch.delitem,
        pytest.MonkeyPatch.undo,
    ]
    mock = sys.modules.get("unittest.mock")
    if mock is not None:
        functions += [mock._patch_dict._patch_dict, mock._patch_dict._unpatch_dict]
    return {function.__code__ for function in functions}


@contextlib.contextmanager
def temporary_files_in(directory: Path) -> Generator[None]:
    """Make ``tempfile`` use a directory that tests may write to."""
    directory.mkdir(mode=0o700, exist_ok=True)
    before = tempfile.tempdir
    own = os.fspath(directory)
    tempfile.tempdir = own
    try:
        yield
    finally:
        # A fixture may have set another one.
        if tempfile.tempdir == own:
            tempfile.tempdir = before
