"""Attempts of steps to use tools of the host for more than they are for, in each place.

Judged are the file `target`, which no function writes, the host's list of payments, and all that
the host is told, for its secret.
"""

# ruff: noqa: E501
# The texts are programs, some of them in few lines.

import json
import os
import re
import subprocess
import sys
import threading

import pytest
from repository import SUPPORT


def programs(text):
    """The programs of a text, each below its name."""
    return dict(re.findall(r"## (.*)\n((?:(?!## ).*\n)*)", text))


#: `LIE` gives `lie` to each of the functions.
ATTACKS = programs(
    r"""
## the path itself
save(target, 'x')
## a path that leads out
save(home + '/../out/target.txt', 'x')
## a link
import os; give(os.symlink, target, home + '/a.txt'); save(home + '/a.txt', 'x')
## a str whose methods lie
class Text(str):
    def endswith(self, *given): return True
    def startswith(self, *given): return True
    def __str__(self): return steal() or 'a.txt'
    __fspath__ = __format__ = __repr__ = __add__ = __eq__ = __hash__ = __str__
lie = Text(target); LIE
## an int whose methods act
class Number(int):
    def __index__(self): return steal() or 3
    __int__ = __str__ = __repr__ = __hash__ = __eq__ = __bool__ = __lt__ = __index__
lie = Number(300); LIE
## a dict whose methods act
class Mapping(dict):
    def keys(self): return steal() or []
    __iter__ = items = values = __getitem__ = get = __len__ = __repr__ = __contains__ = keys
lie = Mapping(a=1); LIE
## an object with a class that lies
class Lie:
    @property
    def __class__(self): return steal() or str
lie = Lie(); LIE
## a metaclass
class Meta(type):
    def __instancecheck__(cls, instance): return steal() or True
    def __getattribute__(cls, name): steal(); return type.__getattribute__(cls, name)
class Lie(str, metaclass=Meta): pass
lie = Lie('a'); LIE
## a name of an argument
give(save, **{type('T', (str,), {'__hash__': lambda s: steal() or 1, '__eq__': lambda s, o: steal() or True})('path'): target, 'text': 'x'})
## cyclic data
a = []; a.append(a); give(save, a, 'x'); give(sort, a)
## deep data
a = []
for _ in range(100_000): a = [a]
give(save, a, 'x'); give(sort, [a])
## huge data
give(save, 'x' * (65 << 20), 'x'); give(save, home + '/a.txt', [0] * (2 << 20))
## a pickle
import pickle
class Lie:
    def __reduce__(self): return (exec, ("open(%r, 'w').close()" % target,))
give(note, pickle.dumps(Lie())); give(save, Lie(), 'x'); give(pickle.dumps, save)
## amounts
for n in (10, -1, 0, 3.0, '3', [3], None, 1 << 70, float('nan')):
    give(pay, n)
## arguments of an asynchronous function
await later(target, 'x')
## a lie to an asynchronous function
class Text(str):
    def endswith(self, *given): return True
    def __str__(self): return steal() or home + '/a.txt'
try: await later(Text(target), 'x')
except TypeError: pass
## frames of an exception
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
## frames of an exception of an asynchronous function
try: await later('x', 1)
except Exception as error:
    tb = error.__traceback__
    while tb:
        frame = tb.tb_frame
        while frame:
            if 'SECRET' in frame.f_globals: print(frame.f_globals['SECRET'])
            frame = frame.f_back
        tb = tb.tb_next
## the attributes of a function
for name in ('__wrapped__', '__func__', '__self__', 'function', '_function', '__call__', '__globals__',
             '__closure__', '__code__', '__reduce__', '__reduce_ex__', '__get__', '__dict__', '__builtins__'):
    found = getattr(save, name, None); give(found, target, 'x')
    if isinstance(found, dict):
        give(found.get('open'), target, 'w'); print(found.get('SECRET'))
## the cells of a function
seen = set()
def look(value, depth):
    if depth > 5 or id(value) in seen: return
    seen.add(id(value)); print(getattr(value, '__globals__', {}).get('SECRET'))
    for cell in getattr(value, '__closure__', None) or (): look(give(lambda: cell.cell_contents), depth + 1)
    look(getattr(value, '__wrapped__', None), depth + 1)
for each in (save, note, fail, pay, display): look(each, 0)
## referents of a function
import gc
for found in gc.get_referents(save): give(found, target, 'x')
for found in gc.get_referents(*gc.get_referents(pay)): give(found, 3) if callable(found) and getattr(found, '__name__', '') == 'append' else None
## a copy of a function
import copy; give(copy.copy(save), target, 'x'); give(type(save), open)
## other code of a function
import types; give(setattr, save, '__code__', steal.__code__); give(save, home + '/a.txt', 'x')
## another function of a name
own = save; save = steal; save(); save = own
# the next step
save(home + '/a.txt', 'x')
## the function by objects of gc
import gc
for found in gc.get_objects():
    if getattr(found, '__name__', '') == 'save' and callable(found): give(found, target, 'x')
## a session of its own
import fastaudit_rs
def run():
    with fastaudit_rs.Policy(write=None).session() as session: session.run('open(%r, "w").close()' % target)
give(run)
## a guard of its own
import fastaudit_rs
try:
    with fastaudit_rs.Policy(write=None).guard()(): steal()
except BaseException: pass
## a function of its own
import fastaudit_rs; t = give(fastaudit_rs.Policy(write=None).tool, lambda: steal()); give(t)
## settrace
import sys; sys.settrace(steal); give(save, home + '/a.txt', 'x'); sys.settrace(None)
## setprofile
import sys; sys.setprofile(steal); give(save, home + '/a.txt', 'x'); sys.setprofile(None)
## a trace of the frames below
import sys
def trace(frame, event, arg):
    if frame.f_code.co_name == 'save': print(frame.f_globals.get('SECRET'))
    steal(); return trace
frame = sys._getframe()
while frame:
    frame.f_trace = trace; frame = frame.f_back
sys.settrace(trace); give(churn); sys.settrace(None); frame = sys._getframe()
while frame:
    frame.f_trace = None; frame = frame.f_back
## an audit hook
import sys; give(sys.addaudithook, steal); give(save, home + '/a.txt', 'x')
## a module of sys.modules
import sys, types; own = sys.modules['gc']; sys.modules['gc'] = types.SimpleNamespace(collect=steal)
try: give(churn)
finally: sys.modules['gc'] = own
## a finder
import sys
class Finder:
    def find_spec(self, *given): steal()
finder = Finder(); sys.meta_path.insert(0, finder)
try:
    give(churn); give(note, 'x'); give(__import__, 'no_such_module_at_all')
finally: sys.meta_path.remove(finder)
## a handler of the log
import logging
class Handler(logging.Handler):
    def emit(self, record): steal()
handler = Handler(); logging.getLogger('host').addHandler(handler)
try: give(note, 'x')
finally: logging.getLogger('host').removeHandler(handler)
## a signal
import signal; own = give(signal.signal, signal.SIGUSR1, steal)
give(signal.raise_signal, signal.SIGUSR1); give(churn)
## re-entry
import sys
def trace(*given):
    sys.settrace(None); give(save, target, 'x'); give(pay, 300); steal()
sys.settrace(trace); give(save, home + '/a.txt', 'x'); sys.settrace(None)
## a callback of the collector
import gc; gc.callbacks.append(steal)
try: give(churn)
finally: gc.callbacks.remove(steal)
## a finalizer that the collector calls in a function
import gc
class A:
    def __del__(self): steal()
gc.disable(); a = A(); a.a = a; del a; give(churn); gc.enable()
## a finalizer at the end of a step
class A:
    def __del__(self): steal()
a = A()
# the next step
del a
## a finalizer at the end of the session
class A:
    def __del__(self, steal=steal): steal()
a = A()
## an exception that acts
class E(Exception):
    def __str__(self): return steal() or ''
    __repr__ = __str__; args = property(steal); __notes__ = property(steal)
    __cause__ = property(steal)
raise E
## an exception with a class that acts
class M(type):
    __module__ = property(steal)
class E(Exception, metaclass=M): pass
raise E
## a value whose repr acts
class A:
    def __repr__(self): return steal() or ''
A()
## a display that calls functions
class A:
    def _repr_html_(self): give(save, target, 'x'); give(pay, 300); return ''
display(A())
## a display raw
class D(dict):
    def items(self): return steal() or []
display({'a/b': D(a=1)}, raw=True)
## an input that is changed
inputs = [target]; target = home
# the next step
give(save, inputs[0], 'x')
## names that are asked for
class K(str):
    def __hash__(self): return steal() or 1
    def __eq__(self, other): return steal() or True
globals()[K('a')] = 1
# the next step
1
## builtins of the step
__builtins__ = {'open': steal, '__import__': __import__}
# the next step
give(save, home + '/a.txt', 'x')
## sys.modules['__main__']
import sys; print(vars(sys.modules['__main__']).get('SECRET'))
give(setattr, sys.modules['__main__'], '__getattr__', steal); give(churn)
give(delattr, sys.modules['__main__'], '__getattr__')
## the host's event loop
import asyncio, contextvars, gc, time
for loop in gc.get_objects():
    if issubclass(type(loop), asyncio.BaseEventLoop) and loop.is_running(): loop.call_soon_threadsafe(steal)
time.sleep(0.1)
## the host's event loop and a new context
import asyncio, contextvars, gc, time
for loop in gc.get_objects():
    if issubclass(type(loop), asyncio.BaseEventLoop) and loop.is_running(): loop.call_soon_threadsafe(steal, context=contextvars.Context())
time.sleep(0.1)
## the host's event loop and a native function
import asyncio, contextvars, gc, time
for loop in gc.get_objects():
    if issubclass(type(loop), asyncio.BaseEventLoop) and loop.is_running(): loop.call_soon_threadsafe(open, target, 'w', context=contextvars.Context())
time.sleep(0.1)
## contexts of the host
import contextvars, gc
for found in gc.get_objects():
    if type(found) is contextvars.Context:
        give(found.run, steal); give(found.copy().run, steal); give(found.run, open, target, 'w')
## a thread
import threading
for f, a in ((steal, ()), (open, (target, 'w')), (save, (target, 'x')), (pay, (300,))):
    t = threading.Thread(target=give, args=(f, *a)); t.start(); t.join()
## a thread that calls a function
import threading
def f():
    give(save, home + '/a.txt', 'x'); steal()
t = threading.Thread(target=f); t.start(); t.join()
## an executor
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as e:
    give(e.submit(steal).result); give(e.submit(open, target, 'w').result); give(e.submit(save, target, 'x').result)
## contexts
import contextvars; give(contextvars.Context().run, steal)
give(contextvars.copy_context().run, open, target, 'w')
## variables of a context
import contextvars
for variable, value in list(contextvars.copy_context().items()):
    token = give(variable.set, None); steal(); give(variable.set, value)
## the context of a task
import asyncio
async def other():
    for task in asyncio.all_tasks():
        get = getattr(task, 'get_context', None)
        if get is not None:
            asyncio.get_running_loop().call_soon(open, target, 'w', context=get())
            give(get().run, open, target, 'w')
await asyncio.gather(later(home + '/a.txt', 'x'), other()); await asyncio.sleep(0.01)
## its own loop
import asyncio; loop = asyncio.get_event_loop(); loop.call_soon(steal); await asyncio.sleep(0.01)
await loop.run_in_executor(None, steal)
## a task that outlives the step
import asyncio
async def f():
    while True:
        await asyncio.sleep(0.001); steal()
task = asyncio.ensure_future(f()); await asyncio.sleep(0)
# the next step
import asyncio; await asyncio.sleep(0.02)
## a step of a coroutine
c = later(home + '/a.txt', 'x'); give(c.send, None)
class E(Exception):
    def __str__(self): return steal() or ''
give(c.throw, E())
## atexit
import atexit; atexit.register(steal); atexit.unregister(steal); steal()
## another process
import subprocess, sys; give(subprocess.run, [sys.executable, '-c', 'open(%r, "w")' % target])
## a process that is copied
import os, warnings; warnings.simplefilter('ignore'); pid = give(os.fork)
if pid == 0:
    steal(); os._exit(0)
if isinstance(pid, int): os.waitpid(pid, 0)
""".replace(
        "LIE",
        "give(save, lie, 'x'); give(save, home + '/a.txt', lie); give(pay, lie); give(sort, [lie, lie])",
    )
)
for where, change in {
    "a function": "host.check = lambda path: steal() or True",
    "a name": "host.open = steal",
    "a module": "import types; host.os = types.SimpleNamespace(path=types.SimpleNamespace(realpath=lambda path: steal() or home + '/a'), sep='/')",
    "a method": "host.Store.put = steal",
    "an attribute": "host.STORE = type('S', (), {'put': steal})()",
    "a class": "host.STORE.__class__ = type('S', (), {'__getattr__': steal})",
}.items():
    ATTACKS[f"{where} that the function uses"] = (
        f"import host_of_session as host\n{change}\ngive(save, home + '/a.txt', 'x')"
    )
for call, names in {
    "sort([2, 1])": "builtins.sorted sys.displayhook functools.wraps",
    "save(home + '/a.txt', 'x')": "builtins.open os.path.realpath inspect.signature struct.unpack_from contextlib.suppress",
    "churn()": "builtins.__import__ gc.collect",
    "note('x')": "json.dumps warnings.showwarning logging.getLogger",
    "fail('x')": "linecache.getline linecache.updatecache traceback.format_exception sys.excepthook sys.unraisablehook threading.excepthook",
}.items():
    for name in names.split():
        module, _, attribute = name.rpartition(".")
        ATTACKS[name] = f"""
import {module} as changed
own = changed.{attribute}
changed.{attribute} = lambda *given, **named: steal() or own(*given, **named)
try: give(lambda: {call})
finally: changed.{attribute} = own
"""
for name in ("stdout", "stderr"):
    ATTACKS[f"another {name}"] = f"""
import sys
own = sys.{name}
sys.{name} = type('O', (), {{'write': steal, 'flush': steal, '__getattr__': steal}})()
try: give(note, 'x'); print('x'); print('x', file=sys.stderr)
finally: sys.{name} = own
"""
SHOWING = "_repr_html_ _repr_png_ _repr_mimebundle_ _repr_svg_ __repr__ __getattr__ __format__"
for method in SHOWING.split():
    ATTACKS[f"a display by {method}"] = (
        f"class A:\n    def {method}(self, *given, **named): return steal() or ''\ndisplay(A())\nA()"
    )

#: Attempts that cannot be held in this process, as docs/limits.md says: the host's data, native functions in
#: the place of others, and code that the host itself runs afterwards, or in its own threads.
HELD_IN_SANDBOX = programs(r"""
## the secret of a module
import host_of_session; host_of_session.SECRET
## the secret by gc
import gc
for found in gc.get_objects():
    if type(found) is dict and type(found.get('SECRET')) is str: print(found['SECRET'])
## the secret in frames of other threads
import sys
for frame in sys._current_frames().values():
    while frame:
        if 'host' in frame.f_locals: print(vars(frame.f_locals['host']).get('SECRET'))
        frame = frame.f_back
## an amount that is allowed
import host_of_session; host_of_session.LIMIT = 1000; pay(300)
## a payment without the function
import host_of_session; host_of_session.PAID.append(300)
## a payment by gc
import gc
for found in gc.get_objects():
    if type(found) is dict and 'PAID' in found and 'LIMIT' in found: found['PAID'].append(300)
## an answer for the host
import host_of_session; host_of_session.ANSWER = 'once'; open(target, 'w')
## a home elsewhere
import host_of_session, os; host_of_session.home = os.path.dirname(target); save(target, 'x')
## a native function in the place of a method
import host_of_session, os, types; host_of_session.STORE = types.SimpleNamespace(put=os.mkdir)
save(home + '/a.txt', target)
## a function that the host calls
import json; own = json.dumps; json.dumps = lambda *given, **named: steal() or own(*given, **named)
## a hook of the host's warnings
import warnings; warnings.showwarning = warnings._showwarnmsg_impl = steal
## a handler of the host's log
import logging
class H(logging.Handler):
    def emit(self, record): steal()
logging.getLogger('host').addHandler(H())
## the standard output
import builtins; builtins.print = steal
## a callback of the collector in the host
import gc; gc.callbacks.append(steal)
## a finalizer that the host's collector calls
import gc; gc.disable()
class A:
    def __del__(self): steal()
a = A(); a.a = a; del a
## a trace of the host's threads
import threading; threading.settrace(steal)
## a profile of the host's threads
import threading; threading.setprofile(steal)
## the tools of sys.monitoring
import sys; m = sys.monitoring; m.use_tool_id(4, 'x')
m.register_callback(4, m.events.PY_START, steal); m.set_events(4, m.events.PY_START)
## a handle of the host's event loop
import asyncio, gc, time
for found in gc.get_objects():
    if type(found) is asyncio.Handle and found._callback is not steal and found._loop.is_running():
        found._loop.call_soon_threadsafe(steal, context=found._context)
time.sleep(0.05)
## the calls of asynchronous functions
import gc
async def evil(): steal()
for found in gc.get_objects():
    if type(found).__name__ == 'Coroutines':
        found._asked.append((999, evil)); found._pipe.wake()
import time; time.sleep(0.2)
## methods of the session
import fastaudit_rs.sessions.here as h; own = h.HereSession.close
h.HereSession.close = lambda self: steal() or own(self)
## methods of results
import fastaudit_rs.sessions.running as h; own = h.Result
h.Result = lambda *given, **named: steal() or own(*given, **named)
## the making of event loops
import asyncio; own = asyncio.new_event_loop
asyncio.new_event_loop = asyncio.events.new_event_loop = lambda: steal() or own()
import asyncio.runners; asyncio.runners.events.new_event_loop = asyncio.new_event_loop
""")


class Attempts:
    """A process that makes attempts, one after another; another one follows one that ended."""

    process = None

    def __call__(self, place, places, code):
        if self.process is None or self.process.poll() is not None:
            self.end()
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", "import attempts; attempts.main()"],
                env={**os.environ, "PYTHONPATH": str(SUPPORT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
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
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture(scope="module")
def attempts():
    made = Attempts()
    yield made
    made.end()


@pytest.fixture
def places(tmp_path):
    for name in ("home", "out"):
        (tmp_path / name).mkdir()
    return str(tmp_path / "home"), str(tmp_path / "out/target.txt")


if sys.version_info < (3, 12):
    del ATTACKS["the context of a task"], HELD_IN_SANDBOX["the tools of sys.monitoring"]


@pytest.mark.parametrize("name", ATTACKS)
def test_it_achieves_nothing_here(name, places, attempts):
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
