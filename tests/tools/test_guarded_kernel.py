"""A kernel whose cells run under a policy from the start, as Jupyter starts it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import kernels
import pytest
from repository import ROOT

#: Has the thread that sends output run this, where no guard is.
UNSEEN = """
import pathlib, time
def act():
    try:
        {}
    except OSError as error:
        told.append(type(error).__name__)
    else:
        told.append("done")
told = []
get_ipython().kernel.iopub_thread.schedule(act)
while not told:
    time.sleep(0.01)
told[0]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The directory of a user: notebooks are in `notebooks`, with a directory `out`."""
    home = tmp_path_factory.mktemp("user")
    (home / "notebooks" / "out").mkdir(parents=True)
    return home


def command(home, *options):
    words = [sys.executable, "-m", "fastaudit_rs", "kernel", "install", *options]
    env = {**os.environ, **kernels.home_of(home)}
    env.pop("JUPYTER_DATA_DIR", None)
    return subprocess.run(words, env=env, cwd=home, capture_output=True, text=True, check=False)


def spec_of(home, name):
    return json.loads((home / "share/jupyter/kernels" / name / "kernel.json").read_text())


def installed(home, *options):
    """The command of a kernel that was installed with these options."""
    ran = command(home, "--prefix", str(home), *options)
    assert ran.returncode == 0, ran.stderr
    return spec_of(home, "guarded")["argv"]


def started(home, *options):
    env = {**os.environ, **kernels.home_of(home)}
    return kernels.started(home / "notebooks", env, argv=installed(home, *options))


@pytest.fixture(scope="module")
def kernel(home):
    with started(home, "--write", "out") as kernel:
        yield kernel


class TestCells:
    def test_what_the_policy_allows(self, home, kernel):
        assert kernel("open('out/a', 'w').write('x')").value == "1"
        assert (home / "notebooks/out/a").exists()
        # What `tempfile` makes, tasks, and IPython's own ways work as in other kernels.
        assert kernel("import tempfile; tempfile.TemporaryFile().close(); 1").value == "1"
        assert kernel("import asyncio; await asyncio.sleep(0); 2").value == "2"
        assert kernel("%history -l 1").out == "import asyncio; await asyncio.sleep(0); 2\n"
        assert kernel("%%time\n3").value == "3"
        assert kernel("%cd out\n%cd ..\n%bookmark here\n4").value == "4"

    def test_sandboxes(self, kernel):
        pytest.importorskip("sandlock")
        assert "a guarded kernel starts no sandbox" in kernel("%%sandbox\n1").err

    @pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
    def test_pools_of_processes(self, home, method):
        with started(home, "--run", "any", "--write", "/dev/shm") as kernel:
            kernel(f"import multiprocessing\nm = multiprocessing.get_context('{method}')")
            assert kernel("with m.Pool(1) as pool: print(pool.map(abs, [-1]))").out == "[1]\n"
            assert kernel("m.Lock(), 5").error == ""

    def test_a_denial_names_the_line_that_installs_another(self, home, kernel):
        ran = kernel("open('b', 'w')")
        line = f"fastaudit-rs kernel install --name guarded --prefix {home} --write out --write"
        assert f"To allow it: {line} {home}/notebooks/b\n" in ran.error
        assert not (home / "notebooks/b").exists()

    def test_what_is_not_there_yet(self, home):
        """A file that a hint named, and a directory: cells make them."""
        with started(home, "--write", "new.txt", "--write", "more/inner") as kernel:
            assert kernel("open('new.txt', 'w').write('x')").value == "1"
            assert kernel("import os; os.makedirs('more/inner/a')").error.startswith("AuditDenied")
            assert kernel("open('other', 'w')").error.startswith("AuditDenied")
        with started(home, "--write", "more") as kernel:
            assert kernel("import os; os.makedirs('more/inner/a'); 1").value == "1"

    @pytest.mark.parametrize(
        "code", ["%audit off", "%audit on --write any", "%%audit --write any\nopen('b', 'w')"]
    )
    def test_cells_cannot_end_it(self, home, kernel, code):
        ran = kernel(code)
        assert "this kernel guards each cell, and its policy stays as it is" in ran.err + ran.error
        assert "AuditDenied" in kernel("open('b', 'w')").error

    def test_the_extension_stays(self, kernel):
        kernel("%load_ext fastaudit_rs")
        kernel("%unload_ext fastaudit_rs")
        kernel("%reload_ext fastaudit_rs")
        assert "AuditDenied" in kernel("open('b', 'w')").error

    def test_nothing_of_the_kernel_itself_is_denied(self, home):
        """Its own sockets connect while cells run."""
        with started(home, "--write", "out") as kernel:
            assert [kernel("1").err, kernel("import time; time.sleep(1)").err] == ["", ""]
            assert "2 cells guarded, 0 operations denied" in kernel("%audit").out


class TestLandlock:
    """The system holds the policy where no guard is."""

    @pytest.mark.parametrize(
        ("act", "outcome"),
        [
            ("pathlib.Path('unseen').write_text('x')", "'PermissionError'"),
            ("pathlib.Path('out/seen').write_text('x')", "'done'"),
            ("pathlib.Path('/etc/passwd').read_text()", "'done'"),
            ("__import__('socket').create_connection(('127.0.0.1', 9))", "'PermissionError'"),
        ],
    )
    def test_by_a_thread_of_the_kernel(self, kernel, act, outcome):
        assert kernel(UNSEEN.format(act)).value == outcome

    def test_reading(self, home):
        (home / "secret").write_text("x")
        with started(home, "--read", ".", "--write", "out") as kernel:
            assert kernel(UNSEEN.format(f"pathlib.Path('{home}/secret').read_text()")).value == (
                "'PermissionError'"
            )
            assert "AuditDenied" in kernel(f"open('{home}/secret')").error
            assert kernel("import json, sqlite3; json.dumps(1)").value == "'1'"


class TestInstallation:
    def test_where_jupyter_looks(self, tmp_path):
        env = {**os.environ, **kernels.home_of(tmp_path), "JUPYTER_DATA_DIR": f"{tmp_path}/data"}
        words = [sys.executable, "-m", "fastaudit_rs", "kernel", "install", "--name", "mine"]
        ran = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True)
        place = f"{tmp_path}/data/kernels/mine"
        assert (
            ran.stdout
            == f"Installed the kernel 'Python (mine)' in {place}; restart those that run\n"
        )
        assert Path(place, "kernel.json").exists()

    def test_as_docs_notebook_md_does(self, tmp_path):
        """The kernel finds the policy wherever the notebook is."""
        page = (ROOT / "docs" / "notebook.md").read_text()
        [line] = re.findall(r"^\$ fastaudit-rs kernel install (.*)", page, re.MULTILINE)
        (tmp_path / "policy.toml").write_text('write = ["out"]\n')
        command(tmp_path, *line.split(), "--prefix", "there")
        spec = spec_of(tmp_path / "there", "careful")
        assert spec["display_name"] == "Python (careful)"
        assert spec["argv"][-2:] == ["--policy", f"{tmp_path}/policy.toml"]

    def test_its_name(self, tmp_path):
        command(tmp_path, "--prefix", ".", "--display-name", "Mine")
        assert spec_of(tmp_path, "guarded")["display_name"] == "Mine"

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (["--name", "a b"], "--name takes letters, digits, '.', '_' and '-', not 'a b'"),
            (["--policy", "none.toml"], "none.toml"),
            (["--set", "writ=1"], "writ"),
        ],
    )
    def test_what_is_wrong_is_told(self, tmp_path, options, told):
        ran = command(tmp_path, "--prefix", ".", *options)
        assert ran.returncode == 2
        assert told in ran.stderr
        assert list(tmp_path.iterdir()) == []
