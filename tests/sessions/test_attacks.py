"""Attempts of steps to use functions of the host for more than they are for, in each place.

Judged are the file `target`, which no function writes, the host's list of payments, and all that
the host is told, for its secret.
"""

# ruff: noqa: E501
# The texts are programs, some of them in few lines.

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from attempts import NEXT

ATTACKS = {}


def attack(name, source):
    ATTACKS[name] = textwrap.dedent(source)


def lying(name, source):
    attack(
        name,
        source
        + "\ngive(save, lie, 'x')\ngive(save, home + '/a.txt', lie)\ngive(pay, lie)\ngive(sort, [lie, lie])",
    )


# Arguments.
attack("the path itself", "save(target, 'x')")
attack("a path that leads out", "save(home + '/../out/target.txt', 'x')")
attack("a link", "import os\ngive(os.symlink, target, home + '/a.txt')\nsave(home + '/a.txt', 'x')")
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
    "an int whose methods act",
    """
class Number(int):
    def __index__(self): return steal() or 3
    __int__ = __str__ = __repr__ = __hash__ = __eq__ = __bool__ = __lt__ = __index__
lie = Number(300)
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
    def __getattribute__(cls, name): steal(); return type.__getattribute__(cls, name)
class Lie(str, metaclass=Meta): pass
lie = Lie('a')
""",
)
attack(
    "a name of an argument",
    "give(save, **{type('T', (str,), {'__hash__': lambda s: steal() or 1, '__eq__': lambda s, o: steal() or True})('path'): target, 'text': 'x'})",
)
attack("cyclic data", "a = []; a.append(a)\ngive(save, a, 'x')\ngive(sort, a)")
attack(
    "deep data",
    "a = []\nfor _ in range(100_000): a = [a]\ngive(save, a, 'x')\ngive(sort, [a])",
)
attack(
    "huge data", "give(save, 'x' * (65 << 20), 'x')\ngive(save, home + '/a.txt', [0] * (2 << 20))"
)
attack(
    "a pickle",
    """
import pickle
class Lie:
    def __reduce__(self): return (exec, ("open(%r, 'w').close()" % target,))
give(note, pickle.dumps(Lie())); give(save, Lie(), 'x'); give(pickle.dumps, save)
""",
)
attack(
    "amounts", "for n in (10, -1, 0, 3.0, '3', [3], None, 1 << 70, float('nan')):\n    give(pay, n)"
)
attack("arguments of an asynchronous function", "await later(target, 'x')")
attack(
    "a lie to an asynchronous function",
    """
class Text(str):
    def endswith(self, *given): return True
    def __str__(self): return steal() or home + '/a.txt'
try: await later(Text(target), 'x')
except TypeError: pass
""",
)

# The host's objects.
attack(
    "frames of an exception",
    """
try: fail('x')
except RuntimeError as error:
    tb = error.__traceback__
    while tb:
        frame = tb.tb_frame
        while frame:
            for names in (frame.f_locals, frame.f_globals):
                if 'opens' in names: give(names['opens'], target, 'w')
                if 'SECRET' in names or 'secret' in names: print(names)
            frame = frame.f_back
        tb = tb.tb_next
    for other in (error.__context__, error.__cause__):
        if other is not None: print(vars(other), other.args, other.__traceback__ and other.__traceback__.tb_frame.f_locals)
""",
)
attack(
    "frames of an exception of an asynchronous function",
    """
try: await later('x', 1)
except Exception as error:
    tb = error.__traceback__
    while tb:
        frame = tb.tb_frame
        while frame:
            if 'SECRET' in frame.f_globals: print(frame.f_globals['SECRET'])
            frame = frame.f_back
        tb = tb.tb_next
""",
)
attack(
    "the attributes of a function",
    """
for name in ('__wrapped__', '__func__', '__self__', 'function', '_function', '__call__', '__globals__',
             '__closure__', '__code__', '__reduce__', '__reduce_ex__', '__get__', '__dict__', '__builtins__'):
    found = getattr(save, name, None)
    give(found, target, 'x')
    if isinstance(found, dict):
        give(found.get('open'), target, 'w')
        print(found.get('SECRET'))
""",
)
attack(
    "the cells of a function",
    """
seen = set()
def look(value, depth):
    if depth > 5 or id(value) in seen: return
    seen.add(id(value))
    print(getattr(value, '__globals__', {}).get('SECRET'))
    for cell in getattr(value, '__closure__', None) or (): look(give(lambda: cell.cell_contents), depth + 1)
    look(getattr(value, '__wrapped__', None), depth + 1)
for each in (save, note, fail, pay, display): look(each, 0)
""",
)
attack(
    "referents of a function",
    "import gc\nfor found in gc.get_referents(save): give(found, target, 'x')\n"
    "for found in gc.get_referents(*gc.get_referents(pay)): give(found, 3) if callable(found) and getattr(found, '__name__', '') == 'append' else None",
)
attack(
    "a copy of a function",
    "import copy\ngive(copy.copy(save), target, 'x')\ngive(type(save), open)",
)
attack(
    "other code of a function",
    "import types\ngive(setattr, save, '__code__', steal.__code__)\ngive(save, home + '/a.txt', 'x')",
)
attack(
    "another function of a name",
    "own = save\nsave = steal\nsave()\nsave = own\n" + NEXT + "save(home + '/a.txt', 'x')",
)
attack(
    "the function by objects of gc",
    """
import gc
for found in gc.get_objects():
    if getattr(found, '__name__', '') == 'save' and callable(found): give(found, target, 'x')
""",
)
attack(
    "a session of its own",
    """
import fastaudit_rs
def run():
    with fastaudit_rs.Policy(write=None).session() as session: session.run('open(%r, "w").close()' % target)
give(run)
""",
)
attack(
    "a guard of its own",
    "import fastaudit_rs\ntry:\n    with fastaudit_rs.Policy(write=None).guard()(): steal()\nexcept BaseException: pass",
)
attack(
    "a function of its own",
    "import fastaudit_rs\nt = give(fastaudit_rs.Policy(write=None).tool, lambda: steal())\ngive(t)",
)

# Traces, hooks and callbacks of the step's own thread.
attack(
    "settrace",
    "import sys\nsys.settrace(steal)\ngive(save, home + '/a.txt', 'x')\nsys.settrace(None)",
)
attack(
    "setprofile",
    "import sys\nsys.setprofile(steal)\ngive(save, home + '/a.txt', 'x')\nsys.setprofile(None)",
)
attack(
    "a trace of the frames below",
    """
import sys
def trace(frame, event, arg):
    if frame.f_code.co_name == 'save': print(frame.f_globals.get('SECRET'))
    steal()
    return trace
frame = sys._getframe()
while frame:
    frame.f_trace = trace
    frame = frame.f_back
sys.settrace(trace)
give(churn)
sys.settrace(None)
frame = sys._getframe()
while frame:
    frame.f_trace = None
    frame = frame.f_back
""",
)
attack(
    "an audit hook", "import sys\ngive(sys.addaudithook, steal)\ngive(save, home + '/a.txt', 'x')"
)
for where, change in {
    "a function": "host.check = lambda path: steal() or True",
    "a name": "host.open = steal",
    "a module": "import types\nhost.os = types.SimpleNamespace(path=types.SimpleNamespace(realpath=lambda path: steal() or home + '/a'), sep='/')",
    "a method": "host.Store.put = steal",
    "an attribute": "host.STORE = type('S', (), {'put': steal})()",
    "a class": "host.STORE.__class__ = type('S', (), {'__getattr__': steal})",
}.items():
    attack(
        f"{where} that the function uses",
        f"import host_of_session as host\n{change}\ngive(save, home + '/a.txt', 'x')",
    )
for module, name, call in (
    ("builtins", "sorted", "sort([2, 1])"),
    ("builtins", "open", "save(home + '/a.txt', 'x')"),
    ("builtins", "__import__", "churn()"),
    ("json", "dumps", "note('x')"),
    ("gc", "collect", "churn()"),
    ("warnings", "showwarning", "note('x')"),
    ("os.path", "realpath", "save(home + '/a.txt', 'x')"),
    ("logging", "getLogger", "note('x')"),
    ("linecache", "getline", "fail('x')"),
    ("linecache", "updatecache", "fail('x')"),
    ("traceback", "format_exception", "fail('x')"),
    ("inspect", "signature", "save(home + '/a.txt', 'x')"),
    ("struct", "unpack_from", "save(home + '/a.txt', 'x')"),
    ("sys", "excepthook", "fail('x')"),
    ("sys", "unraisablehook", "fail('x')"),
    ("sys", "displayhook", "sort([1])"),
    ("threading", "excepthook", "fail('x')"),
    ("functools", "wraps", "sort([1])"),
    ("contextlib", "suppress", "save(home + '/a.txt', 'x')"),
):
    attack(
        f"{module}.{name}",
        f"""
import {module} as changed
own = changed.{name}
changed.{name} = lambda *given, **named: steal() or own(*given, **named)
try: give(lambda: {call})
finally: changed.{name} = own
""",
    )
for name in ("stdout", "stderr"):
    attack(
        f"another {name}",
        f"""
import sys
own = sys.{name}
sys.{name} = type('O', (), {{'write': steal, 'flush': steal, '__getattr__': steal}})()
try: give(note, 'x'); print('x'); print('x', file=sys.stderr)
finally: sys.{name} = own
""",
    )
attack(
    "a module of sys.modules",
    "import sys, types\nown = sys.modules['gc']\nsys.modules['gc'] = types.SimpleNamespace(collect=steal)\ntry: give(churn)\nfinally: sys.modules['gc'] = own",
)
attack(
    "a finder",
    """
import sys
class Finder:
    def find_spec(self, *given): steal()
finder = Finder()
sys.meta_path.insert(0, finder)
try:
    give(churn)
    give(note, 'x')
    give(__import__, 'no_such_module_at_all')
finally: sys.meta_path.remove(finder)
""",
)
attack(
    "a handler of the log",
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
    "a signal",
    "import signal\nown = give(signal.signal, signal.SIGUSR1, steal)\ngive(signal.raise_signal, signal.SIGUSR1)\ngive(churn)",
)
attack(
    "re-entry",
    """
import sys
def trace(*given):
    sys.settrace(None)
    give(save, target, 'x'); give(pay, 300); steal()
sys.settrace(trace)
give(save, home + '/a.txt', 'x')
sys.settrace(None)
""",
)
attack(
    "a callback of the collector",
    "import gc\ngc.callbacks.append(steal)\ntry: give(churn)\nfinally: gc.callbacks.remove(steal)",
)
attack(
    "a finalizer that the collector calls in a function",
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
    "a finalizer at the end of a step",
    "class A:\n    def __del__(self): steal()\na = A()\n" + NEXT + "del a",
)
attack(
    "a finalizer at the end of the session",
    "class A:\n    def __del__(self, steal=steal): steal()\na = A()",
)
attack(
    "an exception that acts",
    "class E(Exception):\n    def __str__(self): return steal() or ''\n    __repr__ = __str__\n    args = property(steal)\n    __notes__ = property(steal)\n    __cause__ = property(steal)\nraise E",
)
attack(
    "an exception with a class that acts",
    "class M(type):\n    __module__ = property(steal)\nclass E(Exception, metaclass=M): pass\nraise E",
)
attack("a value whose repr acts", "class A:\n    def __repr__(self): return steal() or ''\nA()")
for method in (
    "_repr_html_",
    "_repr_png_",
    "_repr_mimebundle_",
    "_repr_svg_",
    "__repr__",
    "__getattr__",
    "__format__",
):
    attack(
        f"a display by {method}",
        f"class A:\n    def {method}(self, *given, **named): return steal() or ''\ndisplay(A())\nA()",
    )
attack(
    "a display that calls functions",
    "class A:\n    def _repr_html_(self): give(save, target, 'x'); give(pay, 300); return ''\ndisplay(A())",
)
attack(
    "a display raw",
    "class D(dict):\n    def items(self): return steal() or []\ndisplay({'a/b': D(a=1)}, raw=True)",
)
attack(
    "an input that is changed",
    NEXT.join(("inputs = [target]\ntarget = home", "give(save, inputs[0], 'x')")),
)
attack(
    "names that are asked for",
    "class K(str):\n    def __hash__(self): return steal() or 1\n    def __eq__(self, other): return steal() or True\nglobals()[K('a')] = 1\n"
    + NEXT
    + "1",
)
attack(
    "builtins of the step",
    "__builtins__ = {'open': steal, '__import__': __import__}\n"
    + NEXT
    + "give(save, home + '/a.txt', 'x')",
)
attack(
    "sys.modules['__main__']",
    "import sys\nprint(vars(sys.modules['__main__']).get('SECRET'))\ngive(setattr, sys.modules['__main__'], '__getattr__', steal)\ngive(churn)\ngive(delattr, sys.modules['__main__'], '__getattr__')",
)

# Threads, tasks and contexts.
LOOP = """
import asyncio, contextvars, gc, time
for loop in gc.get_objects():
    if issubclass(type(loop), asyncio.BaseEventLoop) and loop.is_running(): loop.call_soon_threadsafe(steal)
time.sleep(0.1)
"""
attack("the host's event loop", LOOP)
attack(
    "the host's event loop and a new context",
    LOOP.replace("(steal)", "(steal, context=contextvars.Context())"),
)
attack(
    "the host's event loop and a native function",
    LOOP.replace("(steal)", "(open, target, 'w', context=contextvars.Context())"),
)
attack(
    "contexts of the host",
    """
import contextvars, gc
for found in gc.get_objects():
    if type(found) is contextvars.Context:
        give(found.run, steal); give(found.copy().run, steal); give(found.run, open, target, 'w')
""",
)
attack(
    "a thread",
    "import threading\nfor f, a in ((steal, ()), (open, (target, 'w')), (save, (target, 'x')), (pay, (300,))):\n    t = threading.Thread(target=give, args=(f, *a)); t.start(); t.join()",
)
attack(
    "a thread that calls a function",
    "import threading\ndef f():\n    give(save, home + '/a.txt', 'x'); steal()\nt = threading.Thread(target=f); t.start(); t.join()",
)
attack(
    "an executor",
    "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as e:\n    give(e.submit(steal).result); give(e.submit(open, target, 'w').result); give(e.submit(save, target, 'x').result)",
)
attack(
    "contexts",
    "import contextvars\ngive(contextvars.Context().run, steal)\ngive(contextvars.copy_context().run, open, target, 'w')",
)
attack(
    "variables of a context",
    """
import contextvars
for variable, value in list(contextvars.copy_context().items()):
    token = give(variable.set, None)
    steal()
    give(variable.set, value)
""",
)
attack(
    "the context of a task",
    """
import asyncio
async def other():
    for task in asyncio.all_tasks():
        get = getattr(task, 'get_context', None)
        if get is not None:
            asyncio.get_running_loop().call_soon(open, target, 'w', context=get())
            give(get().run, open, target, 'w')
await asyncio.gather(later(home + '/a.txt', 'x'), other())
await asyncio.sleep(0.01)
""",
)
attack(
    "its own loop",
    "import asyncio\nloop = asyncio.get_event_loop()\nloop.call_soon(steal)\nawait asyncio.sleep(0.01)\nawait loop.run_in_executor(None, steal)",
)
attack(
    "a task that outlives the step",
    "import asyncio\nasync def f():\n    while True:\n        await asyncio.sleep(0.001); steal()\ntask = asyncio.ensure_future(f())\nawait asyncio.sleep(0)\n"
    + NEXT
    + "import asyncio\nawait asyncio.sleep(0.02)",
)
attack(
    "a step of a coroutine",
    "c = later(home + '/a.txt', 'x')\ngive(c.send, None)\nclass E(Exception):\n    def __str__(self): return steal() or ''\ngive(c.throw, E())",
)
attack("atexit", "import atexit\natexit.register(steal)\natexit.unregister(steal)\nsteal()")
attack(
    "another process",
    "import subprocess, sys\ngive(subprocess.run, [sys.executable, '-c', 'open(%r, \"w\")' % target])",
)
attack(
    "a process that is copied",
    "import os, warnings\nwarnings.simplefilter('ignore')\npid = give(os.fork)\nif pid == 0:\n    steal(); os._exit(0)\nif isinstance(pid, int): os.waitpid(pid, 0)",
)

#: Attempts that cannot be held in this process, as docs/limits.md says: the host's data, native functions in
#: the place of others, and code that the host itself runs afterwards, or in its own threads.
HELD_IN_SANDBOX = {
    "the secret of a module": "import host_of_session\nhost_of_session.SECRET",
    "the secret by gc": "import gc\nfor found in gc.get_objects():\n    if type(found) is dict and type(found.get('SECRET')) is str: print(found['SECRET'])",
    "the secret in frames of other threads": "import sys\nfor frame in sys._current_frames().values():\n    while frame:\n        if 'host' in frame.f_locals: print(vars(frame.f_locals['host']).get('SECRET'))\n        frame = frame.f_back",
    "an amount that is allowed": "import host_of_session\nhost_of_session.LIMIT = 1000\npay(300)",
    "a payment without the function": "import host_of_session\nhost_of_session.PAID.append(300)",
    "a payment by gc": "import gc\nfor found in gc.get_objects():\n    if type(found) is dict and 'PAID' in found and 'LIMIT' in found: found['PAID'].append(300)",
    "an answer for the host": "import host_of_session\nhost_of_session.ANSWER = 'once'\nopen(target, 'w')",
    "a home elsewhere": "import host_of_session, os\nhost_of_session.home = os.path.dirname(target)\nsave(target, 'x')",
    "a native function in the place of a method": "import host_of_session, os, types\nhost_of_session.STORE = types.SimpleNamespace(put=os.mkdir)\nsave(home + '/a.txt', target)",
    "a function that the host calls": "import json\nown = json.dumps\njson.dumps = lambda *given, **named: steal() or own(*given, **named)",
    "a hook of the host's warnings": "import warnings\nwarnings.showwarning = warnings._showwarnmsg_impl = steal",
    "a handler of the host's log": "import logging\nclass H(logging.Handler):\n    def emit(self, record): steal()\nlogging.getLogger('host').addHandler(H())",
    "the standard output": "import builtins\nbuiltins.print = steal",
    "a callback of the collector in the host": "import gc\ngc.callbacks.append(steal)",
    "a finalizer that the host's collector calls": "import gc\ngc.disable()\nclass A:\n    def __del__(self): steal()\na = A(); a.a = a\ndel a",
    "a trace of the host's threads": "import threading\nthreading.settrace(steal)",
    "a profile of the host's threads": "import threading\nthreading.setprofile(steal)",
    "the tools of sys.monitoring": "import sys\nm = sys.monitoring\nm.use_tool_id(4, 'x')\nm.register_callback(4, m.events.PY_START, steal)\nm.set_events(4, m.events.PY_START)",
    "a handle of the host's event loop": "import asyncio, gc, time\nfor found in gc.get_objects():\n    if type(found) is asyncio.Handle and found._callback is not steal and found._loop.is_running():\n        found._loop.call_soon_threadsafe(steal, context=found._context)\ntime.sleep(0.05)",
    "the calls of asynchronous functions": "import gc\nasync def evil(): steal()\nfor found in gc.get_objects():\n    if type(found).__name__ == 'Coroutines':\n        found._asked.append((999, evil))\n        found._pipe.wake()\nimport time\ntime.sleep(0.2)",
    "methods of the session": "import fastaudit_rs.sessions.here as h\nown = h.HereSession.close\nh.HereSession.close = lambda self: steal() or own(self)",
    "methods of results": "import fastaudit_rs.sessions.guest as h\nown = h.Result\nh.Result = lambda *given, **named: steal() or own(*given, **named)",
    "the making of event loops": "import asyncio\nown = asyncio.new_event_loop\nasyncio.new_event_loop = asyncio.events.new_event_loop = lambda: steal() or own()\nimport asyncio.runners\nasyncio.runners.events.new_event_loop = asyncio.new_event_loop",
}


class Attempts:
    """A process that makes attempts, one after another."""

    SUPPORT = Path(__file__).parent.parent / "support"

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", "import attempts; attempts.main()"],
            env={**os.environ, "PYTHONPATH": str(self.SUPPORT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, place, places, code):
        home, target = places
        asked = {"place": place, "home": home, "target": target, "code": code}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        late = threading.Timer(60, self.process.kill)
        late.start()
        answer = self.process.stdout.readline()
        late.cancel()
        assert answer, f"the process ended: {self.process.wait()}"
        return json.loads(answer)

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def processes():
    """The process that makes the attempts of this module, in a list: another one may follow."""
    kept = [Attempts()]
    yield kept
    kept[0].end()


@pytest.fixture
def attempts(processes):
    if processes[0].process.poll() is not None:
        processes[0].end()
        processes[0] = Attempts()
    return processes[0]


@pytest.fixture
def places(tmp_path):
    for name in ("home", "out"):
        (tmp_path / name).mkdir()
    return str(tmp_path / "home"), str(tmp_path / "out/target.txt")


def _skip_before_3_12(name):
    if sys.version_info >= (3, 12):
        return
    if name in ("the tools of sys.monitoring", "the context of a task"):
        pytest.skip("it came with 3.12")


@pytest.mark.parametrize("name", ATTACKS)
def test_it_achieves_nothing_here(name, places, attempts):
    _skip_before_3_12(name)
    assert attempts("here", places, ATTACKS[name]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ATTACKS, *HELD_IN_SANDBOX])
def test_it_achieves_nothing_in_a_sandbox(name, places, attempts):
    pytest.importorskip("sandlock")
    assert attempts("sandbox", places, {**ATTACKS, **HELD_IN_SANDBOX}[name]) == []


def test_what_is_held_in_a_sandbox_alone(places, attempts):
    """As docs/limits.md says of functions in this process."""
    code = HELD_IN_SANDBOX["the secret of a module"]
    assert attempts("here", places, code) != []


@pytest.mark.parametrize("name", ["an exception that acts", "json.dumps"])
def test_without_a_policy_it_achieves_something(name, places, attempts):
    assert attempts("open", places, ATTACKS[name]) != []


def test_there_are_as_many_as_promised():
    assert len(ATTACKS) >= 50
