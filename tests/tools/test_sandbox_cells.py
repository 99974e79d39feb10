"""The magic `%%sandbox`, in a real kernel."""

import time
from pathlib import Path

import pytest

pytest.importorskip("sandlock")

FINAL = "This is a decision of policy: the same operation will be denied again."


@pytest.fixture
def run(shared_kernel, tmp_path):
    """`run(cell)`: what it gave; no sandbox has begun."""
    shared_kernel(f"import os; os.chdir({str(tmp_path)!r})\n%load_ext fastaudit_rs")
    assert shared_kernel("%sandbox --reset").status == "ok"
    yield shared_kernel
    shared_kernel("%audit off")


@pytest.mark.slow
def test_names_last(run, tmp_path):
    run("x = 'of the notebook'")
    first = run("%%sandbox\nimport os\nprint('hi')\nx = 40\nos.getcwd()")
    assert (first.status, first.out) == ("ok", "hi\n")
    assert str(tmp_path) not in first.value
    assert run("%%sandbox\nx += 2\nx").value == "42"
    assert run("x").value == "'of the notebook'"


@pytest.mark.slow
def test_a_denial(run, tmp_path):
    run("%%sandbox\nx = 1")
    ran = run(f"%%sandbox\nx = 2\nopen({str(tmp_path / 'a')!r}, 'w')\nx = 3")
    assert ran.status == "error"
    lines = ran.error.splitlines()
    assert lines[0].startswith(
        f"AuditDenied: Denied: open the file '{tmp_path}/a' for writing: not in "
    )
    assert lines[1:] == [
        "  line 3",
        f"    open('{tmp_path}/a', 'w')",
        f"To allow it: %%sandbox --reset --write {tmp_path}",
        FINAL,
    ]
    assert run("%%sandbox\nx").value == "2"
    line = lines[3].removeprefix("To allow it: ")
    assert run(f"{line}\nopen({str(tmp_path / 'a')!r}, 'w').write('x')").value == "1"
    assert (tmp_path / "a").read_text() == "x"


@pytest.mark.slow
def test_relative_paths_of_the_options_are_found(run, tmp_path):
    """Though the code begins elsewhere."""
    for name in ("out", "data/.raw"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data" / ".raw" / "a").write_text("x")
    code = "open('out/k', 'w').write('y')\nopen('data/.raw/a').read()"
    ran = run(f"%%sandbox --write out --write ./out/ --read data/.raw --read missing\n{code}")
    assert (ran.value, ran.error) == ("'x'", "")
    assert (tmp_path / "out" / "k").read_text() == "y"


def test_without_what_confines_it(run):
    """The error names nothing that a cell cannot write."""
    run("import sys\nkept = sys.modules.pop('sandlock', None); sys.modules['sandlock'] = None")
    ran = run("%%sandbox\n1")
    run("del sys.modules['sandlock']\nif kept: sys.modules['sandlock'] = kept")
    needs = "it needs sandlock, which is for Linux and Python up to 3.14"
    told = f"this system cannot confine a sandbox: {needs}: pip install 'fastaudit-rs[sandbox]'\n"
    assert ran.err == f"UsageError: %%sandbox: {told}"


def test_a_denial_that_a_library_wrapped(run):
    code = "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9')"
    lines = run(f"%%sandbox\n{code}").error.splitlines()
    assert lines[0].startswith("URLError from AuditDenied: Denied: ")
    assert lines[1:3] == ["  line 3", f"    {code.splitlines()[1]}"]
    assert lines[3].startswith("To allow it: %%sandbox --reset ") and lines[4:] == [FINAL]


def test_a_directory_that_is_missing(run, tmp_path):
    """Code could not make it: the system knows what is there alone."""
    ran = run("%%sandbox --reset --write missing\n1")
    told = "there is no such file or directory; make it first"
    assert ran.err == f"UsageError: %%sandbox: --write {tmp_path}/missing: {told}\n"


def test_a_denial_that_was_swallowed(run):
    ran = run("%%sandbox\ntry: open('/srv/a', 'w')\nexcept OSError: print('on')")
    assert (ran.status, ran.out) == ("ok", "on\n")
    hint = "to allow it: %%sandbox --reset --write /srv"
    assert ran.err == f"denied: open /srv/a, at line 2; {hint}\n"
    code = "".join(f"try: open('/srv/{name}', 'w')\nexcept OSError: 0\n" for name in "abcd")
    assert run(f"%%sandbox\n{code}").err.splitlines()[3:] == ["and 1 more"]


def test_an_error_is_that_of_the_sandbox(run):
    ran = run("%%sandbox\ndef f():\n    1 / 0\nf()")
    assert ran.status == "error" and "sandbox_cells" not in ran.error
    lines = ran.error.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert ", line 3, in f" in ran.error and lines[-1] == "ZeroDivisionError: division by zero"


def test_values_in_and_out(run):
    run("numbers, out = [1, 2], None")
    ran = run("%%sandbox -i numbers -o total -o numbers\ntotal = sum(numbers)\nnumbers.append(3)")
    assert ran.status == "ok", ran.err
    assert run("total, numbers").value == "(3, [1, 2, 3])"
    for line, message in (
        ("-i missing", "-i missing: the notebook has no such name"),
        ("-o missing", "-o missing: the sandbox has no such name"),
        ("-o f", "f"),
    ):
        ran = run(f"%%sandbox {line}\nf = lambda: 1")
        assert ran.status == "error" and message in ran.err and ran.err.startswith("UsageError: ")
    run("import threading; lock = threading.Lock()")
    assert "lock" in run("%%sandbox -i lock\n1").err


@pytest.mark.slow
def test_output_comes_while_it_runs(run):
    request = run.client.execute(
        "%%sandbox\nimport time\nprint('first', flush=True)\ntime.sleep(1)\nprint('second')"
    )
    while True:
        message = run.client.get_iopub_msg(timeout=30)
        if message["msg_type"] == "stream":
            break
    first = time.monotonic()
    assert message["content"]["text"] == "first\n"
    assert run.finish(request).out == "second\n"
    assert time.monotonic() - first > 0.5


def test_displays(run):
    png = b"\x89PNG\r\n\x1a\n" + b"0" * 8
    ran = run(
        "%%sandbox\nclass Shown:\n"
        f"    def _repr_png_(self): return {png!r}\n"
        "    def __repr__(self): return 'a figure'\n"
        "display(Shown())\ndisplay({'text/html': '<script>alert(1)</script>'}, raw=True)"
    )
    image, page = ran.data
    assert image["image/png"].startswith("iVBORw0KGgo") and image["text/plain"] == "a figure"
    assert '<iframe sandbox=""' in page["text/html"] and "<script>" not in page["text/html"]
    assert run("%%sandbox\ndisplay({'application/javascript': 'alert(1)'}, raw=True)").data[
        0
    ].keys() <= {"text/plain", "text/html"}


@pytest.mark.slow
def test_frames(run):
    pytest.importorskip("pandas")
    run("import pandas as pd\nframe = pd.DataFrame({'a': [1, 2]})")
    ran = run("%%sandbox -i frame -o twice\ntwice = frame * 2\ntwice")
    [shown] = ran.data
    assert shown["text/plain"].split() == ["a", "0", "2", "1", "4"]
    assert "<table" in shown["text/html"] and "iframe" not in shown["text/html"]
    assert run("list(twice.a)").value == "[2, 4]"


class TestEnds:
    @pytest.mark.slow
    def test_a_limit_of_time(self, run):
        run("%%sandbox\nx = 1")
        ran = run("%%sandbox --timeout 0.3\nwhile True: pass")
        assert ran.status == "error"
        assert ran.error.splitlines()[-1] == "(It took longer than --timeout.)"
        assert run("%%sandbox\nx").value == "1"

    def test_interrupt(self, run):
        run("%%sandbox\nx = 1")
        request = run.client.execute("%%sandbox\nprint('began', flush=True)\nwhile True: pass")
        while run.client.get_iopub_msg(timeout=30)["msg_type"] != "stream":
            pass
        run.manager.interrupt_kernel()
        ran = run.finish(request)
        assert ran.status == "error" and ran.error.splitlines()[-1] == "KeyboardInterrupt"
        assert run("%%sandbox\nx").value == "1"

    @pytest.mark.slow
    def test_a_process_that_ended(self, run):
        code = "import signal, time; signal.setitimer(0, 0.01); time.sleep(9)"
        assert run(f"%%sandbox\n{code}").status == "error"
        ran = run("%%sandbox\n1")
        assert ran.status == "error" and "%%sandbox --reset begins anew" in ran.err
        assert run("%%sandbox --reset\n1").value == "1"

    def test_unloading_ends_it(self, run, environment):
        temporary = Path(environment["TMPDIR"])
        run("%%sandbox\nx = 1")
        assert len(list(temporary.iterdir())) == 1
        run("%unload_ext fastaudit_rs")
        assert list(temporary.iterdir()) == []
        assert run("%%sandbox\n1").status == "error"


class TestPermissions:
    @pytest.mark.slow
    def test_they_hold_until_it_begins_anew(self, run, tmp_path):
        run(f"%%sandbox --write {tmp_path}\nx = 1")
        assert run("%%sandbox\nx").value == "1"
        assert run(f"%%sandbox --write {tmp_path}\nx").value == "1"
        ran = run("%%sandbox --net any\nx")
        assert ran.err == (
            f"UsageError: %%sandbox: the sandbox began as %%sandbox --write {tmp_path}: "
            "--reset begins another\n"
        )
        assert run("%%sandbox --reset --net any\n'x' in dir()").value == "False"
        assert "write nothing, reach any host" in run("%sandbox").out

    def test_state(self, run):
        assert run("%sandbox").out == "off\n"
        run("%%sandbox\nx = 1")
        assert run("%sandbox").out.splitlines()[-1] == "names: x"

    def test_under_the_guard_of_the_notebook(self, run, tmp_path):
        """The guard is for cells of the notebook's process."""
        run("%audit on")
        assert run("%%sandbox\n6 * 7").value == "42"
        assert run("open('a', 'w')").status == "error"
        assert "1 cells guarded" in run("%audit").out

    def test_text_in_braces_is_none_of_the_notebooks(self, run):
        run("leaked = []")
        ran = run("%%sandbox --env {leaked.append(1)}\n1")
        assert run("leaked").value == "[]", ran

    @pytest.mark.parametrize("line", ["--wirte x", "--timeout soon"])
    def test_wrong_options(self, run, line):
        ran = run(f"%%sandbox {line}\nprint('ran')")
        assert (ran.status, ran.out) == ("error", "")
        assert ran.err.startswith("UsageError: ")

    def test_help(self, run):
        told = run("%%sandbox --help\nprint('ran')").out
        assert "--reset" in told and "ran" not in told.split()
