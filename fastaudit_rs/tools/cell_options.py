"""The options of the magics ``%%audit`` and ``%%sandbox``: reading, help, completion."""

import argparse
import difflib
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import NoReturn

from IPython.core.error import TryNext, UsageError

from .options import AUDIT, SANDBOX, add_options

DESCRIPTIONS = {
    AUDIT: "Guard code, so that it does no accidental damage: it writes, reaches and starts "
    "nothing but what the options name; 'any' stands for all.",
    SANDBOX: "Run a cell in a sandbox: a process that the kernel confines. It writes, reaches and "
    "starts nothing but what the options name; 'any' stands for all. It has a directory of its "
    "own. Names last to the next %%sandbox.",
}

HELP = ("--help", "-h")

VERBS: tuple[str, ...] = ("on", "off")


class OptionParser(argparse.ArgumentParser):
    """A parser whose errors name the nearest option and show the usage."""

    def error(self, message: str) -> NoReturn:
        options = [name for action in self._actions for name in action.option_strings]
        for word in re.findall(r"--[\w-]+", message):
            near = difflib.get_close_matches(word, options, n=1)
            if near and word not in options:
                message += f" (the near one is {near[0]})"
        raise UsageError(f"{message}\n{self.format_usage().strip()}")


def parser(magic: str, prog: str | None = None) -> argparse.ArgumentParser:
    description = DESCRIPTIONS[magic]
    made = OptionParser(prog=prog or magic, description=description, add_help=False)
    add_options(made, magic)
    return made


def asks_for_help(line: str) -> bool:
    return any(word in HELP for word in line.split())


def completer(
    magic: str, verbs: tuple[str, ...] = ()
) -> Callable[[object, SimpleNamespace], list[str]]:
    """Return a function by which IPython completes a line of a magic, and first words."""
    options = {name: action for action in parser(magic)._actions for name in action.option_strings}

    def complete(_: object, event: SimpleNamespace) -> list[str]:
        words = event.text_until_cursor.split()[1:]
        if event.symbol and words:
            words.pop()
        before = options.get(words[-1]) if words else None
        if before is not None and before.nargs != 0:
            # The value of an option: files above all, which IPython completes itself.
            raise TryNext
        first = verbs if not words else ()
        return [word for word in (*first, *sorted(options)) if word.startswith(event.symbol)]

    return complete
