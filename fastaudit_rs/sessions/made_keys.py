"""Data of which other packages make members of sets, and keys: they may have one hash then."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

from .hashes import ALIKE, check_alike


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
