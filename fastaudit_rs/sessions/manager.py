"""Sessions by key, for hosts with many users."""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import wait
from contextlib import AbstractContextManager
from functools import partial
from math import inf
from typing import Any

from .. import Policy
from .._keywords import checked, twin
from .._threads import Closing, in_thread
from .._waiting import loop_here
from ..results import Result
from .arguments import Tools, count, seconds
from .base import Session
from .pieces import Tell
from .queued import QueuedSession, Shut, log, reason
from .store import Store
from .turns import Turns, check_here

#: The seconds between two interrupts of steps that run as the manager is closed.
AGAIN = 0.1

#: The seconds that closing in an event loop, which stands still, waits for who uses a session.
PATIENCE = 3.0

#: The seconds between two looks for what is idle, at the least.
LEAST = 0.02

#: The number of keys that are remembered.
REMEMBERED = 10_000

#: Makes the session of a key: a session, or a context manager that gives one, and closes it.
Make = Callable[[str], AbstractContextManager[Session]]


@checked("SessionManager")
class SessionManager(Closing):
    """Keeps a session for each key, such as a user, a conversation or a thread of LangGraph.

    It makes a session when its key is first used. Steps of a key run one after another, in order,
    from threads and event loops; those of different keys run concurrently. If the process of a
    session ends, the manager replaces it; `Result.restarted` and `Result.lost` say what is lost.

    Args:
        make: A function that gets the key and makes a session, or a context manager that yields
            one, such as a sandbox with its session.
        store: A mutable mapping from keys to records, such as `DirectoryStore`. The manager saves a
            session there before it closes it, and loads it when its key comes back.
        autosave: ``True`` saves after each step, in case this process ends.
        idle_seconds: The seconds without a step after which the manager saves and closes a session;
            ``None`` for never.
        max_sessions: How many sessions are open at a time; ``None`` sets no limit. To open another
            one, the manager saves and closes the one that was used least recently, or waits if all
            run steps.

    Raises:
        TypeError: An argument has another type.
        ValueError: An argument has a wrong value.

    Examples:
        >>> with SessionManager(lambda user: Policy().session(timeout=60)) as sessions:
        ...     ran = sessions.run("anna", "x = 6")
        ...     sessions.run("anna", "x * 7").value, sessions.run("ben", "x").error.kind
        (42, 'NameError')
    """

    def __init__(
        self,
        make: Make,
        *,
        store: Store | None = None,
        autosave: bool = False,
        idle_seconds: float | None = None,
        max_sessions: int | None = None,
    ) -> None:
        if not callable(make):
            is_one = isinstance(make, (Policy, Session))
            kind = "Session" if isinstance(make, Session) else type(make).__name__
            instead = ": write lambda key: policy.session()" if is_one else ""
            raise TypeError(f"make must be a function of the key, not {kind}{instead}")
        if store is not None and not isinstance(store, MutableMapping):
            kind = type(store).__name__
            raise TypeError(f"store must be a mutable mapping, not {kind}: write DirectoryStore(…)")
        if autosave and store is None:
            raise ValueError("autosave needs store=")
        self._make = make
        self._store, self._autosave = store, bool(autosave)
        self._idle = seconds("idle_seconds", idle_seconds)
        self._most = inf if max_sessions is None else count("max_sessions", max_sessions, 1)
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._of: dict[str, QueuedSession] = {}
        #: The keys of the last sessions that were closed: the model thinks that they go on.
        self._was_open: dict[str, bool] = {}
        of = weakref.ref(self)

        def make_room() -> None:
            if (manager := of()) is not None:
                manager._make_room()

        #: The room for open sessions.
        self._room = Turns(self._most, make_room)
        #: Set to have the thread look that closes what is idle.
        self._wake = threading.Event()
        self._watches = False

    def __repr__(self) -> str:
        number = len(self.list())
        state = "closed" if self._is_closed else f"{number} session{'' if number == 1 else 's'}"
        return f"<SessionManager: {state}>"

    def list(self) -> "list[str]":
        """The keys of the sessions that are open, in the order in which they were opened."""
        with self._lock:
            return [key for key, one in self._of.items() if one.session is not None]

    @checked("SessionManager.run")
    def run(
        self,
        key: str,
        code: str,
        *,
        variables: Mapping[str, object] | None = None,
        tools: Tools | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        on_output: Tell | None = None,
    ) -> Result:
        """Run a step in the session of a key as `Session.run` does, after those asked for before.

        Raises:
            RuntimeError: The manager is closed, the key was removed meanwhile, or a step of the
                key is what calls this; or waiting would stop an event loop, or never end.
            SandboxError: The session cannot be made.
            TypeError: An argument has another type.
            ValueError: An argument has a wrong value, or what the store has is no record.
        """
        with self._turn(key) as (one, session):
            return one.step(
                session,
                code,
                variables=variables,
                tools=tools,
                timeout=timeout,
                stdin=stdin,
                on_output=on_output,
            )

    @twin("SessionManager.run", run)
    async def arun(self, key: str, code: str, **given: Any) -> Result:
        """Run a step as `run` does, without stopping the event loop. Cancelling interrupts it."""
        async with self._async_turn(key) as (one, session):
            return await one.async_step(session, code, **given)

    @contextlib.contextmanager
    def session(self, key: str) -> Iterator[Session]:
        """Give exclusive use of the session of a key: ``with sessions.session(key) as session``.

        Examples:
            >>> with SessionManager(lambda user: Policy().session()) as sessions:
            ...     with sessions.session("anna") as session:
            ...         ran = session.run("x = 6")
            ...         session.get("x")
            6

        Raises:
            RuntimeError: As `run`. In an event loop use `asession`.
        """
        with self._turn(key) as (_, session):
            yield session

    @contextlib.asynccontextmanager
    async def asession(self, key: str) -> AsyncIterator[Session]:
        """Give the same with ``async with``, in an event loop; also for a stream.

        Examples:
            >>> async def show(sessions):
            ...     async with sessions.asession("anna") as session:
            ...         async for output in session.stream("print(1)"):
            ...             print(output.text)
        """
        async with self._async_turn(key) as (_, session):
            yield session

    def interrupt(self, key: str) -> bool:
        """End the step of a key that runs; see `Session.interrupt`."""
        session = self._session_of(key)
        return session is not None and session.interrupt()

    def _session_of(self, key: str) -> Session | None:
        """The session of a key, if it is open; somebody may use it."""
        one = self._one_that_is(key)
        return None if one is None else one.session

    def _one_that_is(self, key: str) -> QueuedSession | None:
        with self._lock:
            return self._of.get(key)

    def remove(self, key: str) -> None:
        """Close the session of a key, end the step that runs, and delete its record.

        Steps that wait raise `RuntimeError`. If there is no session, nothing happens.

        Raises:
            RuntimeError: It is in use, and waiting would stop an event loop: await `aremove`.
        """
        one = self._one_that_is(key)
        if one is not None and not one.is_mine and one.turns.are_taken:
            check_here()
        self._end(key, one)
        if one is not None and not one.is_mine:
            # Wait for its user, who might save it afterwards.
            with one.turns.turn():
                pass
        self._drop(key, one)

    async def aremove(self, key: str) -> None:
        """Close the session of a key as `remove` does, without stopping the event loop."""
        one = self._one_that_is(key)
        await in_thread(self._end, key, one)
        if one is not None and not one.is_mine:
            async with one.turns.async_turn():
                pass
        await in_thread(self._drop, key, one)

    def _end(self, key: str, one: QueuedSession | None) -> None:
        if one is not None:
            one.close(f"the session of {key!r} was removed meanwhile")

    def _drop(self, key: str, one: QueuedSession | None) -> None:
        """Forget a session that is closed, and what was saved of it."""
        if self._store is not None:
            self._store.pop(key, None)
        with self._lock:
            self._was_open.pop(key, None)
        if one is not None:
            self._forget(key, one)

    def close(self) -> None:
        """Interrupt steps that run, save all sessions if there is a store, and close them.

        Raises:
            OSError: A record cannot be written; all sessions are closed all the same.
        """
        self._is_closed = True
        self._wake.set()
        if os.getpid() != self._process:
            return
        with self._lock:
            every = list(self._of.items())
        failed: Exception | None = None
        for key, one in every:
            one.closed = one.closed or "the manager is closed"
            self.interrupt(key)
        for key, one in every:
            if one.is_mine:
                one.close()
                continue
            turn = one.turns.ask()
            # Its user may be a task of the event loop that cannot go on here.
            until = time.monotonic() + PATIENCE if loop_here() is not None else inf
            while not wait([turn], AGAIN).done and time.monotonic() < until:
                # Again, as it may have been opening, or its step about to begin.
                self.interrupt(key)
            if not turn.done():
                one.turns.drop(turn)
                one.close()
                continue
            try:
                one.shut()
            except Exception as error:
                failed = failed or error
                one.close()
            finally:
                one.turns.end()
            self._forget(key, one)
        if failed is not None:
            raise failed

    # A session, from the first use of its key.

    def _one(self, key: str) -> QueuedSession:
        if not isinstance(key, str):
            raise TypeError(f"key must be a str, not {type(key).__name__}: write str(key)")
        if not key:
            raise ValueError("key must not be empty")
        if self._is_closed:
            raise RuntimeError("the manager is closed")
        if os.getpid() != self._process:
            # This is a copy of the process that has the sessions.
            self._begin()
        with self._lock:
            one = self._of.get(key)
            if one is None:
                make = partial(self._make, key)
                is_anew = self._was_open.pop(key, False)
                one = QueuedSession(make, key, self._store, self._autosave, self._room, is_anew)
                self._of[key] = one
            if self._idle is not None and not self._watches:
                self._watches = True
                arguments = (weakref.ref(self), self._wake)
                name = "fastaudit_rs sessions: idle"
                threading.Thread(target=_watch, args=arguments, name=name, daemon=True).start()
            return one

    def _forget(self, key: str, one: QueuedSession) -> None:
        with self._lock:
            if self._of.get(key) is one:
                del self._of[key]

    @contextlib.contextmanager
    def _turn(self, key: str) -> Iterator[tuple[QueuedSession, Session]]:
        with contextlib.ExitStack() as stack:
            while True:
                one = self._one(key)
                stack.callback(self._settle, key, one)
                with contextlib.suppress(Shut):
                    session = stack.enter_context(one.turn())
                    break
            yield one, session

    @contextlib.asynccontextmanager
    async def _async_turn(self, key: str) -> AsyncIterator[tuple[QueuedSession, Session]]:
        async with contextlib.AsyncExitStack() as stack:
            while True:
                one = self._one(key)
                stack.push_async_callback(self._async_settle, key, one)
                with contextlib.suppress(Shut):
                    session = await stack.enter_async_context(one.async_turn())
                    break
            yield one, session

    # What is closed: to make room, and what is idle.

    def _settle(self, key: str, one: QueuedSession) -> None:
        """Make room for those who wait for it, after the use of a session."""
        if one.session is None and one.turns.has_taken():
            # Opening it failed.
            one.closed, one.is_shut = one.closed or "the session is closed", True
            self._forget(key, one)
            one.turns.end()
        if self._room.is_wanted:
            try:
                self._make_room()
            except Exception as error:
                log.warning("a session is not closed, as it cannot be saved: %s", reason(error))

    async def _async_settle(self, key: str, one: QueuedSession) -> None:
        if one.session is None or self._room.is_wanted:
            await in_thread(self._settle, key, one)

    def _make_room(self) -> None:
        """Save and close sessions that nobody uses, as long as there is no room for another one."""
        while self._room.is_wanted:
            with self._lock:
                every = sorted(self._of.items(), key=lambda item: item[1].last_used)
            if not any(self._has_shut(key, one) for key, one in every):
                return

    def _has_shut(self, key: str, one: QueuedSession, idle: float = 0.0) -> bool:
        """Save and close a session that nobody uses. False if somebody does, or did just now."""
        if one.session is None or not one.turns.has_taken():
            return False
        try:
            if one.session is None or time.monotonic() - one.last_used < idle:
                return False
            one.shut()
            self._forget(key, one)
            with self._lock:
                self._was_open[key] = True
                if len(self._was_open) > REMEMBERED:
                    del self._was_open[next(iter(self._was_open))]
            return True
        finally:
            one.turns.end()

    def _close_idle(self) -> float | None:
        """Save and close what is idle; return the seconds until the next look, if there is one."""
        idle = self._idle or 0.0
        with self._lock:
            every = list(self._of.items())
        for key, one in every:
            if time.monotonic() - one.last_used >= idle:
                try:
                    self._has_shut(key, one, idle)
                except Exception as error:
                    words = "the session of %r cannot be saved, and stays open: %s"
                    log.warning(words, key, reason(error))
                    one.last_used = time.monotonic()
        now = time.monotonic()
        with self._lock:
            if self._is_closed or not self._of:
                self._watches = False
                return None
            # A session in use counts as used now.
            since = (now if one.turns.are_taken else one.last_used for one in self._of.values())
            return max(min(since) + idle - now, LEAST)


def _watch(of: "weakref.ref[SessionManager]", wake: threading.Event) -> None:
    while True:
        manager = of()
        wait = None if manager is None else manager._close_idle()
        del manager
        if wait is None:
            return
        wake.wait(wait)
