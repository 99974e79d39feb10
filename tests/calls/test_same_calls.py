"""The calls of native code that each side sees: the callee's has none less than events have."""

import json
import os
import shutil
import sys

import programs
import pytest
from cython_modules import build
from repository import SUPPORT
from test_denial_injection import NEEDS, need

pytestmark = [
    pytest.mark.one_side("callee"),
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info < (3, 12), reason="no events before 3.12"),
]

#: Those of kinds of modules that one version of Python has the packages of.
KINDS = {
    "orjson_by_others": "orjson",
    "pybind11_contours": "contourpy",
    "nanobind_solids": "manifold3d",
    "pyo3_tokens": "tokenizers",
}


@pytest.mark.parametrize("workload", [*NEEDS, *KINDS])
def test_none_is_missing(workload, tmp_path):
    if workload in KINDS:
        pytest.importorskip(KINDS[workload])
    else:
        need(NEEDS[workload])
    if workload == "cython_module":
        shutil.copy(SUPPORT / "injected_calls.py", tmp_path)
        build("injected", tmp_path)
    seen = {}
    for side in ("events", "callee"):
        command = [sys.executable, SUPPORT / "native_calls_counter.py", workload, tmp_path]
        done = programs.run(command, env={**os.environ, "FASTAUDIT_RS_CALLS": side})
        assert done.returncode == 0, done.stderr
        seen[side] = json.loads(done.stdout)
    fewer = {
        callee: (number, seen["callee"].get(callee, 0))
        for callee, number in seen["events"].items()
        if seen["callee"].get(callee, 0) < number
    }
    assert sum(seen["events"].values()) >= 4
    assert fewer == {}
