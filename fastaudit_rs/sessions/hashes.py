"""Values that are to be found by their hashes, in sets and mappings of the host.

The sender chooses the hashes of numbers, and of tuples of them: a set of n values with one hash
takes n² steps, and n values whose places in the table follow one another nearly as many.
"""

from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from typing import Any
from uuid import UUID

#: The keys that are no text, in all the sets and mappings of a message or of an argument, and those
#: with one hash.
KEYS, ALIKE = 1 << 16, 100


def check_count(count: int) -> None:
    if count > KEYS:
        raise ValueError(f"more than {KEYS} keys and members of sets that are no text")


def check_alike(keys: Iterable[Any]) -> None:
    """Raise `ValueError` if too many of these have one hash; `TypeError` if one has none."""
    first: dict[int, Any] = {}
    alike: dict[int, int] = {}
    for key in keys:
        number = hash(key)
        other = first.setdefault(number, key)
        if other is not key and other != key:
            alike[number] = alike.get(number, 1) + 1
            if alike[number] > ALIKE:
                raise ValueError(f"more than {ALIKE} keys or members of sets with one hash")


def check_members(members: Collection[Any]) -> None:
    """Check what is to be a set, or the keys of a mapping."""
    if not all(type(one) is str for one in members):
        check_count(len(members))
        check_alike(members)


# Data of which others make sets.


def makes_keys(schema: Any) -> bool:
    """True if a schema of pydantic's core makes members of sets, or keys, of something else."""
    rest = [schema]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            kind, of = one.get("type"), one.get("items_schema") or one.get("keys_schema") or {}
            if kind in ("set", "frozenset") and of.get("type") != "str":
                return True
            if kind == "dict" and of.get("type", "any") not in ("str", "any"):
                return True
            rest += one.values()
        elif isinstance(one, (list, tuple)):
            rest += one
    return False


def check_made(value: Any) -> None:
    """Check data whose lists may become sets, and whose texts numbers."""
    rest = [value]
    while rest:
        one = rest.pop()
        if type(one) is dict:
            rest += one.values()
        elif type(one) in (list, tuple, set, frozenset):
            rest += one
        else:
            continue
        if len(one) > ALIKE:
            for make in (_number, _identifier):
                check_alike(_stand_in(item, make) for item in one)


def _stand_in(value: Any, make: Callable[[str], Any]) -> Any:
    """What has the hash of the value that is made of data, as far as it is chosen."""
    kind = type(value)
    if kind is str:
        return make(value)
    if kind is bytes:
        return make(value.decode("latin-1"))
    if kind in (list, tuple):
        return tuple(_stand_in(one, make) for one in value)
    if kind is dict:
        # An object that is compared by its fields.
        return tuple(_stand_in(value[key], make) for key in sorted(value, key=str))
    if kind is Decimal:
        return value if value.is_finite() else None
    return value if kind in (int, float, complex, UUID) else None


def _number(text: str) -> Any:
    try:
        made = Decimal(text)
    except ArithmeticError:
        return None
    return made if made.is_finite() else None


def _identifier(text: str) -> Any:
    try:
        return UUID(text)
    except ValueError:
        return None
