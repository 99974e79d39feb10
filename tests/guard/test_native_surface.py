"""Odd uses of all that guarded code reaches of a guard: none ends the process or lifts a guard."""

import sys
from pathlib import Path

import programs
import pytest
from repository import SUPPORT

WORKER = SUPPORT / "native_surface_worker.py"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("pokes", [2_500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_pokes(places, pokes, seed):
    command = [sys.executable, str(WORKER), places.ok, places.out, str(seed), str(pokes)]
    done = programs.run(command)
    again = f"POKES_SHOWN=1 tells each poke before it is made: {' '.join(command)}"
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}\n{again}"
    assert done.stdout == f"{pokes} pokes\n"


def test_it_tells_a_guard_that_is_lifted(places):
    """The worker sees a guard that lets all pass."""
    code = WORKER.read_text().replace("policy.guard(),", 'Policy(write=["/"]).guard(),')
    worker = Path(places.cwd, "worker.py")
    worker.write_text(code)
    command = [sys.executable, str(worker), places.ok, places.out, "0", "5000"]
    done = programs.run(command)
    assert done.returncode == 1
    assert "does not hold" in done.stderr or "lifted" in done.stderr
