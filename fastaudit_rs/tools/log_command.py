"""The command ``fastaudit-rs log verify``: whether the chain of a log of decisions holds.

Parts of the lines are a guest's words, and whoever can write to the file may have put anything in
it: lines are read as bytes, and no further than the lines of a log go.
"""

import argparse
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from .._text import printable
from .run_command import wrong

#: The bytes of a line that are kept: no line of a log has so many.
LONGEST = 1 << 20

#: The chains of single writers that a log may have.
CHAINS = 10_000

#: The hash before the first line.
NONE = b"0" * 64

#: The end of a line that is a link of a chain, and the bytes that it has at most.
LINK = re.compile(
    rb'(?:,"chain":"([0-9a-f]{16})")?,"seq":([0-9]{1,19}),"prev_hash":"([0-9a-f]{64})"'
    rb',"hash":"([0-9a-f]{64})"\}\n\Z'
)
LINK_BYTES = 300
#: The bytes of a line that its hash is not of.
OWN_HASH = len(b',"hash":""}\n') + 64


@dataclass
class Chain:
    number: int = 0
    hash: bytes = NONE


@dataclass
class Found:
    """What a log shows: `problem` is the first line that breaks a chain, and how it does."""

    lines: int = 0
    own: Chain = field(default_factory=Chain)
    others: dict[bytes, Chain] = field(default_factory=dict)
    problem: str | None = None
    #: The number of lines after the one with the expected hash.
    since: int | None = None


def run(options: argparse.Namespace) -> int:
    expected = options.expect
    if expected is not None and not re.fullmatch("[0-9a-fA-F]{64}", expected):
        return wrong(f"--expect takes a hash of 64 hexadecimal digits, not {expected!r}")
    try:
        found = verify(_lines(options.file), expected)
    except OSError as error:
        return wrong(error)
    name = printable(", ".join(options.file))
    held = f"{found.lines} lines" if found.lines != 1 else "1 line"
    if found.problem is None:
        print(f"{name}: holds: {held}" if found.lines else f"{name}: no lines")
    else:
        print(f"{name}: broken: {found.problem}")
        print(f"held before it: {held}")
    if found.own.number:
        print(f"last: {found.own.number} {found.own.hash.decode()}")
    for chain, last in found.others.items():
        print(f"last of chain {chain.decode()}: {last.number} {last.hash.decode()}")
    if found.since:
        print(f"since the expected line: {found.since}")
    return 0 if found.problem is None else 1


def verify(lines: Iterable[bytes], expected: str | None = None) -> Found:
    """Check the lines of a log, as far as they hold.

    Args:
        lines: The lines with their newlines; longer ones than `LONGEST` may be cut.
        expected: The hash of a line that must be there.
    """
    found = Found()
    wanted = None if expected is None else expected.lower().encode()
    unlinked = False
    for line in lines:
        place = f"line {found.lines + 1}"
        if not line.endswith(b"\n") and len(line) < LONGEST:
            found.problem = _unlinked(place, None) if unlinked else f"{place} is cut off"
            return found
        link = LINK.search(line, max(len(line) - LINK_BYTES, 0))
        if unlinked:
            number = int(link[2]) - found.own.number if link and not link[1] else None
            found.problem = _unlinked(place, number)
            return found
        if link is None or len(line) > LONGEST:
            # The next line shows what happened.
            unlinked = True
            continue
        found.problem = _broken(found, link, line)
        if found.problem is not None:
            found.problem = f"{place} {found.problem}"
            return found
        found.lines += 1
        if link[4] == wanted:
            found.since = 0
        elif found.since is not None:
            found.since += 1
    if unlinked:
        found.problem = _unlinked(f"line {found.lines + 1}", None)
    elif wanted is not None and found.since is None:
        found.problem = (
            "no line has the expected hash: the end was cut off, or the log was made anew"
        )
    return found


def _unlinked(place: str, ahead: int | None) -> str:
    """Say what a line without a hash is: the next line is so far ahead of the line before."""
    if ahead == 1:
        return f"{place} was inserted: it has no hash"
    return f"{place} was {'changed' if ahead == 2 else 'changed or inserted'}: it has no hash"


def _broken(found: Found, link: re.Match[bytes], line: bytes) -> str | None:
    """Say how a link breaks its chain; add it if it does not."""
    name, digits, before, own = link.groups()
    number = int(digits)
    if hashlib.sha256(line[:-OWN_HASH]).hexdigest().encode() != own:
        return "was changed: its hash is that of other bytes"
    if name is not None and name not in found.others and len(found.others) == CHAINS:
        return f"is of one more chain than {CHAINS:,}"
    last = found.own if name is None else found.others.get(name, Chain())
    of_chain = "" if name is None else f", of chain {name.decode()}"
    if number > last.number + 1:
        count = number - last.number - 1
        missing = "1 line is" if count == 1 else f"{count} lines are"
        return f"has the number {number}: {missing} missing before it{of_chain}"
    if number <= last.number:
        return f"was inserted or moved: number {number}{of_chain} is there already"
    if before != last.hash and (name is None or last.number):
        if last.number == 0:
            return "does not begin a log: a line was before it"
        return f"does not follow number {last.number}{of_chain}: that was changed, with its hash"
    last.number, last.hash = number, own
    if name is not None:
        found.others[name] = last
    return None


def _lines(files: list[str]) -> Iterator[bytes]:
    for name in files:
        with open(name, "rb") as file:
            yield from _lines_of(file)


def _lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines; of one that is too long the beginning, longer than `LONGEST`."""
    while line := file.readline(LONGEST + 1):
        yield line
        while len(line) > LONGEST and not line.endswith(b"\n"):
            line = file.readline(LONGEST + 1)
