"""Calls of coroutine functions in progress, for the callbacks of a guard.

When an asynchronous tool does something that would be denied, the frames of its callers may be gone
from the stack. A tool that is decorated with ``track_call`` is found all the same: callbacks that
take the argument ``calls`` get the calls in progress.
"""

from collections import namedtuple
from contextlib import contextmanager
from functools import wraps

from ._native import _CallTracker, _use_tracker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, NamedTuple, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])

    class TrackedCall(NamedTuple):
        """A tracked call.

        ``module`` and ``qualname`` are those of the function, ``name`` is both, with a dot between.
        """

        fn: Any
        args: tuple[Any, ...]
        kwargs: dict[str, Any]
        module: str | None
        qualname: str | None
        name: str | None

else:
    # `typing` takes longer to import than all of this package.
    TrackedCall = namedtuple("TrackedCall", "fn args kwargs module qualname name")
    TrackedCall.__doc__ = """A tracked call.

        ``module`` and ``qualname`` are those of the function, ``name`` is both, with a dot between.
        """

__all__ = ["CallTracker", "TrackedCall", "active_calls", "track_call"]


class CallTracker(_CallTracker):
    """Tracks calls, each in the context that it is made in and in copies of that context.

    Args:
        name: The name of its context variable, a ``str``.
    """

    @contextmanager
    def track(
        self,
        fn: "Any",
        args: "Sequence[Any] | None" = (),
        kwargs: "Mapping[str, Any] | None" = None,
    ) -> "Iterator[TrackedCall]":
        """Track the block of a ``with`` statement as a call of ``fn``; gives the `TrackedCall`."""
        module = getattr(fn, "__module__", None)
        qualname = getattr(fn, "__qualname__", getattr(fn, "__name__", None))
        name = f"{module}.{qualname}" if module and qualname else qualname
        call = TrackedCall(fn, tuple(args or ()), dict(kwargs or {}), module, qualname, name)
        begun = self._begin(call)
        try:
            yield call
        finally:
            self._end(begun)

    def wrap(self, fn: "_Function") -> "_Function":
        """Track the calls of a coroutine function; any other function is returned as it is."""
        import inspect

        is_tracked = getattr(fn, "_fastaudit_orig", None) is not None
        if is_tracked or not inspect.iscoroutinefunction(fn):
            return fn

        @wraps(fn)
        async def tracked(*args: "Any", **kwargs: "Any") -> "Any":
            with self.track(fn, args, kwargs):
                return await fn(*args, **kwargs)

        tracked._fastaudit_orig = fn  # type: ignore[attr-defined]
        return tracked  # type: ignore[return-value]


_tracker = CallTracker()
_use_tracker(_tracker)


def track_call(fn: "_Function") -> "_Function":
    """Decorate a coroutine function, so that callbacks know of its calls; others stay the same."""
    return _tracker.wrap(fn)


def active_calls() -> "tuple[TrackedCall, ...]":
    """Return the tracked calls in progress in the current context, the outermost first.

    A call that has ended is left out, also in a task that was created during it.
    """
    return _tracker.active()
