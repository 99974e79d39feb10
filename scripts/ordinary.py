"""Runs the snippets of `tests/ordinary` under each guard, and shows what became of them.

`--publish` writes the table into docs/ordinary.md. Fails where a snippet does not pass without a
guard, under the preset for notebooks, or under the line for data packages unless the rules of 0.1
are known to deny it.
"""

import argparse
import importlib.metadata
import platform
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "ordinary.md"
sys.path[:0] = [str(ROOT / name) for name in ("tests/ordinary", "benches")]

import corpus  # noqa: E402
import pages  # noqa: E402

TITLES = {
    "0.1.0": "fastaudit 0.1.0",
    "0.2.10": "fastaudit 0.2.10",
    "mk_audit": '`mk_audit(["."])`',
    "v02.mk_audit": '`v02.mk_audit(["."])`',
    corpus.DATA: '`mk_audit(["."], packages="data")`',
    "preset workspace": '`Policy.preset("workspace")`',
    corpus.NOTEBOOK: '`Policy.preset("notebook")`',
}
VERDICTS = ["pass", "pass*", "denied", "error", "hang", "crash", "missing"]
#: The packages whose versions the page shows.
NAMED = ["numpy", "pandas", "matplotlib", "scikit-learn", "scipy", "torch"]


def pair(cells):
    """The cells for both times of importing: one where they are equal."""
    return " / ".join(dict.fromkeys(cells))


def counts(guards, found):
    """The number of each verdict under each guard."""
    counted = Counter((guard, when, verdict) for (_, guard, when), (verdict, _) in found.items())
    verdicts = [
        verdict
        for verdict in VERDICTS
        if any(counted[guard, when, verdict] for guard in guards for when in corpus.WHENS)
    ]
    rows = [["guard", *verdicts]]
    for guard in guards:
        numbers = ((counted[guard, when, verdict] for when in corpus.WHENS) for verdict in verdicts)
        rows.append([TITLES[guard], *(pair(map(str, each)) for each in numbers)])
    return pages.table(rows)


def versions(snippets):
    """Python and the packages in use, the best known of them with their versions."""
    of = importlib.metadata.packages_distributions()
    names = {
        name
        for snippet in snippets
        for package in snippet["packages"]
        for name in of.get(package, [])
    }
    named = [f"{name} {importlib.metadata.version(name)}" for name in NAMED if name in names]
    others = len(names) - len(named)
    python = f"Python {platform.python_version()}"
    return f"{python}, {', '.join(named)} and {others} other packages.\n"


def publish(snippets, guards, found):
    """Write the table into the page."""
    pages.publish("versions", f"{len(snippets)} snippets with {versions(snippets)}", PAGE)
    pages.publish("counts", counts(guards, found), PAGE)


def main():
    """Run them, and fail where one does not pass that must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publish", action="store_true", help="write docs/ordinary.md")
    parser.add_argument("--guard", action="append", choices=corpus.GUARDS, help="only this guard")
    parser.add_argument("--only", default="", help="only snippets with this in name or topic")
    parser.add_argument("--when", action="append", choices=corpus.WHENS, help="only so imported")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time")
    options = parser.parse_args()
    if options.publish and (options.guard or options.only or options.when):
        parser.error("--publish needs all snippets, guards and ways to import")
    guards, whens = options.guard or corpus.GUARDS, options.when or corpus.WHENS
    snippets = [
        snippet
        for snippet in corpus.load()
        if options.only.lower() in f"{snippet['topic']}: {snippet['name']}".lower()
    ]
    by_name = {snippet["name"]: snippet for snippet in snippets}
    wrong = []

    def progress(name, guard, when, verdict, said):
        text = corpus.went_wrong(by_name[name], guard, verdict, said)
        wrong.extend([f"{text} ({when})"] if text else [])
        if verdict != "pass":
            print(f"{name} | {guard}, {when} | {verdict} {said}", flush=True)

    with corpus.setting(sys.executable, guards) as place:
        found = corpus.results(
            snippets, [corpus.BARE, *guards], whens, place, options.jobs, progress
        )
    if set(whens) == set(corpus.WHENS):
        print(counts(guards, found))
    for text in sorted(wrong):
        print(f"WRONG: {text}")
    if options.publish:
        publish(snippets, guards, found)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
