"""States of a session that it can go back to."""

from typing import Protocol


class Keeper(Protocol):
    """What keeps the states of snapshots: a session."""

    def _drop(self, number: int) -> None:
        """Let go of a snapshot."""


class Snapshot:
    """A state of a session: `Session.snapshot` makes it, `Session.restore` goes back to it.

    In this process it has the names and the working directory; in a sandbox it is a copy of the
    session's process, which waits.
    """

    __slots__ = ("_number", "_session", "_step")

    def __init__(self, session: Keeper, number: int, step: int) -> None:
        self._session = session
        self._number = number
        self._step = step

    @property
    def step(self) -> int:
        """The number of steps that the session had run."""
        return self._step

    def close(self) -> None:
        """Let go of it: the session cannot go back to it any more.

        Raises:
            RuntimeError: The session runs a step.
        """
        self._session._drop(self._number)

    def __repr__(self) -> str:
        return f"<Snapshot after {self._step} steps>"


def number_of(snapshot: object, session: Keeper) -> int:
    if not isinstance(snapshot, Snapshot):
        kind = type(snapshot).__name__
        raise TypeError(f"snapshot must be one that session.snapshot() made, not {kind}")
    if snapshot._session is not session:
        raise ValueError("snapshot must be one of this session: its snapshot() makes it")
    return snapshot._number


def check_room(count: int, most: int) -> None:
    if count >= most:
        raise RuntimeError(
            f"the session keeps {most} snapshots (snapshots=): close() one that is not needed"
        )


def closed() -> RuntimeError:
    return RuntimeError("the snapshot is closed: by its close(), or by reset() of the session")
