"""safepyrun, the real client of fastaudit, does on this package what it does on 0.2.10."""

import json
import re
import sys

import peers
import programs
import pytest
from client_cases import CASES
from kernels import home_of, started
from repository import SUPPORT

if sys.version_info < (3, 12):
    pytest.skip("safepyrun needs Python 3.12", allow_module_level=True)

pytestmark = pytest.mark.slow

WORKER = SUPPORT / "client_worker.py"
AS_FASTAUDIT = ["-m", "fastaudit_rs.as_fastaudit", "--version", "0.2"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """The outcome of each case, on fastaudit and on this package."""
    shared = tmp_path_factory.mktemp("shared")
    found = {}
    for package, options in (("fastaudit", []), ("fastaudit_rs", AS_FASTAUDIT)):
        # The same paths, as messages have them.
        base = tmp_path_factory.mktemp(package)
        environment = peers.environment(
            shared,
            HOME=str(base),
            XDG_CONFIG_HOME=str(base / "config"),
            MPLCONFIGDIR=str(shared / "matplotlib"),
        )
        (base / "base").mkdir()
        command = [peers.python(), *options, WORKER, base / "base"]
        done = programs.run(command, env=environment)
        assert done.returncode == 0, done.stderr
        assert f"fastaudit is {package}." in done.stdout
        found[package] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_outcome_is_the_same(outcomes, name):
    assert outcomes["fastaudit_rs"][name] == outcomes["fastaudit"][name]


@pytest.mark.parametrize("line", ["print(40 + 2)", "import os; os.mkdir('/srv/never')", "1 +"])
def test_its_command_line(tmp_path, line):
    (tmp_path / "link").mkdir()
    (tmp_path / "script.py").write_text(line)
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    environment = peers.environment(tmp_path / "link", **home)
    outcomes = []
    for options in ([], AS_FASTAUDIT):
        command = [peers.python(), *options, "-m", "safepyrun.cli", "script.py"]
        done = programs.run(command, env=environment, cwd=tmp_path)
        outcomes.append((done.returncode, done.stdout, done.stderr.split("\n")[0]))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1] == ("42\n" if "print" in line else "")


def test_there_is_something_to_compare(outcomes):
    """Both kinds of outcome, from the client's own rules and from the guard's."""
    first = [outcome[0] for outcome in outcomes["fastaudit"].values()]
    assert first.count("value") > 40
    assert first.count("PermissionError") > 30
    told = [outcome[-2] for outcome in outcomes["fastaudit"].values() if outcome[0] != "value"]
    assert sum("blocked in sandbox" in line for line in told) > 15
    assert sum(" not in (" in line for line in told) > 8
    assert sum("not allowed; permitted" in line for line in told) > 4


#: Cells of a notebook, in the order of their numbers.
CELLS = {
    "printing": "await run('print(1)\\n2+3')",
    "printing again": "await run('for i in range(50): print(i, flush=True)')",
    "display": "await run('display(1); display(2)')",
    "a table": "await run('display(frame)')",
    "to stderr": "await run('import sys; print(1, file=sys.stderr)')",
    "a warning": "await run('import warnings; warnings.warn(\"hm\"); print(1)')",
    "logging": "await run('import logging; logging.warning(\"hm\"); print(1)')",
    "write outside": "await run('print(1); open(OUT, \"w\")')",
    "a program": "await run('print(1); subprocess.run([\"true\"])')",
    "connecting": "await run('socket.create_connection((\"127.0.0.1\", 9))')",
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The outcome of each cell, on fastaudit and on this package."""
    shared, found = tmp_path_factory.mktemp("shared"), {}
    for package in ("fastaudit", "fastaudit_rs"):
        home = tmp_path_factory.mktemp("home")
        environment = peers.environment(
            shared, XDG_CONFIG_HOME=str(home / "config"), **home_of(home)
        )
        with started(home, environment, peers.python()) as kernel:
            if package == "fastaudit_rs":
                kernel("import fastaudit_rs; fastaudit_rs.install_as_fastaudit()")
            ran = kernel(
                "import asyncio, socket, subprocess, pandas as pd\n"
                "from safepyrun import RunPython\nfrom fastaudit import mk_audit\n"
                "names = {'frame': pd.DataFrame({'a': [1]}), 'OUT': '/srv/never',\n"
                "         'asyncio': asyncio, 'socket': socket, 'subprocess': subprocess,\n"
                "         'display': display}\n"
                "run = RunPython(g=names, ok_dests=['/tmp'])\nmk_audit.__module__"
            )
            assert ran.error == "" and ran.value.startswith(f"'{package}.")
            found[package] = {name: kernel(cell) for name, cell in CELLS.items()}
    return found


@pytest.mark.parametrize("name", CELLS)
def test_the_same_in_a_kernel(cells, name):
    both = []
    for package in ("fastaudit", "fastaudit_rs"):
        ran = cells[package][name]
        told = re.sub(r"ipykernel_\d+/\d+|0x[0-9a-f]+", "", ran.err)
        error = re.sub(r"fd=\d+", "", ran.error)
        denied = re.search("^(?:PermissionError|AuditDenied): (.*)", error, re.MULTILINE)
        both.append((ran.status, ran.out, told, ran.data, denied and denied[1]))
    status, _, _, _, denied = both[0]
    if sys.version_info >= (3, 14) and name != "connecting":
        # There the original denies what it prints.
        assert status == "error" and "zmq.sugar.socket.Socket.send" in denied
    else:
        assert both[0] == both[1]
    assert (both[1][0] == "ok") == (name not in ("write outside", "a program", "connecting"))
    assert not both[1][4] or "zmq" not in both[1][4]
