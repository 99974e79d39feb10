"""The state of a session in this process: its names, and those before the last step."""

import builtins
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .. import Policy
from . import step
from .forms import VALUE
from .kept import Definitions
from .output import Capture
from .shown import Shown

#: At a moment: the names, those of the session, the working directory, the number of modules and
#: the definitions.
_State = tuple[dict[str, Any], dict[str, Any], str | None, int, Definitions]


class StepQueue(step.StepContext):
    """The state of the steps of a session, which the thread of the guest alone touches."""

    def __init__(
        self,
        policy: Policy,
        tools: dict[str, Callable[..., Any]],
        most: int | None,
        directory: str,
    ) -> None:
        super().__init__(policy, {}, Shown(VALUE if most is None else most))
        self._directory = directory
        self.number = 0
        self.tools = tools
        self.before: _State | None = None
        self.snapshots: dict[int, _State] = {}
        #: The number of modules before the first step: the host's.
        self._modules = len(sys.modules)
        self.begin()

    def begin(self) -> None:
        """Begin without names but those of the session."""
        self.own = {
            "__name__": "__main__",
            "__builtins__": builtins,
            "display": self.shown.display,
            "exit": _exit,
            "quit": _exit,
            "input": self.input,
            **self.tools,
        }
        self.names.update(self.own)

    def run(
        self,
        output: Capture,
        code: str,
        stdin: bytes | None,
        variables: dict[str, Any],
        tools: dict[str, Any],
    ) -> step.Outcome:
        output.begin(stdin)
        self.input.begin(stdin)
        before = self._now()
        self.before = None
        self.before = before
        self.names.update(variables)
        if tools:
            self.own.update(tools)
            self.names.update(tools)
        self.number += 1
        return self.outcome(code, self.number)

    def undo(self) -> None:
        assert self.before is not None
        self._go_back(self.before)

    def keep(self, number: int) -> None:
        self.snapshots[number] = self._now()

    def drop(self, number: int) -> None:
        self.snapshots.pop(number, None)

    def restore(self, number: int) -> None:
        self._go_back(self.snapshots[number])

    def _now(self) -> _State:
        modules = len(sys.modules)
        return {**self.names}, {**self.own}, _directory(), modules, self.definitions.now()

    def _go_back(self, state: _State) -> None:
        names, own, directory, modules, definitions = state
        self.before = None
        self.definitions = definitions.now()
        self.names.clear()
        self.names.update(names)
        # The session's own are those of now, unless code had taken their names.
        now = {name: value for name, value in self.own.items() if name != "_"}
        self.own = {**own, **now}
        for name, value in now.items():
            if names.get(name, self) is own.get(name, self):
                self.names[name] = value
        self._forget_modules(modules)
        if directory is not None:
            os.chdir(directory)

    def reset(self) -> None:
        self.end()
        self.number = 0
        self.loop = step.Loop()
        self.begin()

    def going_on(self, other: "StepQueue") -> Callable[[], None]:
        """Return work that goes on from the state before the step that another one runs."""
        state, snapshots, own = other.before, {**other.snapshots}, {**other.own}
        self.number, self.sources, self._modules = other.number, other.sources, other._modules
        self.input = other.input

        def work() -> None:
            self.own = {**own, "display": self.own["display"]}
            self.snapshots = snapshots
            if state is not None:
                self._go_back(state)

        return work

    def leave(self) -> None:
        """Let go of everything but what another one goes on from."""
        self.before = None
        try:
            self.loop.close()
        finally:
            self.names.clear()

    def load(self, output: Capture, body: bytes) -> dict[str, str]:
        """Give names what a record has; what its statements print is nobody's output."""
        output.begin()
        return self.revive(body)

    def end(self) -> None:
        self.before = None
        self.snapshots.clear()
        try:
            self.loop.close()
        finally:
            self.names.clear()
            self.sources.clear()
            self.definitions = Definitions()
            # The next session may have other modules of these names.
            self._forget_modules(self._modules)

    def _forget_modules(self, first: int) -> None:
        """Forget modules whose files are in the directory, so that they are imported anew."""
        below = self._directory + os.sep
        for name in list(sys.modules)[first:]:
            file = getattr(sys.modules.get(name), "__file__", None)
            if type(file) is str and file.startswith(below) and "site-packages" not in file:
                del sys.modules[name]


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _exit(code: object = None) -> NoReturn:
    """End the step."""
    raise SystemExit(code)
