"""safepyrun, the real client of fastaudit, does on this package what it does on 0.2.10."""

import json
import subprocess
import sys
from pathlib import Path

import peers
import pytest
from client_cases import CASES

if sys.version_info < (3, 12):
    pytest.skip("safepyrun needs Python 3.12", allow_module_level=True)

WORKER = Path(__file__).with_name("client_worker.py")
AS_FASTAUDIT = ["-m", "fastaudit_rs.as_fastaudit"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What became of each case, on fastaudit and on this package."""
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
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
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
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True
        )
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
