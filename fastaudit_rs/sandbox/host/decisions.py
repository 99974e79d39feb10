"""The decisions of a sandbox in the log of the host, as its guest tells of them.

The guest writes to a pipe, which the host reads to the end. It need not be our guard that writes:
each line is read as data, and marked as the guest's own report.
"""

import contextlib
import json
import math
import os
import threading
import time
from typing import Any

from ... import AuditLog
from ..._native import _json_extent
from ..._text import valid_data
from ...results import Result
from ...timeline import Request
from . import copies

#: The bytes of a run, or of a session, that are read; others are counted.
MOST = 16 << 20

#: The bytes of a line, and how many values it may have, and how deep they may be.
LINE, VALUES, DEPTH = 1 << 16, 2000, 10

#: The seconds since 1970 that a line may tell, and the characters of a whole number.
LATEST, DIGITS = 1 << 36, 19

KEPT = 1000

#: The time that the end of a run waits for the last lines, in seconds.
PATIENCE = 5.0

_TEXTS = ("verdict", "rule", "event", "effect", "asked", "path", "to", "resolved", "host")
#: The keys of a line that a guest may tell, and the types of their values.
KEYS: dict[str, tuple[type, ...]] = {
    "time": (int, float),
    "pid": (int,),
    "thread": (int,),
    **dict.fromkeys(_TEXTS, (str, type(None))),
    "args": (list,),
    "port": (int,),
    "command": (list, str),
    **dict.fromkeys(("variable", "module", "tool", "place", "error"), (str,)),
}

#: The fields of a request that a line has, if there is one.
OF_REQUESTS = ("host", "port", "method", "status", "sent", "received")

NEEDED = {"time", "verdict", "rule", "event", "effect", "args"}
VERDICTS = ("allowed", "denied", "reported")


class Decisions:
    def __init__(self, log: AuditLog) -> None:
        self._log = log
        reading, self._writing = os.pipe()
        self._lost = 0
        #: The first decisions, as `Result.decisions` has them.
        self.kept: list[dict[str, Any]] = []
        self._thread = threading.Thread(
            target=self._read, args=(reading,), name="fastaudit_rs log", daemon=True
        )
        self._thread.start()
        copies.note(self)

    def begin_anew(self) -> None:
        """Close the pipe: the original reads it until nobody has it any more."""
        self.close()

    def descriptor(self) -> int:
        """A descriptor for the guest, to be closed by the caller."""
        return os.dup(self._writing)

    def close(self) -> None:
        """Wait for the last lines, when no process of the guest has the pipe any more."""
        writing, self._writing = self._writing, -1
        if writing < 0:
            return
        os.close(writing)
        self._thread.join(PATIENCE)

    def add(self, result: Result) -> None:
        """Note the requests of a run or a step, as the host saw them."""
        found = [_of_request(request) for request in result.requests]
        if result.requests_left_out:
            found.append(_lost(result.requests_left_out))
        told = b"".join(line_of(one, self._log, "host") for one in found)
        if told:
            self._log._add(told)

    def _read(self, reading: int) -> None:
        room, rest = MOST, b""
        with open(reading, "rb", buffering=0) as pipe:
            # The pipe is emptied in any case: the guest would wait.
            while data := pipe.read(1 << 16):
                kept = data[: max(room, 0)]
                room -= len(data)
                self._lost += data.count(b"\n") - kept.count(b"\n")
                *lines, rest = (rest + kept).split(b"\n")
                if len(rest) > LINE:
                    rest = b""
                    self._lost += 1
                told = b"".join(map(self._marked, lines))
                if told:
                    self._log._add(told)
        if self._lost:
            self._log._add(line_of(_lost(self._lost), self._log, "guest"))

    def _marked(self, line: bytes) -> bytes:
        """A line of the guest, marked as one; nothing if it is malformed."""
        told = _checked(line)
        if told is None:
            self._lost += 1
            return b""
        if len(self.kept) < KEPT:
            self.kept.append(told)
        return line_of(told, self._log, "guest")


def _checked(line: bytes) -> dict[str, Any] | None:
    """The fields of a line; `None` if no guard of ours can have written it."""
    values, depth = _json_extent(line)
    if len(line) > LINE or values > VALUES or depth > DEPTH:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        told = json.loads(line, parse_constant=_refuse, parse_float=_finite, parse_int=_short)
        if type(told) is dict and KEYS.keys() >= told.keys() - {"version"}:
            is_typed = all(type(told[key]) in KEYS[key] for key in told.keys() - {"version"})
            is_whole = told.keys() >= NEEDED and told["verdict"] in VERDICTS
            if is_typed and is_whole and 0 <= told["time"] < LATEST:
                # Half a character would make the line one that not everybody reads.
                found: dict[str, Any] = valid_data(told)
                return found
    return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number that JSON does not have")
    return number


def _short(text: str) -> int:
    """A number of 64 bits: others than Python read a log."""
    if len(text) > DIGITS:
        raise ValueError("a number that is too long")
    return int(text)


def _lost(count: int) -> dict[str, Any]:
    """The fields of a line for those that are not in the log."""
    return {"time": time.time(), "event": "fastaudit.lost", "lost": count}


def _of_request(request: Request) -> dict[str, Any]:
    own = {"event": "fastaudit.request", "effect": "network", "args": []}
    told = {key: getattr(request, key) for key in ("time", "verdict", "rule")} | own
    found = {key: getattr(request, key) for key in OF_REQUESTS}
    return told | {key: value for key, value in found.items() if value is not None}


def line_of(told: dict[str, Any], log: AuditLog, source: str) -> bytes:
    """A line of the log; its source is the side that tells it: ``"guest"`` or ``"host"``."""
    own = {} if log.name is None else {"guard": log.name}
    line = json.dumps({"version": 2, **told, **own, "source": source}, separators=(",", ":"))
    return line.encode() + b"\n"
