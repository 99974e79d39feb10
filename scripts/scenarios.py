"""Runs the scenarios of `tests/scenarios` under all guards, and shows how many each held.

`--publish` writes the table into docs/assurance.md.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("tests/support", "tests/scenarios", "benches")]

import pages  # noqa: E402
import peers  # noqa: E402
import runner  # noqa: E402


def table(scenarios, guards, found):
    """The number that each guard held, of those that could be run."""
    rows = [["", *guards]]
    for kind, title in (("stop", "to be stopped"), ("allow", "to be allowed")):
        of_kind = [at for at, scenario in enumerate(scenarios) if scenario["kind"] == kind]
        categories = sorted({scenarios[at]["category"] for at in of_kind})
        for category in [*categories, None] if kind == "stop" else [None]:
            chosen = [at for at in of_kind if category in (None, scenarios[at]["category"])]
            row = [category or f"**{title}**"]
            for guard in guards:
                ran = [found[at, guard][0] for at in chosen]
                ran = [went_well for went_well in ran if went_well is not None]
                row.append(f"{sum(ran)}/{len(ran)}")
            rows.append(row)
    return pages.table(rows)


def main():
    """Run them, and fail where a guard of ours does not do what is claimed of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--publish", action="store_true", help="write the table into docs/assurance.md"
    )
    options = parser.parse_args()
    scenarios = runner.load()
    guards = [runner.NONE, *runner.ORIGINALS, *runner.OURS]
    found = runner.results(scenarios, guards, {"fastaudit 0.2.10": peers.python()})
    shown = table(scenarios, guards, found)
    print(shown)
    for (at, guard), (went_well, _) in sorted(found.items()):
        scenario = scenarios[at]
        if went_well is False and guard in runner.OURS and not runner.is_claimed(scenario, guard):
            why = scenario["why"]
            print(f"not claimed of {guard}: {scenario['category']}: {scenario['name']}: {why}")
    wrong = [
        runner.went_wrong(scenarios[at], guard, result) for (at, guard), result in found.items()
    ]
    for text in filter(None, wrong):
        print(f"WRONG: {text}")
    if options.publish:
        pages.publish("scenarios", shown, pages.ASSURANCE)
    sys.exit(1 if any(wrong) else 0)


main()
