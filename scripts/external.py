"""Runs programs that others made to do harm, bare and under guards, and counts what went through.

RedCode-Exec comes from GitHub, into .cache, or from `--data DIR`, a directory with its `dataset`
and `environment`. SandboxEval's tests are scripts of our own. Each program runs in a place of its
own (external/place.py), and its effects there say whether it did what it is for. Only those
programs count that do it without a guard.

    external.py                     all
    external.py --install           install what the programs need first
    external.py --publish           write the tables of docs/comparison.md anew
    external.py --suite bash        only these: python, bash, sandboxeval
    external.py --only py/10_       the programs with this in their name

It takes half an hour. It needs Linux, root, bash, curl and wget; other tools that are missing cost
the programs that use them. It changes nothing on this machine. It fails if a guard of ours lets an
act through.
"""

import argparse
import datetime
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "comparison.md"
sys.path[:0] = [str(ROOT / name) for name in ("scripts/external", "benches")]

import pages  # noqa: E402
import place  # noqa: E402
import redcode  # noqa: E402
import sandboxeval  # noqa: E402
import servers  # noqa: E402

SUITES = ("python", "bash", "sandboxeval")
#: The programs that the page names; of more it has the number.
NAMED = 10
NEEDS = (
    "fastaudit==0.2.10",
    # What RedCode's image has, but for what serves its pages.
    *("jsonpickle", "pillow", "psutil", "pyperclip", "pyyaml", "requests", "watchdog"),
)
COMMAND = (f"{sys.prefix}/bin/fastaudit-rs", "run")
ORIGINAL = """\
from fastaudit import mk_audit

with open("case.py") as file:
    code = compile(file.read(), "case.py", "exec")
with mk_audit(["."])():
    exec(code, {"__name__": "__main__"})
"""
STARTS_BASH = 'import subprocess\n\nsubprocess.run(["bash", "case.sh"])\n'
#: What a run says that did not begin, and one in which something was denied.
FAILED = re.compile("did not start|SandboxError")
DENIED = re.compile(r"[Dd]enied|not permitted|blocked in sandbox|not in \(")
BARE, THEIRS = "none", "fastaudit 0.2.10"
PYTHON_ARMS = {
    BARE: (sys.executable, "case.py"),
    THEIRS: (sys.executable, "original.py"),
    "`run`": (*COMMAND, "case.py"),
    "`run --read .`": (*COMMAND, "--read", ".", "case.py"),
    "`run --sandbox`": (*COMMAND, "--sandbox", "case.py"),
}
BASH_ARMS = {
    BARE: ("bash", "case.sh"),
    "`run --sandbox --run any`": (*COMMAND, "--sandbox", "--run", "any", "case.py"),
}


class Case(NamedTuple):
    """A program, and how one sees that it worked."""

    name: str
    #: The row of the table, and the group of rows.
    row: str
    group: str
    files: dict[str, str]
    processes: tuple[str, ...]
    look: Callable[[Any], Any]
    #: Of the reports of a run, and of that without a guard.
    worked: Callable[[dict[str, Any], dict[str, Any]], bool]


class Found(NamedTuple):
    """What was found of a program, and nothing if it does not work without a guard."""

    case: Case
    #: The arms in which it worked, and those in which it did not though nothing was denied.
    through: set[str]
    undenied: set[str]


def redcode_cases(data: Path, language: str) -> list[Case]:
    """The programs of RedCode-Exec in a language."""
    made = []
    for one in redcode.programs(data, language):
        if language == "bash":
            files = {"case.sh": one.code, "case.py": STARTS_BASH}
        else:
            files = {"case.py": one.code, "original.py": ORIGINAL}
        made.append(
            Case(
                one.name,
                one.title,
                ("reads" if one.is_read else "acts") if one.title else "",
                files,
                (one.expected,) if one.scenario == 18 else (),
                lambda ended, one=one: redcode.look(one, ended),
                lambda report, control, one=one: redcode.has_worked(one, report, control),
            )
        )
    return made


def sandboxeval_cases() -> list[Case]:
    """The tests of SandboxEval."""
    return [
        Case(
            f"sandboxeval/{test['action']}",
            test["category"],
            sandboxeval.TABLES[test["table"]],
            {"case.py": test["code"], "original.py": ORIGINAL},
            tuple(test.get("processes", ())),
            lambda ended, test=test: sandboxeval.look(test, ended),
            lambda report, control: report["seen"],
        )
        for test in sandboxeval.tests()
    ]


def find(case: Case, arms: dict[str, tuple[str, ...]], base: place.Base) -> Found:
    """Run a program in each arm."""
    found = Found(case, set(), set())
    control: dict[str, Any] = {}
    for arm, command in arms.items() if case.group else ():
        report = place.run(place.Run(command, case.files, case.look, case.processes), base)
        control = control or report
        if case.worked(report, control):
            found.through.add(arm)
        elif BARE not in found.through:
            break
        elif FAILED.search(report["errors"]):
            sys.exit(f"{case.name}: {arm}: {report['errors']}")
        elif not DENIED.search(report["said"] + report["errors"]):
            found.undenied.add(arm)
    return found


def table(found: list[Found], arms: dict[str, tuple[str, ...]], *, is_short: bool) -> str:
    """How many programs each guard stopped, of those that work without one; by group if short."""
    head = ["", "programs", "work unguarded", *list(arms)[1:]]
    lines = [head, ["---", *["--:"] * (len(head) - 1)]]
    groups = list(dict.fromkeys(each.case.group for each in found if each.case.group))
    for group in groups:
        chosen = [each for each in found if each.case.group == group]
        for row in dict.fromkeys(each.case.row for each in chosen if not is_short):
            lines.append([row, *counts([each for each in chosen if each.case.row == row], arms)])
        lines.append([group, *counts(chosen, arms)])
    without = sum(not each.case.group for each in found)
    if without:
        lines.append(["no act on the system", f"{without}", *[""] * len(arms)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def counts(found: list[Found], arms: dict[str, tuple[str, ...]]) -> list[str]:
    """The cells of a row: programs, those that work, and those that each guard stopped."""
    working = [each for each in found if BARE in each.through]
    stopped = [sum(arm not in each.through for each in working) for arm in list(arms)[1:]]
    return [str(number) for number in (len(found), len(working), *stopped)]


def notes(found: list[Found], arms: dict[str, tuple[str, ...]], most: int) -> str:
    """What each guard of ours let through, and what ended otherwise than by a denial."""
    lines = [
        f"{arm} lets through: {names([each for each in found if arm in each.through], most)}."
        for arm in arms
        if arm not in (BARE, THEIRS)
    ]
    for arm in arms:
        if undenied := [each for each in found if arm in each.undenied]:
            lines.append(f"{arm} stops without a denial: {names(undenied, most)}.")
    return "".join(f"- {line}\n" for line in lines)


def names(found: list[Found], most: int) -> str:
    """Programs by name, or the number of many."""
    if len(found) > most:
        return f"{len(found)} programs"
    return ", ".join(each.case.name.rpartition("/")[2] for each in found) or "nothing"


def main() -> None:
    """Run the programs, and fail where a guard of ours lets an act through."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a directory with RedCode's data")
    parser.add_argument("--install", action="store_true", help="install what they need first")
    parser.add_argument("--publish", action="store_true", help="write docs/comparison.md")
    parser.add_argument("--suite", action="append", choices=SUITES, help="only these programs")
    parser.add_argument("--only", default="", help="only programs with this in their name")
    options = parser.parse_args()
    if options.publish and options.only:
        parser.error("--publish needs all programs of a suite")
    if options.install:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, *NEEDS], check=True)
    if lacks := place.missing():
        sys.exit(f"external.py needs {'; '.join(lacks)}")
    data = options.data or redcode.fetch(ROOT / ".cache" / "external")
    suites = {
        "python": (redcode_cases(data, "py"), PYTHON_ARMS),
        "bash": (redcode_cases(data, "bash"), BASH_ARMS),
        "sandboxeval": (sandboxeval_cases(), PYTHON_ARMS),
    }
    wrong = False
    with tempfile.TemporaryDirectory() as home:
        site = servers.make_site(redcode.page(data))
        files = {**redcode.files(data), **sandboxeval.FILES, **servers.files(site)}
        base = place.Base(Path(home), files, site)
        for suite in options.suite or SUITES:
            cases, arms = suites[suite]
            cases = [case for case in cases if options.only in case.name]
            found = []
            for case in cases:
                found.append(find(case, arms, base))
                if case.group:
                    worked = [arm for arm in arms if arm in found[-1].through]
                    print(f"{case.name}: {', '.join(worked)}", flush=True)
            print(f"{suite}:\n\n{table(found, arms, is_short=False)}")
            print(notes(found, arms, len(found)), flush=True)
            wrong |= any(
                each.case.group == "acts" and {*each.through} - {BARE, THEIRS} for each in found
            )
            if options.publish:
                shown = f"{table(found, arms, is_short=True)}\n{notes(found, arms, NAMED)}"
                pages.publish(suite, f"{method(suite)}\n\n{shown}", PAGE)
    sys.exit(wrong)


def method(suite: str) -> str:
    """Of what, when and where the numbers were made."""
    url = f"https://github.com/AI-secure/RedCode/tree/{redcode.COMMIT}"
    commit = "" if suite == "sandboxeval" else f"RedCode at [`{redcode.COMMIT[:7]}`]({url}), "
    kernel = ".".join(platform.release().split(".")[:2])
    versions = f"Python {platform.python_version()}, Linux {kernel}"
    return f"{commit}{datetime.date.today():%Y-%m-%d}, {versions}:"


if __name__ == "__main__":
    main()
