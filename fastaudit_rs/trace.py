"""What a program touched, in the order of time: as a table, and as a page with a timeline."""

import html
import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, TextIO

from . import Recording, __version__
from .permissions import needed_for

TEMPLATE = Path(__file__).with_name("trace.html")

#: The lanes of the timeline, from what changes most.
LANES = ("write", "process", "network", "env", "native", "thread", "import", "read")

#: Columns of the timeline: what falls into the same one is one mark.
COLUMNS = 480

WIDTH, LEFT, LANE, MARK = 960, 84, 26, 14


@dataclass
class Touched:
    """One thing that was done, and when."""

    effect: str
    event: str
    target: str
    verdict: str
    #: Whether it is a part of something else that is told: of an import, of starting a process.
    is_detail: bool
    call_chain: Sequence[str] = ()
    #: Seconds since the program began.
    times: list[float] = field(default_factory=list)

    @property
    def is_allowed(self) -> bool:
        """Whether the policy allows it."""
        return self.verdict == "allowed"


@dataclass
class Trace:
    """What a program touched, the first first."""

    command: str
    status: int
    seconds: float
    touched: list[Touched]
    #: How much more was not kept.
    dropped: int
    #: What would have allowed it, as options of the command.
    options: str | None


def read(lines: Iterable[str], recording: Recording, begun: float, here: str) -> list[Touched]:
    """What the lines of a log tell, with the call chains of the recording.

    Args:
        lines: The log of the recording, JSON.
        recording: What recorded it.
        begun: When the program began, in seconds since 1970.
        here: The directory that it began in. What is below is told without it.
    """
    chains = {
        _key(effect): effect["call_chain"] for effect in json.loads(recording.to_json())["effects"]
    }
    found: dict[str, Touched] = {}
    for line in lines:
        entry = json.loads(line)
        key = _key(entry)
        touched = found.get(key)
        if touched is None:
            found[key] = touched = _touched(entry, chains.get(key, ()), here)
        touched.times.append(max(entry["time"] - begun, 0.0))
    return list(found.values())


def _key(entry: dict[str, Any]) -> str:
    return json.dumps([entry["event"], entry["args"], entry["verdict"]])


def _touched(entry: dict[str, Any], chain: Sequence[str], here: str) -> Touched:
    args = entry["args"]
    effect = entry["effect"] or "other"
    told = entry["path"] is not None or entry["host"] is not None
    is_plain = bool(args) and isinstance(args[0], str)
    is_detail = effect == "import" or (
        entry["verdict"] == "allowed"
        and not told
        and (effect in ("network", "read") or not is_plain)
    )
    target = _target(entry, here)
    return Touched(effect, entry["event"], target, entry["verdict"], is_detail, chain)


def _target(entry: dict[str, Any], here: str) -> str:
    """What it was done to."""
    if entry["path"] is not None:
        path: str = entry["path"]
        return path.removeprefix(here.rstrip("/") + "/") or path
    args = entry["args"]
    if entry["host"] is not None:
        # The address of a socket, or a host and a port.
        port = next((arg[1] for arg in args if isinstance(arg, list) and len(arg) > 1), None)
        return f"{entry['host']}:{port}" if isinstance(port, int) else str(entry["host"])
    shown = args[0] if args and isinstance(args[0], str) else ", ".join(map(str, args))
    return textwrap.shorten(shown, 100, placeholder=" …")


def write_table(trace: Trace, to: TextIO) -> None:
    """Print a table, with `rich` where it is installed."""
    shown = [touched for touched in trace.touched if not touched.is_detail]
    rows = [_row(touched) for touched in shown]
    heads = ("at", "needs", "effect", "target", "event", "times")
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        for row in (heads, *rows):
            print("{:>10}  {:<7}  {:<8}  {}  {}  {}".format(*row), file=to)
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for head in heads:
            table.add_column(
                head,
                justify="right" if head in ("at", "times") else "left",
                overflow="fold",
                no_wrap=head not in ("target", "event"),
            )
        for row, touched in zip(rows, shown, strict=True):
            style = "" if touched.is_allowed else "red"
            table.add_row(*(Text(cell, style=style) for cell in row))
        Console(file=to, highlight=False).print(table)
    modules = {touched.target for touched in trace.touched if touched.effect == "import"}
    print(f"and {len(modules)} modules imported", file=to)
    if trace.dropped:
        print(f"and {trace.dropped} more that were not kept", file=to)
    if trace.options is not None:
        print(f"fastaudit-rs run {trace.options} would allow it", file=to)


def _row(touched: Touched) -> tuple[str, str, str, str, str, str]:
    return (
        f"{touched.times[0] * 1000:.1f} ms",
        needed_for(touched.verdict),
        touched.effect,
        touched.target,
        touched.event,
        str(len(touched.times)),
    )


def page(trace: Trace) -> str:
    """A page of HTML that needs nothing else."""
    denied = sum(not touched.is_allowed for touched in trace.touched)
    needed = (
        f"<p>To allow what is red: <code>fastaudit-rs run {html.escape(trace.options)}</code></p>"
        if trace.options is not None
        else ""
    )
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        command=html.escape(trace.command),
        version=__version__,
        status=trace.status,
        seconds=f"{trace.seconds:.3f}",
        things=len(trace.touched),
        denied=denied,
        needed=needed,
        timeline=timeline(trace),
        rows="\n".join(map(_html_row, trace.touched)),
    )


def _html_row(touched: Touched) -> str:
    kinds = "detail" if touched.is_detail else ""
    if not touched.is_allowed:
        kinds += " denied"
    chain = "<br>".join(html.escape(name) for name in touched.call_chain)
    cells = (
        f"<td class='n'>{touched.times[0] * 1000:.1f}</td>",
        f"<td>{html.escape(touched.effect)}</td>",
        f"<td class='t'>{html.escape(touched.target)}"
        + (f"<details><summary>called by</summary>{chain}</details></td>" if chain else "</td>"),
        f"<td>{html.escape(touched.event)}</td>",
        f"<td>{html.escape(needed_for(touched.verdict))}</td>",
        f"<td class='n'>{len(touched.times)}</td>",
    )
    return f"<tr class='{kinds.strip()}'>{''.join(cells)}</tr>"


def timeline(trace: Trace) -> str:
    """The timeline as SVG: a lane for each effect, and a mark for what was done at a time."""
    effects = {touched.effect for touched in trace.touched}
    lanes = [lane for lane in LANES if lane in effects] + sorted(effects.difference(LANES))
    seconds = max([trace.seconds, *(touched.times[-1] for touched in trace.touched)], default=0.0)
    seconds = seconds or 1e-3
    height = LANE * len(lanes) + 24
    room = WIDTH - LEFT - 12
    parts = [
        f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='What was done when'>",
    ]
    for tick in ticks(seconds):
        x = LEFT + room * tick / seconds
        parts.append(
            f"<line class='tick' x1='{x:.1f}' x2='{x:.1f}' y1='0' y2='{height - 20}'/>"
            f"<text class='tick' x='{x:.1f}' y='{height - 6}'>{duration(tick)}</text>"
        )
    for number, lane in enumerate(lanes):
        y = number * LANE + (LANE - MARK) / 2
        parts.append(
            f"<text class='lane' x='{LEFT - 10}' y='{y + MARK - 3}'>{html.escape(lane)}</text>"
            f"<line class='lane' x1='{LEFT}' x2='{WIDTH - 12}' y1='{y + MARK / 2}' "
            f"y2='{y + MARK / 2}'/>"
        )
        for (column, kind), names in sorted(_marks(trace.touched, lane, seconds).items()):
            x = LEFT + room * column / COLUMNS
            shown = "\n".join(names[:8] + (["…"] if len(names) > 8 else []))
            parts.append(
                f"<rect class='{kind}' x='{x:.1f}' y='{y}' width='3' height='{MARK}' rx='1'>"
                f"<title>{html.escape(shown)}</title></rect>"
            )
    parts.append("</svg>")
    return "\n".join(parts)


def _marks(
    touched: Iterable[Touched], lane: str, seconds: float
) -> dict[tuple[int, str], list[str]]:
    """What was done in each column of a lane, what is allowed and what is not apart."""
    marks: dict[tuple[int, str], list[str]] = {}
    for thing in touched:
        if thing.effect == lane:
            kind = "allowed" if thing.is_allowed else "denied"
            for column in {int(time / seconds * COLUMNS) for time in thing.times}:
                names = marks.setdefault((column, kind), [])
                names.append(f"{thing.event} {thing.target}")
    return marks


def ticks(seconds: float) -> list[float]:
    """Round times from 0, up to eleven of them."""
    step = 10 ** math.floor(math.log10(seconds / 4))
    for factor in (1, 2, 5, 10):
        if seconds / (step * factor) <= 10:
            step *= factor
            break
    return [number * step for number in range(int(seconds / step) + 1)]


def duration(seconds: float) -> str:
    """A time as people write it."""
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"
