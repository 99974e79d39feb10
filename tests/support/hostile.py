"""Audit events with any arguments, among them objects that do harm when they are looked at.

`judge(data)` makes an event out of bytes, raises it under a guard and fails when the guard does. It
is run by `tests/guard/test_hostile.py` and, for hours, by `fuzz/targets/events.rs`.
"""

import contextvars
import gc
import os
import sys
import tempfile
from pathlib import Path

from event_rows import ROWS

from fastaudit_rs import AuditDenied, Network, Policy, mk_audit, v02

EVENTS = list(ROWS)
# A stop that no `Exception` handler catches: it passes through the hook as it is.
STOPS = (KeyboardInterrupt, SystemExit)


class Bytes:
    """Data that decides one thing after the other; zeros when it is used up."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def byte(self):
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def pick(self, choices):
        return choices[self.byte() % len(choices)]

    def text(self):
        taken = self.data[self.at : self.at + self.byte() % 24]
        self.at += len(taken)
        return taken


class Odd:
    """Answers each question about itself with what was chosen, or does harm instead."""

    def __init__(self, answer):
        self.answer = answer

    def __fspath__(self):
        return self.answer()

    __index__ = __int__ = __str__ = __repr__ = __hash__ = __len__ = __bool__ = __fspath__
    __bytes__ = __iter__ = __call__ = __fspath__

    def __eq__(self, other):
        return self.answer()

    __ne__ = __contains__ = __getitem__ = __lt__ = __eq__

    @property
    def __class__(self):
        return self.answer()


class OddText(str):
    def __fspath__(self):
        return self.answer()

    __str__ = __repr__ = __hash__ = __len__ = __iter__ = __fspath__

    def __eq__(self, other):
        return self.answer()

    __ne__ = __contains__ = __getitem__ = encode = startswith = __eq__


class OddBytes(bytes):
    __fspath__ = __bytes__ = __repr__ = __hash__ = OddText.__fspath__
    __eq__ = __ne__ = decode = startswith = OddText.__eq__


class OddNumber(int):
    __index__ = __int__ = __repr__ = __hash__ = __bool__ = OddText.__fspath__
    __eq__ = __ne__ = __and__ = __or__ = OddText.__eq__


class OddMapping(dict):
    __len__ = __iter__ = keys = values = items = OddText.__fspath__
    __getitem__ = get = OddText.__eq__


class Harm:
    """The acts of an object when it is asked something."""

    def __init__(self, world, value, chosen):
        self.world = world
        self.value = value
        self.chosen = chosen
        self.depth = 0

    def __call__(self):
        if self.depth > 2:
            return self.value
        self.depth += 1
        try:
            return self.HARMS[self.chosen % len(self.HARMS)](self)
        finally:
            self.depth -= 1

    def give(self):
        return self.value

    def fail(self):
        raise ValueError(self.value)

    def stop(self):
        raise KeyboardInterrupt

    def exit(self):
        raise SystemExit

    def raise_an_event(self):
        sys.audit("os.remove", self.world.outside, -1)
        return self.value

    def enter(self):
        with self.world.factories[0]():
            return self.value

    def enter_and_stay(self):
        self.world.factories[0]().__enter__()
        return self.value

    def collect(self):
        gc.collect()
        return self.value

    def look_at_frames(self):
        frame = sys._getframe()
        while frame is not None:
            dict(frame.f_locals).clear()
            frame = frame.f_back
        return self.value

    def go_elsewhere(self):
        os.chdir(self.world.inside)
        return self.value

    def ask_itself(self):
        return self

    def recurse(self):
        return self.recurse()

    HARMS = (
        give,
        fail,
        stop,
        exit,
        raise_an_event,
        enter,
        enter_and_stay,
        collect,
        look_at_frames,
        go_elsewhere,
        ask_itself,
        recurse,
    )


class World:
    """A tree with one approved directory, and a guard of each kind for it."""

    def __init__(self):
        self.top = os.path.realpath(tempfile.mkdtemp())
        self.inside, self.outside = self.top + "/inside", self.top + "/outside"
        for directory in (self.inside, self.outside):
            os.mkdir(directory)
        os.symlink(self.outside, self.inside + "/out")
        os.symlink(self.inside, self.outside + "/in")
        roots = [self.inside]
        network = Network(hosts=["localhost:80", "*.example.org", "10.0.0.0/8"], listen=False)
        self.factories = [
            mk_audit(roots, monitor_calls=False),
            v02.mk_audit(roots, monitor_calls=False),
            mk_audit(roots, lambda *told: bool(told) and None, monitor_calls=False),
            mk_audit(roots, lambda event, args, *_: args[0].answer, monitor_calls=False),
            Policy(
                write=roots,
                read=roots,
                block=[self.inside + "/blocked"],
                max_bytes=1000,
                env=["LANG"],
                commands=["git"],
                imports=["json"],
                network=network,
                unknown_events="deny",
            ).guard(monitor_calls=False),
            Policy(write=roots, network=network, import_allow=["json"]).guard(monitor_calls=False),
        ]
        self.names = [
            *(b"inside", b"outside", b"out", b"in", b"blocked", b"a", b"..", b".", b"", b".git"),
            *(b"hooks", b"new"),
        ]
        # The words in events beside paths.
        self.words = [
            *("r", "w", "a+", "rb", "LANG", "PATH", "json", "ctypes", "localhost", "10.0.0.1"),
            *("::1", "git", "/bin/sh", "-c", ":memory:", "file:a?mode=ro", "file://x/y", "x"),
            *("__class__", "f_locals", "\udc80", "\0", "x" * 5000, "é", "\U0001f600"),
        ]

    def path(self, data):
        parts = [data.pick(self.names) for _ in range(data.byte() % 6)]
        start = data.pick([self.top.encode() + b"/", b"", b"/", b"/proc/self/fd/"])
        path = start + b"/".join(parts) + data.pick([b"", b"/", b"\0", b"\xff"])
        return os.fsdecode(path) if data.byte() % 4 else path

    def number(self, data):
        return data.pick(
            [0, 1, -1, 2, 80, 0o777, 65536, -100, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400]
        )

    def odd(self, data, depth):
        value = self.value(data, depth - 1)
        harm = Harm(self, value, data.byte())
        kind = data.byte() % 6
        if kind == 0:
            path = self.path(data)
            odd = OddBytes(path) if isinstance(path, bytes) else OddText(path)
        elif kind == 1:
            odd = OddNumber(self.number(data))
        elif kind == 2:
            odd = OddMapping({"LANG": value})
        elif kind == 3:
            return type("Meta", (type,), {"__instancecheck__": lambda *_: harm()})("Odd", (), {})
        else:
            return Odd(harm)
        odd.answer = harm
        return odd

    def value(self, data, depth=3):
        kind = data.byte() % 16
        if kind < 5:
            return self.path(data)
        if kind < 7:
            return self.number(data)
        if kind < 8:
            return data.pick(self.words)
        if kind < 9:
            text = data.text()
            return text if data.byte() % 2 else text.decode("utf-8", "surrogateescape")
        if kind < 10:
            return data.pick([None, True, False, 1.5, float("nan"), 1j, ..., object(), len, sys])
        if kind < 13 and depth > 0:
            make = data.pick([tuple, list, lambda values: dict(enumerate(values)), iter])
            return make([self.value(data, depth - 1) for _ in range(data.byte() % 5)])
        if depth > 0:
            return self.odd(data, depth)
        return data.pick([bytearray(b"a"), memoryview(b"a"), Path("a"), Path(self.outside)])

    def event(self, data):
        """The name of an event, and its arguments."""
        name = data.pick(EVENTS) if data.byte() % 8 < 7 else data.pick(["x", "", "open/", "é.b"])
        if data.byte() % 2:
            index = data.byte() << 8 | data.byte()
            name = EVENTS[index % len(EVENTS)]
        return name, [self.value(data) for _ in range(data.byte() % 7)]


world = World()


def lands_inside(path):
    """In the root, or the root itself, which the system does not open for writing."""
    return (os.path.realpath(path) + "/").startswith(world.inside + "/")


def judge(data):
    """Raises one event under one guard; `AssertionError` when the guard was wrong."""
    # Objects that are left behind in a context end with it.
    contextvars.Context().run(judge_here, data)


def judge_here(data):
    chosen = Bytes(data)
    which = chosen.byte() % len(world.factories)
    name, args = world.event(chosen)
    os.chdir(world.top)
    holds = False
    try:
        with world.factories[which]():
            allowed = raised_by(name, args)
            # Whatever happened, the guard holds.
            holds = not raised_by("os.system", [b"ls"])
    except RuntimeError as error:
        # Hostile code left a guard of its own behind in there.
        assert "guard" in str(error), error
    assert holds, (name, args)
    if name == "open" and allowed and len(args) == 3:
        path, mode, _ = args
        if type(path) is str and type(mode) is str and set(mode) & set("wax+"):
            assert lands_inside(path) or path in ("/dev/null",), args


def raised_by(name, args):
    """True if the event passed; otherwise it is denied, or stopped by one of the arguments."""
    try:
        sys.audit(name, *args)
    except AuditDenied as denied:
        assert "internal error" not in denied.args[0], denied.args
        assert denied.event == name or denied.event in ("os.remove", "os.chdir"), denied.event
        return False
    except STOPS:
        return False
    except (FileNotFoundError, ProcessLookupError):
        # There is nothing that it could harm: it fails as it would without a guard.
        return False
    except (AttributeError, IndexError):
        # The callback of one of the guards fails.
        return False
    return True
