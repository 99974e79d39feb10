"""A session for everybody who asks: its steps are queued, and it goes on when its process ends."""

import asyncio
import contextlib
import logging
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from .. import Policy
from .._text import printable
from .._threads import in_thread
from ..results import WAYS, Error, Result
from .base import Session
from .errors import ProcessEnded, SandboxError
from .forms import limited
from .record import MAGIC, REASON, read
from .store import Store
from .turns import Turns

#: Opens a session: a session itself, or a context manager that gives one, and closes it.
Opens = Callable[[], AbstractContextManager[Session]]

#: Gets warnings where there is no caller to raise an error to.
log = logging.getLogger("fastaudit_rs.sessions")

#: How often in a row saving may end the process, before it is saved no more after each use.
TRIES = 2

#: The turns that this context has.
_turns: "ContextVar[tuple[_Turn, ...]]" = ContextVar("fastaudit_rs_turns", default=())


def reason(error: Exception) -> str:
    """The text of an error for a line of a log: code words some."""
    return printable(limited(str(error), REASON))


def for_models(ran: Result) -> Result:
    """The result, which tells the model how it goes on, and not how the host may."""
    if ran.error is None:
        return ran
    words = ran.error.message, ran.error.traceback
    message, traceback = (WAYS.sub(_way, text) for text in words)
    return replace(ran, error=replace(ran.error, message=message, traceback=traceback))


def _way(found: "re.Match[str]") -> str:
    if found[1]:
        return ": the next step has the names from before this"
    return ": the next step tells what is lost"


def _no_session(made: object) -> TypeError:
    instead = ""
    if isinstance(made, Generator):
        instead = ": decorate it with @contextlib.contextmanager"
    elif isinstance(made, Policy):
        instead = ": return its session()"
    elif hasattr(made, "session"):
        instead = ": write a context manager that yields its session()"
    return TypeError(f"make must give a Session, not {type(made).__name__}{instead}")


class _Turn:
    """A turn of somebody's, as long as it lasts."""

    __slots__ = ("of",)

    def __init__(self, of: "QueuedSession") -> None:
        #: ``None`` at its end: copies of the context stay.
        self.of: QueuedSession | None = of


class Shut(RuntimeError):
    """It was saved and closed meanwhile: another one has its place."""


class QueuedSession:
    """A session that is opened when it is first needed; its uses wait for one another.

    A process that has ended is replaced before the next use: by its state from before the step that
    ended it, else by what was saved last, else by an empty one. The next result tells so.

    Args:
        opens: Opens the session.
        key: The name of its record in the store.
        store: Where the record is, which is loaded when it is opened.
        autosave: True to save it after each use.
        room: The room for open sessions, which it takes a place of.
        is_anew: True if there was one before, whose names are lost unless they were saved.
    """

    def __init__(
        self,
        opens: Opens,
        key: str = "",
        store: Store | None = None,
        autosave: bool = False,
        room: Turns | None = None,
        is_anew: bool = False,
    ) -> None:
        self._is_anew = is_anew
        self.turns = Turns()
        self.last_used = time.monotonic()
        #: The session, if it is open.
        self.session: Session | None = None
        #: Why it takes no more steps; empty while it does.
        self.closed = ""
        #: True if it was saved before, and may be opened anew.
        self.is_shut = False
        self._opens = opens
        self._key, self._store, self._autosave = key, store, autosave
        self._room = room or Turns()
        self._has_room = False
        self._ends = contextlib.ExitStack()
        self._opening = threading.Lock()
        #: True if it is to be closed at the end of its use.
        self._is_left = False
        #: True if the record is that of now.
        self._is_saved = False
        #: How often in a row saving it ended its process.
        self._ended_by_saving = 0
        #: True if the process ended in the last use, which was told.
        self._has_ended = False
        #: The seconds that the use waited for its turn, until its first step tells them.
        self._waited = 0.0

    # Uses, one after another.

    def run(self, code: str, **options: Any) -> Result:
        """Run a step as `Session.run` does, after those that were asked for before."""
        with self.turn() as session:
            return self.step(session, code, **options)

    async def arun(self, code: str, **options: Any) -> Result:
        """Run a step as `Session.arun` does, after those that were asked for before."""
        async with self.async_turn() as session:
            return await self.async_step(session, code, **options)

    def step(self, session: Session, code: str, **options: Any) -> Result:
        """Run a step in a turn."""
        try:
            ran = session.run(code, **options)
        except SandboxError as error:
            ran = self._failed(error) or session.run(code, **options)
        return self._told(ran)

    async def async_step(self, session: Session, code: str, **options: Any) -> Result:
        """The same, without stopping the event loop."""
        try:
            ran = await session.arun(code, **options)
        except SandboxError as error:
            failed = await in_thread(self._failed, error)
            ran = failed or await session.arun(code, **options)
        return self._told(ran)

    def _told(self, ran: Result) -> Result:
        """The result of a step, the first of which has waited for the turn."""
        waited, self._waited = round(ran.timings.waited + self._waited, 6), 0.0
        return for_models(replace(ran, timings=replace(ran.timings, waited=waited)))

    @contextlib.contextmanager
    def turn(self) -> Iterator[Session]:
        """Wait for the others, and have the session, able to run a step."""
        self._check()
        asked = time.monotonic()
        with self.turns.turn():
            self._check()
            if not self._has_room:
                self._check_room()
                self._room.take()
                self._has_room = True
            session = self.open()
            turn = self._begin(asked)
            try:
                yield session
            finally:
                if self._ended(turn):
                    self._settle()

    @contextlib.asynccontextmanager
    async def async_turn(self) -> AsyncIterator[Session]:
        """The same, without stopping the event loop."""
        self._check()
        asked = time.monotonic()
        async with self.turns.async_turn():
            self._check()
            if not self._has_room:
                self._check_room()
                await self._room.async_take()
                self._has_room = True
            session = self.session
            if session is None or session._has_ended():
                session = await in_thread(self.open)
            turn = self._begin(asked)
            try:
                yield session
            finally:
                try:
                    if session._streams:
                        session.interrupt()
                        await asyncio.wait({*session._streams})
                finally:
                    if self._ended(turn):
                        await in_thread(self._settle)

    def _check(self) -> None:
        if self.closed:
            raise (Shut if self.is_shut else RuntimeError)(self.closed)
        if self.is_mine:
            raise RuntimeError("the session is in use here: a step cannot wait for its own end")

    def _check_room(self) -> None:
        """Raise if the uses of others that this is called in have all places."""
        others = {turn.of for turn in _turns.get() if turn.of is not None}
        most = self._room.count
        if sum(one._has_room and one._room is self._room for one in others) >= most:
            raise RuntimeError(
                f"max_sessions={most} and all these sessions are in use here, where another one "
                "would wait for ever: end one of the uses first, or pass a greater max_sessions"
            )

    @property
    def is_mine(self) -> bool:
        """True if this is called in a turn, maybe by a tool."""
        return any(turn.of is self for turn in _turns.get())

    def _begin(self, asked: float) -> _Turn:
        self._waited = time.monotonic() - asked
        turn = _Turn(self)
        _turns.set((*_turns.get(), turn))
        self._is_saved = False
        return turn

    def _ended(self, turn: _Turn) -> bool:
        """Note the end of a use. True if it is to be saved or closed."""
        turn.of = None
        _turns.set(tuple(one for one in _turns.get() if one.of is not None))
        self.last_used = time.monotonic()
        self._has_ended = self.session is not None and self.session._has_ended()
        saves = self._autosave and not self._has_ended and not self.closed
        return saves or self._is_left

    # What comes before and after them; the turn is ours.

    def open(self) -> Session:
        """Have the session, able to run a step."""
        with self._opening:
            if self.closed:
                raise RuntimeError(self.closed)
            if self.session is None:
                try:
                    made = self._opens()
                    if not isinstance(made, AbstractContextManager) or isinstance(made, Policy):
                        raise _no_session(made)
                    session = self._ends.enter_context(made)
                    if not isinstance(session, Session):
                        raise _no_session(session)
                    if self._store is not None:
                        session._check_apart(self._store)
                    if not self._load(session) and self._is_anew:
                        session._restarted = "anew", {}
                except BaseException:
                    self._end()
                    raise
                self.session = session
        if self.session._has_ended():
            self._mend(self.session, is_told=self._has_ended)
            self._has_ended = False
        if self.closed:
            # It was closed while it was opened.
            raise RuntimeError(self.closed)
        return self.session

    def _load(self, session: Session) -> bool:
        """Load what was saved. False if there is nothing."""
        if self._store is None:
            return False
        try:
            data = self._store[self._key]
        except KeyError:
            return False
        session._load(read(data, f"the record of {self._key!r}"))
        return True

    def _mend(self, session: Session, is_told: bool) -> None:
        """Go on after the end of the process.

        Args:
            session: The session.
            is_told: True if the step that ended it told so. Else that step has been undone too.
        """
        if not is_told and self._is_saved and self._load(session):
            return
        try:
            session.undo()
        except RuntimeError:
            if not self._load(session):
                session.reset()
                session._restarted = "anew", {}
        else:
            if not is_told:
                session._restarted = "undone", {}

    def _failed(self, error: SandboxError) -> Result | None:
        """Go on after an error; return the result of the step if it began: it is not run again."""
        session = self.session
        if session is None:
            # It was closed meanwhile.
            raise error
        is_told = not isinstance(error, ProcessEnded)
        self._mend(session, is_told)
        if not is_told:
            return None
        failed = Error("SandboxError", str(error))
        return session._with_losses(Result(1, "", "", 0.0, None, error=failed))

    def _settle(self) -> None:
        """Save it after a use, or close it if that was asked for meanwhile."""
        if self._is_left:
            with self._opening:
                self._end()
            return
        try:
            self._save()
        except Exception as error:
            log.warning("the session %r is not saved: %s", self._key, reason(error))
            if self.session is not None and self.session._has_ended():
                # The step is undone. What it left may be to blame, and is gone then; else each
                # step would be undone.
                self._ended_by_saving += 1
                if self._ended_by_saving == TRIES:
                    self._autosave = False
                    words = "the session %r is not saved any more: that ends its process"
                    log.warning(words, self._key)

    def _save(self, is_last: bool = False) -> None:
        """Save it, if there is a store and it is open."""
        if self._store is None or self.session is None or self._is_saved:
            return
        try:
            if is_last and self.session._has_ended():
                return
            body = self.session._saved()
        except Exception as error:
            if not is_last:
                raise
            # A value of the code fails to be saved: that keeps no session open.
            words = "the session %r is closed without being saved: %s"
            log.warning(words, self._key, reason(error))
            return
        self._store[self._key] = MAGIC + body
        self._is_saved, self._ended_by_saving = True, 0

    def shut(self) -> None:
        """Save and close it, for good. It stays open if the store refuses."""
        self._save(is_last=True)
        self.closed, self.is_shut = self.closed or "the session is closed", True
        self._end()

    def close(self, why: str = "the session is closed") -> None:
        """Close it, with the step that runs; whoever waits for a turn is told why."""
        self.closed = self.closed or why
        if self.is_mine:
            # At the end of the step.
            self._is_left = True
            if self.session is not None:
                self.session.interrupt()
            return
        # One that is being opened is closed afterwards.
        with self._opening:
            self._end()

    def _end(self) -> None:
        try:
            self._ends.close()
        finally:
            self.session = None
            if self._has_room:
                self._has_room = False
                self._room.end()
