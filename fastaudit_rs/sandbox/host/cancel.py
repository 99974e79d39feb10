"""Cancelling runs from other threads: by a cancelled `arun`, and by closing."""

import contextlib
import threading
from collections.abc import Iterator

from . import copies

#: The time for the runs that are cancelled to leave, in seconds.
PATIENCE = 2.0


class CancelToken:
    """Cancels one run, from any thread. The thread that watches the run looks for it."""

    def __init__(self) -> None:
        #: The reason, as its error says it; empty as long as it may go on.
        self.why = ""

    def cancel(self, why: str) -> None:
        """Cancel the run: at once if it has begun, before its first line if not."""
        self.why = self.why or why

    def check(self) -> None:
        if self.why:
            raise RuntimeError(self.why)


class InFlight:
    """The cancel tokens of the runs in flight of a sandbox, or of a pool."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._closed = False
        self.begin_anew()
        copies.note(self)

    def begin_anew(self) -> None:
        self._changed = threading.Condition()
        self._tokens: list[CancelToken] = []

    @contextlib.contextmanager
    def running(self, cancel: CancelToken) -> Iterator[None]:
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._owner} is closed")
            self._tokens.append(cancel)
        try:
            yield
        except Exception:
            # Its process was taken away from it.
            cancel.check()
            raise
        finally:
            with self._changed:
                self._tokens.remove(cancel)
                self._changed.notify_all()
        cancel.check()

    def close(self) -> None:
        """Cancel all runs, let no more begin, and give them some time to leave."""
        with self._changed:
            self._closed = True
            for cancel in self._tokens:
                cancel.cancel(f"{self._owner} was closed meanwhile")
            # A signal handler may close what its own thread runs: that cannot leave meanwhile.
            self._changed.wait_for(lambda: not self._tokens, PATIENCE)
