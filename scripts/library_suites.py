"""Runs the test suites of libraries bare and under `pytest --audit=record`, and compares.

Each test must end the same way in both. scripts/library_suites.toml names the libraries, and the
tests that may differ, with the reason. Source distributions come from PyPI, into .cache.

    library_suites.py             all
    library_suites.py --install   install the libraries first
    library_suites.py --publish   write the figures of docs/ordinary.md anew
    library_suites.py click rich  these, with each test that differs
"""

import argparse
import contextlib
import os
import platform
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "suites"
LIST = ROOT / "scripts" / "library_suites.toml"
PAGE = ROOT / "docs" / "ordinary.md"
sys.path.insert(0, str(ROOT / "benches"))

import pages  # noqa: E402

PLUGIN = "fastaudit_rs.tools.pytest_plugin"
#: The seconds that one run of a suite may take.
LIMIT = 300
#: How often both are run again where a test differs: some differ by chance.
AGAIN = 2
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def requirement(library):
    """The library, as pip takes it."""
    return f"{library['name']}=={library['version']}"


def install(libraries):
    """Install the libraries, and what their tests need."""
    needed = [each for one in libraries for each in (requirement(one), *one.get("needs", []))]
    subprocess.run([*PIP, "install", "--quiet", "pytest>=8", *needed], check=True)


def fetch(library):
    """The unpacked source distribution."""
    stem = f"{library['name'].replace('-', '_')}-{library['version']}"
    source = CACHE / stem
    if not source.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        options = ["--quiet", "--no-deps", "--no-binary", library["name"], "--dest", str(CACHE)]
        subprocess.run([*PIP, "download", *options, requirement(library)], check=True)
        with tarfile.open(CACHE / f"{stem}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
    return source


def run(library, source, options):
    """Run the suite once: the outcomes of the tests, and what it printed last."""
    # Another plugin that happens to be installed changes nothing.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}
    plugins = [f"-p{plugin}" for plugin in library.get("plugins", [])]
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        own = [f"--junitxml={report}", "-pno:cacheprovider", "-ojunit_family=xunit1", "-q"]
        own += ["--tb=short", f"--basetemp={directory}/tests", *plugins, *options]
        command = [sys.executable, "-m", "pytest", *own, *library.get("arguments", [])]
        with open(Path(directory, "printed"), "w+b") as printed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    command,
                    cwd=source,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    timeout=LIMIT,
                )
            printed.seek(0)
            last = printed.read()[-2000:].decode(errors="replace")
        found = outcomes(report) if report.exists() else {}
    return found, last


def outcomes(report):
    """How each test ended, and why; the parts of a test that is reported in parts."""
    found = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        ends = [part for part in case if part.tag in ("failure", "error", "skipped")]
        for part in ends:
            kind = (part.tag == "skipped" and part.get("type")) or part.tag
            found[stable(name)].append((kind, f"{part.get('message')}\n{part.text or ''}"))
        if not ends:
            found[stable(name)].append(("passed", ""))
    return found


def stable(name):
    """The name of a test without addresses, which differ in each run."""
    return re.sub(r"0x[0-9a-f]{6,}", "0x*", name)


def kinds(found, name):
    """How a test ended, in words; more than one if others have its name."""
    return ", ".join(sorted(kind for kind, _ in found.get(name, []))) or "not run"


def differences(bare, guarded):
    """The tests that ended in another way, with the end under the guard and its reason."""
    return {
        name: f"{kinds(bare, name)} -> {kinds(guarded, name)}"
        for name in sorted({*bare, *guarded})
        if kinds(bare, name) != kinds(guarded, name)
    }


def compare(library):
    """Run a suite both ways: its name, tests, passes and differences, and what is wrong."""
    source = fetch(library)
    bare, said = run(library, source, [])
    guarded, guarded_said = run(library, source, [f"-p{PLUGIN}", "--audit=record"])
    if not bare or not guarded:
        return None, [f"{library['name']}: no report: {said}\n{guarded_said}"]
    different = differences(bare, guarded)
    known = tuple(test for group in library.get("different", []) for test in group["tests"])
    for _ in range(AGAIN):
        if all(name.startswith(known) for name in different):
            break
        again, _ = run(library, source, [])
        guarded_again, _ = run(library, source, [f"-p{PLUGIN}", "--audit=record"])
        same = differences(again, guarded_again)
        different = {name: how for name, how in different.items() if name in same}
    wrong = []
    for test in known:
        if not any(name.startswith(test) for name in different):
            wrong.append(f"{library['name']}: {test}: does not differ")
    for name, how in different.items():
        if not name.startswith(known):
            why = "\n".join(text for _, text in guarded.get(name, []))
            wrong.append(f"{library['name']}: {name}: {how}\n{why}")
    ends = [kind for each in bare.values() for kind, _ in each]
    name = f"{library['name']}=={library['version']}"
    return (name, len(ends), ends.count("passed"), len(different)), wrong


def summary(rows, libraries):
    """What ran, and why tests differ."""
    tests, passed, differ = (sum(row[column] for row in rows) for column in (1, 2, 3))
    told = ", ".join(f"{name} ({number:,})" for name, number, *_ in rows)
    reasons = [
        f"- {library['name']}: {group['reason']}\n"
        for library in libraries
        for group in library.get("different", [])
    ]
    of = f"{len(rows)} libraries with Python {platform.python_version()}"
    said = f"{tests:,} tests of {of}: {passed:,} pass, {differ} differ."
    return "\n\n".join([said, f"Tests of each: {told}.", "".join(reasons)]).rstrip() + "\n"


def main():
    """Run all suites, and fail where a test differs that is not listed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", nargs="*", help="only these")
    parser.add_argument("--install", action="store_true", help="install the libraries first")
    parser.add_argument("--publish", action="store_true", help="write docs/ordinary.md")
    options = parser.parse_args()
    # Where this runs in the background, Ctrl-C is ignored, and so in all that it starts: trio's
    # tests would wait for one for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.publish and options.library:
        parser.error("--publish needs all libraries")
    libraries = tomllib.loads(LIST.read_text())["library"]
    if options.library:
        libraries = [one for one in libraries if one["name"] in options.library]
    if options.install:
        install(libraries)
    rows, wrong = [], []
    for library in libraries:
        row, lines = compare(library)
        print(f"{library['name']}: {row}", *lines, sep="\n", flush=True)
        rows += [row] if row else []
        wrong += lines
    shown = summary(rows, libraries)
    print(shown)
    if options.publish and not wrong:
        pages.publish("suites", shown, PAGE)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
