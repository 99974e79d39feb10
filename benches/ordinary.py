"""Measures the CPU time that ordinary snippets take under each guard, beside without one.

The snippets are those of `tests/ordinary`, their packages imported before; the kinds take turns,
and the median of the rounds counts. `--publish` writes the table into docs/ordinary.md. Fails where
the preset for notebooks misses its goal, or where the machine is too busy to tell.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "ordinary"), str(ROOT / "benches")]

import corpus  # noqa: E402
import pages  # noqa: E402
from run import machine  # noqa: E402

WORKER = ROOT / "benches" / "ordinary_worker.py"
PAGE = ROOT / "docs" / "ordinary.md"
#: The limit for the median snippet under the preset, as a multiple of its time without a guard.
GOAL = 1.02
#: The distance of bare from itself up to which the goal can be judged.
NOISE = 0.01
#: How many snippets the table shows.
SHOWN = 3
ALL = {"allow_all": True}
BARE, AGAIN = corpus.BARE, "bare again"
#: The measurements: the guard, and its callbacks and options.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    BARE: (BARE, {}),
    AGAIN: (BARE, {}),
    "0.1.0": ("0.1.0", ALL),
    "0.2.10": ("0.2.10", ALL),
    "mk_audit": ("mk_audit", ALL),
    "mk_audit, retire_sites": ("mk_audit", {**ALL, "retire_sites": True}),
    corpus.DATA: (corpus.DATA, {}),
    corpus.NOTEBOOK: (corpus.NOTEBOOK, {}),
}
HEADS = {"mk_audit, retire_sites": "`retire_sites`", corpus.DATA: '`packages="data"`'}

# Kind -> the seconds of each round, or why there are none.
Times = dict[str, list[float] | str]


def measure(snippet: dict[str, Any], kinds: list[str], rounds: int, place: Any) -> Times:
    """The times of one snippet."""
    base = os.path.realpath(tempfile.mkdtemp())
    try:
        report = Path(base, "report")
        request = corpus.request_of(
            snippet,
            BARE,
            "before",
            place,
            originals=place["originals"],
            kinds=[
                {"name": name, "guard": KINDS[name][0], "options": KINDS[name][1]} for name in kinds
            ],
            rounds=rounds,
            report=str(report),
        )
        quiet = subprocess.DEVNULL
        process = corpus.start(WORKER, request, place, base, stdout=quiet, stderr=quiet)
        try:
            process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        found: Times = json.loads(report.read_text())
        return found
    finally:
        shutil.rmtree(base, ignore_errors=True)


def ratios(times: Times) -> dict[str, float | str]:
    """Each kind to bare, by the medians."""
    bare = times.get(BARE)
    if isinstance(bare, str) or not bare:
        return {}
    return {
        name: taken if isinstance(taken, str) else median(taken) / median(bare)
        for name, taken in times.items()
        if name != BARE
    }


def over_all(measured: dict[str, Times], kind: str) -> list[float]:
    """The ratios of a kind over all snippets that passed under it."""
    found = [ratios(times).get(kind) for times in measured.values()]
    return [ratio for ratio in found if isinstance(ratio, float)]


def slowest(measured: dict[str, Times], kind: str) -> list[tuple[str, dict[str, float | str]]]:
    """The ratios of the snippets that a kind slows most, the slowest first."""

    def of_kind(item: tuple[str, dict[str, float | str]]) -> float:
        ratio = item[1].get(kind)
        return ratio if isinstance(ratio, float) else 0.0

    found = [(name, ratios(times)) for name, times in measured.items()]
    passed = [item for item in found if of_kind(item)]
    return sorted(passed, key=of_kind, reverse=True)[:SHOWN]


def show(ratio: float | str | None) -> str:
    """A ratio in a table."""
    return "–" if ratio is None else ratio if isinstance(ratio, str) else f"{ratio:.2f}"


def table(measured: dict[str, Times], kinds: list[str]) -> str:
    """The figures as Markdown: over all snippets, then those that the last kind slows most."""
    shown = [kind for kind in kinds if kind != BARE]
    rows = [["snippet", "bare", *(HEADS.get(kind, kind) for kind in shown)]]
    of_all = {kind: over_all(measured, kind) for kind in shown}
    passed = [str(len(found)) for found in of_all.values()]
    rows.append(["**snippets that passed**", str(len(measured)), *passed])
    for name, pick in (
        ("median", median),
        ("upper quartile", lambda found: quantiles(found, n=4)[2] if found[1:] else found[0]),
        ("most", max),
    ):
        figures = [show(pick(found) if found else None) for found in of_all.values()]
        rows.append([f"**{name}**", "", *figures])
    for name, found in slowest(measured, shown[-1]):
        bare = median(measured[name][BARE])
        rows.append([name, f"{bare * 1000:.1f} ms", *(show(found.get(kind)) for kind in shown)])
    return pages.table(rows, "--:")


def missed(measured: dict[str, Times]) -> str | None:
    """The message if the goal does not hold, or cannot be judged."""
    control, preset = over_all(measured, AGAIN), over_all(measured, corpus.NOTEBOOK)
    if not control or not preset:
        return None
    if abs(median(control) - 1) > NOISE:
        return f"bare beside itself is at {median(control):.3f}: the machine is too busy"
    if median(preset) > GOAL:
        return f"the median under the preset is {median(preset):.3f}, above {GOAL}"
    return None


def main() -> None:
    """Measure, print, and fail where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publish", action="store_true", help="write docs/ordinary.md")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="only snippets with this in name or topic")
    parser.add_argument("--kind", action="append", choices=list(KINDS)[1:], help="only this kind")
    options = parser.parse_args()
    kinds = [BARE, *(options.kind or list(KINDS)[1:])]
    snippets = [
        snippet
        for snippet in corpus.load()
        if snippet.get("timed", True)
        and options.only.lower() in f"{snippet['topic']}: {snippet['name']}".lower()
    ]
    measured: dict[str, Times] = {}
    with corpus.setting(sys.executable, kinds) as place:
        for snippet in snippets:
            times = measure(snippet, kinds, options.rounds, place)
            measured[snippet["name"]] = times
            figures = {kind: show(ratio) for kind, ratio in ratios(times).items()}
            print(f"{snippet['name']}: {figures or times}", flush=True)
    shown = table(measured, kinds)
    about = machine(Path(sys.executable))
    print(shown)
    if options.publish:
        line = f"Python {about['python']}, {about['processor']}, {about['cores']} cores.\n\n"
        pages.publish("make bench-ordinary", line + shown, PAGE)
    if said := missed(measured):
        sys.exit(said)


if __name__ == "__main__":
    main()
