"""Pictures of the figures, as SVG that can be read on light and dark pages."""

from __future__ import annotations

import math
from html import escape

from cases import CASES, show
from figures import Rounds, net

# Okabe and Ito's palette, which colour-blind readers can tell apart.
COLOURS = {"0.1.0": "#D55E00", "0.2.10": "#CC79A7", "ours": "#0072B2", "floor": "#888888"}
DARK = {"ours": "#56B4E9"}
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.small { font-size: 11px; fill: #57606a; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.link { stroke: #d0d7de; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .small { fill: #9198a1; }
  .grid, .link { stroke: #3d444d; }
}
"""


def style() -> str:
    """The style sheet, with a class for each implementation."""
    names = {name: "i" + name.replace(".", "") for name in COLOURS}
    light = "".join(
        f".{names[name]} {{ fill: {colour}; stroke: {colour}; }}\n"
        for name, colour in COLOURS.items()
    )
    dark = "".join(
        f".{names[name]} {{ fill: {colour}; stroke: {colour}; }}" for name, colour in DARK.items()
    )
    return f"<style>{STYLE}{light}@media (prefers-color-scheme: dark) {{ {dark} }}</style>"


def mark(name: str, x: float, y: float) -> str:
    """A dot; that of the floor is a bar."""
    kind = "i" + name.replace(".", "")
    if name == "floor":
        return f'<rect class="{kind}" x="{x - 1.5:.1f}" y="{y - 7:.1f}" width="3" height="14"/>'
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{6 if name == "ours" else 5}"/>'


def overhead(rounds: Rounds) -> str:
    """A row of dots for each case, on a logarithmic scale."""
    cases = [case for case in CASES if case.net and net(rounds, case, "ours")]
    left, width, height, top = 300, 860, 30, 58
    low, high = 1.0, 1e8
    bottom = top + height * len(cases)

    def place(time: float) -> float:
        time = min(max(time, low), high)
        return left + (width - left - 30) * math.log(time / low) / math.log(high / low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 34}" '
        f'width="{width}" height="{bottom + 34}" role="img">',
        "<title>What a guard costs</title>",
        style(),
    ]
    x = 40
    for name, label in (
        ("ours", "fastaudit_rs"),
        ("0.1.0", "fastaudit 0.1.0"),
        ("0.2.10", "fastaudit 0.2.10"),
        ("floor", "a hook that does nothing"),
    ):
        parts.append(mark(name, x, 18) + f'<text x="{x + 12}" y="22">{label}</text>')
        x += 36 + 8 * len(label)
    for power in range(int(math.log10(high)) + 1):
        x = round(place(10**power))
        parts.append(f'<line class="grid" x1="{x}" y1="{top - 14}" x2="{x}" y2="{bottom}"/>')
        parts.append(
            f'<text class="small" x="{x}" y="{bottom + 18}" text-anchor="middle">'
            f"{show(10**power).replace('.00', '').replace('.0', '')}</text>"
        )
    for number, case in enumerate(cases):
        y = top + height * number + height / 2
        title = escape(case.title.replace("`", ""))
        parts.append(f'<text x="{left - 14}" y="{y + 4}" text-anchor="end">{title}</text>')
        times = {name: net(rounds, case, name) for name in ("floor", "0.2.10", "0.1.0", "ours")}
        places = {name: place(min(each)) for name, each in times.items() if each}
        parts.append(
            f'<line class="link" x1="{min(places.values()):.1f}" y1="{y}" '
            f'x2="{max(places.values()):.1f}" y2="{y}"/>'
        )
        parts += [mark(name, x, y) for name, x in places.items()]
    return "\n".join([*parts, "</svg>"]) + "\n"
