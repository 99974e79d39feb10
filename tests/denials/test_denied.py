"""`AuditDenied`: what a denial tells, the list that the guard keeps, and the callback."""

import contextlib
import contextvars
import copy
import errno
import gc
import http.client
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import weakref
from pathlib import Path

import programs
import pytest

from fastaudit_rs import AuditDenied, Network, Policy, mk_audit

FINAL = "This is a decision of policy: the same operation will be denied again."


@pytest.fixture
def perms(places):
    return mk_audit([places.ok], monitor_calls=False)


def overreach(places, name="a"):
    os.mkdir(f"{places.out}/{name}")


def denial(perms, function, *args):
    with perms(), pytest.raises(AuditDenied) as caught:
        function(*args)
    return caught.value


def test_what_it_tells(perms, places):
    denied = denial(perms, overreach, places)
    assert isinstance(denied, PermissionError)
    message = f"os.mkdir '{places.out}/a' not in ('{places.ok}',)"
    assert denied.args == (message,)
    assert denied.message == message
    assert denied.event == "os.mkdir"
    assert denied.event_args == (places.out + "/a", 0o777, -1)
    assert denied.effect == "write"
    assert denied.path == places.out + "/a"
    assert denied.roots == (places.ok,)
    assert denied.host is denied.command is denied.callee is None
    assert denied.errno == errno.EPERM
    assert denied.strerror == message
    assert denied.filename is None
    assert repr(denied) == f"AuditDenied({message!r})"


def test_it_tells_later_what_was_so_at_the_moment(perms, places, monkeypatch):
    """Nothing is worded until somebody reads it."""
    path = os.path.relpath(places.out + "/a")
    denied = denial(perms, os.mkdir, path)
    before = denial(perms, os.mkdir, path).to_dict()
    monkeypatch.chdir(places.out)
    os.mkdir("a")
    assert denied.args == (f"os.mkdir {path!r} not in ('{places.ok}',)",)
    assert denied.to_dict() == before
    assert copy.copy(denied).args == denied.args


def test_its_arguments_may_be_set(perms, places):
    """As code does that adds to the text of an error."""
    denied = denial(perms, overreach, places)
    message = denied.message
    denied.args = ("a", 1)
    assert (denied.args, repr(denied)) == (("a", 1), "AuditDenied('a', 1)")
    assert denied.message == denied.strerror == message
    with pytest.raises(TypeError):
        denied.args = None
    assert (AuditDenied().args, repr(AuditDenied())) == ((), "AuditDenied()")
    assert (AuditDenied("a").args, repr(AuditDenied("a", 1))) == (("a",), "AuditDenied('a', 1)")


def test_its_text(perms, places):
    denied = denial(perms, overreach, places)
    first, chain, allow, final = str(denied).splitlines()
    assert first == denied.message
    functions = ["test_its_text", "denial", "overreach"]
    assert chain == "Call chain: " + " -> ".join(f"{__name__}.{name}" for name in functions)
    assert allow == f"To allow it: mk_audit([{places.ok!r}, {places.out!r}])"
    assert final == FINAL


@pytest.mark.parametrize("event", ["os.system", "os.remove"])
def test_its_text_asks_an_argument_for_its_repr_alone(perms, event, capfd):
    asked = []

    class Text(str):
        def __str__(self):
            asked.append(self)
            raise KeyboardInterrupt

        __repr__ = __format__ = __str__

    class Shown:
        def __repr__(self):
            return Text("shown")

    class Meta(type):
        @property
        def __name__(cls):
            return Text("named")

    class Failing(metaclass=Meta):
        def __repr__(self):
            raise ValueError

    assert "shown" in denial(perms, sys.audit, event, Shown(), -1).message
    message = denial(perms, sys.audit, event, Failing(), -1).message
    assert "<Failing object whose repr failed>" in message
    assert (asked, capfd.readouterr().err) == ([], "")


@pytest.mark.parametrize(
    "arguments, command",
    [
        (["ls", "a b"], "ls 'a b'"),
        ([b"ls", Path("a b")], "ls 'a b'"),
    ],
)
def test_the_command(perms, arguments, command):
    assert denial(perms, subprocess.Popen, arguments).command == command


def test_a_shell_command(perms):
    assert denial(perms, os.system, "ls 'a b'").command == "ls 'a b'"
    with perms(), pytest.raises(AuditDenied) as caught:
        subprocess.run("ls | wc", shell=True)
    assert caught.value.command.endswith("sh -c 'ls | wc'")


def test_effects(perms):
    for event, effect in {
        "os.kill": "process",
        "_thread.start_new_thread": "thread",
        "os.putenv": "env",
        "ctypes.dlopen": "native",
        "sys.addaudithook": "interpreter",
        "audit_perms.set_data": "guard",
        "open": "write",
    }.items():
        assert denial(perms, sys.audit, event, 1).effect == effect


def nested(depth, places):
    if depth:
        return nested(depth - 1, places)
    return overreach(places)


def test_the_call_chain(perms, places):
    denied = denial(perms, nested, 50, places)
    chain = denied.call_chain
    assert chain[-1].endswith(".overreach")
    assert [name.rpartition(".")[2] for name in chain[-53:]] == [
        "denial", *["nested"] * 51, "overreach",
    ]  # fmt: skip
    assert chain[0] == f"{__name__}.test_the_call_chain"
    shown = str(denied).splitlines()[1]
    assert shown.count(" -> ") == 16
    assert f" -> … {len(chain) - 16} more … -> " in shown


def test_the_call_chain_of_a_fixture_has_its_caller(perms, monkeypatch):
    """Functions of pytest are left out, and the test that calls them is not."""
    denied = denial(perms, monkeypatch.setenv, "A_B", "1")
    before = [f"{__name__}.test_the_call_chain_of_a_fixture_has_its_caller", f"{__name__}.denial"]
    assert denied.call_chain[:2] == tuple(before)
    assert [name.partition(".")[0] for name in denied.call_chain[2:]] == ["os"]


@pytest.mark.parametrize("start", [["{}/outer.py"], ["-m", "outer"]])
def test_the_call_chain_of_an_import(places, start):
    """Neither the import system's functions are in it nor those of what runs a module."""
    Path(places.cwd, "inner.py").write_text("import os\nos.mkdir('a')\n")
    Path(places.cwd, "outer.py").write_text(
        "from importlib import import_module\nfrom fastaudit_rs import Policy\n"
        "guard = Policy().guard(monitor_calls=False)()\n"
        "with guard:\n    try:\n        import inner\n"
        "    except PermissionError as error:\n        print(error.call_chain, error.place)\n"
        "    try:\n        import_module('inner')\n"
        "    except PermissionError as error:\n        print(error.call_chain)\n"
    )
    done = programs.python(*(part.format(places.cwd) for part in start))
    assert done.stdout.splitlines() == [
        f"('__main__.<module>', 'inner.<module>') {places.cwd}/inner.py:2",
        "('__main__.<module>', 'importlib.import_module', 'inner.<module>')",
    ], done.stderr


def test_the_call_chain_is_not_built_before_it_is_read(perms, places):
    """An exception that is caught and dropped leaves nothing behind: the frames are gone."""

    class Local:
        pass

    def swallowing():
        local = Local()
        with contextlib.suppress(PermissionError):
            overreach(places)
        return weakref.ref(local)

    with perms() as guard:
        reference = swallowing()
        assert reference() is None
        [violation] = guard.violations
    assert violation.call_chain == ()
    assert str(violation).splitlines()[1].startswith("To allow it")


@pytest.mark.slow
def test_it_keeps_no_argument_alive(perms):
    class Argument:
        pass

    argument = Argument()
    reference = weakref.ref(argument)
    with perms() as guard:
        try:
            sys.audit("os.system", argument)
        except AuditDenied as error:
            denied = error.with_traceback(None)
        del argument
        gc.collect()
        assert reference() is None
        assert "Argument object at" in denied.event_args[0]
        assert denied.event_args == guard.violations[0].event_args


FIELDS = """
message event args effect path resolved link rule host command callee roots call_chain place origin
tool library package hint suggestion approvals answer
""".split()


def test_a_dict_is_json(perms, places):
    denied = denial(perms, subprocess.Popen, [b"ls", Path("x")], -1, None, None)
    fields = denied.to_dict()
    assert list(fields) == FIELDS
    assert fields["args"][1] == ["ls", "x"]
    again = AuditDenied.from_dict(json.loads(json.dumps(fields)))
    assert again.to_dict() == fields
    assert str(again) == str(denied)


def test_the_host_of_one_that_was_told():
    """JSON has a list for the address."""
    with pytest.raises(AuditDenied) as caught, socket.socket() as made:
        with Policy(network=Network(hosts=[])).guard(monitor_calls=False)():
            made.connect(("10.0.0.1", 80))
    told = json.loads(json.dumps(caught.value.to_dict()))
    assert AuditDenied.from_dict(told).host == caught.value.host == "10.0.0.1"


def test_from_dict_says_what_is_wrong(perms, places):
    fields = denial(perms, overreach, places).to_dict()
    for key in set(FIELDS) - {"effect", "host", "command", "callee"}:
        with pytest.raises(KeyError, match=f'fields must have the key "{key}"'):
            AuditDenied.from_dict({name: fields[name] for name in fields if name != key})
    for key in ("rule", "origin", "hint"):
        with pytest.raises(TypeError, match=rf'fields\["{key}"\] must be a str or None, not int'):
            AuditDenied.from_dict({**fields, key: 1})
    for key in ("message", "event"):
        with pytest.raises(TypeError, match=rf'fields\["{key}"\] must be a str, not int'):
            AuditDenied.from_dict({**fields, key: 1})
    with pytest.raises(TypeError, match=r'fields\["args"\] must be a list, not str'):
        AuditDenied.from_dict({**fields, "args": "abc"})


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(perms, places, protocol):
    denied = denial(perms, overreach, places)
    denied.note = "ours"
    again = pickle.loads(pickle.dumps(denied, protocol))
    assert type(again) is AuditDenied
    assert again.args == denied.args
    assert again.to_dict() == denied.to_dict()
    assert again.note == "ours"
    assert copy.copy(denied).to_dict() == copy.deepcopy(denied).to_dict() == denied.to_dict()


def test_unpickles_where_no_guard_was_made(perms, places):
    pickled = pickle.dumps(denial(perms, overreach, places))
    code = f"import pickle; print(repr(pickle.loads({pickled!r})))"
    assert programs.printed(code).startswith("AuditDenied(")


def test_survives_what_libraries_make_of_it(perms, places, monkeypatch):
    os.makedirs(places.out + "/tree/sub")
    denied = denial(perms, shutil.rmtree, places.out + "/tree/sub")
    denied.filename = denied.filename2 = "x"
    assert str(denied).startswith(f"shutil.rmtree '{places.out}/tree/sub' not in (")

    def before_deny(event, args, frame, message, data):
        # The function that `shutil.rmtree` calls, and whose errors it decorates with a file name.
        return event == "shutil.rmtree"

    with mk_audit([places.ok], before_deny, monitor_calls=False)():
        with pytest.raises(AuditDenied, match=rf"^os\.\w+ '[^']*' not in \('{places.ok}',\)"):
            shutil.rmtree(places.out + "/tree")

    def connect(self):
        raise denied

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    with pytest.raises(urllib.error.URLError) as caught:
        urllib.request.urlopen("http://localhost:1")
    assert f"not in ('{places.ok}',)\nCall chain: " in str(caught.value)


def test_of_others(places):
    """A denial that others raised has a message and nothing else."""
    denied = AuditDenied("no")
    assert (denied.args, denied.message, denied.event) == (("no",), "no", "")
    assert (denied.strerror, denied.errno) == ("no", errno.EPERM)
    assert denied.event_args == denied.call_chain == denied.roots == ()
    assert denied.effect is denied.path is denied.hint is None
    assert str(denied) == "no\n" + FINAL
    assert pickle.loads(pickle.dumps(denied)).to_dict() == denied.to_dict()
    assert str(AuditDenied()).endswith(FINAL)


class TestViolations:
    def test_also_what_was_swallowed(self, perms, places):
        with perms() as guard:
            with contextlib.suppress(OSError):
                shutil.rmtree(places.out)
            try:
                overreach(places)
            except PermissionError as error:
                chain = error.call_chain
            assert guard.violation_count == 2
        rmtree, mkdir = guard.violations
        assert rmtree.event == "shutil.rmtree"
        assert mkdir.message == f"os.mkdir '{places.out}/a' not in ('{places.ok}',)"
        # Read where it was caught, it is known here too.
        assert mkdir.call_chain == chain != ()

    def test_what_was_allowed_is_none(self, places):
        perms = mk_audit([places.ok], lambda *args: True, monitor_calls=False)
        with perms() as guard:
            overreach(places)
        assert guard.violations == []

    def test_begin_anew_when_the_guard_is_entered_again(self, perms, places):
        guard = perms()
        for _ in range(2):
            with guard, pytest.raises(PermissionError):
                overreach(places)
            assert guard.violation_count == 1

    def test_belong_to_the_innermost_guard(self, places):
        outer = mk_audit([places.ok], monitor_calls=False)
        with outer() as first:
            with outer() as second, pytest.raises(PermissionError):
                overreach(places)
            assert (first.violation_count, second.violation_count) == (0, 1)

    def test_are_bounded(self, perms, places):
        with perms() as guard:
            for number in range(1500):
                with contextlib.suppress(PermissionError):
                    overreach(places, number)
        assert guard.violation_count == 1500
        assert len(guard.violations) == 1000
        assert guard.violations[999].path == f"{places.out}/999"

    def test_of_a_task_that_goes_on_under_it(self, perms, places):
        with perms() as guard:
            context = contextvars.copy_context()
        assert guard.violations == []
        with pytest.raises(PermissionError):
            context.run(overreach, places)
        assert guard.violation_count == 1


class TestOnDenied:
    def test_is_told_of_each(self, places):
        told = []

        def on_denied(denied):
            told.append((denied.message, denied.call_chain[-1]))

        with mk_audit([places.ok], on_denied=on_denied, monitor_calls=False)():
            for name in "ab":
                with pytest.raises(AuditDenied):
                    overreach(places, name)
        assert [message.split()[1] for message, _ in told] == [
            repr(f"{places.out}/{name}") for name in "ab"
        ]
        assert {name for _, name in told} == {f"{__name__}.overreach"}

    def test_what_it_raises_is_the_cause(self, places):
        def on_denied(denied):
            raise ValueError("from the host")

        with mk_audit([places.ok], on_denied=on_denied, monitor_calls=False)():
            with pytest.raises(AuditDenied) as caught:
                overreach(places)
        assert str(caught.value.__cause__) == "from the host"
        assert os.listdir(places.out) == []

    def test_an_interrupt_comes_through(self, places):
        def on_denied(denied):
            raise KeyboardInterrupt

        with mk_audit([places.ok], on_denied=on_denied, monitor_calls=False)():
            with pytest.raises(KeyboardInterrupt):
                overreach(places)
        assert os.listdir(places.out) == []

    def test_its_own_overreach_is_a_plain_denial(self, places):
        told = []

        def on_denied(denied):
            told.append(denied)
            overreach(places, "by the callback")

        with mk_audit([places.ok], on_denied=on_denied, monitor_calls=False)() as guard:
            with pytest.raises(AuditDenied) as caught:
                overreach(places)
        assert len(told) == 1
        assert isinstance(caught.value.__cause__, AuditDenied)
        assert guard.violation_count == 2
