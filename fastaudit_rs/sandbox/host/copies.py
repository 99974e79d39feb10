"""Copies of the host (`os.fork`): a copy begins without the processes and threads of its original.

It has descriptors of theirs, which it closes: a process ends when the last one for it is closed.
"""

import os
import weakref
from typing import Protocol


class Copied(Protocol):
    def begin_anew(self) -> None:
        """Forget what is of the original, locks too: a thread that is no more may hold them.

        It closes descriptors, and does nothing that a guard could judge: guarded code may copy.
        """


_all: "weakref.WeakSet[Copied]" = weakref.WeakSet()


def note(copied: Copied) -> None:
    """Have something begin anew in copies."""
    _all.add(copied)


def _begin_anew() -> None:
    for copied in [*_all]:
        copied.begin_anew()


os.register_at_fork(after_in_child=_begin_anew)
