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
        is_seen = sys.version_info[1] > says.get("until", 99)
        code = [says["code"], says.get("before", "")]
        WAYS.setdefault("seen" if is_seen else row, {})[name] = code

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="calls cannot be watched")


@pytest.fixture(scope="module")
def reached(tmp_path_factory):
    """Try each way under a guard."""
    pytest.importorskip("cython")
    directory = tmp_path_factory.mktemp("ways")
    cython_modules.build("native_ways", directory)
    request = {name: way for ways in WAYS.values() for name, way in ways.items()}
    done = programs.python(
        SUPPORT / "native_ways_worker.py",
        json.dumps(request),
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory)},
    )
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert done.returncode == 0, [*results[-1:], done.stderr]
    return {result[0]: result[1:] for result in results}


@pytest.mark.slow
@pytest.mark.parametrize("row", WAYS)
def test_ways(reached, row):
    wrong = []
    for name in WAYS[row]:
        stopped, acted, said = reached[name]
        # Of a limit some may be seen later: leaving what was entered unseen, for example.
        went_well = (stopped and not acted) if row == "seen" else acted
        if not went_well:
            wrong.append((name, stopped, acted, said))
    assert wrong == []


def test_rows_are_documented():
    rows = set(re.findall(r"^\| `([^`]+)` \|", LIMITS, re.MULTILINE))
    assert set(TABLE["limits"]) <= rows
