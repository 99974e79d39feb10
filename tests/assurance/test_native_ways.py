"""Each way in which Python code reaches native code is stopped, or has a row in docs/limits.md."""

import json
import os
import re
import sys

import cython_modules
import programs
import pytest
import toml_tables
from repository import ROOT, SUPPORT

LIMITS = (ROOT / "docs/limits.md").read_text()
TABLE = toml_tables.load(SUPPORT / "native_ways.toml")
WAYS = {"seen": {}}
for row, ways in [("seen", TABLE["seen"]), *TABLE["limits"].items()]:
    for name, way in ways.items():
        says = {"code": way} if isinstance(way, str) else way
        if sys.version_info[1] < says.get("since", 0):
            continue
        is_seen = sys.version_info[1] > says.get("until", 99)
        code = [says["code"], says.get("before", "")]
        WAYS.setdefault("seen" if is_seen else row, {})[name] = code

#: Both ways to watch calls.
SIDES = ["callee"] if sys.version_info < (3, 12) else ["events", "callee"]


@pytest.fixture(scope="module", params=SIDES)
def reached(request, tmp_path_factory):
    """How calls are watched, and what became of each way under a guard."""
    pytest.importorskip("cython")
    directory = tmp_path_factory.mktemp("ways")
    cython_modules.build("native_ways", directory)
    ways = {name: way for ways in WAYS.values() for name, way in ways.items()}
    done = programs.python(
        SUPPORT / "native_ways_worker.py",
        json.dumps(ways),
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory), "FASTAUDIT_RS_CALLS": request.param},
    )
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert done.returncode == 0, [*results[-1:], done.stderr]
    return request.param, {result[0]: result[1:] for result in results}


@pytest.mark.slow
@pytest.mark.parametrize("row", WAYS)
def test_ways(reached, row):
    side, results = reached
    wrong = []
    for name in WAYS[row]:
        stopped, acted, said = results[name]
        # Of a limit some may be seen later: leaving what was entered unseen, for example. Callees
        # see many of those that events do not.
        stops, acts = stopped and not acted, stopped or acted
        went_well = stops if row == "seen" else acts if side == "callee" else acted
        if not went_well:
            wrong.append((name, stopped, acted, said))
    assert wrong == []


def test_rows_are_documented():
    rows = set(re.findall(r"^\| `([^`]+)` \|", LIMITS, re.MULTILINE))
    assert set(TABLE["limits"]) <= rows
