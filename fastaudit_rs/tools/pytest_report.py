"""Tests that reached outside: in lines for the reader, in markers, and in a baseline file.

A baseline has a line for each thing that a test does, the test first. The line is the same in each
run and on each machine: places are relative to the root directory or the home directory, and random
names, times, numbers of processes and ports that the system hands out are stars.
"""

import functools
import itertools
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .. import AuditDenied
from .._text import printable
from .denials import in_one_line, object_of

HEADER = """\
# Reached outside by tests, as `pytest --audit=record --audit-baseline=FILE` found it.
# `pytest --audit=raise --audit-baseline=FILE` accepts it.
"""

#: The first of the ports that systems hand out (Linux; others begin higher).
EPHEMERAL = 32768

_NUMBERS = itertools.count()

#: `Path.touch()` makes a file, or sets the times of one that is there.
_ALIKE = {"os.utime": "open"}

#: Names and numbers that differ in each run, and their stand-ins.
_MADE_UP = (
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "*"),
    # Dates, times of day, seconds since 1970, and tokens.
    (re.compile(r"(?<!\d)\d{4}(-?)\d\d\1\d\d([T_ -]\d\d([:.-]?\d\d){1,2}(\.\d+)?)?(?!\d)"), "*"),
    (re.compile(r"(?<![0-9A-Za-z])\d{10}\.\d+(?![0-9A-Za-z])"), "*"),
    (re.compile(r"(?<![0-9A-Za-z])(?=[a-f]*\d)[0-9a-f]{8,}(?![0-9A-Za-z])"), "*"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "0x*"),
    (re.compile(r"\btmp[a-z0-9_]{8}\b"), "tmp*"),
    (re.compile(r"\bfastaudit_[a-z0-9_]+\b"), "fastaudit_*"),
    (re.compile(r"\bpytest-of-[^/]+/pytest-\d+\b"), "pytest-*"),
    # The directory of a worker of pytest-xdist.
    (re.compile(r"/popen-gw\d+(?=/)"), ""),
)


class Reached:
    """The operations by which a test reached outside."""

    def __init__(
        self,
        test: str,
        root: Path,
        accepted: frozenset[str] = frozenset(),
        temporary: Path | None = None,
        takes_marker: bool = True,
    ) -> None:
        """Begin with nothing. Copies of the process write operations to a file in `temporary`."""
        self.denials: list[AuditDenied] = []
        self.lines: list[str] = []
        self.entries: list[str] = []
        self._test = test
        self._root = root
        self._accepted = accepted
        self._takes_marker = takes_marker
        # Under the guard `tempfile` returns the guard's directory.
        self._places = _places(root)
        self._here = os.getcwd() + os.sep
        self._process = os.getpid()
        #: The directory of a file for each copy.
        self._files = None if temporary is None else temporary / f"audit-{next(_NUMBERS)}"

    def note(self, denied: AuditDenied) -> bool:
        """Note a denial now: the test may go to another directory. False if the baseline has it."""
        event = _ALIKE.get(denied.event, denied.event)
        entry = f"{self._test}: {event} {_stable(denied, self._places)}".rstrip()
        if entry in self._accepted:
            return False
        if os.getpid() != self._process:
            self._tell(denied)
            return True
        self.denials.append(denied)
        line = self._shown(denied)
        if line not in self.lines:
            self.lines.append(line)
        if entry not in self.entries:
            self.entries.append(entry)
        return True

    def _tell(self, denied: AuditDenied) -> None:
        """Report to the process that this one is a copy of."""
        if self._files is not None:
            self._files.mkdir(exist_ok=True)
            with open(self._files / str(os.getpid()), "a", encoding="utf-8") as file:
                file.write(json.dumps({**denied.to_dict(), "path": _absolute(denied)}) + "\n")

    def gather(self) -> None:
        """Note the reports of copies of the process."""
        if self._files is None or not os.path.isdir(self._files):
            return
        for file in sorted(self._files.iterdir()):
            for line in file.read_text(encoding="utf-8").splitlines():
                self.note(AuditDenied.from_dict(json.loads(line)))
            file.unlink()
        self._files.rmdir()

    def refuse(self, denied: AuditDenied) -> None:
        """Raise a denial, unless the baseline has it."""
        __tracebackhide__ = True
        if self.note(denied):
            raise denied

    def marker(self) -> str | None:
        """Write the marker that would allow all of it; ``None`` if none would."""
        fields: dict[str, Any] = {}
        for denied in self.denials:
            fields = _both(fields, denied.suggestion or {})
        is_told = self._takes_marker and fields
        return f"@pytest.mark.audit({self._arguments(fields)})" if is_told else None

    def _shown(self, denied: AuditDenied) -> str:
        below = os.fspath(self._root) + os.sep
        path, place = _absolute(denied), denied.place
        named = None if path is None else path.removeprefix(below)
        place = None if place is None else place.removeprefix(below)
        # A marker allows the others: one line tells it of all of them.
        has_hint = denied.suggestion is None or not self._takes_marker
        return in_one_line(denied, named=named, place=place, has_hint=has_hint)

    def _arguments(self, fields: Mapping[str, Any]) -> str:
        return ", ".join(f"{name}={self._value(name, value)}" for name, value in fields.items())

    def _value(self, name: str, value: Any) -> str:
        if name in ("write", "read", "block") and isinstance(value, list):
            # If the test is guarded they are read from the same directory.
            own = {self._here.rstrip(os.sep): "."}
            return repr([own.get(path, path.removeprefix(self._here)) for path in value])
        return repr(value)


def _both(one: Any, other: Any) -> Any:
    """What allows the one and the other: all of two lists, or of two fields; else the more."""
    if isinstance(one, dict) and isinstance(other, dict):
        new = {name: _both(one[name], value) for name, value in other.items() if name in one}
        return one | other | new
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *(each for each in other if each not in one)]
    if type(one) is type(other) is int:
        return max(one, other)
    return one if isinstance(other, list) else other


def _absolute(denied: AuditDenied) -> str | None:
    return None if denied.path is None else os.path.abspath(denied.path)


def test_of(nodeid: str) -> str:
    """The name of a test, without the group that pytest-xdist adds to it."""
    return re.sub(r"@[^\[\]/:]*$", "", nodeid)


def _stable(denied: AuditDenied, places: list[tuple[str, str]]) -> str:
    if denied.event in ("os.kill", "os.killpg", "signal.pidfd_send_signal"):
        return _signal(denied.event_args)
    text = object_of(denied)
    if denied.path is not None:
        text = os.path.abspath(denied.path)
        text = re.sub(rf"\b(?:{os.getpid()}|{os.getppid()})\b", "*", text)
    elif denied.event.startswith("socket."):
        text = re.sub(r":(\d+)$", _port, text)
    for place, name in places:
        text = re.sub(r"(?<![\w.-])" + re.escape(place) + r"(?=[/\s'\",:]|$)", name, text)
    for made_up, name in _MADE_UP:
        text = made_up.sub(name, text)
    return printable(" ".join(text.removeprefix("./").split()))


def _signal(args: tuple[Any, ...]) -> str:
    try:
        return signal.Signals(args[1]).name
    except (ValueError, IndexError):
        return ""


def _port(port: re.Match[str]) -> str:
    return ":*" if int(port[1]) >= EPHEMERAL else port[0]


@functools.cache
def _places(root: Path) -> list[tuple[str, str]]:
    """Places that differ on each machine, with their names; the inner ones first."""
    # If two are the same the later one names it.
    places = {
        tempfile.gettempdir(): "<tmp>",
        os.path.expanduser("~"): "~",
        sys.base_prefix: "<prefix>",
        sys.prefix: "<prefix>",
        sys.executable: "python",
        os.fspath(root): ".",
    }
    found = [(place, name) for place, name in places.items() if len(place) > 1]
    return sorted(found, key=lambda each: -len(each[0]))


def read_baseline(file: Path) -> frozenset[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def check_baseline(file: Path) -> None:
    """Raise `OSError` or `ValueError` if a baseline cannot be written, or is none."""
    file.open("ab").close()
    read_baseline(file)


def write_baseline(file: Path, reached: Mapping[str, Iterable[str]]) -> int:
    """Write a baseline, and return its number of entries. Those of tests that did not run stay."""
    ran = tuple(f"{test}: " for test in reached)
    before = read_baseline(file) if file.exists() else frozenset()
    entries = {own for own in before if not own.startswith(ran)}
    entries.update(*reached.values())
    text = HEADER + "".join(f"{own}\n" for own in sorted(entries))
    # The old one stays if the text has no bytes.
    file.write_bytes(text.encode())
    return len(entries)
