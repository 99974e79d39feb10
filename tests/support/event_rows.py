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
    versions: str
    raised_by_us: str
    verdict: str
    verdict_02: str
    fields: str

    @property
    def is_own(self):
        """True if this package raises it, and CPython does not."""
        return self.versions == "this package"

    @property
    def functions(self):
        """The functions that this package raises it for, `module.name`."""
        return re.findall(r"`([^`]+)`", self.raised_by_us)

    @property
    def judged(self):
        """The positions of the arguments that have to be inside the roots."""
        is_of_paths = self.verdict.startswith("argument")
        return tuple(sorted(int(n) - 1 for n in re.findall(r"\d", self.verdict) if is_of_paths))


LINES = re.findall(r"^\| `.*\|$", PAGE.read_text(), re.MULTILINE)
CELLS = [[cell.strip(" ") for cell in line.split("|")[1:-1]] for line in LINES]
ROWS = {event.strip("`"): Row(event.strip("`"), *others) for event, *others in CELLS}
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
