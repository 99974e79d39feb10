"""Attempts of a session's steps to use tools of the host for more than they are for.

`main` makes them in a process of its own: code may leave anything in the process, and a
collection of garbage takes long in a large one.
"""

import asyncio
import contextlib
import functools
import gc
import io
import json
import logging
import os
import sys
import threading
import traceback
import types
import warnings

from programs import SLOWER

from fastaudit_rs import Limits, Policy, Sandbox

SECRET = "the-secret-of-the-host"

#: A module of the host: its functions call each other by their names.
HOST = """
import asyncio, json, logging, os, warnings

ANSWER, LIMIT, PAID = "deny", 10, []

def check(path):
    return path.endswith(".txt")

class Store:
    def put(self, text):
        pass

STORE = Store()

def save(path, text):
    "Save a text: to text files in `home` alone."
    if not check(path):
        raise ValueError("no text file")
    if not os.path.realpath(path).startswith(home + os.sep):
        raise ValueError("not at home")
    STORE.put(text)
    with open(path, "w") as file:
        file.write(text)

async def later(path, text):
    await asyncio.sleep(0.001)
    save(path, text)

def pay(amount):
    if type(amount) is not int or amount not in range(1, LIMIT):
        raise ValueError("not to be paid")
    PAID.append(amount)

def note(text):
    logging.getLogger("host").warning("%s", text)
    warnings.warn(f"note {text}")
    return json.dumps({"text": text})

def sort(items):
    return sorted(items, key=str)

def fail(text):
    secret = SECRET
    opens = open
    raise RuntimeError(text)

def churn():
    import gc
    gc.collect()

def ask(denied):
    return ANSWER
"""
FUNCTIONS = ("save", "later", "note", "sort", "fail", "churn", "pay")

GUEST = """
def steal(*given, _running=[], _open=open, _target=target, **named):
    if _running:
        return
    _running.append(1)
    try:
        _open(_target, "w").close()
    except (PermissionError, FileNotFoundError):
        pass
    finally:
        _running.clear()

def give(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except BaseException as error:
        return error
"""

#: The policy that lets everything pass.
OPEN = Policy(write=None, threads="inherit", env=True, native=True, commands=True, network=True)

#: The line between the steps of an attempt.
NEXT = "# the next step\n"


def host_at(home):
    """The host's module, which code in its process can import."""
    host = types.ModuleType("host_of_session")
    host.home, host.SECRET = home, SECRET
    exec(compile(HOST, "host_of_session.py", "exec"), vars(host))
    sys.modules["host_of_session"] = host
    return host


def effects(session, host, code, target):
    """Make an attempt; return what it has achieved that it should not, in words."""
    told = []
    try:
        session.run(GUEST, variables={"target": target, "home": host.home})
        for step in code.split(NEXT):
            ran = session.run(step)
            told.append(repr([ran.stdout, ran.stderr, ran.value, ran.error, ran.display]))
        _go_on()
    finally:
        session.close()
        gc.collect()
        sys.modules.pop("host_of_session", None)
    achieved = {"file": os.path.exists(target), "paid": host.PAID, "secret": SECRET in str(told)}
    return [name for name, has in achieved.items() if has]


def _go_on():
    """Do what hosts do between steps."""
    json.dumps({"a": 1})
    logging.getLogger("host").warning("a")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with contextlib.redirect_stderr(io.StringIO()):
            warnings.warn("a", stacklevel=1)
    with contextlib.suppress(Exception):
        with contextlib.redirect_stdout(io.StringIO()):
            print("a")
    thread = threading.Thread(target=len, args=((),))
    thread.start()
    thread.join()
    try:
        raise ValueError
    except ValueError:
        traceback.format_exc()
    gc.collect()

    async def wait():
        await asyncio.sleep(0.01)

    asyncio.run(wait())


@functools.cache
def _sandbox():
    return Sandbox(limits=Limits(wall_seconds=20 * SLOWER))


def session_in(place, host):
    """A session in a place: here, here without a policy that denies, in a sandbox."""
    options = {"tools": {name: getattr(host, name) for name in FUNCTIONS}, "on_ask": host.ask}
    if place == "sandbox":
        return _sandbox().session(**options)
    policy = OPEN if place == "open" else Policy(write=[host.home], threads="inherit", env=True)
    return policy.session(directory=host.home, monitor_calls=False, **options)


def main():
    """Make the attempts of standard input, each a line of JSON; answer each by a line."""
    # An attempt may replace it.
    dumps = json.dumps
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.getLogger("host").addHandler(logging.NullHandler())
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        host = host_at(asked["home"])
        session = session_in(asked["place"], host)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            found = effects(session, host, asked["code"], asked["target"])
        answers.write(dumps(found) + "\n")
        answers.flush()
    os._exit(0)
