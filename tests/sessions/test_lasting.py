"""Many steps in each place leave nothing behind."""

import gc
import linecache
import os
import tempfile
import threading
from pathlib import Path

import pytest
from waiting import until
from watched import descendants

#: The steps before the measures.
WARM = 150

#: Steps of each kind, and whether each is undone.
KINDS = (
    ("x = [add(n, 1) for n in range(10)]\nprint(x)\nx", False),
    ("class A:\n    def _repr_html_(self): return '<b>' * 1000\ndisplay(A())\nA()", False),
    ("def f(n):\n    data = bytearray(100_000)\n    1 / 0\nf(1)", False),
    ("try: open('/never', 'w')\nexcept OSError: pass\nopen('/never', 'w')", False),
    ("y = bytes(200_000)\ny", True),
    ("import asyncio\nawait asyncio.sleep(0)\nawait later(1)", False),
    ("z = dict.fromkeys(range(1000))\nz['self'] = z\ndel z", False),
    ("open('file', 'w').write('1')", False),
    ("fail()", False),
    ("x = (", False),
)
ENDLESS = "while True: pass"


def left():
    """All that a session could leave, in numbers."""
    gc.collect()
    return {
        "processes": len(descendants()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "lines": sum(name.startswith("<step ") for name in linecache.cache),
        "directories": len(os.listdir(tempfile.gettempdir())),
        "objects": len(gc.get_objects()),
    }


def megabytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def steps(session, count):
    for number in range(count):
        code, is_undone = KINDS[number % len(KINDS)]
        session.run(code, variables={"n": number})
        if is_undone:
            session.undo()
        if number % 10 == 3:
            kept = session.snapshot()
            session.restore(kept)
            kept.close()
        if number % 100 == 50:
            assert session.run(ENDLESS, timeout=0.02).killed_by == "wall_seconds"
        if number % 100 == 70:
            timer = threading.Timer(0.05, session.interrupt)
            timer.start()
            session.run("import time\nfor _ in range(1000): time.sleep(0.002)")
            timer.join()


def add(a, b):
    return a + b


def fail():
    raise ValueError("failed")


async def later(n):
    return n


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A directory for temporary files that nobody else uses."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.nightly)])
def test_many_steps(make, place, count):
    before = left()
    session = make(tools={"add": add, "fail": fail, "later": later})
    steps(session, WARM)
    processes = [] if place == "here" else descendants()
    warm, host = left(), megabytes()
    # A copy that has ended is waited for at the next step.
    warm["processes"] += len(processes) > 0
    inside = sum(each.megabytes for each in processes)
    steps(session, count)
    now = left()
    assert now.pop("objects") < warm.pop("objects") + 2000
    assert until(lambda: all(left()[name] <= warm[name] for name in warm)), (warm, left())
    assert megabytes() < host + 10
    if processes:
        # The copy for undo() is another one: the number is the same.
        assert sum(each.megabytes for each in descendants()) < inside + 20
    session.close()
    del session
    assert left()["lines"] == before["lines"]
    if place == "here":
        names = ("processes", "descriptors", "threads", "directories")
        assert until(lambda: all(left()[name] <= before[name] for name in names)), (before, left())


@pytest.mark.alone
@pytest.mark.nightly
def test_many_sessions(make):
    """Each with some steps."""

    def one():
        with make(tools={"add": add, "later": later}) as session:
            for code, _ in KINDS[:6]:
                session.run(code, variables={"n": 1})
            session.reset()
            session.run("1")

    for _ in range(3):
        one()
    warm, host = left(), megabytes()
    for _ in range(20):
        one()
    for name in ("threads", "lines"):
        assert until(lambda name=name: left()[name] <= warm[name]), name
    assert megabytes() < host + 10
