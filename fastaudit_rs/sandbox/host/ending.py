"""Ends of runs from other threads: by a cancelled `arun`, and by closing."""

import contextlib
import threading
from collections.abc import Iterator

from . import copies

#: The time for the runs that are ended to leave, in seconds.
PATIENCE = 2.0


class Ending:
    """The wish to end one run, from any thread. The thread that watches the run looks for it."""

    def __init__(self) -> None:
        """Begin without the wish."""
        #: The reason, as its error says it; empty as long as it may go on.
        self.why = ""

    def end(self, why: str) -> None:
        """End the run: at once if it has begun, before its first line if not."""
        self.why = self.why or why

    def check(self) -> None:
        """Raise if the run is to end.

        Raises:
            RuntimeError: It is.
        """
        if self.why:
            raise RuntimeError(self.why)


class Endings:
    """The wishes to end the runs in flight of a sandbox, or of a pool.

    Args:
        owner: Words for it in errors.
    """

    def __init__(self, owner: str) -> None:
        """Begin without runs."""
        self._owner = owner
        self._closed = False
        self.begin_anew()
        copies.note(self)

    def begin_anew(self) -> None:
        """Forget the runs."""
        self._changed = threading.Condition()
        self._in_flight: list[Ending] = []

    @contextlib.contextmanager
    def running(self, ending: Ending) -> Iterator[None]:
        """Note a run, as long as it lasts.

        Raises:
            RuntimeError: It is closed, or was closed meanwhile.
        """
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._owner} is closed")
            self._in_flight.append(ending)
        try:
            yield
        except Exception:
            # Its process was taken away from it.
            ending.check()
            raise
        finally:
            with self._changed:
                self._in_flight.remove(ending)
                self._changed.notify_all()
        ending.check()

    def close(self) -> None:
        """End all runs, let no more begin, and give them some time to leave."""
        with self._changed:
            self._closed = True
            for ending in self._in_flight:
                ending.end(f"{self._owner} was closed meanwhile")
            # A signal handler may close what its own thread runs: that cannot leave meanwhile.
            self._changed.wait_for(lambda: not self._in_flight, PATIENCE)
