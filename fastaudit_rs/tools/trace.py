"""The operations of a program: as a table, and as a page with a timeline."""

import html
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, TextIO

from .. import Recording, __version__
from .._text import red
from ..timeline import milliseconds
from .denials import COLOUR
from .options import would_allow
from .summary import Touched, summary_of, touched_of

TEMPLATE = Path(__file__).with_name("trace.html")

#: The lanes of the timeline, the most far-reaching effects first.
LANES = ("write", "delete", "process", "network", "env", "native", "thread", "import", "read")

#: Columns of the timeline: operations in the same one share a mark.
COLUMNS = 480

WIDTH, LEFT, LANE, MARK = 960, 84, 26, 14


@dataclass
class Trace:
    """The files, hosts and programs that a program touched, in order."""

    command: str
    status: int
    seconds: float
    touched: list[Touched]
    #: The number of operations that were not kept.
    dropped: int
    #: The options of the command that would have allowed it.
    options: str | None
    #: The events that no options allow.
    never: Sequence[str] = ()


def read(lines: Iterable[str], recording: Recording, begun: float, here: str) -> list[Touched]:
    """Return the operations in the lines of a log, with the call chains of the recording."""
    chains = {
        _key(effect): effect["call_chain"] for effect in json.loads(recording.to_json())["effects"]
    }
    found: dict[str, Touched] = {}
    for line in lines:
        entry = json.loads(line)
        key = _key(entry)
        touched = found.get(key)
        if touched is None:
            found[key] = touched = touched_of(entry, chains.get(key, ()), here)
        touched.times.append(max(entry["time"] - begun, 0.0))
        touched.count += 1
    return list(found.values())


def _key(entry: dict[str, Any]) -> str:
    return json.dumps([entry["event"], entry["args"], entry["verdict"]])


def write_table(trace: Trace, to: TextIO) -> None:
    """Print a summary: the most important first, similar operations in one row."""
    summary = summary_of(trace.touched)
    colour = to.isatty() and "NO_COLOR" not in os.environ
    for number, line in enumerate(summary.lines()):
        is_denied = number > 0 and summary.rows[number - 1].needs
        print(red(line) if colour and is_denied else line, file=to)
    rest = summary.rest("--all")
    if rest:
        print(rest, file=to)
    _write_end(trace, to)


def write_all(trace: Trace, to: TextIO) -> None:
    """Print all of it in the order of time, with `rich` if it is installed."""
    rows = [_row(touched) for touched in trace.touched]
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
        for row, touched in zip(rows, trace.touched, strict=True):
            style = "" if touched.is_allowed else "red"
            table.add_row(*(Text(cell, style=style) for cell in row))
        Console(file=to, highlight=False).print(table)
    _write_end(trace, to)


def _write_end(trace: Trace, to: TextIO) -> None:
    if trace.dropped:
        print(f"and {trace.dropped} more that were not kept", file=to)
    needed = would_allow(trace.never, trace.options, "fastaudit-rs run")
    if needed is not None:
        print(needed, file=to)


def _row(touched: Touched) -> tuple[str, str, str, str, str, str]:
    return (
        milliseconds(touched.times[0]),
        touched.needs,
        touched.effect,
        touched.target,
        touched.event,
        str(touched.count),
    )


def page(trace: Trace) -> str:
    """Return a page of HTML that needs nothing else."""
    denied = sum(not touched.is_allowed for touched in trace.touched)
    needed = ""
    if trace.never:
        needed = f"<p>{html.escape(would_allow(trace.never, None, '') or '')}</p>"
    elif trace.options is not None:
        options = html.escape(trace.options)
        needed = f"<p>To allow what is red: <code>fastaudit-rs run {options}</code></p>"
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        colour=COLOUR,
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
    called = f"<details><summary>called by</summary>{chain}</details>" if chain else ""
    at, needs, effect, target, event, times = map(html.escape, _row(touched))
    cells = (
        f"<td class='n'>{at.removesuffix(' ms')}</td>",
        f"<td>{effect}</td>",
        f"<td class='t'>{target}{called}</td>",
        f"<td>{event}</td>",
        f"<td>{needs}</td>",
        f"<td class='n'>{times}</td>",
    )
    return f"<tr class='{kinds.strip()}'>{''.join(cells)}</tr>"


def timeline(trace: Trace) -> str:
    """Return the timeline as SVG: a lane for each effect, with marks for its operations."""
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
    """Return the operations in each column of a lane, allowed and denied ones apart."""
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
