"""The end of a program under a policy: denials that nobody saw are reported."""

import atexit
import contextlib
import os
import sys
from collections.abc import Sequence

from .. import AuditDenied
from .denials import denial_in, in_one_line, lines

#: The number of lines for denials that the program swallowed, and of denials kept for them.
MOST, KEPT = 5, 1000


class Ending:
    """Collects the denials of a program, and reports them when the process ends.

    Denials that the error at the end shows already are left out.

    Example:
        ``policy.install(on_denied=Ending().note)``
    """

    def __init__(self) -> None:
        """Report after the functions that the program registers with `atexit`, which run before."""
        self.denials: list[AuditDenied] = []
        self.error: BaseException | None = None
        #: True if denials are the program's.
        self.listens = True
        self._process = os.getpid()
        atexit.register(self.tell)

    def note(self, denied: AuditDenied) -> None:
        """Keep a denial."""
        if self.listens and len(self.denials) < KEPT:
            # The raised exception has a traceback, which would keep the program's objects alive.
            kept = AuditDenied(*denied.args)
            kept._denial = denied._denial
            self.denials.append(kept)

    def tell(self) -> None:
        """Report them, in a line each. A copy of the process reports nothing."""
        if os.getpid() != self._process:
            return
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stdout.flush()
        tell(self.denials, self.error)
        self.error = None


def tell(denials: Sequence[AuditDenied], error: BaseException | None = None) -> None:
    """Report denials that an error does not show, in a line each.

    Args:
        denials: The denials.
        error: The error that was shown. A denial that caused it has a line, for its hint.
    """
    denied = denial_in(error)
    told = [] if denied is None or denied is error else [f"denied: {in_one_line(denied)}"]
    own = (each for each in denials if not _is_bytecode(each))
    told += lines(own, error, most=MOST, head="denied: ")
    with contextlib.suppress(AttributeError, OSError, ValueError):
        for line in told:
            print(f"fastaudit-rs: {line}", file=sys.stderr)


def _is_bytecode(denied: AuditDenied) -> bool:
    """Tell whether an import was denied its cache. It does as well without."""
    return "__pycache__" in (denied.path or "").split(os.sep)
