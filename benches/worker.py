"""One process of the benchmark: measures each case for one implementation.

Run as `python worker.py IMPLEMENTATION SUITE DIRECTORY`; prints `{case: nanoseconds}` as JSON. The
least of several repeats is taken, of the whole operation: what the bare one takes is subtracted by
who reads this. A case that the implementation cannot run is left out.
"""

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

REPEATS = 5
MODULES = {"ours": "fastaudit_rs", "ours 0.2": "fastaudit_rs.v02"}
TOOL_ID = 3

# Fresh each time, so that nothing in it has run before: what a short cell of an agent is like.
WORK = """
import collections, json, re

class Point:
    scale = {number}
    def __init__(self, x, y):
        self.x, self.y = x, y
    def length(self):
        return (self.x ** 2 + self.y ** 2) ** 0.5

text = "the guard returns at once when there is no guard"
counts = collections.Counter(re.findall(r"[a-z]+", text))
rows = [dict(word=word, count=count) for word, count in counts.items()]
back = json.loads(json.dumps(rows))
longest = max(Point(len(row["word"]), row["count"]).length() for row in back)
"""


class Floor:
    """A hook and a monitor that do nothing, with the interface of a guard."""

    def __init__(self) -> None:
        """Install the hook."""
        self.native = importlib.import_module("floor")
        self.native.add_hook()

    def mk_audit(self, roots: list[str], monitor_calls: bool = True, **_: Any) -> Any:
        """Make guards that only watch."""
        if not monitor_calls:
            return contextlib.nullcontext
        monitoring = sys.monitoring
        if monitoring.get_tool(TOOL_ID) is None:
            monitoring.use_tool_id(TOOL_ID, "floor")
            call = monitoring.events.CALL
            monitoring.register_callback(TOOL_ID, call, self.native.on_call)
        set_events, call = monitoring.set_events, monitoring.events.CALL

        class Guard:
            def __enter__(self) -> None:
                set_events(TOOL_ID, call)

            def __exit__(self, *error: object) -> None:
                set_events(TOOL_ID, 0)

        return Guard


def implementation(name: str) -> Any:
    """`mk_audit` of an implementation."""
    if name == "bare":
        return lambda roots, **options: contextlib.nullcontext
    if name == "floor":
        return Floor().mk_audit
    return importlib.import_module(MODULES.get(name, "fastaudit")).mk_audit


def least(function: Callable[[int], None], number: int) -> float:
    """Nanoseconds for each of `number` iterations, the least of a few repeats."""
    function(max(1, number // 10))
    best = None
    for _ in range(REPEATS):
        start = perf_counter_ns()
        function(number)
        taken = perf_counter_ns() - start
        best = taken if best is None else min(best, taken)
    return (best or 0) / number


def before_deny(*_: object) -> None:
    """A callback of a host."""


def events(name: str, mk_audit: Any, base: str) -> dict[str, float]:
    """The cases that are about audit events: no call is watched."""
    ok, out = os.path.join(base, "ok"), os.path.join(base, "out")
    deep = os.path.join(ok, "a/b/c/d/e")
    file, missing = os.path.join(deep, "file"), os.path.join(out, "file")
    audit, writing = sys.audit, os.O_WRONLY
    audit_perms = mk_audit([ok], monitor_calls=False)

    def event(count: int) -> None:
        for _ in range(count):
            audit("os.listdir", "x")

    def read(count: int) -> None:
        for _ in range(count):
            open(file, "rb", 0).close()

    def write(count: int) -> None:
        for _ in range(count):
            os.close(os.open(file, writing))

    def remove(count: int) -> None:
        for _ in range(count):
            try:  # noqa: SIM105 - a context manager would be measured too
                os.remove(missing)
            except OSError:
                pass

    def system(count: int) -> None:
        run, argument = (os.system, "x") if guarded else (os.close, -1)
        for _ in range(count):
            try:  # noqa: SIM105
                run(argument)
            except OSError:
                pass

    def enter(count: int) -> None:
        for _ in range(count):
            with audit_perms():
                pass

    def make(count: int) -> None:
        for _ in range(count):
            with mk_audit([ok], before_deny=before_deny, monitor_calls=False)():
                pass

    def resolve(count: int) -> None:
        native = importlib.import_module("floor").resolve
        for _ in range(count):
            native(file)

    guarded = name not in ("bare", "floor")
    with audit_perms():
        pass
    results = {
        "event": least(event, 20_000),
        "enter": least(enter, 5_000),
        "make": least(make, 3_000),
    }
    with audit_perms():
        results |= {
            "ignored": least(event, 20_000),
            "read": least(read, 2_000),
            "write": least(write, 2_000),
            "remove": least(remove, 2_000),
            "system": least(system, 5_000),
        }
    if name == "floor":
        # The time of one system call, beside that of the operation itself.
        results["write"] = least(resolve, 5_000) + least(write, 2_000)
    return results


def calls(name: str, mk_audit: Any, base: str, plain: bool) -> dict[str, float]:
    """The cases that are about calls. `plain`: nothing native is loaded beside Python."""
    if plain and name not in ("bare", "ours", "ours 0.2"):
        return {}
    if not plain:
        # None that a release of the original counts as safe.
        from markupsafe._speedups import _escape_inner as escape
    audit_perms = mk_audit([base])
    callees = []

    def on_call(caller: str, callee: str, *_: object) -> bool:
        if not callees:
            callees.append(callee)
        return False

    asked = mk_audit([base], on_call=on_call)
    sources = iter(range(10**9))

    def enter(count: int) -> None:
        for _ in range(count):
            with audit_perms():
                pass

    def builtin(count: int) -> None:
        text = "x"
        for _ in range(count):
            len(text)

    def native(count: int) -> None:
        for _ in range(count):
            escape("x")

    def suppressed(count: int) -> None:
        with asked():
            native(count)

    def work(count: int) -> None:
        for _ in range(count):
            source = WORK.format(number=next(sources))
            with audit_perms():
                exec(source, {})

    enter(10)
    suffix = "-plain" if plain else ""
    results = {"work" + suffix: least(work, 300)}
    with audit_perms():
        results["builtin" + suffix] = least(builtin, 50_000)
    if plain:
        return results
    results |= {
        "enter-watched": least(enter, 1_000),
        "outside": least(native, 20_000),
        "suppressed": least(suppressed, 5_000),
    }
    if name not in ("bare", "floor") and callees != ["markupsafe._speedups._escape_inner"]:
        raise RuntimeError(f"{name} asked of {callees}")
    return results


def programs(mk_audit: Any, base: str, directory: str, **options: bool) -> dict[str, float]:
    """Programs of pyperformance, whole under a guard."""
    from cases import PROGRAMS
    from pyperformance import functions

    audit_perms = mk_audit([base], **options)
    results = {}
    for program in PROGRAMS:
        last = functions(directory, program)[-1]

        def function(count: int, program: Callable[[], object] = last) -> None:
            for _ in range(count):
                program()

        with audit_perms():
            results[program] = least(function, 1)
    return results


def main() -> None:
    """Measure one suite and print it."""
    name, suite, base, *rest = sys.argv[1:]
    if suite in ("programs", "programs-retire"):
        import markupsafe._speedups  # noqa: F401 - so that there is native code to watch
    mk_audit = implementation(name)
    if suite == "events":
        results = events(name, mk_audit, base)
    elif suite.startswith("calls"):
        results = calls(name, mk_audit, base, plain=suite.endswith("plain"))
    else:
        options = {"retire_sites": True} if suite == "programs-retire" else {}
        results = programs(mk_audit, base, rest[0], **options)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
