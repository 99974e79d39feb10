"""The rows of `docs/events.md`, which `tests/events_page.rs` makes from the table of events."""

import re
from typing import NamedTuple

from repository import ROOT

PAGE = ROOT / "docs/events.md"


class Row(NamedTuple):
    """An audit event: who raises it, and the verdict on it."""

    event: str
    does: str
    effect: str
    raised_by: str
    verdict: str
    verdict_02: str
    fields: str
    #: The functions that this package raises it for, `module.name`.
    functions: list[str]

    @property
    def is_own(self):
        """True if this package raises it, and CPython does not."""
        return self.raised_by.startswith("this package")

    @property
    def versions(self):
        """The versions of CPython that raise it, where not all do."""
        return self.raised_by.partition("; ")[0]

    @property
    def judged(self):
        """The positions of the arguments that have to be inside the roots."""
        is_of_paths = self.verdict.startswith("argument")
        return tuple(sorted(int(n) - 1 for n in re.findall(r"\d", self.verdict) if is_of_paths))


def rows(line):
    """The rows of a line: one for each event that it names, with the functions of its last name."""
    names, *cells = (cell.strip(" ") for cell in line.split("|")[1:-1])
    does, effect, raised_by, verdict, verdict_02, fields = cells
    events, functions = (re.findall(r"`([^`]+)`", cell) for cell in (names, raised_by))
    for event in events:
        own = [name for name in functions if len(events) == 1 or last(name) == last(event)]
        yield Row(event, does, effect, raised_by, verdict, verdict_02 or verdict, fields, own)


def last(name):
    """The last part of a dotted name."""
    return name.rpartition(".")[2]


LINES = re.findall(r"^\| `.*\|$", PAGE.read_text(), re.MULTILINE)
ROWS = {row.event: row for line in LINES for row in rows(line)}
#: The functions that CPython raises no event for, and the event that this package raises.
RAISED = {function: row.event for row in ROWS.values() for function in row.functions}


#: Events of this package that the original raises too.
SHARED = {"fastaudit.call", "audit_perms.set_config", "audit_perms.set_data"}
#: Events that the original knows but judges otherwise, or does not know: docs/compatibility.md.
OTHERWISE = {
    "os._clearenv", "os.utime", "resource.prlimit", "resource.setrlimit", "shutil.unpack_archive",
}  # fmt: skip


def is_shared(row):
    """True if both packages judge the event alike."""
    return row.event not in OTHERWISE and (not row.is_own or row.event in SHARED)


def events_where(decides):
    """The events of such rows."""
    return [event for event, row in ROWS.items() if decides(row)]


def is_denied(row):
    return re.match("denied($|,)", row.verdict) is not None and row.event != "os.wait"


DENIED = events_where(lambda row: is_shared(row) and is_denied(row))
DENIED_BY_US = events_where(lambda row: row.is_own and row.event not in SHARED and is_denied(row))
FIRST = events_where(lambda row: is_shared(row) and row.judged == (0,))
DESTINATION = events_where(lambda row: is_shared(row) and row.judged == (1,))
BOTH = events_where(lambda row: is_shared(row) and row.judged == (0, 1))
#: A few that pass, one that nobody raises among them.
IGNORED = ["import", "os.listdir", "os.scandir", "socket.connect", "no.such.event"]
