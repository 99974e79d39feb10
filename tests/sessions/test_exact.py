"""All that a host is handed is of exact built-in types, and no method of the code's runs there.

The methods of the code's objects make the file `OUT`, which the policy denies: where it is made,
one of them ran without a guard.
"""

# ruff: noqa: E501
# The programs are texts.

import asyncio
import contextlib
import pickle
import sys
import traceback

import pytest

from fastaudit_rs import AuditDenied, Policy, Sandbox
from fastaudit_rs.results import Error, Result, Timings
from fastaudit_rs.sessions.pieces import Output
from fastaudit_rs.timeline import Act, Request

#: The types of data, and classes of results whose attributes are data.
ATOMS = (str, bytes, int, float, complex, bool, type(None))
MANY = (list, tuple, set, frozenset)
OURS = (Result, Error, Act, Request, AuditDenied, Output, Timings)

#: Attributes that are no data by their nature, or that ask for the same again.
LEFT_OUT = {"__traceback__", "characters_written", "filename", "filename2", "with_traceback"}

#: The classes of an adversary: each method acts, and then raises or lies.
EVIL = """
import os, sys, traceback
OUT = {out!r}

def act(*given, **named):
    try:
        file = os.open(OUT, os.O_CREAT | os.O_WRONLY)
        os.write(file, "".join(traceback.format_stack()).encode())
        os.close(file)
    except OSError:
        pass
    if {raises}:
        raise SystemExit(3)
    return None

NAMES = '''eq ne hash str repr format reduce reduce_ex len iter getitem contains bool int index float
complex fspath bytes buffer lt le gt ge add radd mod rmod mul call enter exit await next get set
copy deepcopy sizeof instancecheck subclasscheck abs neg round trunc and or'''.split()

def method(name):
    def run(self, *given, **named):
        act()
        if name == "hash":
            return 1
        if name in ("str", "repr", "format", "fspath"):
            return Text("lie")
        if name in ("reduce", "reduce_ex"):
            return (os.open, (OUT, os.O_CREAT | os.O_WRONLY))
        if name == "buffer":
            return memoryview(b"lie")
        if name == "bytes":
            return Data(b"lie")
        return True
    return run

METHODS = {{f"__{{name}}__": method(name) for name in NAMES}}

def keys(self, *given):
    act()
    return [Text("lie")]

class Meta(type):
    def __getattribute__(cls, name):
        act()
        return Text("lie") if name in ("__name__", "__qualname__", "__module__") else (
            type.__getattribute__(cls, name))
    __name__ = property(act)
    __eq__ = __repr__ = __str__ = __instancecheck__ = __subclasscheck__ = act
    __hash__ = type.__hash__

def made(base, **more):
    names = dict(METHODS, items=keys, keys=keys, values=keys, get=keys, encode=keys, decode=keys,
                 bit_length=keys, hex=keys, real=property(keys), imag=property(keys), **more)
    if base in (str, bytes):
        del names["__hash__"]
        names["__hash__"] = base.__hash__
    return Meta("Odd" + base.__name__, (base,), names)

Text, Data, Number = made(str), made(bytes), made(int)
Fraction, Complex, Array = made(float), made(complex), made(bytearray)
List, Tuple, Dict, Set = made(list), made(tuple), made(dict), made(set)

def named(base, **more):
    kind = made(base, **more)
    type.__dict__["__qualname__"].__set__(kind, Text("Odd" + base.__name__))
    type.__dict__["__module__"].__set__(kind, Text("builtins"))
    return kind

TEXT = Text("/odd")
class Odd(metaclass=Meta):
    __repr__ = __str__ = lambda self: act() or Text("odd")
    _repr_html_ = _repr_markdown_ = __repr__
    _repr_png_ = lambda self: Data(b"png")
    def _repr_mimebundle_(self, *given, **named):
        return Dict({{Text("text/html"): Text("odd"), Text("a"): Dict(a=1)}})
class Path(metaclass=Meta):
    __fspath__ = __str__ = __repr__ = lambda self: Text("/odd/path")
"""

#: Programs that end in an exception.
RAISED = {
    "an exception": "raise named(Exception)(TEXT, Number(3))",
    "a KeyError": "raise named(KeyError)(TEXT)",
    "an exit": "raise named(SystemExit)(TEXT)",
    "an exit with a number": "raise SystemExit(Number(3))",
    "an exit with an object": "raise SystemExit(Odd())",
    "an exit with a class that lies": (
        "class Lie:\n    __class__ = property(lambda self: int)\n    __bool__ = act\n"
        "raise SystemExit(Lie())"
    ),
    "an interrupt": "raise named(KeyboardInterrupt)(TEXT)",
    "an end": "raise named(GeneratorExit)(TEXT)",
    "no exception at all": "raise named(BaseException)",
    "an error of syntax": (
        "error = named(SyntaxError, filename=property(act), lineno=property(act))(TEXT)\nraise error"
    ),
    "an error of the system": "raise named(OSError)(Number(1), TEXT, TEXT, None, TEXT)",
    "an error of decoding": "raise UnicodeDecodeError('utf-8', Data(b'a'), Number(0), Number(1), TEXT)",
    "an error of a name": "raise NameError(TEXT, name=TEXT)",
    "an error of an attribute": "raise AttributeError(TEXT, name=TEXT, obj=Odd())",
    "notes, a cause and a context": (
        "error = named(ValueError)(TEXT)\nerror.__notes__ = List([TEXT, Odd()])\n"
        "error.__cause__ = named(ValueError)(TEXT)\nerror.__context__ = named(KeyError)(TEXT)\n"
        "raise error"
    ),
    "a denial of its own": (
        "from fastaudit_rs import AuditDenied\n"
        "class Denied(AuditDenied):\n    to_dict = act\n    event = message = property(act)\n"
        "error = Denied(TEXT)\nerror._denial = Odd()\nraise error"
    ),
    "a denial that was changed": (
        "try:\n    os.mkdir('/odd')\nexcept PermissionError as error:\n"
        "    error.args = (Odd(), TEXT)\n    error.more = Odd()\n    error.__notes__ = List([TEXT])\n"
        "    error._denial = Odd()\n    raise"
    ),
    "a denial by an odd name": "os.mkdir(TEXT)",
    "an odd class": "raise Meta('A', (Exception,), {'__str__': act, '__qualname__': Text('A')})",
    "odd code": (
        "code = compile('os.mkdir(TEXT)', TEXT, 'exec').replace(co_name=TEXT, co_filename=TEXT)\n"
        "exec(code, {TEXT: 1, Text('__name__'): TEXT, 'os': os, 'TEXT': TEXT})"
    ),
}

#: Programs whose operations are denied, and that go on.
DENIED = {
    "text": "os.mkdir(TEXT)",
    "bytes": "os.mkdir(Data(b'/odd'))",
    "a path": "os.mkdir(Path())",
    "numbers": "os.chown('/odd', Number(1), Number(1))",
    "two names": "os.rename(TEXT, TEXT)",
    "a program": "os.system(TEXT)",
    "a list of words": "os.posix_spawn(TEXT, [TEXT, Text('b')], {})",
    "a started program": "import subprocess; subprocess.run([TEXT, Text('b')])",
    "a variable": "os.putenv(Text('PATH'), TEXT)",
    "a host": "import socket; socket.getaddrinfo(Text('odd.test'), Number(80))",
    "an address": "import socket; socket.socket().connect((Text('127.0.0.1'), Number(80)))",
    "a database": "import sqlite3; sqlite3.connect(TEXT)",
    "an event of its own": "sys.audit('odd.event', TEXT, Odd(), List([TEXT]), Dict(a=1), (TEXT, [TEXT]))",
    "an event with its name": "sys.audit(Text('os.mkdir'), TEXT, Odd())",
    "an event with another list": "sys.audit('subprocess.Popen', TEXT, [TEXT, Odd()], None, None)",
    "odd code": (
        "code = compile('os.mkdir(TEXT)', TEXT, 'exec').replace(co_name=TEXT, co_filename=TEXT)\n"
        "exec(code, {Text('__name__'): TEXT, 'os': os, 'TEXT': TEXT})"
    ),
    "an odd module": "exec('os.mkdir(TEXT)', {'__name__': TEXT, 'os': os, 'TEXT': TEXT})",
}

#: Programs whose values, output or displays are odd.
VALUES = {
    "text": "Text('a')",
    "data": "[Text('a'), Data(b'a'), Number(3), Fraction(1.5), Complex(1j), Array(b'a')]",
    "collections": "[List([TEXT]), Tuple([TEXT]), Dict(a=TEXT), Dict({TEXT: 1}), Set([1])]",
    "a key that means something else": "Dict({'$': 'tuple', 'items': [1]})",
    "an object": "Odd()",
    "a class": "Odd",
    "what display() gets": "display(Odd(), TEXT, {Text('text/plain'): TEXT}, Dict(a=1))",
    "raw displays": (
        "display(Dict({Text('image/png'): Data(b'a'), Text('text/html'): TEXT}), raw=True)\n"
        "display({Text('image/png'): Data(b'a'), Text('a'): List([1])}, raw=True)"
    ),
    "bytes for the output": "sys.stdout.buffer.write(Data(b'out\\n')); None",
    "text for the output": "sys.stderr.write(Text('err\\n')); None",
    "the name of a stream": "try: sys.stdout.buffer.name = Text('a')\nexcept AttributeError: pass\nprint('a')",
    "names": "globals()[TEXT] = globals()[Text('odd')] = 1; odd_value = Text('a'); odd = Odd(); None",
}

#: Attributes of arrays and frames that reading their values may ask for.
ASKED = """dtype shape ndim size nbytes flags data base item tobytes tolist copy astype view __len__
__iter__ __getitem__ __array__ __array_interface__ __array_struct__ __array_ufunc__
__array_function__ __reduce__ __reduce_ex__ __repr__ __str__ __eq__ index columns values iloc array
name names to_numpy to_dict _repr_html_ __dataframe__ __getstate__ __class__""".split()

#: An array, a frame, a series and an index, of classes that have one of these as a method.
ARRAYS = """
import numpy, pandas
def odd(base, name, *given):
    made = property(act) if name[0] != "_" or name == "__class__" else act
    plain = type("Odd", (base,), {})
    thing = numpy.arange(3).view(plain) if base is numpy.ndarray else plain(*given)
    try:
        thing.__class__ = type("Odd", (base,), {name: made})
    except TypeError:
        type.__setattr__(plain, name, made)
    return thing
things = {}
for name in ASKED:
    things[name] = [
        odd(numpy.ndarray, name), odd(pandas.DataFrame, name, {"a": [1, 2]}),
        odd(pandas.Series, name, [1, 2]), odd(pandas.Index, name, [1, 2]),
    ]
things["a number"] = [numpy.float64(3), type("F", (numpy.float64,), METHODS)(3)]
things["of objects"] = [numpy.array([Odd(), TEXT], dtype=object)]
"""


def is_array(kind):
    """Whether it is a class of numpy or pandas itself, which those who get arrays have to know."""
    package, _, _ = kind.__module__.partition(".")
    there = getattr(sys.modules.get(kind.__module__), kind.__name__, None)
    return package in ("numpy", "pandas") and there is kind


def walk(thing, place="it", depth=0):
    """See that something is data, through and through."""
    kind = type(thing)
    assert depth < 20, place
    if kind in ATOMS or is_array(kind):
        return
    if kind in MANY:
        for number, item in enumerate(thing):
            walk(item, f"{place}[{number}]", depth + 1)
    elif kind is dict:
        for key, item in thing.items():
            walk(key, f"a key of {place}", depth + 1)
            walk(item, f"{place}[{key!r}]", depth + 1)
    else:
        known = kind in OURS or kind.__module__ in ("builtins", "fastaudit_rs")
        assert known, f"{place} is {type.__repr__(kind)}"
        for name in dir(kind):
            if name in LEFT_OUT or (name[0] == "_" and name not in ("__cause__", "__notes__")):
                continue
            found = getattr(thing, name)
            if not callable(found):
                walk(found, f"{place}.{name}", depth + 1)
        walk(getattr(thing, "__dict__", None), f"vars({place})", depth + 1)
        for name in ("to_dict", "to_json", "for_model", "_repr_html_", "summary", "__reduce__"):
            if name != "__reduce__" and hasattr(kind, name):
                walk(getattr(thing, name)(), f"{place}.{name}()", depth + 1)
    # The ordinary acts of a host.
    repr(thing), str(thing), thing == "a", thing != 1


def assert_none_ran(out):
    assert not out.exists(), f"a method of the code's ran without a guard:\n{out.read_text()}"


def see(thing):
    walk(thing)
    if not isinstance(thing, BaseException):
        again = pickle.loads(pickle.dumps(thing))
        walk(again)


def got(session, name):
    """The value of a name, or the error, which is of no class of the code's."""
    try:
        return session.get(name)
    except (KeyError, TypeError, RuntimeError) as error:
        assert type(error) in (KeyError, TypeError, RuntimeError), error
        return error


@pytest.fixture
def out(tmp_path):
    out = tmp_path / "out"
    yield out
    assert_none_ran(out)


@pytest.fixture(params=[False, True], ids=["lies", "raises"])
def raises(request):
    return request.param


@pytest.mark.parametrize(
    ("place", "raises"),
    [
        ("here", False),
        ("here", True),
        pytest.param("sandbox", False, marks=pytest.mark.slow),
    ],
    indirect=["place"],
)
class TestSteps:
    """Results of steps, in each place."""

    @pytest.fixture
    def session(self, make, out, raises):
        session = make()
        begun = session.run(EVIL.format(out=str(out), raises=raises))
        assert begun.success, begun.for_model()
        return session

    def test_what_is_raised(self, session, out):
        for name, program in RAISED.items():
            ran = session.run(program)
            see(ran)
            assert not ran.success and ran.killed_by is None, name
            assert ran.error is not None, name
            assert ran.error.kind == str(ran.error.kind), name
            assert_none_ran(out)

    def test_what_is_denied(self, session, out):
        for program in DENIED.values():
            lines = "".join(f"    {line}\n" for line in program.splitlines())
            ran = session.run(f"try:\n{lines}except OSError: pass\n")
            see(ran)
            assert_none_ran(out)
        ran = session.run("os.mkdir('/odd')")
        assert ran.violations[-1].path == "/odd"

    def test_what_is_shown(self, session, out, raises):
        for name, program in VALUES.items():
            ran = session.run(program)
            see(ran)
            assert raises or ran.error is None, (name, ran.error)
            assert_none_ran(out)

    def test_names(self, session):
        for program in VALUES.values():
            session.run(program)
        names = session.names
        walk(names)
        assert "odd_value" in names
        for name in [*names, "missing"]:
            walk(got(session, name))
        kept = session.snapshot()
        session.run("del Odd, odd")
        session.undo()
        session.restore(kept)
        session.reset()
        assert session.names == []

    def test_arrays_and_frames(self, session, out):
        pytest.importorskip("numpy"), pytest.importorskip("pandas")
        begun = session.run(f"ASKED = {ASKED}\n{ARRAYS}")
        assert begun.success, begun.for_model()
        count = 0
        for name in (*ASKED, "a number", "of objects"):
            for number in range(4):
                ran = session.run(f"one = things[{name!r}][{number}]\none")
                see(ran)
                value = got(session, "one")
                count += not isinstance(value, Exception)
                walk(value, name)
                assert_none_ran(out)
        assert count > 50

    def test_a_stream(self, session, out):
        async def run():
            for program in (*VALUES.values(), RAISED["an exit"]):
                async for output in session.stream(program):
                    walk(output)
            see(await session.arun(RAISED["an odd class"]))

        asyncio.run(run())
        assert_none_ran(out)


@pytest.mark.slow
def test_runs_of_a_sandbox(out, raises):
    pytest.importorskip("sandlock")
    with Sandbox() as sandbox:
        for programs in (RAISED, DENIED, VALUES):
            for program in programs.values():
                code = EVIL.format(out=str(out), raises=raises) + program
                see(sandbox.run(code, value=True))


@contextlib.contextmanager
def swallowed():
    with contextlib.suppress(BaseException):
        yield


class TestGuards:
    """What a guard keeps of the code that it guarded."""

    @pytest.fixture
    def programs(self, out, raises):
        names = {}
        exec(EVIL.format(out=str(out), raises=raises), names)
        names["act"].__globals__["OUT"] = str(out)

        # pytest shows the arguments of a test that fails: no object of the adversary.
        return {
            program: lambda program=program: exec(program, names) for program in DENIED.values()
        }

    def under(self, programs, guard, handle=lambda error: None):
        for program in programs.values():
            caught = None
            with swallowed(), guard:
                try:
                    program()
                except AuditDenied as error:
                    caught = error
            if caught is not None:
                handle(caught)

    def test_denials(self, programs, out):
        count = []

        def handle(denied):
            walk(denied)
            # tblib, which dask imports, pickles the code's frames with an exception.
            walk(pickle.loads(pickle.dumps(denied.with_traceback(None))))
            walk(AuditDenied.from_dict(denied.to_dict()))
            repr(denied), str(denied), traceback.format_exception_only(denied)
            count.append(denied)

        told = []
        guard = Policy().guard(monitor_calls=False, on_denied=told.append)()
        self.under(programs, guard, handle)
        assert len(count) >= 8
        for denied in (*guard.violations, *told):
            handle(denied)
        assert_none_ran(out)

    @pytest.mark.parametrize("enforce", [False, True])
    def test_recordings(self, programs, out, tmp_path, enforce):
        if not enforce:
            # These do nothing, though nobody stops them.
            programs = {text: run for text, run in programs.items() if "sys.audit" in text}
        with Policy().observe(
            monitor_calls=False, enforce=enforce, log=tmp_path / "log"
        )() as recording:
            for program in programs.values():
                with swallowed():
                    program()
        if not enforce:
            out.unlink(missing_ok=True)
        assert len(recording.effects) >= 1
        for effect in recording.effects:
            walk(effect)
        repr(recording), recording.suggest()
        walk([recording.summary(), recording.to_json(), recording._repr_html_()])
        assert_none_ran(out)


@pytest.mark.slow
def test_finalizers_of_a_step_that_was_given_up_are_guarded(out, tmp_path):
    go_on = tmp_path / "go on"
    with Policy(write=[]).session(monitor_calls=False) as session:
        session.run(
            f"import os, time\nclass A:\n    def __del__(self, open=os.open):\n"
            f"        try: open({str(out)!r}, os.O_CREAT | os.O_WRONLY)\n"
            "        except OSError: pass\na = A()\n"
        )
        waits = f"while not os.path.exists({str(go_on)!r}):\n    try: time.sleep(0.01)\n    "
        thread = session._guest._thread
        ran = session.run(waits + "except KeyboardInterrupt: pass", timeout=0.05)
        assert ran.killed_by == "wall_seconds"
        session.reset()
        go_on.touch()
        thread.join(10)
        assert not thread.is_alive()
