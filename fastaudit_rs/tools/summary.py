"""Operations of code, and a short table of them: similar ones in one row."""

import html
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .._text import printable
from ..timeline import target_of
from .denials import COLOUR, cut
from .options import needed_for

#: Events that remove something, among those that write.
DELETES = frozenset({"os.remove", "os.rmdir", "os.removexattr", "shutil.rmtree"})

ROWS = 25

COLUMNS = 100

#: Kinds of operations, the most important first.
ORDER = ("write", "delete", "process", "network", "env", "thread", "other", "native", "read")

#: The most rows that each of these may have, if there are too many rows.
FEW = {"native": 8, "read": 6}

#: The most rows that other kinds may have before files are summed up by their directories.
MANY = 10

HEADS = ("needs", "effect", "times", "target")


@dataclass
class Touched:
    effect: str
    event: str
    target: str
    verdict: str
    #: True if it is a part of an import, or of a process's start, which is shown itself.
    is_detail: bool
    call_chain: Sequence[str] = ()
    #: Seconds since the program began, if known.
    times: list[float] = field(default_factory=list)
    #: The number of times that it was done.
    count: int = 0

    @property
    def is_allowed(self) -> bool:
        return self.verdict == "allowed"

    @property
    def needs(self) -> str:
        """Return the words that would allow it; empty if it is allowed."""
        return needed_for(self.verdict, self.event)


def touched_of(entry: dict[str, Any], chain: Sequence[str], here: str | None = None) -> Touched:
    """Read an entry of a recording, or of its log; paths below `here` are shown without it."""
    args, verdict = entry["args"], entry["verdict"]
    effect = "delete" if entry["event"] in DELETES else entry["effect"] or "other"
    is_plain = bool(args) and isinstance(args[0], str)
    is_part = effect in ("network", "read") or not is_plain
    is_named = target_of(entry) is not None
    is_detail = effect == "import" or (verdict == "allowed" and not is_named and is_part)
    count = entry.get("count", 0)
    target = printable(_target(entry, here))
    return Touched(effect, entry["event"], target, verdict, is_detail, chain, count=count)


def _target(entry: dict[str, Any], here: str | None) -> str:
    args, path = entry["args"], entry["path"]
    is_plain = bool(args) and isinstance(args[0], str)
    if path is None and entry["effect"] in ("read", "write") and is_plain:
        path = os.path.normpath(args[0])
    if path is not None:
        below = path if here is None else str(path).removeprefix(here.rstrip("/") + "/")
        return below or str(path)
    if (named := target_of(entry)) is not None:
        return named
    if entry["event"] == "fastaudit.call" and len(args) > 1:
        # The caller is in the call chain.
        return str(args[1])
    return cut(args[0] if is_plain else ", ".join(map(str, args)))


@dataclass(frozen=True)
class Row:
    """One row: similar operations, and their number."""

    needs: str
    effect: str
    target: str
    times: int
    #: The number of different things it stands for.
    things: int = 1

    @property
    def shown(self) -> str:
        """The target, and the number of targets."""
        return self.target if self.things == 1 else f"{self.target} ({self.things} different)"


@dataclass(frozen=True)
class Summary:
    rows: list[Row]
    #: The number of different things without a row.
    hidden: int
    #: The number of modules that were imported.
    modules: int

    def lines(self) -> list[str]:
        cells = [HEADS, *((row.needs, row.effect, str(row.times), row.shown) for row in self.rows)]
        needs, effect, times = (max(len(cell[column]) for cell in cells) for column in range(3))
        room = COLUMNS - needs - effect - times - 6
        return [
            f"{row[0]:{needs}}  {row[1]:{effect}}  {row[2]:>{times}}  {shortened(row[3], room)}"
            for row in cells
        ]

    def page(self) -> str:
        left, right = "text-align:left", "text-align:right"
        head = "".join(
            f"<th style='{right if name == 'times' else left}'>{name}</th>" for name in HEADS
        )
        body = "".join(
            f"<tr{f' style=color:{COLOUR}' if row.needs else ''}><td style='{left}'>"
            f"{html.escape(row.needs)}</td><td style='{left}'>{html.escape(row.effect)}</td>"
            f"<td style='{right}'>{row.times}</td><td style='{left}'>"
            f"<code>{html.escape(shortened(row.shown, COLUMNS))}</code></td></tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def rest(self, all_of_it: str) -> str:
        """Count the operations that have no row, and name the command that shows them."""
        modules = f"{self.modules} modules imported" if self.modules else ""
        hidden = f"{self.hidden} more different operations" if self.hidden else ""
        told = ", ".join(part for part in (hidden, modules) if part)
        return f"and {told}: {all_of_it} shows all" if told else ""


def summary_of(touched: Iterable[Touched]) -> Summary:
    """Sum up what was done.

    Native calls have a row for each package, reads one for each directory; other files are summed
    up by directories if they would take too many rows.
    """
    kinds: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
    modules: set[str] = set()
    for thing in touched:
        if thing.effect == "import":
            modules.add(thing.target)
        if not thing.is_detail or not thing.is_allowed:
            found = kinds.setdefault((thing.needs, thing.effect), {})
            events = found.setdefault(thing.target, {})
            events[thing.event] = events.get(thing.event, 0) + thing.count
    shown: list[Row] = []
    for needs, effect in sorted(kinds, key=_rank):
        # Opening a file that was just made does not write it a second time.
        times = {target: max(events.values()) for target, events in kinds[needs, effect].items()}
        shown += _rows(needs, effect, times)
    if len(shown) >= ROWS:
        shown, more = shown[: ROWS - 1], shown[ROWS - 1 :]
        return Summary(shown, sum(row.things for row in more), len(modules))
    return Summary(shown, 0, len(modules))


def _rank(kind: tuple[str, str]) -> tuple[bool, bool, int]:
    needs, effect = kind
    order = ORDER.index(effect) if effect in ORDER else ORDER.index("other")
    return not needs, needs != "denied", order


def _rows(needs: str, effect: str, times: dict[str, int]) -> list[Row]:
    """Return the rows of one kind, summed up if they have to be."""
    if effect == "native":
        rows = _grouped(needs, effect, times, lambda target: target.partition(".")[0])
        rows.sort(key=lambda row: -row.times)
        few = FEW[effect]
        if len(rows) > few:
            rest = rows[few - 1 :]
            names = ", ".join(row.target for row in rest)
            sums = sum(row.times for row in rest), sum(row.things for row in rest)
            rows = [*rows[: few - 1], Row(needs, effect, names, *sums)]
        return rows
    limit = FEW.get(effect, MANY)
    rows = [Row(needs, effect, target, count) for target, count in times.items()]
    if effect == "read" and len(rows) > 1:
        rows = _grouped(needs, effect, times, os.path.dirname)
    if effect not in ("read", "write", "delete"):
        return rows
    deepest = max(target.count("/") for target in times)
    # The deepest directories are taken together, until few enough are left.
    for level in range(max(deepest - 1, 0), -1, -1)[:32]:
        if len(rows) > limit:
            rows = _grouped(needs, effect, times, partial(_above, level))
    return rows


def _above(level: int, target: str) -> str:
    """The directory of a file that is at most at this level."""
    return "/".join(os.path.dirname(target).split("/")[: level + 1])


def _grouped(
    needs: str, effect: str, times: dict[str, int], group_of: Callable[[str], str]
) -> list[Row]:
    groups: dict[str, list[str]] = {}
    for target in times:
        groups.setdefault(group_of(target), []).append(target)
    return [
        Row(
            needs,
            effect,
            targets[0] if len(targets) == 1 and effect != "native" else _named(group, effect),
            sum(times[target] for target in targets),
            len(targets),
        )
        for group, targets in groups.items()
    ]


def _named(group: str, effect: str) -> str:
    return group if effect == "native" else f"{group or '.'}/".replace("//", "/")


def shortened(text: str, room: int) -> str:
    """Shorten a text in its middle if it is too long: the ends of a path say most."""
    if len(text) <= room:
        return text
    head = room // 3
    return f"{text[:head]}…{text[len(text) - (room - head - 1) :]}"
