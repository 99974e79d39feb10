"""Attempts of guarded code to use a tool for more than it is for.

Each is a text that the guest runs, with the tools and `target`, a file outside the roots that it
tries to write. Nothing is judged but the file.
"""

# ruff: noqa: E501
# The texts are programs, some of them in few lines.

import contextlib
import gc
import sys
import textwrap
import types

import pytest

from fastaudit_rs import Policy

#: A module of the host: its tools call its functions by their names.
HOST = """
import json, logging, os, sys, warnings

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

def note(text):
    logging.getLogger("host").warning("%s", text)
    warnings.warn(f"note {text}")
    return json.dumps({"text": text})

def sort(items):
    return sorted(items, key=str)

def fail(text):
    secret = open
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
BY_VALUE = ("save", "note", "sort", "fail", "churn", "wait")
RAW = ("call", "format", "compare", "keep", "drop", "wait_for")

ATTACKS = {}


def attack(name, source):
    ATTACKS[name] = textwrap.dedent(source)


def lying(name, source):
    """An argument of a class that lies, given to `save` in each place."""
    attack(name, source + "\ngive(save, lie, 'x.txt')\ngive(save, home + '/a.txt', lie)")


attack("the path itself", "save(target, 'x')")
attack("a path that leads out", "save(home + '/../out/target.txt', 'x')")
attack(
    "a link",
    "import os\nos.symlink(target, home + '/a.txt')\nsave(home + '/a.txt', 'x')",
)
lying(
    "a str whose methods lie",
    """
class Text(str):
    def endswith(self, *given): return True
    def startswith(self, *given): return True
    def __str__(self): return steal() or 'a.txt'
    __fspath__ = __format__ = __repr__ = __add__ = __eq__ = __hash__ = __str__
lie = Text(target)
""",
)
lying(
    "a path-like",
    """
class Path:
    def __fspath__(self): return steal() or target
    __str__ = __repr__ = __fspath__
    def endswith(self, *given): return True
lie = Path()
""",
)
lying(
    "an int whose methods act",
    """
class Number(int):
    def __index__(self): return steal() or 3
    __int__ = __str__ = __repr__ = __hash__ = __eq__ = __bool__ = __index__
lie = Number(3)
""",
)
lying(
    "a float whose methods act",
    """
class Number(float):
    def __float__(self): return steal() or 3.0
    __str__ = __repr__ = __hash__ = __eq__ = __float__
lie = Number(3)
""",
)
lying(
    "a dict whose methods act",
    """
class Mapping(dict):
    def keys(self): return steal() or []
    __iter__ = items = values = __getitem__ = get = __len__ = __repr__ = __contains__ = keys
lie = Mapping(a=1)
""",
)
lying(
    "a list whose methods act",
    """
class Items(list):
    def __iter__(self): return steal() or iter([])
    __len__ = __getitem__ = __repr__ = __eq__ = __iter__
lie = Items(['a'])
""",
)
lying(
    "a bytes whose methods act",
    """
class Bytes(bytes):
    def decode(self, *given): return steal() or ''
    __str__ = __repr__ = __iter__ = __buffer__ = __bytes__ = decode
lie = Bytes(b'a')
""",
)
lying(
    "a key with a hash",
    """
class Key(str):
    def __hash__(self): return steal() or 1
    def __eq__(self, other): return steal() or True
lie = {'a': 1}
give(dict.__setitem__, lie, Key('b'), 2)
""",
)
lying(
    "an object with a class that lies",
    """
class Lie:
    @property
    def __class__(self): return steal() or str
lie = Lie()
""",
)
lying(
    "a metaclass",
    """
class Meta(type):
    def __instancecheck__(cls, instance): return steal() or True
    def __subclasscheck__(cls, other): return steal() or True
    def __getattribute__(cls, name): steal(); return type.__getattribute__(cls, name)
class Lie(str, metaclass=Meta): pass
lie = Lie('a')
""",
)
lying(
    "a descriptor",
    """
class Acts:
    def __get__(self, *given): return steal() or (lambda *args: True)
class Lie(str):
    endswith = startswith = encode = Acts()
lie = Lie(target)
""",
)
attack(
    "a name of an argument",
    "give(save, **{type('T', (str,), {'__hash__': lambda s: steal() or 1, "
    "'__eq__': lambda s, o: steal() or True})('path'): target, 'text': 'x'})",
)
attack("cyclic data", "a = []; a.append(a)\ngive(save, a, 'x')\ngive(save, home + '/a.txt', a)")
attack(
    "deep data",
    """
a = []
for _ in range(100_000): a = [a]
give(save, a, 'x')
""",
)
attack(
    "huge data", "give(save, 'x' * (17 << 20), 'x')\ngive(save, home + '/a.txt', [0] * (2 << 20))"
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
    "frames of an exception",
    """
try: fail('x')
except RuntimeError as error:
    tb = error.__traceback__
    while tb:
        frame = tb.tb_frame
        while frame:
            if 'secret' in frame.f_locals and frame.f_code.co_name == 'fail':
                frame.f_locals['secret'](target, 'w')
            frame = frame.f_back
        tb = tb.tb_next
    for way in (error.__context__, error.__cause__):
        if way is not None: steal()
""",
)
attack(
    "the function by gc", "import gc\nfor found in gc.get_referents(save): give(found, target, 'x')"
)
attack(
    "the function by all objects of gc",
    """
import gc
for found in gc.get_objects():
    if type(found) is type(steal) and found.__name__ == 'save': give(found, target, 'x')
""",
)
attack(
    "the function by its attributes",
    """
for name in ('__wrapped__', '__func__', '__self__', 'function', '_function', '__call__', '__globals__',
             '__closure__', '__code__', '__reduce__', '__reduce_ex__', '__get__', '__dict__'):
    found = getattr(save, name, None)
    give(found, target, 'x')
    if isinstance(found, dict): give(found.get('open'), target, 'w')
""",
)
attack(
    "a copy of the tool",
    "import copy\ngive(copy.copy, save)\ngive(copy.deepcopy, save)\n"
    "give(type(save), open)\ngive(type(save).__new__, type(save))",
)
attack("a subclass of tools", "give(type, 'T', (type(save),), {'__call__': lambda *a: steal()})")
attack(
    "a tool of its own",
    "give(policy.tool, lambda: steal())\nt = give(policy.tool(), steal)\ngive(t)",
)
attack("a guard of its own", "with policy.replace(write=None).guard()(): steal()")
attack(
    "a pickle",
    """
import pickle
class Lie:
    def __reduce__(self): return (exec, ("open(%r, 'w').close()" % target,))
give(note, pickle.dumps(Lie()))
give(save, Lie(), 'x')
give(pickle.dumps, save)
""",
)
attack(
    "settrace",
    "import sys\nsys.settrace(lambda *given: steal())\ngive(save, home + '/a.txt', 'x')\nsys.settrace(None)",
)
attack(
    "setprofile",
    "import sys\nsys.setprofile(lambda *given: steal())\ngive(save, home + '/a.txt', 'x')\nsys.setprofile(None)",
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
for where, change in {
    "a function": "host.check = lambda path: steal() or True",
    "a name of the host": "host.open = lambda *given: steal()",
    "a module": "import types\nhost.os = types.SimpleNamespace(path=types.SimpleNamespace("
    "realpath=lambda path: steal() or home + '/a'), sep='/')",
    "a method": "host.Store.put = lambda *given: steal()",
    "an attribute": "host.STORE = type('S', (), {'put': lambda *given: steal()})()",
    "a class": "host.Store.__getattribute__ = lambda *given: steal()",
    "a dunder": "host.STORE.__class__ = type('S', (), {'__getattr__': lambda *given: steal()})",
}.items():
    attack(f"{where} that the tool uses", f"{change}\ngive(save, home + '/a.txt', 'x')")
attack(
    "a builtin",
    """
import builtins
own = builtins.sorted
builtins.sorted = lambda *given, **named: steal() or own(*given, **named)
try: give(sort, [2, 1])
finally: builtins.sorted = own
""",
)
attack(
    "a function of a module in sys.modules",
    """
import json
own = json.dumps
json.dumps = lambda *given: steal()
try: give(note, 'x')
finally: json.dumps = own
""",
)
attack(
    "a module in sys.modules",
    """
import sys, types
own = sys.modules['gc']
sys.modules['gc'] = types.SimpleNamespace(collect=steal)
try: give(churn)
finally: sys.modules['gc'] = own
""",
)
attack(
    "an import hook",
    """
import sys, builtins
own = builtins.__import__
builtins.__import__ = lambda *given: steal() or own(*given)
try: give(churn)
finally: builtins.__import__ = own
""",
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
attack("a lambda", "give(call, lambda: steal())")
attack("a bound method", "class A:\n    def m(self): steal()\ngive(call, A().m)")
attack("an object to call", "class A:\n    def __call__(self): steal()\ngive(call, A())")
attack("a class to call", "class A:\n    def __init__(self): steal()\ngive(call, A)")
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
attack("re-entry by value", "give(call, lambda: give(save, target, 'x'))")
attack(
    "a callback that raises and acts",
    "class E(Exception):\n    def __str__(self): return steal() or ''\n"
    "    __repr__ = __str__\ndef f(): raise E\ngive(call, f)",
)
attack(
    "a finalizer that the collector calls",
    """
import gc
class A:
    def __del__(self): steal()
gc.disable()
a = A(); a.a = a
del a
give(churn)
gc.enable()
""",
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
    "weakref.finalize",
    """
import weakref
class A: pass
a = A()
weakref.finalize(a, steal)
give(keep, a)
del a
give(drop)
""",
)
attack(
    "a callback of the collector",
    "import gc\ngc.callbacks.append(lambda *given: steal())\ngive(churn)\ngc.callbacks.pop()",
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
    "str.format by attributes",
    "class A:\n    @property\n    def b(self): return steal() or ''\n"
    "give(format, '{0.b}', A())\ngive(format, '{0.__globals__[os].system}', steal)",
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
    "json's default",
    "import json\ngive(call, lambda: json.dumps(object(), default=lambda o: steal()))\n"
    "e = json.JSONEncoder(default=lambda o: steal())\ngive(call, e.encode, object())",
)
attack(
    "a handler of the host's log",
    """
import logging
class Handler(logging.Handler):
    def emit(self, record): steal()
handler = Handler()
logging.getLogger('host').addHandler(handler)
try: give(note, 'x')
finally: logging.getLogger('host').removeHandler(handler)
""",
)
attack(
    "a filter of the host's log",
    """
import logging
own = lambda record: steal() or True
logging.getLogger('host').addFilter(own)
try: give(note, 'x')
finally: logging.getLogger('host').removeFilter(own)
""",
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
    "a hook of warnings",
    """
import warnings
own = warnings.showwarning
warnings.showwarning = lambda *given, **named: steal()
try:
    warnings.simplefilter('always')
    give(note, 'x')
finally: warnings.showwarning = own
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
    "a codec",
    """
import codecs
search = lambda name: steal() if name == 'stealing' else None
codecs.register(search)
try: give(call, 'a'.encode, 'stealing')
finally: codecs.unregister(search)
""",
)
attack(
    "copyreg",
    """
import copyreg, copy
class A: pass
copyreg.pickle(A, lambda a: steal() or (A, ()))
give(call, copy.copy, A())
""",
)
attack(
    "a hook of abstract classes",
    """
import abc, collections.abc
class A(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other): return steal() or True
give(call, isinstance, 3, A)
""",
)
attack(
    "an audit hook",
    "import sys\ngive(sys.addaudithook, lambda *given: steal())\ngive(save, home + '/a.txt', 'x')",
)
attack(
    "a hook of exceptions",
    "import sys\nown = sys.excepthook\nsys.excepthook = lambda *given: steal()\n"
    "give(call, sys.excepthook, ValueError, ValueError(), None)\nsys.excepthook = own",
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
    "breakpoint",
    "import sys\nown = sys.breakpointhook\nsys.breakpointhook = steal\ngive(call, breakpoint)\nsys.breakpointhook = own",
)
attack(
    "the output",
    "import sys\nown = sys.stdout\nsys.stdout = type('O', (), {'write': lambda *given: steal(), "
    "'flush': lambda *given: None})()\ntry: give(call, print, 'x')\nfinally: sys.stdout = own",
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
attack(
    "a property of a module",
    "import types\nclass M(types.ModuleType):\n    @property\n"
    "    def LOG(self): steal()\n    def __getattr__(self, name): steal()\n"
    "give(setattr, host, '__class__', M)\ngive(save, home + '/a.txt', 'x')",
)
attack(
    "the cell of a closure",
    "import types\nf = (lambda: (lambda: steal))()\ngive(call, f)\ngive(call, f())",
)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "out").mkdir()
    return tmp_path


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


#: Attempts that write nothing without a guard either: the tool itself stops them.
HARMLESS = {
    "a bytes whose methods act",
    "a callback that raises and acts",
    "a copy of the tool",
    "a descriptor",
    "a dict whose methods act",
    "a float whose methods act",
    "a link",
    "a list whose methods act",
    "a metaclass",
    "a path that leads out",
    "a path-like",
    "a pickle",
    "a property of a module",
    "a str whose methods lie",
    "a subclass of tools",
    "an int whose methods act",
    "an object with a class that lies",
    "cyclic data",
    "data that change",
    "deep data",
    "frames of an exception",
    "huge data",
    "re-entry by value",
    "the function by all objects of gc",
    "the function by gc",
    "the function by its attributes",
    "the path itself",
    # It would stay in the process.
    "an audit hook",
}


@pytest.fixture(autouse=True, scope="module")
def few_objects():
    """Let the collector look only at what the attempts make: they have it look often."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def attempt(place):
    """`attempt(name, guarded)`: whether the attempt wrote the file."""
    home, target = str(place / "home"), place / "out/target.txt"

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

    yield run


@pytest.mark.parametrize("name", ATTACKS)
def test_the_file_is_not_written(name, attempt):
    assert not attempt(name, guarded=True)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - HARMLESS))
def test_without_a_guard_it_is(name, attempt):
    """The attempts are in earnest."""
    assert attempt(name, guarded=False)
