"""Runs code through safepyrun, the real client of fastaudit, and tells what became of it.

Run as `python client_worker.py BASE`, or so by `python -m fastaudit_rs.as_fastaudit` to have it run
on this package. Prints `{name: outcome}` as JSON: `["value", repr]`, or the classes
of the exception and the first line of its text.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import lxml.etree
import matplotlib
import numpy
import orjson
import pandas

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from client_cases import CASES
from fastaudit import CallTracker, active_calls, mk_audit, track_call
from pyskills import allow
from safepyrun import RunPython, allow_matplotlib, allow_pandas, core as safepyrun


def echo(text):
    """A tool that starts a program."""
    return subprocess.run(["echo", text], capture_output=True, text=True).stdout


def untrusted(text):
    """The same, which no one allows."""
    return subprocess.run(["echo", text], capture_output=True, text=True).stdout


class Shell:
    """A tool with methods."""

    def say(self, text):
        return echo(text)

    def scream(self, text):
        return untrusted(text.upper())


@track_call
async def late(text):
    """An asynchronous tool, whose own frames are gone when it starts a program."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def start():
        try:
            done.set_result(untrusted(text))
        except PermissionError as error:
            done.set_exception(error)

    loop.call_soon(start)
    return await done


async def untracked(text):
    await asyncio.sleep(0)
    return untrusted(text)


def checked(obj, args, kwargs, data):
    """A policy for a tool: only what is small."""
    if len(args[0]) > 3:
        raise PermissionError(f"{args[0]} is too long")


def limited(text):
    return untrusted(text)


def writer(path):
    """A tool that writes where it is told."""
    Path(path).write_text("x")
    return Path(path).read_text()


def names(frame):
    while frame:
        yield frame.f_code.co_qualname
        frame = frame.f_back


def pre_deny(info):
    """Decides before safepyrun does: by the event, and by a frame that is walked to."""
    if info.event == "os.putenv" and info.args == ():
        return None
    if info.event == "client.event":
        return "client_worker" in str([c.name for c in info.calls])
    return None


def described(error):
    classes = [cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins"]
    line = (str(error.args[0]) if error.args else "").split("\n")[0]
    return [*classes, shown(line)]


def shown(text):
    """Without what differs each time."""
    for pattern in (r" at 0x[0-9a-f]+", r"<_thread\S+ object[^>]*>", r"(?<=Thread-)\d+"):
        text = re.sub(pattern, "", text)
    return text.replace(str(os.getpid()), "PID")


async def run(code, base, **options):
    options.setdefault("ok_dests", [str(base / "ok"), "."])
    namespace = {
        "orjson": orjson, "np": numpy, "pd": pandas, "plt": plt, "os": os, "asyncio": asyncio,
        "etree": lxml.etree, "OK": str(base / "ok"), "OUT": str(base / "out"), "echo": echo,
        "untrusted": untrusted, "shell": Shell(), "late": late, "untracked": untracked,
        "limited": limited, "writer": writer, "allow": allow, "mk_audit": mk_audit, "sys": sys,
        "CallTracker": CallTracker, "active_calls": active_calls, "safepyrun": safepyrun,
        "Path": Path, "subprocess": subprocess,
    }  # fmt: skip
    try:
        value = await RunPython(g=namespace, pre_deny=pre_deny, **options)(code)
    except BaseException as error:
        return described(error)
    return [
        "value",
        shown(repr(value)),
        sorted(name for name in namespace if name.startswith("new")),
    ]


async def main(base):
    for name in ("ok", "out", "cwd"):
        (base / name).mkdir()
    os.chdir(base / "cwd")
    allow(echo, late, {Shell: ["say"]}, {sys.modules["__main__"]: [("limited", checked)]}, writer)
    allow_matplotlib()
    allow_pandas()
    outcomes = {}
    for name, case in CASES.items():
        code, options = case if isinstance(case, tuple) else (case, {})
        outcomes[name] = await run(code, base, **options)
        files = sorted(str(path.relative_to(base)) for path in base.rglob("*") if path.is_file())
        outcomes[name].append(files)
    return outcomes


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    place = Path(sys.argv[1]).resolve()
    text = json.dumps(asyncio.run(main(place)))
    print("fastaudit is", mk_audit.__module__)
    print(text.replace(str(place), "BASE"))
