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
