"""The options of the magics ``%%audit`` and ``%audit on``: reading, help, completion."""

import argparse
import difflib
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import NoReturn

from IPython.core.error import TryNext, UsageError

from . import asking
from .permissions import add_options

MAGIC = "%%audit"

#: Options that ask for the others to be explained.
HELP = ("--help", "-h")

#: The words that may follow ``%audit``.
VERBS: tuple[str, ...] = ("on", "off")


class OptionParser(argparse.ArgumentParser):
    """A parser whose errors name the nearest option and show the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise the error of a magic that was used in a wrong way."""
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
    made = OptionParser(
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


def completer(
    made: argparse.ArgumentParser, verbs: tuple[str, ...] = ()
) -> Callable[[object, SimpleNamespace], list[str]]:
    """Return a function by which IPython completes a line of a magic.

    Args:
        made: The parser of its options.
        verbs: Words that may be the first one of the line.
    """
    options = {name: action for action in made._actions for name in action.option_strings}

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
