"""What a program under a policy tells when it has ended: denials that nobody saw."""

import atexit
import contextlib
import os
import sys

from . import AuditDenied
from .swallowed import denial_in, in_one_line, lines

#: Lines for denials that the program swallowed, and denials that are kept for them.
MOST, KEPT = 5, 1000


class Ending:
    """Collects the denials of a program, and tells of them when the process ends.

    Those that the error at the end shows already are left out.

    Example:
        ``policy.install(on_denied=Ending().note)``
    """

    def __init__(self) -> None:
        """Have it tell after what the program registers with `atexit`, which runs before."""
        self.denials: list[AuditDenied] = []
        self.error: BaseException | None = None
        self._process = os.getpid()
        atexit.register(self.tell)

    def note(self, denied: AuditDenied) -> None:
        """Keep a denial."""
        if len(self.denials) < KEPT:
            # The one that is raised has a traceback, which would keep the program's objects alive.
            kept = AuditDenied(*denied.args)
            kept._denial = denied._denial
            self.denials.append(kept)

    def tell(self) -> None:
        """Tell of them, in a line each. A copy of the process has nothing to tell."""
        if os.getpid() != self._process:
            return
        with contextlib.suppress(AttributeError, OSError, ValueError):
            sys.stdout.flush()
        denied = denial_in(self.error)
        told = [] if denied is None or denied is self.error else [in_one_line(denied)]
        told += lines(self.denials, self.error, most=MOST)
        self.error = None
        with contextlib.suppress(AttributeError, OSError, ValueError):
            for line in told:
                is_count = line.startswith("and ")
                print(f"fastaudit-rs: {'' if is_count else 'denied: '}{line}", file=sys.stderr)
