"""The limits that `docs/limits.md` states, each shown: a row that is no longer true fails."""

import asyncio
import contextvars
import inspect
import locale
import os
import re
import signal
import socket
import sys
import weakref
from pathlib import Path

import pytest

DOCUMENT = (Path(__file__).parent.parent / "docs/limits.md").read_text()


def open_descriptor(places):
    descriptor = os.open(places.out + "/file", os.O_CREAT | os.O_RDWR)
    yield
    os.write(descriptor, b"x")
    os.truncate(descriptor, 0)
    yield
    os.close(descriptor)


def hard_link(places):
    Path(places.out, "file").touch()
    os.link(places.out + "/file", places.ok + "/file")
    yield
    Path(places.ok, "file").write_text("changed")
    yield
    assert Path(places.out, "file").read_text() == "changed"


def process_state(places):
    os.umask(os.umask(0o022))
    signal.signal(signal.SIGUSR1, signal.signal(signal.SIGUSR1, signal.SIG_IGN))
    signal.alarm(signal.alarm(0))
    locale.setlocale(locale.LC_COLLATE, locale.setlocale(locale.LC_COLLATE, "C"))
    read, write = os.pipe()
    os.dup2(read, write)
    os.closerange(read, read + 1)
    os.close(write)


def semaphore(places):
    import _multiprocessing

    _multiprocessing.SemLock(0, 1, 1, f"/fastaudit-{os.getpid()}", True)


def network(places):
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


def loop_context(places):
    before = contextvars.Context()
    loop = asyncio.new_event_loop()
    yield
    loop.call_soon(os.mkdir, places.out + "/made", context=before)
    yield
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert os.listdir(places.out) == ["made"]


def later(places):
    class Late:
        pass

    late = Late()
    yield
    weakref.finalize(late, os.mkdir, places.out + "/late")
    yield
    del late
    assert os.listdir(places.out) == ["late"]


def through_c_code(places):
    import orjson

    yield
    assert sorted([2, 1], key=orjson.dumps) == [1, 2]
    assert contextvars.copy_context().run(orjson.dumps, 1) == b"1"


def through_operator(places):
    import numpy as np

    array = np.array([1])
    yield
    assert (array + array)[0] == 2


LIMITS = {
    "open-descriptor": open_descriptor,
    "hard-link": hard_link,
    "process-state": process_state,
    "semaphore": semaphore,
    "network": network,
    "loop-context": loop_context,
    "c-code": through_c_code,
    "operator": through_operator,
    "later": later,
}

NEEDS_MONITORING = {"c-code", "operator"}


@pytest.mark.parametrize("limit", LIMITS)
def test_limit(mk_audit, places, limit):
    """What stands before a first `yield` runs unguarded, as does what follows a second."""
    monitor = sys.version_info >= (3, 12)
    if limit in NEEDS_MONITORING and not monitor:
        pytest.skip("a limit of call monitoring, which came with 3.12")
    audit_perms = mk_audit([places.ok], monitor_calls=monitor)
    if not inspect.isgeneratorfunction(LIMITS[limit]):
        with audit_perms():
            LIMITS[limit](places)
        return
    steps = LIMITS[limit](places)
    next(steps)
    with audit_perms():
        next(steps, None)
    next(steps, None)


def test_each_limit_is_documented():
    assert re.findall(r"^\| `([^`]+)` \|", DOCUMENT, re.MULTILINE) == list(LIMITS)
