"""Greenlets have contexts of their own, which their library enters by itself."""

import asyncio
import contextvars
import os
import sys

import programs
import pytest

from fastaudit_rs import Policy

greenlet = pytest.importorskip("greenlet")


class Below(greenlet.greenlet):
    """A class that was made before any guard was."""


@pytest.fixture(params=["mk_audit", "policy", "workspace"])
def perms(request, mk_audit, places):
    return {
        "mk_audit": lambda: mk_audit([places.ok], monitor_calls=False),
        "policy": lambda: Policy(write=[places.ok]).guard(monitor_calls=False),
        "workspace": lambda: Policy.preset("workspace").replace(write=[places.ok]).guard(),
    }[request.param]()


@pytest.mark.parametrize("kind", [greenlet.greenlet, Below, type("New", (Below,), {})])
class TestMadeUnderAGuard:
    def test_has_it(self, perms, guarded, kind):
        with perms():
            assert kind(guarded).switch()
        assert not guarded()

    def test_by_parts(self, perms, guarded, kind):
        with perms():
            one = kind.__new__(kind)
            one.run = guarded
            assert one.switch()

    def test_a_method(self, perms, guarded, kind):
        with perms():
            one = type("Own", (kind,), {"run": lambda self: guarded()})()
            assert one.switch()

    def test_that_begins_as_another_ends(self, perms, guarded, kind):
        found = []
        with perms():
            last = kind(lambda *args: found.append(guarded()))
            one = kind(int)
            one.parent = last
            one.switch()
        assert found == [True]

    def test_by_throwing(self, perms, guarded, kind):
        with perms():
            found = []
            one = kind(int)
            one.parent = kind(lambda *args: found.append(guarded()))
            one.throw(greenlet.GreenletExit)
        assert found == [True]

    @pytest.mark.parametrize("given", ["None", "contextvars.Context()", "BEFORE", "BEFORE.copy()"])
    def test_with_another_context(self, perms, guarded, kind, given):
        places = {"contextvars": contextvars, "BEFORE": contextvars.copy_context()}
        with perms():
            one = kind(guarded)
            one.gr_context = eval(given, places)
            assert one.switch()
            # The context of the running greenlet is the thread's.
            current = greenlet.getcurrent()
            entered = current.gr_context
            current.gr_context = eval(given, places)
            assert guarded()
            current.gr_context = entered

    def test_that_goes_on_after_it(self, perms, guarded, kind):
        def run():
            greenlet.getcurrent().parent.switch(guarded())
            return guarded()

        with perms():
            one = kind(run)
            assert one.switch()
            assert guarded()
        assert not guarded()
        assert one.switch()
        assert not guarded()

    def test_its_variables(self, perms, kind):
        variable = contextvars.ContextVar("variable", default=0)
        variable.set(1)
        with perms():
            # As ever: it begins with an empty context, and may be given another.
            assert kind(variable.get).switch() == 0
            one = kind(variable.get)
            one.gr_context = contextvars.copy_context()
            assert one.switch() == 1

    def test_guards_in_several(self, perms, guarded, kind):
        def run():
            with perms():
                greenlet.getcurrent().parent.switch(guarded())
            return guarded()

        one = kind(run)
        assert one.switch()
        assert not guarded()
        assert not one.switch()


class TestMadeBefore:
    def test_and_started_under_a_guard(self, perms, guarded):
        one, other = greenlet.greenlet(guarded), greenlet.greenlet(guarded)
        with perms():
            assert one.switch()
        assert not other.switch()

    def test_that_runs_already(self, perms, guarded):
        """It is the host's, as an event loop is."""

        def run():
            while True:
                greenlet.getcurrent().parent.switch(guarded())

        one = greenlet.greenlet(run)
        assert not one.switch()
        with perms():
            assert not one.switch()
            assert guarded()
        assert not one.switch()


def test_without_a_guard(guarded):
    one = greenlet.greenlet(guarded)
    one.gr_context = None
    assert one.gr_context is None
    assert not one.switch()


def test_an_event_loop_in_one(perms, guarded):
    """As that of playwright."""

    async def main():
        return guarded(), await asyncio.create_task(asyncio.sleep(0, guarded()))

    with perms():
        assert greenlet.greenlet(asyncio.run).switch(main()) == (True, True)


GEVENT = """
import gevent, os
from fastaudit_rs import Policy
perms = Policy.preset("workspace").replace(write=["."]).guard(monitor_calls=False)
def write(name):
    gevent.sleep(0)
    try:
        os.mkdir({out!r} + name)
    except PermissionError:
        return "stopped"
    return "made"
if {first}:
    gevent.sleep(0)
host = gevent.spawn(write, "/host")
with perms():
    guarded = gevent.spawn(write, "/guarded")
    gevent.joinall([guarded])
print(guarded.get(), host.get(), gevent.spawn(write, "/after").get())
"""


@pytest.mark.parametrize("first", [True, False])
def test_gevent(places, first):
    pytest.importorskip("gevent")
    code = GEVENT.format(out=places.out, first=first)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = programs.ran(code, cwd=places.ok, env=environment)
    assert done.stdout == "stopped made made\n", done.stderr
