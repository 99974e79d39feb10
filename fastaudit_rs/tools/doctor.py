"""The rules that a guard can enforce on this machine, and what is missing."""

import importlib.util
import os
import platform
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from .. import AuditDenied, Policy, __version__, _landlock, installed_policy
from .._native import _native_tables

#: The versions of Python that this package is tested on.
TESTED = ((3, 10), (3, 15))

#: The uses of packages that a guard does not need.
OPTIONAL = {
    "IPython": "%%audit in notebooks",
    "pytest": "guards in tests",
    "rich": "tables in the terminal",
    "sandlock": "sandboxes",
    "shtab": "completion in the shell",
}

#: The limits that a control group holds, by its controllers: names, and words for without one.
COUNTED = {
    "memory": ("memory", "each process has the limit by itself"),
    "cpu": ("cpu", "each core is limited by itself"),
    "pids": ("threads", "they are not counted"),
}


@dataclass
class Finding:
    state: Literal["ok", "lacking", "broken"]
    about: str
    text: str


def report(to: TextIO) -> int:
    """Print what was found; return 1 if guards do not work here."""
    found = list(findings())
    width = max(len(finding.about) for finding in found)
    marks = {"ok": "ok", "lacking": "--", "broken": "NO"}
    for finding in found:
        print(f"{marks[finding.state]}  {finding.about:{width}}  {finding.text}", file=to)
    return int(any(finding.state == "broken" for finding in found))


def findings() -> Iterator[Finding]:
    yield _python()
    yield Finding("ok", "system", f"Linux {platform.release()}, {platform.machine()}")
    yield Finding("ok", "fastaudit-rs", __version__)
    yield from _guard()
    yield _calls()
    yield _native_files()
    where = "none" if installed_policy() is None else "one is in force"
    yield Finding("ok", "installed policy", f"{where} in this process")
    yield from _kernel()
    yield from _sandbox()
    for name, purpose in OPTIONAL.items():
        there = importlib.util.find_spec(name) is not None
        state: Literal["ok", "lacking"] = "ok" if there else "lacking"
        yield Finding(state, name, purpose if there else f"not installed: no {purpose}")


def _python() -> Finding:
    text = f"{platform.python_implementation()} {platform.python_version()}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        text += ", free-threaded: guards are experimental, and sandboxes untested"
        return Finding("lacking", "Python", text)
    oldest, newest = TESTED
    if not oldest <= sys.version_info[:2] <= newest:
        tested = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        return Finding("lacking", "Python", f"{text}: tested are {tested}")
    return Finding("ok", "Python", text)


def _guard() -> Iterator[Finding]:
    """Check that a guard stops what it should and lets pass what it should."""
    with tempfile.TemporaryDirectory(prefix="fastaudit-rs-") as base:
        inside, outside = Path(base, "inside"), Path(base, "outside")
        inside.mkdir()
        outside.mkdir()
        policy = Policy(write=[inside], threads="deny")
        attempts: dict[str, tuple[Callable[[], object], bool]] = {
            "writing in a root": ((inside / "file").touch, True),
            "writing elsewhere": ((outside / "file").touch, False),
            "starting programs": (lambda: os.system("exit 0"), False),
        }
        for about, (attempt, passes) in attempts.items():
            try:
                with policy.guard(monitor_calls=False)():
                    attempt()
                passed = True
            except AuditDenied:
                passed = False
            verb = "passes" if passed else "is stopped"
            yield Finding("ok" if passed is passes else "broken", about, verb)


def _calls() -> Finding:
    about = "native calls"
    if sys.version_info < (3, 12):
        return Finding("ok", about, 'watched by what is called (calls="callee")')
    others = [
        f"{number} ({name})"
        for number in range(6)
        if (name := sys.monitoring.get_tool(number)) is not None
    ]
    if len(others) == 6:
        return Finding("broken", about, f"no tool id is free: {', '.join(others)}")
    beside = f", beside the tools {', '.join(others)}" if others else ""
    return Finding("ok", about, f"watched{beside}")


def _native_files() -> Finding:
    """Check that native code is judged by what it does. A guard was tried before."""
    about = "native acts"
    replaced, sealed, _ = _native_tables() or (0, 0, 0)
    if sealed:
        text = f"partly judged: {sealed} of {replaced + sealed} functions could not be replaced"
        return Finding("lacking", about, text)
    return Finding("ok", about, "judged")


def _kernel() -> Iterator[Finding]:
    """Report what the kernel can enforce itself. Guards work without it."""
    version = _landlock.version()
    lacking = _landlock.lacking(Policy(network=False))
    text = f"ABI {version}, for policy.call and sandboxes"
    if version <= 0:
        text = "not in this kernel: no policy.call and sandboxes"
    elif lacking:
        text = f"ABI {version}, for sandboxes; policy.call lacks {lacking}"
    yield Finding("ok" if not lacking else "lacking", "Landlock", text)
    from ..sandbox.host.causes import taking_descriptors

    if (denied := taking_descriptors()) is not None:
        yield Finding("lacking", "descriptors", f"no sandboxes: {denied}")
    try:
        actions = Path("/proc/sys/kernel/seccomp/actions_avail").read_text().split()
    except OSError:
        actions = []
    can = "user_notif" in actions
    text = "filters and notifications, for sandboxes" if can else "too little here: no sandboxes"
    yield Finding("ok" if can else "lacking", "seccomp", text)


def _sandbox() -> Iterator[Finding]:
    """Start a sandbox, and look at its process from outside."""
    if importlib.util.find_spec("sandlock") is None:
        return
    from ..sandbox import Sandbox

    try:
        with Sandbox() as sandbox:
            # The process that waits for work is the parent of each run.
            ran = sandbox.run("import os\nos.getppid()", value=True)
            if not ran.success:
                raise RuntimeError(ran.stderr or f"its run ended with {ran.returncode}")
            yield from _held(Path("/proc", str(ran.value)))
    except (RuntimeError, OSError) as error:
        why = str(error).strip().splitlines()[-1]
        yield Finding("lacking", "sandbox", f"does not work: {why}")


def _held(process: Path) -> Iterator[Finding]:
    """Report the parts of the kernel that hold the process of a sandbox without a network."""
    from ..sandbox.host.cgroup import are_there

    host = Path("/proc/self")
    own, found = _status(host), _status(process)
    filters = int(found["Seccomp_filters"]) - int(own["Seccomp_filters"])
    yield Finding(
        "ok" if filters > 1 else "broken",
        "sandbox: filter",
        f"{filters} filters of system calls, one of them by sandlock",
    )
    # The fifth set is the most that programs could get, and none gets any without the first four.
    sets = [int(found[f"Cap{name}"], 16) for name in ("Inh", "Prm", "Eff", "Amb")]
    has_none = not any(sets) and found["NoNewPrivs"] == "1"
    yield Finding(
        "ok" if has_none else "broken",
        "sandbox: rights",
        "no capabilities, and no way to any" if has_none else "it has capabilities",
    )
    is_alone = os.readlink(process / "ns/net") != os.readlink(host / "ns/net")
    beside = "an empty network of its own" if is_alone else "no more: CAP_SYS_ADMIN is missing"
    yield Finding(
        "ok" if is_alone else "lacking",
        "sandbox: network",
        f"with network=False: the filter, and {beside}",
    )
    for controller, (about, apart) in COUNTED.items():
        is_counted = are_there(controller)
        yield Finding(
            "ok" if is_counted else "lacking",
            f"sandbox: {about}",
            "control group: all processes together"
            if is_counted
            else f"no control group can be made: {apart}",
        )


def _status(process: Path) -> dict[str, str]:
    """Return the kernel's words about a process, by their names: proc_pid_status(5)."""
    lines = (process / "status").read_text().splitlines()
    return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}
