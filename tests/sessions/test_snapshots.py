"""Snapshots of sessions, in each place where code can run."""

import gc
import weakref

import pytest
from steps import value


def test_a_state_is_gone_back_to_any_number_of_times(session):
    session.run("import os\nx = 1\nos.mkdir('sub')")
    before = session.snapshot()
    for number in range(3):
        session.run(f"x = 'other {number}'\ny = 2\nos.chdir('sub')")
        session.run("del os")
        session.restore(before)
        assert session.names == ["os", "x"]
        assert value(session, "x, os.path.isdir('sub')") == (1, True)


def test_several_are_gone_back_to_in_any_order(session):
    kept = []
    for number in range(3):
        session.run(f"x = {number}\nname{number} = 0")
        kept.append(session.snapshot())
    for number in (1, 2, 0, 2):
        session.restore(kept[number])
        assert session.get("x") == number
        assert session.names == ["x", *(f"name{made}" for made in range(number + 1))]
    assert [one.step for one in kept] == [1, 2, 3]
    assert repr(kept[2]) == "<Snapshot after 3 steps>"


def test_files_stay(session):
    before = session.snapshot()
    session.run("open('file', 'w').write('1')")
    session.restore(before)
    assert value(session, "open('file').read()") == "1"


def test_a_snapshot_is_no_step(session):
    """`undo` goes back to before the last step, and not behind a state that was restored."""
    session.run("x = 1")
    session.run("x = 2")
    kept = session.snapshot()
    session.undo()
    assert session.get("x") == 1
    session.restore(kept)
    assert session.get("x") == 2
    with pytest.raises(RuntimeError, match="no st"):
        session.undo()
    session.run("x = 3")
    session.undo()
    assert session.get("x") == 2


def test_functions_and_modules_of_its_own(make):
    session = make(tools={"add": lambda a: a + 1})
    code = "import sys\nsys.path.insert(0, '')\nsys.dont_write_bytecode = True\n"
    session.run(f"{code}add = None\nopen('own_module.py', 'w').write('x = 1')")
    first = session.snapshot()
    assert value(session, "import own_module\nown_module.x") == 1
    session.run("x = sub(add)", tools={"sub": lambda a: a, "add": lambda a: a + 2})
    session.run("open('own_module.py', 'w').write('x = 22')")
    session.restore(first)
    assert value(session, "import own_module\nown_module.x") == 22


def test_a_step_that_is_killed_or_fails_loses_none(session):
    session.run("x = 1")
    kept = session.snapshot()
    assert session.run("x = 2\nwhile True: pass", timeout=0.3).killed_by == "wall_seconds"
    assert not session.run("1 / 0").success
    session.restore(kept)
    assert session.get("x") == 1


def test_as_many_as_there_may_be(make):
    session = make(snapshots=2)
    kept = [session.snapshot(), session.snapshot()]
    with pytest.raises(RuntimeError, match=r"keeps 2 snapshots \(snapshots=\): close\(\) one"):
        session.snapshot()
    kept.pop().close()
    kept.append(session.snapshot())
    session.restore(kept[0])
    with pytest.raises(RuntimeError, match="keeps 2"):
        session.snapshot()


def test_closed(session):
    kept, other = session.snapshot(), session.snapshot()
    kept.close()
    kept.close()
    with pytest.raises(
        RuntimeError, match=r"the snapshot is closed: by its close\(\), or by reset"
    ):
        session.restore(kept)
    session.restore(other)
    session.reset()
    with pytest.raises(RuntimeError, match="the snapshot is closed"):
        session.restore(other)
    other.close()
    last = session.snapshot()
    session.close()
    last.close()
    for act in (session.snapshot, lambda: session.restore(last)):
        with pytest.raises(RuntimeError, match="the session is closed"):
            act()


def test_arguments(make):
    session, other = make(), make()
    with pytest.raises(
        TypeError, match=r"snapshot must be one that session.snapshot\(\) made, not"
    ):
        session.restore(1)
    with pytest.raises(ValueError, match="snapshot must be one of this session"):
        session.restore(other.snapshot())


def test_not_while_a_step_runs(make):
    refused = []

    def act():
        for act in (session.snapshot, lambda: session.restore(kept), kept.close):
            with pytest.raises(RuntimeError, match="runs a step already"):
                act()
            refused.append(1)

    session = make(tools={"act": act})
    kept = session.snapshot()
    assert session.run("act()").error is None
    assert refused == [1, 1, 1]
    session.restore(kept)


@pytest.mark.parametrize("place", ["here"], indirect=True)
def test_objects_of_a_closed_snapshot_are_freed_under_the_guard(session, tmp_path):
    """In this process: finalizers of the guest run in its thread."""
    session.run(f"class A:\n    def __del__(self): open({str(tmp_path / 'made')!r}, 'w')\na = A()")
    kept = session.snapshot()
    session.run("a = None")
    session.run("1")
    assert not (tmp_path / "made").exists()
    kept.close()
    assert not (tmp_path / "made").exists()
    again = weakref.ref(session)
    session.snapshot()
    session.close()
    assert again() is session


@pytest.mark.slow
@pytest.mark.parametrize("place", ["here"], indirect=True)
def test_objects_that_are_changed_in_place_stay_so(session):
    """As docs/limits.md says; a copy of a process has its own."""
    session.run("x = []")
    kept = session.snapshot()
    session.run("x.append(1)")
    session.restore(kept)
    assert session.get("x") == [1]
    gc.collect()
