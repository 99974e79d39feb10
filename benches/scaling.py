"""The growth of a guard's cost: with roots, paths, stacks, nested guards, tasks and threads.

A check does not look at each root, frame or guard, so that most curves are flat. The operating
system's own walk over a path is linear.
"""

import argparse
import json
import math
import os
import sys
import tempfile
from html import escape
from pathlib import Path

import venvs
from cases import show
from growth import CURVES
from picture import COLOURS, style
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

HERE = Path(__file__).parent
IMPLEMENTATIONS = ("bare", "0.1.0", "0.2.10", "ours")
# Implementation -> curve -> size -> nanoseconds.
Results = dict[str, dict[str, dict[int, float]]]


def slope(curve: dict[int, float]) -> float:
    """The exponent of the power law that fits best: 0 is flat, 1 linear."""
    points = [(math.log(size), math.log(time)) for size, time in curve.items() if time > 0]
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    across = sum((a - x) ** 2 for a, _ in points)
    return sum((a - x) * (b - y) for a, b in points) / across


def word(exponent: float) -> str:
    """The name of such a curve."""
    if abs(exponent) < 0.15:
        return "flat"
    return "linear" if 0.75 < exponent < 1.25 else f"n^{exponent:.1f}"


def measure(pythons: dict[str, Path], rounds: int) -> Results:
    """The least times of all rounds, which take turns."""
    results: Results = {name: {} for name in IMPLEMENTATIONS}
    console = Console(stderr=True)
    with Progress(console=console, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("scaling", total=rounds * len(IMPLEMENTATIONS))
        for _ in range(rounds):
            for name in IMPLEMENTATIONS:
                with tempfile.TemporaryDirectory() as base:
                    command = (pythons[name], "-B", HERE / "growth.py", name)
                    output = venvs.quietly(*command, os.path.realpath(base))
                for curve, times in json.loads(output).items():
                    known = results[name].setdefault(curve, {})
                    for size, time in times.items():
                        known[int(size)] = min(time, known.get(int(size), time))
                progress.advance(task)
    return results


def table(results: Results) -> Table:
    """Each curve's ends and its form."""
    text = Table(title="whole times; the form is that of the fitted power law")
    for column in ("grows", "measured", *IMPLEMENTATIONS):
        text.add_column(column)
    for curve, function in CURVES.items():
        cells = []
        for name in IMPLEMENTATIONS:
            times = results[name][curve]
            sizes = sorted(times)
            ends = f"{show(times[sizes[0]])} → {show(times[sizes[-1]])}"
            cells.append(f"{ends}, {word(slope(times))}")
        sizes = sorted(results["ours"][curve])
        what = (function.__doc__ or "").rstrip(".")
        text.add_row(f"{curve}, {sizes[0]} to {sizes[-1]}", what, *cells)
    return text


def panel(results: Results, curve: str, left: float, top: float) -> list[str]:
    """One small picture: times over sizes, both logarithmic."""
    width, height = 210, 130
    curves = {name: results[name][curve] for name in IMPLEMENTATIONS}
    times = [time for each in curves.values() for time in each.values()]
    sizes = sorted(curves["ours"])
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))

    def at(size: int, time: float) -> tuple[float, float]:
        across = math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])
        up = (math.log10(time) - low) / (high - low)
        return left + width * across, top + height * (1 - up)

    parts = [f'<text x="{left}" y="{top - 12}">{escape(curve)}</text>']
    for power in range(low, high + 1):
        _, y = at(sizes[0], 10**power)
        label = show(10**power).replace(".00", "").replace(".0", "")
        parts.append(
            f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}"/>'
            f'<text class="small" x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for size in sizes:
        x, _ = at(size, 10**low)
        parts.append(
            f'<text class="small" x="{x:.1f}" y="{top + height + 16}" '
            f'text-anchor="middle">{size}</text>'
        )
    for name, each in curves.items():
        kind = "i" + ("floor" if name == "bare" else name).replace(".", "")
        points = [at(size, time) for size, time in sorted(each.items())]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="{kind}" style="fill: none" points="{path}"/>')
        parts += [f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
    return parts


def picture(results: Results) -> str:
    """Small pictures, one for each curve."""
    size = 'viewBox="0 0 860 440" width="860" height="440"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        "<title>How the cost of a guard grows</title>",
        style(),
        "<style>polyline { stroke-width: 2; }</style>",
    ]
    x = 70
    labels = {
        "ours": "fastaudit_rs",
        "0.1.0": "fastaudit 0.1.0",
        "0.2.10": "fastaudit 0.2.10",
        "floor": "no guard",
    }
    for name in ("ours", *(name for name in COLOURS if name != "ours")):
        kind = "i" + name.replace(".", "")
        parts.append(f'<circle class="{kind}" cx="{x}" cy="18" r="5"/>')
        parts.append(f'<text x="{x + 12}" y="22">{labels[name]}</text>')
        x += 36 + 8 * len(labels[name])
    for number, curve in enumerate(CURVES):
        column, line = number % 3, number // 3
        parts += panel(results, curve, 70 + 275 * column, 74 + 195 * line)
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Measure, print the table and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter to measure with")
    parser.add_argument("--venvs", default=".venvs", help="where to make the environments")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    version = venvs.version_of(options.python)
    place = (venvs.ROOT / options.venvs).resolve() / f"bench-{version}"
    results = measure(venvs.make(options.python, place), options.rounds)
    Console(width=None if sys.stdout.isatty() else 200).print(table(results))
    (HERE.parent / "docs/scaling.svg").write_text(picture(results))


if __name__ == "__main__":
    main()
