"""Measures the CPU time of one ordinary snippet under each guard, its packages imported before.

Started by `ordinary.py` with a JSON request as its argument; the report goes to the file that it
names: `{kind: [seconds of each round]}`, or what became of it instead. Each kind of each round runs
in a copy of this process, so that all have the same modules at the same addresses and none has the
hooks of another; the kinds take turns.
"""

import gc
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "ordinary"))

import snippet_worker

#: The seconds of CPU that a figure is to be of: short snippets are repeated.
ENOUGH = 0.1
MOST = 50
#: The seconds that a copy may take.
PATIENCE = 120


def cpu() -> float:
    """The CPU time of this process, its threads and its children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def once(code: Any, url: str, make: Any) -> float:
    """Run the snippet in an empty directory, and return the CPU time that it took."""
    os.chdir(tempfile.mkdtemp())
    main = snippet_worker.main_module(url)
    gc.collect()
    begun = cpu()
    with make():
        exec(code, main.__dict__)
    return cpu() - begun


def figure(request: dict[str, Any], kind: dict[str, Any], number: int) -> float:
    """The CPU time of one run, of so many."""
    make = snippet_worker.factory(
        kind["guard"], [], request["originals"].get(kind["guard"]), **kind["options"]
    )
    code = compile(request["snippet"]["code"], "<snippet>", "exec")
    # Late imports, and the work that a guard does once in a process.
    once(code, request["url"], make)
    return sum(once(code, request["url"], make) for _ in range(number)) / number


def in_a_copy(request: dict[str, Any], kind: dict[str, Any], number: int) -> float | str:
    """The figure, measured in a copy of this process; a word where there is none."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said: float | str = figure(request, kind, number)
        except snippet_worker.Missing:
            said = "missing"
        except BaseException as error:
            said = "denied" if "PermissionError" in names(error) else type(error).__name__
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    try:
        readable, _, _ = select.select([read], [], [], PATIENCE)
        if not readable:
            os.kill(child, signal.SIGKILL)
            return "hang"
        found: float | str = json.loads(os.read(read, 1000) or b'"crash"')
        return found
    finally:
        os.close(read)
        os.waitpid(child, 0)


def names(error: BaseException | None) -> set[str]:
    """The names of the classes of an error, and of what it came from."""
    found: set[str] = set()
    while error is not None:
        found |= {one.__name__ for one in type(error).__mro__}
        error = error.__cause__ or error.__context__
    return found


def measure(request: dict[str, Any]) -> dict[str, list[float] | str]:
    """All rounds."""
    try:
        snippet_worker.prepared(request)
    except snippet_worker.Missing as missing:
        return {"missing": str(missing)}
    kinds = request["kinds"]
    bare = next(kind for kind in kinds if kind["guard"] == snippet_worker.BARE)
    first = in_a_copy(request, bare, 1)
    if isinstance(first, str):
        return {bare["name"]: first}
    number = min(MOST, max(1, round(ENOUGH / max(first, 1e-6))))
    found: dict[str, list[float] | str] = {kind["name"]: [] for kind in kinds}
    for turn in range(request["rounds"]):
        shift = turn % len(kinds)
        for kind in kinds[shift:] + kinds[:shift]:
            times = found[kind["name"]]
            if isinstance(times, str):
                continue
            said = in_a_copy(request, kind, number)
            if isinstance(said, str):
                found[kind["name"]] = said
            else:
                times.append(said)
    return found


def main() -> None:
    """Measure what is asked for."""
    request = json.loads(sys.argv[1])
    report = json.dumps(measure(request))
    Path(request["report"]).write_text(report)


if __name__ == "__main__":
    main()
