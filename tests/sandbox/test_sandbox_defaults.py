"""A sandbox by default: its own directory, what Python needs, and nothing else of the host."""

import os
import sys
import textwrap
from pathlib import Path

import promises
import pytest
from sandboxes import unguarded

from fastaudit_rs import AuditDenied, Network, Policy, Sandbox, SandboxManager

#: Where native code, programs and threads are let be, so that the kernel alone says no.
RAW = Policy(native=True, commands=True, threads="inherit", env=True)

READ = """
import sys
for path in sys.argv[1:]:
    try:
        print(open(path).read())
    except OSError as error:
        print(type(error).__name__)
"""


class TestReading:
    @pytest.mark.slow
    @pytest.mark.holds("kernel", promises.READ)
    def test_the_kernel_opens_nothing_of_the_host(self, make_sandbox, monkeypatch, tmp_path):
        """Native code, whatever guard there is."""
        secrets = [tmp_path / "home/secret", tmp_path / "here/secret"]
        for secret in secrets:
            secret.parent.mkdir()
            secret.write_text("SECRET")
        monkeypatch.setenv("HOME", str(secrets[0].parent))
        monkeypatch.chdir(secrets[1].parent)
        ran = unguarded(make_sandbox(RAW), READ, *secrets, "/etc/shadow", "/etc/sudoers")
        lines = ran.stdout.splitlines()
        assert lines[:2] == ["PermissionError"] * 2
        # A system need not have the others.
        assert {*lines[2:]} <= {"PermissionError", "FileNotFoundError"}
        ran = unguarded(make_sandbox(RAW.replace(read=["/"])), READ, *secrets)
        assert ran.stdout == "SECRET\n" * 2

    @pytest.mark.holds("guard", promises.READ)
    @pytest.mark.parametrize("policy", [None, Policy(), Policy(network=False)])
    def test_the_guard_says_what_to_write(self, policy, tmp_path):
        (tmp_path / "secret").write_text("SECRET")
        home = os.path.expanduser("~")
        with Sandbox(policy) as sandbox:
            assert sandbox.policy.read == ()
            for path in (str(tmp_path / "secret"), home):
                act = "os.listdir" if path == home else "open"
                ran = sandbox.run(f"import os; {act}({path!r})")
                [denied] = ran.violations
                assert ran.returncode == 77 and denied.rule == "read", ran.stderr
                assert denied.hint == f"read = [{path!r}]", denied.hint
                assert denied.hint in ran.stderr


class TestTheCurrentDirectory:
    """`"."` in the policy of a sandbox."""

    ACTS = """
import os, sys
tried = []
for act in (
    lambda: os.remove(sys.argv[1]),
    lambda: open(sys.argv[1], "a").write("x"),
    lambda: os.mkdir(os.path.dirname(sys.argv[1]) + "/made"),
    lambda: os.rename(sys.argv[1], sys.argv[1] + "2"),
    lambda: open(sys.argv[1]).read(),
):
    try:
        tried.append(act())
    except OSError:
        tried.append("no")
open("own", "w").close()
tried
"""

    @pytest.mark.parametrize(
        "policy",
        [
            Policy.preset("workspace"),
            Policy.preset("notebook"),
            Policy(write=["."], read=["./"]),
            Policy(write=["."], native=True, commands=True),
        ],
    )
    @pytest.mark.parametrize("managed", [False, True])
    def test_it_is_the_directory_of_the_sandbox(self, places, policy, managed):
        mine = Path(places.cwd, "mine")
        mine.write_text("kept")
        if managed:
            with SandboxManager(policy) as manager:
                own = manager.create("one")
                ran, files = manager.run("one", self.ACTS, [mine], value=True), own.list_files()
        else:
            with Sandbox(policy) as own:
                ran, files = own.run(self.ACTS, [mine], value=True), own.list_files()
        assert ran.value == ["no"] * 5, ran.stderr
        assert os.listdir() == ["mine"] and mine.read_text() == "kept"
        assert files == ["own"]

    @pytest.mark.holds("kernel", promises.WRITE)
    def test_native_code_that_writes_there(self, places):
        """The preset lets native code be: the kernel holds it."""
        code = "import sys; open(sys.argv[1], 'w')"
        with Sandbox(Policy.preset("workspace").replace(commands=True)) as sandbox:
            ran = unguarded(sandbox, code, places.cwd + "/made", check=False)
            assert "PermissionError" in ran.stderr
            assert unguarded(sandbox, code, "made").changed == ["made"]
        assert os.listdir() == []

    def test_other_paths_are_those_of_the_host(self, places):
        os.mkdir("out")
        with Sandbox(Policy(write=["out"], block=["out/kept"])) as sandbox:
            assert sandbox.policy.write == (places.cwd + "/out",)
            assert sandbox.policy.block == (places.cwd + "/out/kept",)
            assert sandbox.run(f"open({places.cwd + '/out/a'!r}, 'w')").success
        assert os.listdir("out") == ["a"]

    def test_unix_sockets(self, make_sandbox):
        sandbox = make_sandbox(Policy(network=Network(hosts=[], unix=["."])))
        assert sandbox.policy.network.unix == (str(sandbox.directory),)


class TestNoPolicy:
    def test_it_is_the_preset(self):
        with Sandbox() as sandbox, SandboxManager() as manager:
            assert sandbox.policy == Policy.preset("sandbox")
            assert manager.create("one").policy == Policy.preset("sandbox")

    def test_threads_and_variables_pass(self, make_sandbox):
        code = """
            import os, tempfile, threading, zoneinfo
            os.environ["MODE"] = "fast"
            thread = threading.Thread(target=lambda: open("a", "w").close())
            thread.start()
            thread.join()
            zoneinfo.ZoneInfo("Europe/Berlin") if os.path.isdir("/usr/share/zoneinfo") else None
            with tempfile.NamedTemporaryFile() as file:
                file.write(b"x")
        """
        ran = make_sandbox(None).run(textwrap.dedent(code))
        assert (ran.stderr, ran.violations, ran.changed) == ("", [], ["a"])

    @pytest.mark.parametrize(
        ("code", "rule"),
        [
            ("open('/tmp/out', 'w')", "write"),
            ("import os; os.system('true')", "commands"),
            ("import socket; socket.create_connection(('127.0.0.1', 9))", "network"),
            ("import socket; socket.getaddrinfo('localhost', 80)", "network"),
        ],
    )
    def test_the_rest_is_denied(self, make_sandbox, code, rule):
        ran = make_sandbox(None).run(code)
        assert ran.returncode == 77 and [denied.rule for denied in ran.violations] == [rule]

    @pytest.mark.slow
    def test_a_plot(self, make_sandbox):
        for name in ("numpy", "pandas", "matplotlib"):
            pytest.importorskip(name)
        plot = """
            import numpy, pandas, matplotlib.pyplot as plt
            pandas.DataFrame({"a": numpy.arange(9) ** 2}).plot()
            plt.savefig("plot.png")
        """
        sandbox = make_sandbox(None)
        ran = sandbox.run(textwrap.dedent(plot))
        assert (ran.success, ran.violations, ran.stderr) == (True, [], "")
        assert sandbox.read_file("plot.png")[1:4] == b"PNG"


@pytest.mark.parametrize(
    ("code", "leads"),
    [
        ("import os; os.environ['A'] = '1'", True),
        ("import os; os.environ['PYTHONPATH'] = '1'", False),
        ("import threading; threading.Thread(target=print).start()", True),
        ("open('/srv/a', 'w')", False),
        ("import os; os.system('true')", False),
    ],
)
def test_words_lead_to_the_preset_for_fields_that_it_has(make_sandbox, code, leads):
    ran = make_sandbox(Policy()).run(code)
    assert ran.violations and ("preset('sandbox')" in ran.stderr) is leads
    with pytest.raises(AuditDenied) as denied, Policy().guard(monitor_calls=False)():
        exec(code)
    assert "preset" not in denied.value.hint


def test_packages_that_lie_elsewhere(tmp_path):
    """An editable install: a `.pth` file among the installed packages names its directory."""
    elsewhere = tmp_path / "project"
    elsewhere.mkdir()
    (elsewhere / "fastaudit_rs_elsewhere.py").write_text("x = 1")
    (tmp_path / "secret").write_text("SECRET")
    site = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    link = site / f"fastaudit-rs-elsewhere-{os.getpid()}.pth"
    link.write_text(f"# a comment\n{elsewhere}\n")
    try:
        with Sandbox() as sandbox:
            ran = sandbox.run("import fastaudit_rs_elsewhere as one; one.x", value=True)
            assert ran.value == 1, ran.stderr
            assert sandbox.run(f"open({str(tmp_path / 'secret')!r})").returncode == 77
    finally:
        link.unlink()


@pytest.mark.parametrize(
    ("policy", "hint"),
    [
        (Policy.preset("workspace"), "write = ['.', '/srv']"),
        (Policy(write=[".", "/opt"]), "write = ['.', '/opt', '/srv']"),
        (Policy(), "write = ['/srv']"),
    ],
)
def test_a_denial_names_the_directory_once(policy, hint):
    with Sandbox(policy) as sandbox:
        denied = sandbox.run("open('/srv/x', 'w')").violations[0]
        assert denied.hint == hint
        assert denied.roots.count(str(sandbox.directory)) == 1
        # It is the current one there.
        assert "not in '.'" in str(denied) and str(sandbox.directory) not in str(denied)
