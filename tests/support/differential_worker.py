"""One side of the differential test: raises events under a guard and tells the verdicts.

Run as `python differential_worker.py PACKAGE TREE`. Reads a request a line from standard input,
JSON, and writes a verdict a line: `null`, or the name and the message of the exception. A request
has

- `oks`: the roots;
- `cwd`: the directory in which the guard is made and entered;
- `move`: a directory that the guarded code then changes to, or `null`;
- `gone`: whether the current directory has been deleted when the event is raised;
- `event` and `args`.
"""

import importlib
import inspect
import json
import os
import pathlib
import re
import sys
import tempfile

# Descriptors that requests name by number: the same on both sides.
DESCRIPTORS = {100: "ok", 101: "ok/sub", 102: "out", 103: "ok/file", 104: "cwd"}


class Liar:
    """A path-like object that gives another path the second time it is asked."""

    def __init__(self, paths):
        self.paths = iter(paths)

    def __fspath__(self):
        return next(self.paths)

    def __repr__(self):
        return "Liar()"


class Failing:
    """A path-like object that raises what the original does not expect."""

    def __fspath__(self):
        raise RuntimeError("no path")

    def __repr__(self):
        return "Failing()"


class Index:
    """An object that the system functions take for a file descriptor."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number

    def __repr__(self):
        return "Index()"


class Unshowable:
    """An object whose `repr` fails."""

    def __repr__(self):
        raise ValueError("no repr")


class Overridden(str):
    """A `str` whose methods tell of another path than its text is."""

    def __new__(cls, text, pretended):
        self = super().__new__(cls, text)
        self.pretended = pretended
        return self

    def rfind(self, *args):
        return self.pretended.rfind(*args)

    def __getitem__(self, key):
        return self.pretended[key]


def generate():
    """A function whose code requests replace."""
    yield


def code(kind):
    """Code for `generate`: only marked as awaitable, as `types.coroutine` does, or another."""
    old = generate.__code__
    if kind == "marked":
        return old.replace(co_flags=old.co_flags | inspect.CO_ITERABLE_COROUTINE)
    return old.replace(co_name="other")


DECODERS = {
    "bytes": bytes.fromhex,
    "path": pathlib.PurePosixPath,
    "liar": Liar,
    "failing": lambda _: Failing(),
    "index": Index,
    "unshowable": lambda _: Unshowable(),
    "overridden": lambda texts: Overridden(*texts),
    "function": lambda _: generate,
    "code": code,
}


def decode(value):
    """The argument that a request describes."""
    [(kind, content)] = value.items()
    return DECODERS[kind](content) if kind in DECODERS else content


def answer(mk_audit, request):
    """The verdict on one request."""
    os.chdir(request["cwd"])
    guard = mk_audit([decode(root) for root in request["oks"]], monitor_calls=False)()
    arguments = [decode(value) for value in request["args"]]
    if request["gone"]:
        gone = tempfile.mkdtemp()
        os.chdir(gone)
        os.rmdir(gone)
    try:
        with guard:
            if request["move"] is not None:
                os.chdir(request["move"])
            sys.audit(request["event"], *arguments)
    except Exception as error:
        # Ours is a subclass, whose text goes on after the message; in 0.2.10 that does.
        is_denial = isinstance(error, PermissionError) and len(error.args) == 1
        name = "PermissionError" if is_denial else type(error).__name__
        message = error.args[0].split("\nCall chain: ")[0] if is_denial else str(error)
        # Where a function lies in memory says nothing.
        return [name, re.sub(r" at 0x[0-9a-f]+", "", message)]
    return None


def main():
    """Answer requests until there are no more."""
    package, tree = sys.argv[1:]
    mk_audit = importlib.import_module(package).mk_audit
    for number, path in DESCRIPTORS.items():
        opened = os.open(os.path.join(tree, path), os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    for line in sys.stdin:
        print(json.dumps(answer(mk_audit, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
