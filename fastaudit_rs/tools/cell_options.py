"""The options of the magics ``%%audit`` and ``%audit on``: reading, help, completion."""

import argparse
import difflib
import re
from types import SimpleNamespace
from typing import NoReturn

from IPython.core.error import TryNext, UsageError

from . import asking
from .permissions import add_options

MAGIC = "%%audit"

#: Options that ask for the others to be explained.
HELP = ("--help", "-h")

#: The words that may follow ``%audit``.
VERBS = ("on", "off")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest option and show the usage."""

    def error(self, message: str) -> NoReturn:
        options = [name for action in self._actions for name in action.option_strings]
        for word in re.findall(r"--[\w-]+", message):
            near = difflib.get_close_matches(word, options, n=1)
            if near and word not in options:
                message += f" (the near one is {near[0]})"
        raise UsageError(f"{message}\n{self.format_usage().strip()}")


def parser(magic: str = MAGIC) -> argparse.ArgumentParser:
    """A parser of the options.

    Args:
        magic: The name of the magic in messages.
    """
    made = _Parser(
        prog=magic,
        description="Guard code, so that it does no accidental damage: it writes, reaches and "
        "starts nothing but what the options name; 'any' stands for all.",
        add_help=False,
    )
    add_options(made)
    asking.add_options(made)
    made.add_argument(
        "--record", action="store_true", help="stop nothing, and show the operations afterwards"
    )
    made.add_argument("--all", action="store_true", help="with --record: show all of it")
    made.add_argument(*HELP, action="store_true", help="show this, and run nothing")
    return made


def asks_for_help(line: str) -> bool:
    """Tell whether the options ask to be explained."""
    return any(word in HELP for word in line.split())


def complete(_: object, event: SimpleNamespace) -> list[str]:
    """Return the words that may continue a line of the magics, for IPython.

    Raises:
        TryNext: It is the value of an option, which IPython completes itself: files above all.
    """
    words = event.text_until_cursor.split()[1:]
    if event.symbol and words:
        words.pop()
    options = {name: action for action in parser()._actions for name in action.option_strings}
    before = options.get(words[-1]) if words else None
    if before is not None and before.nargs != 0:
        raise TryNext
    verbs = VERBS if not words and event.command != MAGIC else ()
    return [word for word in (*verbs, *sorted(options)) if word.startswith(event.symbol)]
