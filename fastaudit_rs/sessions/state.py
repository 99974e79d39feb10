"""The state of a session in this process: its names, and those before the last step."""

import builtins
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .. import Policy
from . import step
from .output import Output
from .shown import Shown
from .values import pack


class Steps:
    """The state of the steps of a session, which the thread of the guest alone touches."""

    def __init__(
        self, policy: Policy, functions: dict[str, Callable[..., Any]], most: int | None
    ) -> None:
        """Begin without names but those of the session."""
        self.loop = step.Loop()
        self.sources = step.Sources(policy)
        self.shown = Shown(step.VALUE if most is None else most)
        self.number = 0
        self.functions = functions
        self.names: dict[str, Any] = {}
        #: The names, the directory and the number of modules before the last step.
        self.before: tuple[dict[str, Any], str | None, int] | None = None
        self.own: dict[str, Any] = {}
        self.begin()

    def begin(self) -> None:
        """Begin without names but those of the session."""
        self.own = {
            "__name__": "__main__",
            "__builtins__": builtins,
            "display": self.shown.display,
            "exit": _exit,
            "quit": _exit,
            "input": _input,
            **self.functions,
        }
        self.names.update(self.own)

    def run(
        self, output: Output, code: str, inputs: dict[str, Any], functions: dict[str, Any]
    ) -> step.Outcome:
        """Run a step."""
        output.begin()
        before = dict(self.names), _directory(), len(sys.modules)
        self.before = None
        self.before = before
        self.names.update(inputs)
        if functions:
            self.own.update(functions)
            self.names.update(functions)
        self.number += 1
        self.shown.begin()
        return step.run(self.names, code, self.number, self.loop, self.shown, self.sources)

    def named(self) -> list[str]:
        """The names that steps have given values."""
        return [
            name
            for name, value in self.names.items()
            if type(name) is str
            and not (name in self.own and self.own[name] is value)
            and not (name.startswith("__") and name.endswith("__"))
        ]

    def get(self, name: str) -> bytes:
        """The value of a name, packed."""
        if name not in self.names or name not in self.named():
            raise KeyError(name)
        return pack(self.names[name], place=name)

    def undo(self, below: str) -> None:
        """Go back to the state before the last step."""
        assert self.before is not None
        names, directory, modules = self.before
        self.before = None
        self.names.clear()
        self.names.update(names)
        _forget_modules(below, modules)
        if directory is not None:
            os.chdir(directory)

    def reset(self, below: str) -> None:
        """Begin anew."""
        self.clear()
        _forget_modules(below, 0)
        self.number = 0
        self.loop = step.Loop()
        self.begin()

    def clear(self) -> None:
        """Let go of all that steps have made."""
        self.before = None
        try:
            self.loop.close()
        finally:
            self.names.clear()
            self.sources.clear()


def _forget_modules(below: str, first: int) -> None:
    """Forget modules whose files are in a directory, so that they are imported anew."""
    for name in list(sys.modules)[first:]:
        file = getattr(sys.modules.get(name), "__file__", None)
        if type(file) is str and file.startswith(below + os.sep) and "site-packages" not in file:
            del sys.modules[name]


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _exit(code: object = None) -> NoReturn:
    """End the step."""
    raise SystemExit(code)


def _input(prompt: object = "", /) -> NoReturn:
    """Refuse: a step has no input."""
    raise EOFError("a step of a session has no input")
