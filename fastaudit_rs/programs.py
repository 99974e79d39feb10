"""Programs that are run under a policy, whoever runs them."""

from collections.abc import Collection
from types import TracebackType

#: The exit status for a denial that nobody caught: ``EX_NOPERM`` of sysexits.h(3).
DENIED = 77


def own_traceback(error: BaseException, runners: Collection[str]) -> TracebackType | None:
    """The traceback of the program, without the files of what runs it."""
    part = error.__traceback__
    while part is not None and part.tb_frame.f_code.co_filename in runners:
        part = part.tb_next
    return part
