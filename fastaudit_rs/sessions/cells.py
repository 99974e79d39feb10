"""What people write in a notebook's cell, and is not Python or needs an event loop."""

import importlib
import re
from collections.abc import Iterable, Mapping
from types import CodeType, FunctionType
from typing import Any

#: A line that IPython takes for a command of its own, or of a shell.
_COMMAND = re.compile(r"(?:\w+ *= *)?([%!].*)")

#: The characters of a line that are looked at.
_LINE = 1000

#: One that does nothing here: figures are always shown.
_IDLE = re.compile(r"^([ \t]*)%matplotlib\b.*$", re.MULTILINE)

#: Functions that start a task in the event loop that runs, and those by which code has its own.
_STARTS = {"create_task", "ensure_future", "get_running_loop"}
_OWN = {"run", "run_until_complete", "run_forever", "new_event_loop", "Runner"}


#: A line that installs packages, where the host has a function for it: `INSTALL` is its name.
_PIP = re.compile(r"^([ \t]*)[%!]pip[ \t]+(.*)$", re.MULTILINE)
INSTALL = "%pip"


def install(names: Mapping[str, Any], text: str) -> None:
    """Have the host install packages, and show what it says."""
    print(names[INSTALL](text))
    importlib.invalidate_caches()


def _installing(found: re.Match[str]) -> str:
    call = f"__import__({__name__!r}, fromlist=['install']).install(globals(), {found[2]!r})"
    return f"{found[1]}{call}"


def without_commands(code: str, error: SyntaxError, can_install: bool) -> str | None:
    """Return code that is no Python as Python, if its commands of IPython have a meaning here.

    ``None`` if there are none. An error at another command gets a message that says what it is.
    """
    meant = _IDLE.sub(r"\1pass", code)
    if can_install:
        meant = _PIP.sub(_installing, meant)
    if meant != code:
        return meant
    lines = code.splitlines()
    number = (error.lineno or 1) - 1
    line = lines[number][:_LINE].strip() if number < len(lines) else ""
    found = _COMMAND.fullmatch(line)
    if found is not None:
        command = found[1].strip()[:100]
        program = command.lstrip("%!").strip()
        is_shell = command.startswith("!")
        if program.startswith(("pip ", "conda ", "uv ")):
            instead = "the host installs packages (Sandbox(install=…))"
        elif is_shell or program.partition(" ")[0] in ("sh", "bash", "system", "sx"):
            instead = "write subprocess.run(), if the policy allows programs"
        else:
            instead = "write Python alone"
        error.msg = f"{command!r} is a command of IPython, which does not run here: {instead}"
    return None


def starts_tasks(compiled: Iterable[CodeType], names: Mapping[str, Any]) -> bool:
    """Tell whether a step that awaits nothing starts tasks, and so needs an event loop that runs.

    ``asyncio.run`` needs that none runs. Code of coroutines does not count: it has one.
    """
    rest = [*compiled]
    used = {id(code) for code in rest}
    found: set[str] = set()
    while rest:
        code = rest.pop()
        found.update(code.co_names)
        called = (names.get(name) for name in code.co_names if type(name) is str)
        codes = [one.__code__ for one in called if type(one) is FunctionType]
        codes += [one for one in code.co_consts if type(one) is CodeType]
        for one in codes:
            # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
            if id(one) not in used and not one.co_flags & 0x2A0:
                used.add(id(one))
                rest.append(one)
    return bool(found & _STARTS) and not found & _OWN
