"""Writes the table of docs/native-libraries.md: what native code of real packages may do.

Runs the lines of `tests/acts/packages.toml`, and installs what they need with `--install`.
"""

import argparse
import importlib.metadata
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "native-libraries.md"
BEGIN, END = "<!-- packages -->", "<!-- end of packages -->"

sys.path.insert(0, str(ROOT / "tests" / "support"))

import native_packages  # noqa: E402

VERBS = {"write": "writes", "connect": "reaches", "start": "starts"}


def verdict(case, answer):
    """What became of a line, in the words of the page."""
    if "missing" in answer:
        return "not installed"
    if "error" in answer:
        return answer["error"].splitlines()[-1]
    if not answer["inside"]:
        return f"does not work: {answer['inside_error']}"
    if answer["outside"]:
        return "**goes around**: needs a sandbox"
    if case["kind"] == "start":
        return "denied in a forked process, and shown nowhere"
    if not answer["told"]:
        return "**denied, but shown nowhere**"
    if not answer["hint"]:
        return "**denied, by a hint that fails**"
    unseen = {"the traceback": answer["shown"], "`learn`": answer["recorded"]}
    return "; not in ".join(["denied", *(place for place, is_in in unseen.items() if not is_in)])


def table():
    """The rows, and whether each package is held."""
    text = "| package | act | outside |\n|---|---|---|\n"
    missing, failed = [], []
    for case in native_packages.cases():
        answer = native_packages.run(case)
        said = verdict(case, answer)
        print(f"{case['name']}: {said}", flush=True)
        if "missing" in answer:
            missing.append(case["package"])
        elif not said.startswith("denied"):
            failed.append(case["name"])
        act = f"{VERBS[case['kind']]} {case[case['kind']]}"
        text += f"| {named(case)} | {act} | {said} |\n"
    return text, missing, failed


def named(case):
    """The distribution with its version."""
    name = case.get("install", case["package"])
    try:
        return f"`{name}=={importlib.metadata.version(name.split('[')[0])}`"
    except importlib.metadata.PackageNotFoundError:
        return f"`{name}`"


def install():
    """Install the packages, as far as there are wheels."""
    names = {case.get("install", case["package"]) for case in native_packages.cases()}
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    for name in sorted(names):
        if subprocess.run([*pip, name]).returncode:
            print(f"no wheel of {name}", file=sys.stderr)


def main():
    """Run all lines, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true")
    if parser.parse_args().install:
        install()
    rows, missing, failed = table()
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{rows}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    print(f"missing: {missing}\nfailed: {failed}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
