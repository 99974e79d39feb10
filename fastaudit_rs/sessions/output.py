"""The standard streams of steps in this process, apart from those of other code in it."""

import functools
import io
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

from .._native import _in_tool
from .pieces import NAMES, Lines, Name
from .shown import shown_here
from .stdin import reader

#: The output of the session that this context belongs to; ``False`` in a function of the host that
#: a step has called.
_here: "ContextVar[Capture | Literal[False] | None]"
_here = ContextVar("fastaudit_rs_output", default=None)

_open: "set[Capture]" = set()

#: The ones of them whose code may start threads: a thread begins with an empty context.
_threaded: "tuple[Capture, ...]" = ()

#: The standard streams of the process.
Standard: TypeAlias = Literal["stdin", "stdout", "stderr"]
STANDARD: tuple[Standard, ...] = ("stdin", *NAMES)

_proxies: "dict[Standard, StreamProxy]" = {}

#: The last of each, which outlives its use: ``print()`` borrows its stream.
_lasting: "dict[Standard, StreamProxy]" = {}

#: Taken again by a session that is collected meanwhile.
_lock = threading.RLock()


class Capture:
    def __init__(self, most: int | None, is_here: Callable[[], bool] | None) -> None:
        """Begin without output; `is_here` knows the threads that the code has started."""
        self.most = most
        self.is_here = is_here
        #: What tells the host of output as it comes.
        self.lines: Lines | None = None
        #: A function that is called when there is more than there may be.
        self.on_full: Callable[[], None] | None = None
        self._is_open = True
        self._pieces: dict[Name, list[bytes]] = {name: [] for name in NAMES}
        self._sizes: dict[Name, int] = dict.fromkeys(NAMES, 0)
        self.streams: dict[Standard, Any] = {}

    def begin(self, stdin: bytes | None = None) -> None:
        """Begin a step in this thread: it has new streams, as it may have closed the old ones."""
        self.streams = {
            name: io.TextIOWrapper(
                _Sink(self, name),
                encoding="utf-8",
                errors="backslashreplace",
                newline="\n",
                write_through=True,
            )
            for name in NAMES
        }
        self.streams["stdin"] = reader(stdin)
        _here.set(self)
        _stand_in(self)

    def end_lines(self) -> None:
        """Tell the rest of the output, and no more of it."""
        lines, self.lines = self.lines, None
        if lines is not None:
            lines.end()

    def end(self) -> dict[Name, str]:
        texts: dict[Name, str] = {}
        for name in NAMES:
            pieces, self._pieces[name], self._sizes[name] = self._pieces[name], [], 0
            texts[name] = b"".join(pieces).decode("utf-8", "replace")
        return texts

    def close(self) -> None:
        """Take no more output, and keep away from the process's streams if nobody else needs it."""
        global _threaded
        self._is_open = False
        with _lock:
            _open.discard(self)
            _threaded = tuple(output for output in _threaded if output is not self)
            if _open:
                return
            for name in STANDARD:
                stream = _standing(name)
                if type(stream) is StreamProxy:
                    setattr(sys, name, object.__getattribute__(stream, "_other"))
            _proxies.clear()

    def take(self, name: Name, data: bytes) -> None:
        if not self._is_open:
            return
        left = sys.maxsize if self.most is None else self.most - self._sizes[name]
        if len(data) > left and self.on_full is not None:
            self.on_full()
        data = data[:left]
        if data:
            self._sizes[name] += len(data)
            self._pieces[name].append(data)
            if (lines := self.lines) is not None:
                lines.add(name, data)

    def flush(self, name: Name) -> None:
        if (lines := self.lines) is not None:
            lines.flush(name)


class _Sink(io.BufferedIOBase):
    def __init__(self, output: Capture, name: Name) -> None:
        self._take = functools.partial(output.take, name)
        self._flush = functools.partial(output.flush, name)
        self.name: Any = name

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        # A subclass can make `bytes(data)` return a subclass again: its buffer is exact.
        taken = bytes(memoryview(data))
        self._take(taken)
        return len(taken)

    def flush(self) -> None:
        super().flush()
        self._flush()


class StreamProxy:
    """A standard stream of the process: that of a session for its code, another for all else.

    It has no methods of its own: IPython wraps `write` and puts it back later.
    """

    def __init__(self, name: Standard, other: Any) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_other", other)

    def __getattr__(self, name: str) -> Any:
        return getattr(_stream_of(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_stream_of(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_stream_of(self), name)

    def __iter__(self) -> Any:
        return iter(_stream_of(self))

    def __enter__(self) -> Any:
        return _stream_of(self).__enter__()

    def __exit__(self, *error: Any) -> Any:
        return _stream_of(self).__exit__(*error)

    def __repr__(self) -> str:
        return repr(_stream_of(self))


def _stream_of(proxy: StreamProxy) -> Any:
    if _in_tool():
        return object.__getattribute__(proxy, "_other")
    output = _here.get()
    if output is None and _threaded:
        output = next((one for one in _threaded if one.is_here is not None and one.is_here()), None)
        if output is not None:
            # Kept, so that each thread looks once.
            _here.set(output)
    own = output and output.streams.get(object.__getattribute__(proxy, "_name"))
    return own or object.__getattribute__(proxy, "_other")


def of_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, with output that is the host's where a step calls it."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        output, shown = _here.set(False), shown_here.set(None)
        try:
            return function(*args, **kwargs)
        finally:
            shown_here.reset(shown)
            _here.reset(output)

    return called


def _stand_in(output: Capture) -> None:
    """Have the process's streams ask where they are used.

    Others replace them too, as pytest does for each test: then this one stands in for theirs.
    """
    global _threaded
    if output not in _open:
        with _lock:
            _open.add(output)
            if output.is_here is not None:
                _threaded = (*_threaded, output)
    for name in STANDARD:
        if type(getattr(sys, name, None)) is not StreamProxy:
            with _lock:
                stream = _standing(name)
                if stream is not None and type(stream) is not StreamProxy:
                    last = _lasting.get(name)
                    if last is None or object.__getattribute__(last, "_other") is not stream:
                        last = _lasting[name] = StreamProxy(name, stream)
                    stream = last
                if type(stream) is StreamProxy:
                    _proxies[name] = stream
                    setattr(sys, name, stream)


def _standing(name: Standard) -> Any:
    """A stream of the process; the one that stood there if code has removed it."""
    stream = getattr(sys, name, None)
    return _proxies.get(name) if stream is None else stream
