"""Values that are to be found by their hashes, in sets and mappings of the host.

The sender chooses the hashes of numbers, and of tuples of them: a set of n values with one hash
takes n² steps, and n values whose places in the table follow one another nearly as many.
"""

from collections.abc import Collection, Iterable
from typing import Any

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
