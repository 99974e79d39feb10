"""Runs the scenarios and judges them by what they did.

A scenario is a table in one of the TOML files beside this: `[[stop]]`, what must have no effect
under a guard, or `[[allow]]`, ordinary code that must pass. Its fields:

- `name`, and `code`, which runs under the guard with `OK` as its root; `OUT` is outside.
- `before` and `after` run without the guard, in the same process. `after` may say what `happened`;
  else an effect is a change in `OUT` or the current directory, or something in `DONE`.
- `roots` other than `OK`; `python` (the first version), `needs` (a module, or an attribute of one)
  and `root` say where it can run.
- `ends`: the effect is that the process ends.
- `only_guarded`: without a guard there is nothing that it would get around.
- `policy`: fields of the policy, where that is one.
- `claims`: the guards of ours that are held to it, if not all, and `why`.
- The sandbox is held to all but what cannot be run there (`not_in_a_sandbox`).
"""

import concurrent.futures
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import toml_tables

HERE = Path(__file__).parent
WORKER = HERE / "worker.py"
TIMEOUT = 60

NONE = "none"
SANDBOX = "ours, a sandbox"
GUARDS = ["ours", "ours, 0.2 rules", "ours, a policy"]
OURS = [*GUARDS, SANDBOX]
ORIGINALS = ["fastaudit 0.1.0", "fastaudit 0.2.10"]


def load():
    """All scenarios, each with its category and whether it must be stopped."""
    scenarios = []
    for file in sorted(HERE.glob("*.toml")):
        found = toml_tables.load(file)
        for kind in ("stop", "allow"):
            for scenario in found.get(kind, []):
                scenarios.append({"category": file.stem, "kind": kind, **scenario})
    return scenarios


def state(places):
    """All that can be seen of what is outside the roots."""
    found = {}
    for entry in sorted([*Path(places["OUT"]).rglob("*"), *Path(places["CWD"]).rglob("*")]):
        status = entry.lstat()
        seen = [status.st_mode, status.st_uid, status.st_gid, status.st_size, status.st_nlink]
        if not stat.S_ISDIR(status.st_mode):
            seen.append(status.st_mtime_ns)
        if stat.S_ISREG(status.st_mode):
            seen += [entry.read_bytes(), os.listxattr(entry)]
        found[str(entry)] = seen
    return found


def run(scenario, guard, python=sys.executable):
    """True if the scenario went as it must under a guard; `None` if it cannot be run.

    Returns it with what is to be said about it.
    """
    base = Path(os.path.realpath(tempfile.mkdtemp()))
    try:
        places = {name: str(base / path) for name, path in PLACES.items()}
        for place in places.values():
            os.makedirs(place, exist_ok=True)
        Path(places["OUT"], "theirs").write_text("theirs")
        return judge(scenario, guard, places, python)
    finally:
        shutil.rmtree(base, ignore_errors=True)


PLACES = {"TMP": "tmp", "OK": "tmp/ok", "OUT": "tmp/out", "CWD": "tmp/cwd"}


def judge(scenario, guard, places, python):
    before = state(places)
    read, write = os.pipe()
    request = {"scenario": scenario, "guard": guard, "places": places, "fd": write}
    process = subprocess.Popen(
        [python, str(WORKER), json.dumps(request)],
        cwd=places["CWD"],
        env={**os.environ, "TMPDIR": places["OK"], "HOME": places["OUT"], "LC_ALL": "C.UTF-8"},
        pass_fds=[write],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(write)
    try:
        output, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        output += "\nit hangs"
    with os.fdopen(read, "rb") as pipe:
        os.set_blocking(read, False)
        said = pipe.read() or b""
    report = json.loads(said) if said else None
    if report and "skipped" in report:
        return None, report["skipped"]
    changed = state(places) != before
    if scenario["kind"] == "allow":
        passed = bool(report) and report["raised"] is None and report["after"] is None
        return passed and process.returncode == 0, str(report or output)
    if report is None:
        # It ended before it could say anything.
        held = not scenario.get("ends") and guard != NONE and not changed
        return held and process.returncode == 1 and "PermissionError" in output, output
    return not (changed or report["happened"]), str(report)


def results(scenarios, guards, pythons, jobs=3):
    """The outcome of each scenario under each guard."""
    found = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        tasks = {
            pool.submit(run, scenario, guard, pythons.get(guard, sys.executable)): (at, guard)
            for at, scenario in enumerate(scenarios)
            for guard in guards
        }
        for task in concurrent.futures.as_completed(tasks):
            found[tasks[task]] = task.result()
    return found


def is_claimed(scenario, guard):
    """True if the guard is held to the scenario."""
    if guard == SANDBOX:
        return True
    return guard in scenario.get("claims", GUARDS)


def went_wrong(scenario, guard, found):
    """The message about a scenario that did not go as it must; `None` if it did."""
    went_well, said = found
    if went_well is None:
        return None
    if guard == NONE:
        # Without a guard there is an effect, or the scenario would show nothing.
        must_be = scenario["kind"] == "allow"
        if went_well == must_be or scenario.get("only_guarded"):
            return None
    elif went_well or guard not in OURS or not is_claimed(scenario, guard):
        return None
    return f"{guard}: {scenario['category']}: {scenario['name']}: {said}"


def judge_all(scenarios, guard):
    """Fail for the scenarios that do not go as they must under a guard of ours.

    Fail too where fewer than half of those for this Python were run.
    """
    found = results(scenarios, [guard], {})
    wrong = [went_wrong(scenario, guard, found[at, guard]) for at, scenario in enumerate(scenarios)]
    assert [text for text in wrong if text] == []
    ran = sum(went_well is not None for went_well, _ in found.values())
    here = [one for one in scenarios if tuple(one.get("python", ())) <= sys.version_info[:2]]
    assert ran >= len(here) / 2 > 0, [said for _, said in found.values()]
