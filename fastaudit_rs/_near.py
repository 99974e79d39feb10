"""Words for a wrong name: the nearest one, or the place that has it.

Only a wrong call imports it: `difflib` and `inspect` take longer than this package.
"""

import difflib
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from . import v02

_PACKAGE = __name__.partition(".")[0]

#: Names that people know, and their names here: the first that there is.
_MEANT = {
    "allow": "write",
    "allowed_hosts": "hosts",
    "callback": "before_deny",
    "cpu": "cpu_percent",
    "cwd": "parent",
    "function": "tools",
    "functions": "tools",
    "input": "stdin variables",
    "inputs": "variables",
    "dependencies": "install",
    "libraries": "install",
    "oks": "write",
    "packages": "install",
    "paths": "write",
    "ram": "memory",
    "requirements": "install",
    "roots": "write",
    "subprocess": "commands",
    "time": "wall_seconds timeout",
    "timeout": "wall_seconds",
}

#: What other packages' sandboxes call what one here does: E2B, llm-sandbox, Daytona and others.
_OTHERS = {
    "run() or session().run()": "run_code execute exec eval code_run notebook",
    "commands.run()": "run_command execute_command exec_run process shell bash run_sh",
    "close()": "kill stop terminate delete shutdown destroy",
    "files.upload()": "copy_to_runtime copy_to upload upload_file put_archive copy_in",
    "files.download()": "copy_from_runtime copy_from download download_file get_archive copy_out",
    "files": "filesystem fs",
    "session().snapshot()": "pause fork checkpoint snapshot",
    "session().restore()": "resume rollback",
    "session()": "create_code_context create_session open interpreter",
    "Limits(wall_seconds=…)": "set_timeout",
    "run(variables=…)": "inputs set_variable",
}

#: The places of names, and how one writes them there.
_PLACES = (
    ("Policy", "Policy({}=…)"),
    ("Network", "Policy(network=Network({}=…))"),
    ("Limits", "Sandbox(policy, Limits({}=…))"),
    ("Policy.guard", "policy.guard({}=…)"),
    ("Sandbox", "Sandbox(policy, {}=…)"),
    ("v02.mk_audit", "fastaudit_rs.v02.mk_audit(…, {}=…), the form of fastaudit 0.2,"),
)


def near(name: str, names: Iterable[str]) -> str | None:
    """Return the nearest of some names to this one."""
    by_lower = {known.lower(): known for known in names}
    found = difflib.get_close_matches(name.lower(), by_lower, 1, 0.7)
    return by_lower[found[0]] if found else None


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return the sentence that names the nearest; empty if none is near."""
    found = near(name, names)
    return f" Did you mean {found!r}?" if found else ""


def unknown(function: str, name: str, plain: Callable[..., Any] | None = None) -> str:
    """The message for an argument that a function of this package does not have."""
    names = _names(function) if plain is None else _arguments(plain)
    hint = _hint(function, name, names)
    return f"{function}() has no argument {name!r}.{hint} It takes {', '.join(names)}."


def elsewhere(name: str) -> str:
    """Return the words after the message for a name that this package does not have."""
    package = sys.modules[_PACKAGE]
    if name in v02.__all__:
        return f": {v02.__name__} has it"
    found = near(name, package.__all__)
    return f": did you mean {found!r}?" if found else ""


def of_sandbox(name: str, names: Iterable[str]) -> str:
    """The message for a name that a sandbox does not have."""
    message = f"'Sandbox' object has no attribute {name!r}"
    for here, others in _OTHERS.items():
        if name in others.split():
            return f"{message}: here it is {here}"
    found = near(name, (one for one in names if not one.startswith("_")))
    return f"{message}: did you mean {found!r}?" if found else message


def _hint(function: str, name: str, names: list[str]) -> str:
    meant = (name, *_MEANT.get(name, "").split())
    for known in meant:
        if known in names:
            return f" Did you mean {known!r}?"
    for known in meant:
        if place := _place(function, known):
            return place
    found = near(name, names)
    if found is None:
        everywhere = [known for place, _ in _PLACES for known in _names(place)]
        return _place(function, near(name, everywhere) or "")
    return f" Did you mean {found!r}?"


def _place(function: str, name: str) -> str:
    """Return the sentence that says how to write a name in its place; empty if nothing has it."""
    if name == "policy":
        return " A policy makes its own guards: policy.guard()."
    if function == "v02.mk_audit" and name in _names("mk_audit"):
        option = "" if name == "rules" else f", {name}=…"
        return f" fastaudit_rs.mk_audit(…, rules='0.2'{option}) has it."
    for place, form in _PLACES:
        if name in _names(place):
            return f" {form.format(name)} has it."
    return ""


@functools.cache
def _names(function: str) -> list[str]:
    package: Any = sys.modules[_PACKAGE]
    names = _arguments(functools.reduce(getattr, function.split("."), package))
    if function == "Policy.session":
        names += [name for name in _names("Policy.guard") if name not in names]
    return names


def _arguments(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.name != "self" and one.kind != one.VAR_KEYWORD]


def event(name: str, names: Iterable[str]) -> str:
    """The warning for an audit event that neither Python nor this package raises."""
    return f"neither Python nor fastaudit_rs raises an event {name!r}.{suggestion(name, names)}"


def warn(text: str) -> None:
    """Warn the caller of this package, once at each place."""
    package = os.path.dirname(os.path.abspath(__file__)) + os.sep
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"fastaudit_rs: {text}", stacklevel=level)
