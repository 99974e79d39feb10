"""The record of a session: what `Session.save` writes, and `Session.load` reads.

It is data that nobody trusts: code of a session made the values, and somebody may have changed the
file. The host looks at its form; the statements in it run, and the values are made, where the
session's code runs.
"""

import keyword
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .values import pack, unpack

#: The first bytes of a record.
MAGIC = b"fastaudit_rs session 1\n"

#: The bytes of a record, its names, and the characters of a name and of a reason.
MOST, NAMES, NAME, REASON = 80 << 20, 20_000, 500, 300


@dataclass(frozen=True)
class SessionRecord:
    """What was saved, or loaded.

    Attributes:
        names: The names that were kept, in order.
        lost: The other names, and the reason of each.
    """

    names: list[str]
    lost: dict[str, str] = field(default_factory=dict)


class Parts(NamedTuple):
    """The parts of a record, whose form is right."""

    #: Statements in the order in which they are to run, each with the name that it gives a value.
    sources: list[tuple[str, str]]
    #: Values by name, each packed by itself.
    values: dict[str, bytes]
    lost: dict[str, str]

    def told(self, lost: dict[str, str]) -> SessionRecord:
        """Tell of it, where more of it was lost."""
        lost = {**self.lost, **lost}
        names = [*self.values, *(name for name, _ in self.sources)]
        return SessionRecord([name for name in dict.fromkeys(names) if name not in lost], lost)

    def packed(self) -> bytes:
        """Return the statements and the values, for the side that makes them."""
        sources = [list(one) for one in self.sources]
        return pack({"sources": sources, "values": self.values}, arrays=False, most=MOST)


def parts(body: bytes | memoryview) -> Parts:
    """Check the body of a record; `ValueError` says what is wrong."""
    given = unpack(body, arrays=False)
    if type(given) is not dict or given.keys() != {"sources", "values", "lost"}:
        raise ValueError("it has other parts")
    sources = [_statement(one) for one in _listed(given["sources"], list)]
    values = _listed(given["values"], dict)
    _check_names(name for name, _ in sources)
    _check_names(values)
    if any(type(data) is not bytes for data in values.values()):
        raise ValueError("a value that is not packed")
    return Parts(sources, values, reasons(given["lost"]))


def reasons(given: Any) -> dict[str, str]:
    """Check what is lost."""
    lost: dict[str, str] = _listed(given, dict)
    _check_names(lost)
    if not all(type(why) is str and len(why) <= REASON for why in lost.values()):
        raise ValueError("a reason that is no short text")
    return lost


def _statement(one: Any) -> tuple[str, str]:
    if type(one) is list and len(one) == 2 and type(one[0]) is type(one[1]) is str:
        return one[0], one[1]
    raise ValueError("a statement without a name")


def _listed(given: Any, kind: type[Any]) -> Any:
    if type(given) is not kind or len(given) > NAMES:
        raise ValueError(f"it has no {kind.__name__} of at most {NAMES} names")
    return given


def _check_names(names: Iterable[Any]) -> None:
    for name in names:
        if type(name) is not str or not is_name(name):
            raise ValueError(f"{name!r:.50} is no name that a step can give a value")


def is_name(name: str) -> bool:
    """True for a name that records have: one of code's own."""
    is_special = name.startswith("__") and name.endswith("__")
    return (
        len(name) <= NAME and name.isidentifier() and not keyword.iskeyword(name) and not is_special
    )


def read(data: object, place: str) -> Parts:
    """Return the parts of a record; `ValueError` names its place if it is none."""
    if type(data) is not bytes:
        raise ValueError(f"{place} must have bytes, not {type(data).__name__}")
    if not data.startswith(MAGIC):
        raise ValueError(f"{place} is no record of a session: save() writes one")
    if len(data) > MOST:
        raise ValueError(f"{place} has more than {MOST >> 20} MB")
    try:
        return parts(memoryview(data)[len(MAGIC) :])
    except ValueError as error:
        raise ValueError(f"{place} is no record of a session: {error}") from None
