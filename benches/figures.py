"""From measured times to figures: what is net, which ratio to which, and whether a goal holds."""

from __future__ import annotations

import math
from statistics import median, quantiles
from typing import Any

from cases import CASES, CONDITIONS, IMPLEMENTATIONS, PROGRAMS, Case, show

# Nanoseconds: a ratio to less says nothing.
NEGLIGIBLE = 5

# Implementation -> case -> nanoseconds, one for each round.
Rounds = dict[str, dict[str, list[float]]]


def geometric_mean(values: list[float]) -> float:
    """Of positive numbers."""
    return math.exp(sum(map(math.log, values)) / len(values))


def with_programs(rounds: Rounds) -> Rounds:
    """The programs of each round put together into one case by their geometric mean."""
    complete: Rounds = {}
    for name, cases in rounds.items():
        complete[name] = dict(cases)
        for suffix in CONDITIONS:
            times = [cases.get(program + suffix) for program in PROGRAMS]
            if all(times):
                together = zip(*[each for each in times if each], strict=True)
                complete[name]["programs" + suffix] = [
                    geometric_mean(list(each)) for each in together
                ]
    return complete


def net(rounds: Rounds, case: Case, name: str) -> list[float]:
    """The times of an implementation for a case in each round, without the bare operation."""
    times = rounds.get(name, {}).get(case.key, [])
    bare = rounds.get("bare", {}).get(case.key, [])
    if not case.net or name == "bare" or not bare:
        return times
    # The least of the bare times: a slow round of it is no credit to anyone.
    return [time - min(bare) for time in times]


def summary(values: list[float]) -> dict[str, float]:
    """The least, the median and the quartiles."""
    low, _, high = quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"least": min(values), "median": median(values), "low": low, "high": high}


def ratio(rounds: Rounds, case: Case, of: str, name: str = "ours") -> dict[str, float] | None:
    """Ours to another, of the least times, and the quartiles over the rounds."""
    ours, others = net(rounds, case, name), net(rounds, case, of)
    if not ours or not others or min(others) < NEGLIGIBLE:
        return None
    pairs = [mine / its for mine, its in zip(ours, others, strict=False)]
    return {**summary(pairs), "ratio": min(ours) / min(others)}


def holds(rounds: Rounds, case: Case) -> bool | None:
    """True if the goal of a case holds; `None` if it was not measured."""
    ours = net(rounds, case, "ours")
    if not ours:
        return None
    if not case.goal.of:
        return min(ours) <= case.goal.limit
    # Python alone is compared whole, others as the case says.
    found = ratio(rounds, case, case.goal.of)
    return None if found is None else found["ratio"] <= case.goal.limit


def is_as_far_ahead(rounds: Rounds, case: Case) -> bool | None:
    """True if ours under the rules of 0.2 is as far ahead of 0.2.10 as ours is of 0.1.0.

    `None` where it was not measured. A tenth is no difference.
    """
    first = ratio(rounds, case, "0.1.0")
    second = ratio(rounds, case, "0.2.10", "ours 0.2")
    if first is None or second is None:
        return None
    return second["ratio"] <= first["ratio"] * 1.1


def row(rounds: Rounds, case: Case) -> dict[str, Any]:
    """A row of the table, as text."""
    cells: dict[str, Any] = {"case": case.title, "goal": str(case.goal)}
    for name in IMPLEMENTATIONS:
        times = net(rounds, case, name)
        cells[name] = show(max(0.0, min(times))) if times else "–"
    for of in ("0.1.0", "floor", "bare"):
        found = ratio(rounds, case, of)
        cells[f"of {of}"] = f"{max(0.0, found['ratio']):.2f}" if found else "–"
        cells[f"spread {of}"] = f"{found['low']:.2f}–{found['high']:.2f}" if found else ""
    found = ratio(rounds, case, "0.2.10", "ours 0.2")
    cells["0.2 of 0.2.10"] = f"{max(0.0, found['ratio']):.2f}" if found else "–"
    verdict = holds(rounds, case)
    cells["holds"] = "–" if verdict is None else "yes" if verdict else "no"
    return cells


def markdown(rounds: Rounds) -> str:
    """The table for the page on performance."""
    lines = [
        "| case | 0.1.0 | 0.2.10 | ours | ours, 0.2 rules | floor | missed goal |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    columns = ("case", "0.1.0", "0.2.10", "ours", "ours 0.2", "floor", "missed")
    for case in CASES:
        cells = row(rounds, case)
        cells["missed"] = cells["goal"] if cells["holds"] == "no" else ""
        lines.append("| " + " | ".join(cells[column] for column in columns) + " |")
    return "\n".join(lines) + "\n"


def program_lines(rounds: Rounds) -> list[str]:
    """For each program, how many times the bare time it takes."""
    lines = ["program | ours | nothing native loaded | retire_sites=True | floor"]
    for program in PROGRAMS:
        bare = rounds["bare"].get(program)
        if not bare:
            continue
        parts = []
        keys = [("ours", program + suffix) for suffix in CONDITIONS] + [("floor", program)]
        for name, key in keys:
            times = rounds.get(name, {}).get(key)
            parts.append(f"{min(times) / min(bare):.2f}" if times else "–")
        lines.append(f"{program} | " + " | ".join(parts))
    return lines
