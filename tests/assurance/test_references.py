"""Each thing that a guard does gives back what it took.

A release build counts blocks of memory; a debug build of CPython counts references too, and so
finds those lost to objects that live for ever.
"""

import asyncio
import contextlib
import contextvars
import ctypes
import gc
import itertools
import os
import signal
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastaudit_rs import AuditDenied, Policy, mk_audit, v02

pytestmark = pytest.mark.nightly

ROUNDS = 100


def counted():
    gc.collect()
    references = sys.gettotalrefcount() if hasattr(sys, "gettotalrefcount") else 0
    return references, sys.getallocatedblocks()


def grown(operation):
    """The growth after `ROUNDS` of it: references, and blocks of memory.

    The least of some repeats, as caches of CPython's own grow now and then.
    """
    counts = []
    for _ in range(5):
        for _ in range(ROUNDS):
            operation()
        counts.append(counted())
    pairs = list(itertools.pairwise(counts[1:]))
    return [min(now[kind] - then[kind] for then, now in pairs) for kind in range(2)]


def denied(function, *args, **kwargs):
    with contextlib.suppress(AuditDenied):
        function(*args, **kwargs)
        raise AssertionError("was not denied")


class Hostile:
    def __fspath__(self):
        raise ValueError

    def __repr__(self):
        raise ValueError


@pytest.fixture
def operations(places):
    ok, out = places.ok, places.out
    plain = mk_audit([ok], monitor_calls=False)
    telling = mk_audit([ok], lambda *_: False, monitor_calls=False, on_denied=lambda _: None)
    allowing = mk_audit([ok], lambda *_: True, monitor_calls=False)
    strict = v02.mk_audit([ok], monitor_calls=False)
    policy = Policy(write=[ok], read=[ok, sys.prefix], max_bytes=10**9, threads="inherit")
    limited = policy.guard(monitor_calls=False)
    observed = Policy(write=[ok])
    database = sqlite3.connect(":memory:")
    getpid = ctypes.CDLL(None).getpid
    fresh = contextvars.Context()
    executor = ThreadPoolExecutor(1)
    executor.submit(int).result()

    def under(guard, function, *args, **kwargs):
        def operation():
            with guard():
                function(*args, **kwargs)

        return operation

    def write():
        with open(ok + "/a", "w") as file:
            file.write("x")

    def handlers():
        before = signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.getsignal(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, before)

    def thread():
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

    async def task():
        with plain():
            await asyncio.sleep(0)
            denied(os.mkdir, out + "/a")

    loop = asyncio.new_event_loop()

    def record():
        with observed.observe(monitor_calls=False)() as recording:
            write()
        recording.suggest()

    yield {
        "enter": under(plain, int),
        "make": lambda: mk_audit([ok], monitor_calls=False),
        "allowed": under(plain, write),
        "denied": under(plain, denied, os.mkdir, out + "/a"),
        "denied outright": under(plain, denied, os.system, "x"),
        "shown": under(plain, denied, sys.audit, "os.remove", Hostile(), -1),
        "told": under(telling, denied, os.mkdir, out + "/a"),
        "allowed by the host": under(allowing, sys.audit, "os.system", "x"),
        "0.2": under(strict, denied, os.mkdir, out + "/a"),
        "policy": under(limited, write),
        "denied by a policy": under(limited, denied, os.listdir, out),
        "explained": lambda: policy.explain("open", out, "w", 0),
        "observed": record,
        "database": under(plain, denied, database.execute, f"attach '{out}/a' as b"),
        "ctypes": under(plain, denied, getpid),
        "silent": under(plain, denied, os.mkfifo, out + "/a"),
        "context": under(plain, fresh.run, denied, os.mkdir, out + "/a"),
        "made context": under(plain, lambda: contextvars.Context().run(int)),
        "signals": under(plain, handlers),
        "executor": under(plain, lambda: executor.submit(int).result()),
        "threads": under(limited, thread),
        "tasks": lambda: loop.run_until_complete(task()),
    }
    executor.shutdown()
    loop.close()
    database.close()


@pytest.mark.parametrize(
    "name",
    "enter,make,allowed,denied,denied outright,shown,told,allowed by the host,0.2,policy,"
    "denied by a policy,explained,observed,database,ctypes,silent,context,made context,signals,"
    "executor,threads,tasks".split(","),
)
def test_nothing_is_kept(operations, name):
    assert len(operations) == 22
    more = grown(operations[name])
    # A loss is one for each round at least.
    assert max(more) < ROUNDS // 2, more


def test_nothing_is_kept_of_calls(places):
    import orjson

    perms = mk_audit([places.ok])
    allowing = mk_audit([places.ok], on_call=lambda *_: False)

    def watched():
        with perms():
            denied(orjson.dumps, 1)
        with allowing():
            orjson.dumps(1)

    assert max(grown(watched)) < ROUNDS // 2


@pytest.mark.alone
def test_a_loss_is_seen():
    kept = []
    assert max(grown(lambda: kept.append(object()))) >= ROUNDS
