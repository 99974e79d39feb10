"""Attempts of guarded code to use a tool for more than it is for.

Each is a text that the guest runs, with the tools and `target`, a file outside the roots that it
tries to write. Nothing is judged but the file. `tests/sessions/test_attacks.py` has those of data,
of hooks and of what the host's functions use: a session's functions are tools.
"""

# ruff: noqa: E501
# The texts are programs, some of them in few lines.

import contextlib
import gc
import os
import sys
import textwrap
import types

import pytest

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

ATTACKS = {}


def attack(name, source):
    ATTACKS[name] = textwrap.dedent(source)


attack(
    "a key with a hash",
    """
class Key(str):
    def __hash__(self): return steal() or 1
    def __eq__(self, other): return steal() or True
lie = {'a': 1}
give(dict.__setitem__, lie, Key('b'), 2)
give(save, lie, 'x.txt')
give(save, home + '/a.txt', lie)
""",
)
attack(
    "data that change",
    """
import threading
a = [home + '/a.txt'] * 1000
a.append(type('T', (str,), {'__del__': lambda self: a.__setitem__(0, target)})('b'))
give(sort, a)
""",
)
attack(
    "sys.monitoring",
    """
import sys
m = sys.monitoring
m.use_tool_id(4, 'x')
try:
    m.register_callback(4, m.events.PY_START, lambda *given: steal())
    m.set_events(4, m.events.PY_START)
    give(save, home + '/a.txt', 'x')
finally:
    m.set_events(4, 0)
    m.free_tool_id(4)
""",
)
attack(
    "a class that the tool uses",
    "host.Store.__getattribute__ = lambda *given: steal()\ngive(save, home + '/a.txt', 'x')",
)
attack(
    "a finder",
    """
import sys
class Finder:
    def find_spec(self, *given): steal()
finder = Finder()
sys.meta_path.insert(0, finder)
gc_ = sys.modules.pop('this_is_no_module', None)
try: give(call, __import__, 'no_such_module_at_all')
finally: sys.meta_path.remove(finder)
""",
)
attack(
    "the code of a function of the host",
    "host.steal = steal\n"
    "give(setattr, host.check, '__code__', (lambda path: steal() or True).__code__)\n"
    "give(save, home + '/a.txt', 'x')",
)
attack(
    "the code of a tool's function by gc",
    """
import gc
for found in gc.get_objects():
    if type(found) is type(steal) and found.__name__ == 'churn':
        give(setattr, found, '__code__', (lambda: steal()).__code__)
host.steal = steal
give(churn)
""",
)
attack(
    "a function of its code and the host's globals",
    """
import types
give(call, types.FunctionType(steal.__code__, {**vars(host), 'target': target}))
host.check = types.FunctionType((lambda path: open(target, 'w')).__code__, vars(host) | {'target': target})
give(save, home + '/a.txt', 'x')
""",
)
attack(
    "code by replace",
    """
import types
code = steal.__code__.replace(co_filename='/usr/lib/python3/os.py')
host.check = types.FunctionType(code, {'target': target, 'open': open, 'running': []})
give(save, home + '/a.txt', 'x')
give(call, host.check)
""",
)
attack(
    "code by marshal",
    """
import marshal, types
code = marshal.loads(marshal.dumps(steal.__code__))
give(call, types.FunctionType(code, {'target': target, 'open': open, 'running': []}))
""",
)
attack(
    "code that claims to be a library's",
    """
import os
names = {'target': target}
exec(compile("def f(*given): open(target, 'w').close()", os.__file__, 'exec'), names)
give(call, names['f'])
""",
)
attack(
    "code that the import system runs",
    """
import importlib._bootstrap, importlib.util, importlib.machinery, os, sys
code = compile("def f(*given): open(target, 'w').close()", os.__file__, 'exec')
names = {'target': target}
give(importlib._bootstrap._call_with_frames_removed, exec, code, names)
give(call, names.get('f'))
class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, name): return code
class Finder:
    def find_spec(self, name, *given):
        if name == 'claimed':
            return importlib.util.spec_from_loader(name, Loader(name, os.__file__))
finder = Finder()
sys.meta_path.insert(0, finder)
try:
    import claimed
    claimed.target = target
    give(call, claimed.f)
finally:
    sys.meta_path.remove(finder)
    sys.modules.pop('claimed', None)
""",
)
attack("a callback", "give(call, steal)")
attack("an object to call", "class A:\n    def __call__(self): steal()\ngive(call, A())")
attack("a generator to step", "def g():\n    yield steal()\ngive(call, next, g())")
attack("a coroutine to step", "async def c(): steal()\ngive(call, c().send, None)")
attack(
    "a callback that makes a function",
    "give(call, lambda: exec(\"open(target, 'w')\", {'target': target}))",
)
attack("a partial", "import functools\ngive(call, functools.partial(steal))")
attack(
    "a callback in another context",
    "import contextvars\ngive(call, lambda: contextvars.Context().run(steal))\n"
    "give(call, lambda: contextvars.copy_context().run(open, target, 'w'))",
)
attack(
    "a context that a callback took",
    """
import contextvars
kept = []
give(call, lambda: kept.append(contextvars.copy_context()))
for context in kept:
    give(context.run, steal)
    give(context.run, open, target, 'w')
""",
)
attack(
    "a context that is used meanwhile",
    """
import contextvars
give(call, lambda: give(contextvars.copy_context().run, open, target, 'w'))
give(call, lambda: give(contextvars.copy_context().copy().run, open, target, 'w'))
""",
)
attack(
    "the variable of guards",
    """
import contextvars
def change():
    for variable, value in contextvars.copy_context().items():
        if variable.name.startswith('fastaudit'):
            kept.append((variable, value))
            give(variable.set, None)
            give(variable.set, value)
    steal()
kept = []
give(call, change)
for variable, value in kept:
    give(variable.set, value)
    steal()
""",
)
attack(
    "a thread of a callback",
    """
import threading
def start():
    for thread in (threading.Thread(target=steal), threading.Thread(target=open, args=(target, 'w'))):
        thread.start()
        thread.join()
give(call, start)
""",
)
attack(
    "a thread that the tool starts",
    """
import threading
thread = threading.Thread(target=steal)
give(call, thread.start)
thread.join(5)
""",
)
attack(
    "an executor of a callback",
    """
from concurrent.futures import ThreadPoolExecutor
def start():
    with ThreadPoolExecutor(1) as executor:
        give(executor.submit(steal).result)
        give(executor.submit(open, target, 'w').result)
give(call, start)
""",
)
attack("re-entry", "give(call, lambda: give(call, lambda: give(call, steal)))")
attack(
    "a callback that raises and acts",
    "class E(Exception):\n    def __str__(self): return steal() or ''\n"
    "    __repr__ = __str__\ndef f(): raise E\ngive(call, f)",
)
attack(
    "a finalizer of an object that is dropped",
    "class A:\n    def __del__(self): steal()\na = A()\ngive(keep, a)\ndel a\ngive(drop)",
)
attack(
    "a callback of a weak reference",
    """
import weakref
class A: pass
a = A()
reference = weakref.ref(a, lambda reference: steal())
give(keep, a)
del a
give(drop)
""",
)
attack(
    "a signal",
    """
import signal
before = give(signal.signal, signal.SIGUSR1, lambda *given: steal())
give(call, signal.raise_signal, signal.SIGUSR1)
signal.signal(signal.SIGUSR1, before or signal.SIG_DFL)
""",
)
attack(
    "str.format",
    "class A:\n    def __format__(self, spec): return steal() or ''\ngive(format, '{}', A())",
)
attack(
    "a comparison",
    "class A:\n    def __eq__(self, other): return steal() or True\ngive(compare, A(), 1)\ngive(compare, 1, A())",
)
attack(
    "a key to sort by",
    "give(call, lambda: sorted([1, 2], key=lambda item: steal() or 1))\n"
    "give(call, sorted, type('L', (list,), {'__iter__': lambda self: steal() or iter(())})())",
)
attack(
    "the tools' own log",
    """
import logging
class Handler(logging.Handler):
    def emit(self, record): steal()
logger, handler = logging.getLogger('fastaudit_rs.tools'), Handler()
logger.addHandler(handler); logger.setLevel(1)
try: give(fail, 'x')
finally: logger.removeHandler(handler); logger.setLevel(0)
""",
)
attack(
    "an error handler of codecs",
    """
import codecs
codecs.register_error('stealing', lambda error: steal() or ('', error.end))
give(call, 'ä'.encode, 'ascii', 'stealing')
""",
)
attack(
    "a hook of errors that nobody catches",
    """
import sys
own = sys.unraisablehook
sys.unraisablehook = lambda given: steal()
class A:
    def __del__(self): raise ValueError
a = A(); give(keep, a); del a
try: give(drop)
finally: sys.unraisablehook = own
""",
)
attack(
    "a frame of the host",
    "import sys\ndef f():\n    frame = sys._getframe()\n    while frame:\n"
    "        if frame.f_code.co_name == 'call': give(frame.f_globals['__builtins__']['open'], target, 'w')\n"
    "        frame = frame.f_back\ngive(call, f)",
)
attack(
    "a task that outlives",
    """
import asyncio
async def main():
    async def later():
        await asyncio.sleep(0.01)
        steal()
    tasks = []
    give(call, lambda: tasks.append(asyncio.ensure_future(later())))
    await wait()
    await asyncio.gather(*tasks)
give(asyncio.run, main())
""",
)
attack(
    "a task of an asynchronous tool",
    """
import asyncio
async def main():
    async def now(): steal()
    tasks = []
    await wait_for(lambda: tasks.append(asyncio.ensure_future(now())))
    await asyncio.gather(*tasks)
give(asyncio.run, main())
""",
)
attack(
    "what a task does natively",
    """
import asyncio
async def main():
    tasks = []
    def start():
        tasks.append(asyncio.ensure_future(asyncio.to_thread(open, target, 'w')))
        asyncio.get_running_loop().call_soon(open, target, 'w')
        tasks.append(asyncio.get_running_loop().run_in_executor(None, open, target, 'w'))
    await wait_for(start)
    await asyncio.gather(*tasks, return_exceptions=True)
give(asyncio.run, main())
""",
)
attack(
    "the context of a task",
    """
import asyncio
async def main():
    async def work():
        for task in asyncio.all_tasks():
            if hasattr(task, 'get_context'):
                asyncio.get_running_loop().call_soon(open, target, 'w', context=task.get_context())
                give(task.get_context().run, open, target, 'w')
    await asyncio.gather(wait_for(int, 3), work())
    await asyncio.sleep(0.01)
give(asyncio.run, main())
""",
)
attack(
    "the steps of an asynchronous tool",
    """
call = wait()
class Lie(Exception):
    def __str__(self): return steal() or ''
    __repr__ = __str__
import asyncio
async def main():
    give(call.send, None)
    give(call.throw, Lie())
    own = wait()
    give(own.throw, ValueError(type('T', (str,), {'__str__': lambda self: steal()})('a')))
    steal()
give(asyncio.run, main())
""",
)
attack(
    "a generator that the tool stepped",
    """
def g():
    while True:
        try: open(target, 'w').close()
        except PermissionError: pass
        yield
kept = g()
give(call, next, kept)
next(kept)
""",
)
attack(
    "a function that starts threads",
    "import _thread\nown = _thread.start_new_thread\n"
    "give(call, own, steal, ())\nimport time\ntime.sleep(0.05)",
)


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
        if name == "a signal" and sys.platform == "win32":
            pytest.skip("there are no such signals")
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
