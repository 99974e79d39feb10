"""Attempts of guarded code to use a tool for more than it is for.

Each is a text in `tool_attacks.toml` that the guest runs. Nothing is judged but the file.
`tests/sessions/test_attacks.py` has those of data, of hooks and of what the host's functions use: a
session's functions are tools.
"""

import contextlib
import gc
import os
import sys
import types
from pathlib import Path

import programs
import pytest
import toml_tables

from fastaudit_rs import Policy

#: A module of the host: its tools call its functions by their names.
HOST = """
import os

LOG = []

def check(path):
    return path.endswith(".txt")

class Store:
    def put(self, text):
        LOG.append(text)

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

def sort(items):
    return sorted(items, key=str)

def fail(text):
    raise RuntimeError(text)

def call(function, *args):
    return function(*args)

def format(template, *args):
    return template.format(*args)

def compare(one, other):
    return one == other

def keep(value):
    LOG.append(value)

def drop():
    LOG.clear()

def churn():
    import gc
    gc.collect()

async def wait():
    import asyncio
    await asyncio.sleep(0.001)

async def wait_for(function, *args):
    import asyncio
    await asyncio.sleep(0)
    result = function(*args)
    for _ in range(5):
        await asyncio.sleep(0.001)
    return result
"""
BY_VALUE = ("save", "sort", "fail", "churn", "wait")
RAW = ("call", "format", "compare", "keep", "drop", "wait_for")

ATTACKS = toml_tables.load(Path(__file__).with_name("tool_attacks.toml"))


GUEST = """
running = []

def steal(*given):
    if running:
        return
    running.append(1)
    try:
        open(target, "w").close()
    except PermissionError:
        pass
    finally:
        running.clear()

def give(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except BaseException:
        pass
"""


@pytest.fixture(autouse=True, scope="module")
def few_objects():
    """Let the collector look only at what the attempts make: they have it look often."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def attempt(tmp_path):
    """`attempt(name, guarded)`: whether the attempt wrote the file."""
    home, target = str(tmp_path / "home"), tmp_path / "out/target.txt"
    os.mkdir(home)
    target.parent.mkdir()

    def run(name, guarded):
        if name in ("sys.monitoring", "the context of a task") and sys.version_info < (3, 12):
            pytest.skip("it came with 3.12")
        host = types.ModuleType("host_of_tools")
        host.home = home
        exec(compile(HOST, "host_of_tools.py", "exec"), vars(host))
        policy = Policy(write=[home], threads="inherit", env=True)
        names = {"host": host, "home": home, "target": str(target), "policy": policy}
        for each in BY_VALUE:
            names[each] = policy.tool(getattr(host, each))
        for each in RAW:
            names[each] = policy.tool(getattr(host, each), raw=True)
        guard = policy.guard(monitor_calls=False) if guarded else contextlib.nullcontext
        with guard():
            exec(GUEST, names)
            with contextlib.suppress(Exception):
                exec(compile(ATTACKS[name], f"<{name}>", "exec"), names)
        gc.collect()
        return target.exists()

    return run


@pytest.mark.parametrize("name", ATTACKS)
def test_the_file_is_not_written(name, attempt):
    assert not attempt(name, guarded=True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["a callback", "a finder"])
def test_without_a_guard_it_is(name, attempt):
    assert attempt(name, guarded=False)


#: Native functions in the place of each name by which values are passed, and annotations read.
REPLACED = """
import builtins, dataclasses, functools, importlib, json, os, pathlib

tried = 0
# Before 3.13 making one calls functions that are replaced below.
path = pathlib.Path(target)

def attempts():
    global tried
    tried += 1
    for value in (path, {target}, [target, {1}]):
        give(echo, value)
    give(echo, target, key=target)
    give(echo, key=3)
    give(echo, item={"name": target})
    give(echo, item={"name": 3})
    give(item_of, {"name": target})
    give(item_of)

def replace(where, name):
    own = getattr(where, name)
    for other in (functools.partial(open, mode="w"), functools.partial(open, target, "w")):
        put(where, name, other)
        try:
            attempts()
        finally:
            put(where, name, own)
        if exists(target) and not found:
            found.append((where.__name__, name))

put, exists = setattr, os.path.exists
modules = "annotations arguments foreign forms hashes objects tool_values typed values".split()
for module in [importlib.import_module(f"fastaudit_rs.sessions.{one}") for one in modules]:
    for name, one in list(vars(module).items()):
        if not callable(one):
            continue
        replace(module, name)
        if isinstance(one, type) and one.__module__.startswith("fastaudit_rs.sessions"):
            for attribute in [*vars(one)]:
                if callable(getattr(one, attribute)) and attribute not in KEPT:
                    give(replace, one, attribute)
for module, names in {
    builtins: "type map tuple zip len enumerate getattr hasattr dict list set any all range",
    dataclasses: "fields is_dataclass",
    json: "loads dumps",
}.items():
    for name in names.split():
        replace(module, name)
"""


def test_no_native_function_has_rights_in_place_of_ours(tmp_path):
    """A guest in this process replaces names that the package looks up as it passes values."""
    pytest.importorskip("pydantic")
    # Its descriptors are those of a process of its own: some of the attempts close them.
    program = f"""
import dataclasses, os, sys
from fastaudit_rs import Policy
home, target = sys.argv[1] + "/home", sys.argv[1] + "/target.txt"

@dataclasses.dataclass
class Item:
    name: str

def echo(value=None, *, key: str = "", item: Item | None = None):
    return value

def item_of(item: Item | None = None) -> Item | None:
    return item

policy = Policy(write=[home], threads="inherit")
names = {{"target": target, "found": [], "KEPT": {{"__class__", "__new__", "__init_subclass__"}}}}
names |= {{tool.__name__: policy.tool(tool) for tool in (echo, item_of)}}
with policy.guard(monitor_calls=False)():
    exec({GUEST!r}, names)
    exec({REPLACED!r}, names)
told = repr((names["tried"] > 300, names["found"], os.path.exists(target)))
os.mkdir(home)
with open(home + "/told", "w") as file:
    file.write(told)
os._exit(0)
"""
    programs.python("-c", program, str(tmp_path), cwd=tmp_path)
    assert (tmp_path / "home/told").read_text() == "(True, [], False)"
