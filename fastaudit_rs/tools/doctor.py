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

from .. import AuditDenied, Policy, __version__, installed_policy

#: The versions of Python that this package is tested on.
TESTED = ((3, 10), (3, 15))

#: The system call ``landlock_create_ruleset`` on all architectures, and the flag for the version of
#: its interface (landlock_create_ruleset(2)).
LANDLOCK_CREATE_RULESET, LANDLOCK_CREATE_RULESET_VERSION = 444, 1

#: The uses of packages that a guard does not need.
OPTIONAL = {
    "IPython": "%%audit in notebooks",
    "pytest": "guards in tests",
    "rich": "tables in the terminal",
    "sandlock": "sandboxes",
    "shtab": "completion in the shell",
}


@dataclass
class Finding:
    """One finding."""

    state: Literal["ok", "lacking", "broken"]
    about: str
    text: str


def report(to: TextIO) -> int:
    """Print what was found.

    Returns:
        0; 1 if guards do not work here.
    """
    found = list(findings())
    width = max(len(finding.about) for finding in found)
    marks = {"ok": "ok", "lacking": "--", "broken": "NO"}
    for finding in found:
        print(f"{marks[finding.state]}  {finding.about:{width}}  {finding.text}", file=to)
    return int(any(finding.state == "broken" for finding in found))


def findings() -> Iterator[Finding]:
    """Make one check after the other."""
    yield _python()
    yield _system()
    yield Finding("ok", "fastaudit-rs", __version__)
    yield from _guard()
    yield _calls()
    yield _installed()
    yield from _kernel()
    for name, purpose in OPTIONAL.items():
        there = importlib.util.find_spec(name) is not None
        state: Literal["ok", "lacking"] = "ok" if there else "lacking"
        yield Finding(state, name, purpose if there else f"not installed: no {purpose}")


def _python() -> Finding:
    text = f"{platform.python_implementation()} {platform.python_version()}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return Finding("broken", "Python", f"{text}: free-threaded builds are not supported")
    oldest, newest = TESTED
    if not oldest <= sys.version_info[:2] <= newest:
        tested = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        return Finding("lacking", "Python", f"{text}: tested are {tested}")
    return Finding("ok", "Python", text)


def _system() -> Finding:
    text = f"{platform.system()} {platform.release()}, {platform.machine()}"
    if sys.platform != "linux":
        return Finding("lacking", "system", f"{text}: untested, Linux is what is tested")
    return Finding("ok", "system", text)


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
        return Finding("lacking", about, "not watched: that needs Python 3.12 (PEP 669)")
    others = [
        f"{number} ({name})"
        for number in range(6)
        if (name := sys.monitoring.get_tool(number)) is not None
    ]
    if len(others) == 6:
        return Finding("broken", about, f"no tool id is free: {', '.join(others)}")
    beside = f", beside the tools {', '.join(others)}" if others else ""
    return Finding("ok", about, f"watched{beside}")


def _installed() -> Finding:
    policy = installed_policy()
    text = "none in this process" if policy is None else "one is in force in this process"
    return Finding("ok", "installed policy", text)


def _kernel() -> Iterator[Finding]:
    """Report what the kernel can enforce itself. Guards work without it."""
    if sys.platform != "linux":
        return
    version = _landlock()
    text = f"ABI {version}, for" if version > 0 else "not in this kernel: no"
    yield Finding(
        "ok" if version > 0 else "lacking", "Landlock", f"{text} policy.call and sandboxes"
    )
    try:
        actions = Path("/proc/sys/kernel/seccomp/actions_avail").read_text().split()
    except OSError:
        actions = []
    can = "user_notif" in actions
    text = "filters and notifications, for sandboxes" if can else "too little here: no sandboxes"
    yield Finding("ok" if can else "lacking", "seccomp", text)
    from ..sandbox.host.group import are_there

    there = are_there()
    counted = "all processes together" if there else "none can be made: each process by itself"
    yield Finding("ok" if there else "lacking", "control group", f"memory of a sandbox: {counted}")


def _landlock() -> int:
    """Return the version of Landlock's interface; below 1 without Landlock."""
    import ctypes

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    version: int = syscall(
        ctypes.c_long(LANDLOCK_CREATE_RULESET),
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint(LANDLOCK_CREATE_RULESET_VERSION),
    )
    return version
