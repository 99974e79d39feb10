"""Bad input to `mk_audit`: a specific error that names the argument, and nothing is installed."""

import functools
import os
import sys
from pathlib import Path

import pytest

from fastaudit_rs import Policy, mk_audit as mk_audit_01


class AsyncCallable:
    async def __call__(self, *args):
        return False


async def coroutine_function(*args):
    return False


async def async_generator_function(*args):
    yield False


def generator_function(*args):
    yield False


@pytest.mark.original_fails()
@pytest.mark.parametrize("kind", [str, os.fsencode, Path], ids=["str", "bytes", "PathLike"])
def test_one_path_as_oks(mk_audit, kind, places):
    with pytest.raises(TypeError, match=r"^oks must be an iterable of paths.*mk_audit\(\[.*\]\)$"):
        mk_audit(kind(places.ok), monitor_calls=False)


@pytest.mark.original_fails()
@pytest.mark.parametrize("item", ["a\0b", b"a\0b", "\ud800"])
def test_oks_holding_a_path_that_no_file_can_have(mk_audit, places, item):
    with pytest.raises(ValueError, match=r"^oks\[1\] must be a path "):
        mk_audit([places.ok, item], monitor_calls=False)


def test_errors_of_the_iterable_and_its_items_come_through(mk_audit):
    class Odd:
        def __fspath__(self):
            raise ZeroDivisionError

    def items():
        yield "a"
        raise LookupError

    with pytest.raises(ZeroDivisionError):
        mk_audit([Odd()], monitor_calls=False)
    with pytest.raises(LookupError):
        mk_audit(items(), monitor_calls=False)


@pytest.mark.parametrize("make", [list, tuple, set, iter, lambda paths: (path for path in paths)])
def test_oks_may_be_any_iterable(mk_audit, places, make):
    with mk_audit(make([places.ok, places.cwd]), monitor_calls=False)():
        os.mkdir(places.ok + "/a")
        os.mkdir(places.cwd + "/a")


@pytest.mark.original_fails()
@pytest.mark.parametrize("kind", [str, os.fsencode, Path], ids=["str", "bytes", "PathLike"])
def test_a_root_in_the_home_directory(mk_audit, kind, places, monkeypatch):
    monkeypatch.setenv("HOME", places.out)
    os.mkdir(places.out + "/work")
    with mk_audit([kind("~/work")], monitor_calls=False)():
        os.mkdir(places.out + "/work/a")
        with pytest.raises(PermissionError):
            os.mkdir(places.out + "/b")


def test_oks_are_copied(mk_audit, places):
    oks = [places.ok]
    audit_perms = mk_audit(oks, monitor_calls=False)
    oks.append(places.out)
    with audit_perms(), pytest.raises(PermissionError):
        os.mkdir(places.out + "/a")


CALLBACKS = ["before_deny", "on_denied", "on_call"]


def options(argument, callback):
    return {argument: callback, "monitor_calls": argument == "on_call"}


@pytest.mark.original_fails()
@pytest.mark.parametrize("argument", CALLBACKS)
@pytest.mark.parametrize("callback", [3, "before_deny", False, {}])
def test_callback_not_callable(mk_audit, argument, callback):
    with pytest.raises(TypeError, match=rf"^{argument} must be None or a function {argument}\("):
        mk_audit([], **options(argument, callback))


@pytest.mark.original_fails()
@pytest.mark.parametrize("argument", CALLBACKS)
@pytest.mark.parametrize(
    "callback",
    [
        lambda: None,
        lambda a, *, needed: None,
        lambda a, b, c, d, e, f, g, h: None,
        lambda *, event: None,
        lambda *args, needed: None,
        functools.partial(lambda a: None, 1),
    ],
)
def test_callback_that_cannot_take_the_arguments(mk_audit, argument, callback):
    with pytest.raises(TypeError, match=rf"^{argument} must take the arguments \("):
        mk_audit([], **options(argument, callback))


@pytest.mark.original_fails()
@pytest.mark.parametrize("argument", CALLBACKS)
@pytest.mark.parametrize(
    "callback",
    [
        coroutine_function,
        async_generator_function,
        generator_function,
        AsyncCallable(),
        AsyncCallable().__call__,
        functools.partial(coroutine_function),
    ],
    ids=["coroutine", "async-generator", "generator", "callable", "method", "partial"],
)
def test_callback_that_answers_before_it_has_run(mk_audit, argument, callback):
    with pytest.raises(TypeError, match=f"^{argument} must be a plain function"):
        mk_audit([], **options(argument, callback))


@pytest.mark.parametrize(
    "callback",
    [
        lambda *args: None,
        lambda event, args, frame, msg, data: None,
        lambda event, args, frame, msg, data=None, more=1: None,
        functools.partial(lambda extra, *args: None, 1),
        print,
        max,
    ],
)
def test_callbacks_that_fit_or_do_not_tell(mk_audit, callback):
    mk_audit([], callback, monitor_calls=False)


@pytest.mark.original_fails()
def test_a_callback_that_changes(mk_audit):
    """It is as it is when a guard is made."""

    def before_deny(event, args, frame, msg, data):
        return False

    def make():
        mk_audit(["."], before_deny, monitor_calls=False)

    make()
    before_deny.__code__, before = (lambda event: None).__code__, before_deny.__code__
    with pytest.raises(TypeError, match="before_deny"):
        make()
    before_deny.__code__ = before
    make()
    before_deny.__code__ = (lambda a, b, c, d, e, f: None).__code__
    make()
    before_deny.__code__ = (lambda a, b, c, d, e, f, g: None).__code__
    with pytest.raises(TypeError, match="before_deny"):
        make()
    before_deny.__defaults__ = (1, 2)
    make()
    before_deny.__defaults__ = None
    with pytest.raises(TypeError, match="before_deny"):
        make()


def test_a_native_callback_that_cannot_take_the_arguments(mk_audit):
    with pytest.raises(TypeError, match="before_deny must take the arguments"):
        mk_audit([], isinstance, monitor_calls=False)


@pytest.mark.original_fails()
@pytest.mark.parametrize(
    ("argument", "values", "error", "message"),
    [
        ("tool_id", [None, True, "3", 3.0], TypeError, "must be an int from 0 to 5, not "),
        ("tool_id", [-1, 6, 10**30], ValueError, "must be an int from 0 to 5, not {}$"),
        ("monitor_calls", [None, 0, 1, "no"], TypeError, "must be True or False, not "),
    ],
)
def test_other_arguments(mk_audit, argument, values, error, message):
    for value in values:
        with pytest.raises(error, match=f"^{argument} {message.format(value)}"):
            mk_audit([], **{"monitor_calls": False, argument: value})


def test_on_call_needs_the_monitor(mk_audit):
    with pytest.raises(RuntimeError, match="^on_call requires monitor_calls=True$"):
        mk_audit([], on_call=lambda *args: None, monitor_calls=False)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="has sys.monitoring")
@pytest.mark.parametrize("argument", [{"calls": "events"}, {"retire_sites": True}])
def test_events_need_sys_monitoring(argument):
    message = r"^(calls='events'|retire_sites=True) requires Python 3\.12\+ sys\.monitoring$"
    policy = Policy()
    makes = [lambda **options: mk_audit_01([], **options), policy.guard]
    for make in [*makes, policy.observe, policy.install][: 4 if "calls" in argument else 2]:
        with pytest.raises(RuntimeError, match=message):
            make(**argument)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="has sys.monitoring")
def test_the_variable_that_asks_for_events_is_named(monkeypatch):
    monkeypatch.setenv("FASTAUDIT_RS_CALLS", "events")
    with pytest.raises(RuntimeError, match=r"^FASTAUDIT_RS_CALLS='events' requires Python 3\.12"):
        mk_audit_01([])


def test_the_order_of_the_arguments(mk_audit, places):
    audit_perms = mk_audit([places.ok], lambda *args: args[-1] == "data", None, "data", 3, False)
    with audit_perms():
        os.mkdir(places.out + "/a")
