"""Runs the snippets of `tests/ordinary` under each guard, and shows what became of them.

`--publish` writes the tables into docs/ordinary.md. Fails where a snippet does not pass without a
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


def markdown(rows):
    """A table, with its first row as the head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(verdict):
    """A verdict in a table."""
    return {"pass": "✓", "pass*": "✓\\*", "denied": "✗"}.get(verdict, f"**{verdict}**")


def counts(guards, found):
    """The number of each verdict, for each guard and each time of importing."""
    kinds = [(guard, when) for guard in guards for when in corpus.WHENS]
    counted = {
        kind: Counter(verdict for (_, *of), (verdict, _) in found.items() if tuple(of) == kind)
        for kind in kinds
    }
    verdicts = [each for each in VERDICTS if any(each in count for count in counted.values())]
    rows = [["guard", "imported", *verdicts]]
    for (guard, when), count in counted.items():
        row = [str(count[verdict]) for verdict in verdicts]
        rows.append([TITLES[guard], f"{when} it" if when == "before" else when, *row])
    return markdown(rows)


def table(snippets, guards, found):
    """Each snippet under each guard: one verdict where it is the same for both, else both."""
    text = ""
    for topic in dict.fromkeys(snippet["topic"] for snippet in snippets):
        rows = [["snippet", *(TITLES[guard] for guard in guards)]]
        for snippet in snippets:
            if snippet["topic"] != topic:
                continue
            row = [snippet["name"]]
            for guard in guards:
                verdicts = (found[snippet["name"], guard, when][0] for when in corpus.WHENS)
                cells = [cell(verdict) for verdict in verdicts]
                row.append(cells[0] if len(set(cells)) == 1 else " / ".join(cells))
            rows.append(row)
        text += f"### {topic.capitalize()}\n\n{markdown(rows)}\n"
    return text


def versions(snippets):
    """The versions in use: Python and the distributions of the packages."""
    of = importlib.metadata.packages_distributions()
    names = {
        name
        for snippet in snippets
        for package in snippet["packages"]
        for name in of.get(package, [])
    }
    shown = sorted(f"{name} {importlib.metadata.version(name)}" for name in names)
    return f"Python {platform.python_version()}; {', '.join(shown)}.\n"


def publish(snippets, guards, found):
    """Write the tables into the page."""
    pages.publish("versions", f"{len(snippets)} snippets. {versions(snippets)}", PAGE)
    pages.publish("counts", counts(guards, found), PAGE)
    pages.publish("snippets", table(snippets, guards, found), PAGE)


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
