"""Denying a call harms nothing: each native call of real libraries is denied in turn (3.12+).

The libraries come with the extra `native`, which `make test-all` installs. There a library that is
missing is an error; elsewhere its workload is skipped.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections import Counter

import programs
import pytest
from cython_modules import build
from repository import SUPPORT

pytestmark = pytest.mark.slow

WORKER = SUPPORT / "denial_injection_worker.py"
# Seconds in which one denial after another has to come.
PATIENCE = 120

NEEDS = {
    "pandas_json": "pandas",
    "pandas_frames": "pandas",
    "numpy_arrays": "numpy",
    "lxml_trees": "lxml",
    "pyarrow_tables": "pyarrow",
    "orjson_default": "orjson",
    "cython_module": "Cython",
}


def need(package):
    if importlib.util.find_spec(package) is None:
        message = f"{package} is not installed: it comes with the extra `native`"
        if os.environ.get("FASTAUDIT_RS_ALL_TESTS"):
            pytest.fail(message)
        pytest.skip(message)


def inject(workload, directory, *, development=False, patience=PATIENCE):
    """The outcomes of denying each call; fails when the process does."""
    command = [sys.executable, *(["-X", "dev"] if development else []), str(WORKER)]
    command += [workload, str(directory)]
    try:
        done = programs.run(command, timeout=patience)
    except subprocess.TimeoutExpired as error:
        printed = (error.stdout or b"").decode().split("\n")
        pytest.fail(f"{workload} hangs; it printed last {printed[-3:]}")
    lines = done.stdout.splitlines()
    if done.returncode or not lines or lines[-1] != "done":
        pytest.fail(
            f"{workload} ended with {done.returncode} after {lines[-2:]}\n{done.stderr[-4000:]}"
        )
    return lines


@pytest.mark.parametrize("workload", NEEDS)
def test_each_native_call_can_be_denied(workload, tmp_path):
    need(NEEDS[workload])
    if workload == "cython_module":
        shutil.copy(SUPPORT / "injected_calls.py", tmp_path)
        build("injected", tmp_path)
    lines = inject(workload, tmp_path)
    calls, outcomes = int(lines[0].split()[1]), Counter(lines[2:-1:2])
    print(f"{workload}: {calls} calls, {dict(outcomes)}")
    # Fewer would show that the workload does not reach the library.
    assert calls >= 5
    assert sum(outcomes.values()) == (len(lines) - 2) / 2
    assert outcomes["denied"] > sum(outcomes.values()) / 2


def test_a_denial_in_code_of_the_user_is_raised_where_it_is():
    """Also below a native function whose own code cannot stand an exception."""
    need("pandas")
    need("orjson")
    code = """
        import orjson, pandas as pd
        from fastaudit_rs import mk_audit
        ran = []
        def handler(value):
            orjson.dumps(1)
            ran.append(value)
            return 1
        frame = pd.DataFrame({"a": [object()]})
        on_call = lambda caller, callee, *rest: False if callee != "orjson.dumps" else None
        with mk_audit([], on_call=on_call)():
            try:
                frame.to_json(default_handler=handler)
            except PermissionError as error:
                print("orjson.dumps" in str(error), ran)
    """
    assert programs.ran(code).stdout == "True []\n"


def test_references_are_in_order_afterwards(tmp_path):
    """CPython's debug allocator, and its checks of what is freed, see nothing wrong."""
    need("orjson")
    inject("orjson_default", tmp_path, development=True)
    inject("numpy_arrays", tmp_path, development=True)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ("crash", "crash ended with -14 after .*deny 0"),
        ("hang", "hang hangs; it printed last .*deny 0"),
        ("system_error", "a SystemError"),
    ],
)
def test_what_would_go_wrong_is_seen(workload, message, tmp_path):
    need("orjson")
    with pytest.raises(pytest.fail.Exception, match=rf"(?s){message}"):
        inject(workload, tmp_path, patience=20 if workload != "hang" else 4)
