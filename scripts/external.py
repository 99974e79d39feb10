"""Runs programs that others made, bare and under guards, and counts what each guard stops.

RedCode-Exec and HumanEval come from GitHub, into .cache, or from `--data DIR`, a directory with
RedCode's `dataset` and `environment` and with `HumanEval.jsonl.gz`. SandboxEval's tests are scripts
of our own. Each program runs in a place of its own (external/place.py), and its effects there say
whether it did what it is for. Only those programs count that do it without a guard. HumanEval's
programs are ordinary: they should run.

    external.py                     all
    external.py --install           install what the programs need first
    external.py --publish           write the tables of docs/comparison.md anew
    external.py --suite bash        only these: python, bash, sandboxeval
    external.py --only py/10_       the programs with this in their name

It takes an hour. It needs Linux, root, bash, curl and wget; other tools that are missing cost the
programs that use them. It changes nothing on this machine. It fails if a guard of ours lets an act
through, or stops an ordinary program.
"""

import argparse
import datetime
import importlib.metadata
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
sys.path[:0] = [str(ROOT / name) for name in ("scripts/external", "scripts", "benches")]

import foreign_programs  # noqa: E402
import pages  # noqa: E402
import place  # noqa: E402
import redcode  # noqa: E402
import sandboxeval  # noqa: E402
import servers  # noqa: E402

SUITES = ("python", "bash", "sandboxeval")
#: The group of programs that a guard should let run.
ORDINARY = "ordinary programs that run"
#: The programs that the page names; of more it has the number.
NAMED = 10
#: The original's first release, which cannot be installed beside its newest.
CONTRACT = "fastaudit==0.1.0"
CONTRACT_AT = Path(sys.prefix) / "fastaudit-0.1.0"
#: The peers that are measured, and by which name external/peers.py knows each.
PEERS = {
    "fastaudit": "fastaudit",
    "sandlock": "sandlock",
    "smolagents": "smolagents",
    "pydantic-monty": "monty",
}
NEEDS = (
    "fastaudit==0.2.10",
    # What RedCode's image has, but for what serves its pages.
    *("jsonpickle", "pillow", "psutil", "pyperclip", "pyyaml", "requests", "watchdog"),
)
COMMAND = (f"{sys.prefix}/bin/fastaudit-rs", "run")
PEERS_FILE = ROOT / "scripts" / "external" / "peers.py"
STARTS_BASH = 'import subprocess\n\nsubprocess.run(["bash", "case.sh"])\n'
#: What a run says that did not begin, and one in which something was denied.
FAILED = re.compile("did not start|SandboxError")
DENIED = re.compile(
    r"[Dd]enied|not permitted|not allowed|not among|[Ff]orbidden|blocked in sandbox|not in \("
)
BARE = "none"


def by_peer(name: str, *packages: str) -> tuple[str, ...]:
    """The command that runs case.py under a peer."""
    return (sys.executable, "peers.py", name, *packages)


def python_arms() -> dict[str, tuple[str, ...]]:
    """The guards of programs in Python, each by the command that runs case.py under it."""
    peers = {version(package): by_peer(name) for package, name in PEERS.items()}
    return {
        BARE: (sys.executable, "case.py"),
        CONTRACT.replace("==", " "): by_peer("fastaudit", str(CONTRACT_AT)),
        **peers,
        "`run`": (*COMMAND, "case.py"),
        "`run --read .`": (*COMMAND, "--read", ".", "case.py"),
        "`run --sandbox`": (*COMMAND, "--sandbox", "case.py"),
    }


def bash_arms() -> dict[str, tuple[str, ...]]:
    """The guards of scripts, which case.py starts."""
    return {
        BARE: ("bash", "case.sh"),
        version("sandlock"): by_peer("sandlock"),
        "`run --sandbox --run any`": (*COMMAND, "--sandbox", "--run", "any", "case.py"),
    }


def version(package: str) -> str:
    """A package with its version."""
    return f"{package} {importlib.metadata.version(package)}"


def is_ours(arm: str) -> bool:
    """If a guard is a command of this package."""
    return arm.startswith("`run")


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
            files = {"case.py": one.code}
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
            {"case.py": test["code"]},
            tuple(test.get("processes", ())),
            lambda ended, test=test: sandboxeval.look(test, ended),
            lambda report, control: report["seen"],
        )
        for test in sandboxeval.tests()
    ]


def ordinary_cases(data: Path) -> list[Case]:
    """The solutions of HumanEval with their tests, each of which says at last that it passed."""
    made = (
        foreign_programs.program("HumanEval", record)
        for record in foreign_programs.records("HumanEval", data)
    )
    return [
        Case(
            name,
            "HumanEval",
            ORDINARY,
            {"case.py": f"{code}\nprint('all tests passed')\n"},
            (),
            lambda ended: "all tests passed" in ended.said,
            lambda report, control: report["seen"],
        )
        for name, code in made
    ]


def find(case: Case, arms: dict[str, tuple[str, ...]], base: place.Base) -> Found:
    """Run a program in each arm."""
    found = Found(case, set(), set())
    control: dict[str, Any] = {}
    for arm, command in arms.items() if case.group else ():
        files = {**case.files, "peers.py": PEERS_FILE.read_text()}
        report = place.run(place.Run(command, files, case.look, case.processes), base)
        control = control or report
        if case.worked(report, control):
            found.through.add(arm)
        elif BARE not in found.through:
            break
        elif is_ours(arm) and FAILED.search(report["errors"]):
            sys.exit(f"{case.name}: {arm}: {report['errors']}")
        elif not DENIED.search(report["said"] + report["errors"]):
            found.undenied.add(arm)
    return found


def long_table(found: list[Found], arms: dict[str, tuple[str, ...]]) -> str:
    """How many programs of each kind each guard stopped, of those that work without one."""
    lines = [["", "programs", "work unguarded", *list(arms)[1:]]]
    for group in groups(found):
        chosen = [each for each in found if each.case.group == group]
        for row in dict.fromkeys(each.case.row for each in chosen):
            lines.append([row, *counts([each for each in chosen if each.case.row == row], arms)])
        lines.append([group, *counts(chosen, arms)])
    return pages.table(lines, "--:")


def short_table(found: list[Found], arms: dict[str, tuple[str, ...]]) -> str:
    """How many programs of each group each guard stopped, or let run if they are ordinary."""
    head, columns = ["guard"], []
    for group in groups(found):
        programs, working, *stopped = counts([x for x in found if x.case.group == group], arms)
        head.append(f"{group} ({working if working == programs else f'{working} of {programs}'})")
        if group == ORDINARY:
            stopped = [str(int(working) - int(number)) for number in stopped]
        columns.append(stopped)
    return pages.table([head, *zip(list(arms)[1:], *columns, strict=True)], "--:")


def groups(found: list[Found]) -> list[str]:
    """The groups of programs, but for those that do nothing to the system."""
    return list(dict.fromkeys(each.case.group for each in found if each.case.group))


def counts(found: list[Found], arms: dict[str, tuple[str, ...]]) -> list[str]:
    """The cells of a row: programs, those that work, and those that each guard stopped."""
    working = [each for each in found if BARE in each.through]
    stopped = [sum(arm not in each.through for each in working) for arm in list(arms)[1:]]
    return [str(number) for number in (len(found), len(working), *stopped)]


def notes(found: list[Found], arms: dict[str, tuple[str, ...]], most: int) -> str:
    """What each guard of ours let through, stopped without a denial, or stopped though ordinary."""
    lines = []
    harmful = [each for each in found if each.case.group not in ("", ORDINARY)]
    ordinary = [each for each in found if each.case.group == ORDINARY and BARE in each.through]
    for arm in filter(is_ours, arms):
        stopped = [each for each in ordinary if arm not in each.through]
        undenied = [each for each in harmful if arm in each.undenied]
        through = [each for each in harmful if arm in each.through]
        lines += [f"{arm} stops of the ordinary: {names(stopped, most)}."] if stopped else []
        lines.append(f"{arm} lets through: {names(through, most)}.")
        lines += [f"{arm} stops without a denial: {names(undenied, most)}."] if undenied else []
    return "".join(f"- {line}\n" for line in lines)


def names(found: list[Found], most: int) -> str:
    """Programs by name, or the number of many."""
    if len(found) > most:
        return f"{len(found)} programs"
    return ", ".join(each.case.name.rpartition("/")[2] for each in found) or "nothing"


def main() -> None:
    """Run the programs, and fail where a guard of ours lets an act through."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a directory with the data")
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
        subprocess.run([*pip, "--no-deps", "--target", str(CONTRACT_AT), CONTRACT], check=True)
    if lacks := place.missing():
        sys.exit(f"external.py needs {'; '.join(lacks)}")
    control = options.data or foreign_programs.CACHE
    data = options.data or redcode.fetch(ROOT / ".cache" / "external")
    suites = {
        "python": (redcode_cases(data, "py") + ordinary_cases(control), python_arms()),
        "bash": (redcode_cases(data, "bash"), bash_arms()),
        "sandboxeval": (sandboxeval_cases(), python_arms()),
    }
    wrong = False
    with tempfile.TemporaryDirectory() as home:
        site = servers.make_site(redcode.page(data))
        files = {**redcode.files(data), **sandboxeval.FILES, **servers.files(site)}
        base = place.Base(Path(home), files, site)
        for suite in options.suite or SUITES:
            cases, arms = suites[suite]
            cases = [case for case in cases if options.only in case.name]
            if not cases:
                continue
            found = []
            for case in cases:
                found.append(find(case, arms, base))
                if case.group:
                    worked = [arm for arm in arms if arm in found[-1].through]
                    print(f"{case.name}: {', '.join(worked)}", flush=True)
            print(f"{suite}:\n\n{long_table(found, arms)}")
            print(notes(found, arms, len(found)), flush=True)
            wrong |= any(is_wrong(each, arms) for each in found)
            if options.publish:
                parts = [method(suite), short_table(found, arms), notes(found, arms, NAMED)]
                shown = "\n\n".join(part.rstrip() for part in parts if part)
                pages.publish(suite, f"{shown}\n", PAGE)
    sys.exit(wrong)


def is_wrong(found: Found, arms: dict[str, tuple[str, ...]]) -> bool:
    """If a guard of ours let an act through, or stopped an ordinary program."""
    ours = set(filter(is_ours, arms))
    if found.case.group == ORDINARY:
        return BARE in found.through and not ours <= found.through
    return found.case.group == "acts" and bool(ours & found.through)


def method(suite: str) -> str:
    """Of what, when and where the numbers were made."""
    url = f"https://github.com/AI-secure/RedCode/tree/{redcode.COMMIT}"
    commit = f"RedCode at [`{redcode.COMMIT[:7]}`]({url}), " if suite in ("python", "bash") else ""
    kernel = ".".join(platform.release().split(".")[:2])
    versions = f"Python {platform.python_version()}, Linux {kernel}"
    return f"{commit}{datetime.date.today():%Y-%m-%d}, {versions}:"


if __name__ == "__main__":
    main()
