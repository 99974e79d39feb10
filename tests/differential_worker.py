"""One side of the differential test: raises events under a guard and tells the verdicts.

Run as `python differential_worker.py PACKAGE TREE`. Reads a request a line from standard input,
JSON: `oks`, `cwd`, `event`, `args`; writes a verdict a line, `null` or the name and the message of
the exception.
"""

import importlib
import json
import os
import pathlib
import sys

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


def decode(value):
    """The argument that a request describes."""
    [(kind, content)] = value.items()
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "path":
        return pathlib.PurePosixPath(content)
    if kind == "liar":
        return Liar(content)
    return content


def answer(mk_audit, request):
    """The verdict on one request."""
    os.chdir(request["cwd"])
    guard = mk_audit([decode(root) for root in request["oks"]], monitor_calls=False)()
    arguments = [decode(value) for value in request["args"]]
    try:
        with guard:
            sys.audit(request["event"], *arguments)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def main():
    """Answer requests until there are no more."""
    package, tree = sys.argv[1:]
    mk_audit = importlib.import_module(package).mk_audit
    for number, path in DESCRIPTORS.items():
        os.dup2(os.open(os.path.join(tree, path), os.O_RDONLY), number)
    for line in sys.stdin:
        print(json.dumps(answer(mk_audit, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
