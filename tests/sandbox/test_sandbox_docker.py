"""The docker backend: its runs, its requests to the daemon, and faults of the daemon.

The runs are those of a real runtime where one is told (`make test-docker`); elsewhere a server that
speaks the protocol stands for it. The isolation of a container is in test_sandbox_containers.py.
"""

import os
import sys
import time

import pytest

from fastaudit_rs import Limits, Network, Policy, Sandbox, SandboxError, SandboxManager

pytest.importorskip("docker")

import containers
from docker_daemon import Daemon
from sandboxes import LOOSE


@pytest.fixture
def daemon(monkeypatch):
    """A server that speaks the protocol, whether or not there is a real one."""
    server = Daemon()
    monkeypatch.setenv("DOCKER_HOST", server.address)
    yield server
    assert server.containers == {}
    server.shutdown()
    server.server_close()


@pytest.fixture
def make(request):
    """`make(policy, limits)`: a sandbox, closed afterwards."""
    is_real = containers.IMAGE is not None and "daemon" not in request.fixturenames
    if not is_real:
        request.getfixturevalue("daemon")
    made = []

    def make_one(policy=LOOSE, path=(), **limits):
        limits = Limits(**{"wall_seconds": 20, **limits})
        image = containers.IMAGE or "python:3.13"
        made.append(Sandbox(policy, limits, backend="docker", image=image, path=path))
        return made[-1]

    yield make_one
    for sandbox in made:
        sandbox.close()
    if is_real:
        assert containers.left(made) == []


@pytest.mark.slow
def test_a_manager_of_containers(daemon):
    with SandboxManager(backend="docker", image="python:3.13") as manager:
        assert manager.create("one").policy == Policy.preset("sandbox")
        assert manager.run("one", "1 + 1", value=True).value == 2
        assert daemon.asked[-1]["Image"] == "python:3.13"


@pytest.mark.slow
class TestRuns:
    def test_a_program(self, make):
        sandbox = make()
        ran = sandbox.run(
            "import sys\nprint(sys.argv, input())\nprint('no', file=sys.stderr)\n6 * 7",
            ["a"],
            "given\n",
            value=True,
        )
        assert (ran.stdout, ran.stderr) == ("['<sandbox>', 'a'] given\n", "no\n")
        assert (ran.success, ran.value, ran.violations, ran.confined) == (True, 42, [], True)
        assert os.listdir(sandbox.directory.parent) == ["work"]

    def test_a_denial(self, make, tmp_path):
        ran = make(Policy()).run(f"open({str(tmp_path / 'a')!r}, 'w')")
        assert ran.returncode == 77
        assert [denied.path for denied in ran.violations] == [str(tmp_path / "a")]
        assert list(tmp_path.iterdir()) == []

    def test_files(self, make, tmp_path):
        (tmp_path / "helper.py").write_text("VALUE = 7")
        sandbox = make(path=[tmp_path])
        sandbox.write_file("in", "x")
        ran = sandbox.run("import helper; open('out', 'w').write(open('in').read() * helper.VALUE)")
        assert (ran.success, ran.changed, ran.violations) == (True, ["out"], []), ran
        assert sandbox.read_file("out") == b"x" * 7

    @pytest.mark.parametrize(
        ("code", "status"),
        [
            ("raise SystemExit(3)", 3),
            ("raise SystemExit(200)", 200),
            ("1 / 0", 1),
            ("import subprocess; subprocess.run(['sh', '-c', 'kill -ABRT $PPID'])", -6),
        ],
    )
    def test_how_it_ends(self, make, code, status):
        ran = make().run(code)
        assert (ran.returncode, ran.killed_by) == (status, None)


@pytest.mark.slow
class TestLimits:
    @pytest.mark.parametrize(
        ("limits", "code"),
        [
            ({"wall_seconds": 1}, "import time; time.sleep(60)"),
            ({"output": "1M"}, "while True: print('x' * 10_000)"),
            ({"disk": "20M"}, "file = open('a', 'wb')\nwhile True: file.write(bytes(10**6))"),
            ({"cpu_seconds": 1}, "while True: pass"),
        ],
        ids=["wall_seconds", "output", "disk", "cpu_seconds"],
    )
    def test_what_ends_a_run(self, make, limits, code):
        ran = make(**limits).run(code)
        assert limits.keys() == {ran.killed_by}
        assert ran.timed_out == ("wall_seconds" in limits)
        if ran.timed_out:
            assert ran.returncode == -9 and ran.duration < (10 if containers.IMAGE else 4)
        assert "output" not in limits or len(ran.stdout) == 1 << 20

    def test_a_kill_without_a_limit_on_memory(self, make):
        kill = "import subprocess; subprocess.run(['sh', '-c', 'kill -KILL $PPID'])"
        ran = make(memory=None).run(kill)
        assert (ran.returncode, ran.killed_by) == (-9, None)

    def test_an_interrupt(self, make, monkeypatch):
        """The container goes with what waits for it."""
        import fastaudit_rs.sandbox.host.docker

        def interrupt(self):
            raise KeyboardInterrupt

        monkeypatch.setattr(fastaudit_rs.sandbox.host.docker.Disk, "is_over", interrupt)
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            make().run("import time; time.sleep(60)")
        assert time.monotonic() - begun < 10


@pytest.mark.slow
class TestAsked:
    """The requests to the daemon."""

    def asked(self, make, daemon, policy=LOOSE, **limits):
        sandbox = make(policy, **limits)
        sandbox.run("1")
        host = daemon.asked[-1]["HostConfig"]
        return sandbox, host, {each["Target"]: each for each in host["Mounts"]}

    def test_little_power(self, make, daemon, monkeypatch):
        monkeypatch.setenv("API_KEY", "secret")
        limits = {"memory": "300M", "cpu_percent": 50, "processes": 20, "open_files": 40}
        _, host, _ = self.asked(make, daemon, **limits)
        asked = daemon.asked[-1]
        assert host["ReadonlyRootfs"] is True
        assert host["CapDrop"] == ["ALL"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert not host.get("Privileged") and not host.get("CapAdd")
        assert asked["User"] == f"{os.getuid()}:{os.getgid()}"
        assert asked["Image"] == (containers.IMAGE or "python:3.13")
        # A log would be outside of `disk`.
        assert host["LogConfig"]["Type"] == "none"
        assert (host["Memory"], host["MemorySwap"]) == (300 << 20, 300 << 20)
        assert (host["NanoCpus"], host["PidsLimit"]) == (500_000_000, 20)
        assert host["Ulimits"] == [{"Name": "nofile", "Soft": 40, "Hard": 40}]
        names = {entry.partition("=")[0] for entry in asked["Env"]}
        assert {"HOME", "TMPDIR"} <= names
        assert not names & {"API_KEY", "PATH"}

    @pytest.mark.parametrize(
        ("network", "mode"),
        [
            (False, "none"),
            (True, "bridge"),
            (Policy.preset("workspace").network, "none"),
            (Network(hosts=["127.0.0.1:80", "[::1]:80"], lookup=False), "none"),
            (Network(hosts=["127.0.0.1", "10.0.0.1"], lookup=False), "bridge"),
            (Network(hosts=["127.0.0.1"]), "bridge"),
            (Network(hosts=["*"], lookup=False), "bridge"),
            (Network(hosts=["localhost"], lookup=False), "bridge"),
            (Network(lookup=False), "bridge"),
        ],
    )
    def test_the_network(self, make, daemon, network, mode):
        _, host, _ = self.asked(make, daemon, LOOSE.replace(network=network))
        assert host["NetworkMode"] == mode

    def test_mounts(self, make, daemon, tmp_path):
        """Nothing but what the policy names."""
        for name in ("in", "out", "out/hidden"):
            (tmp_path / name).mkdir()
        (tmp_path / "out/secret").touch()
        base = str(tmp_path)
        policy = LOOSE.replace(
            read=[base + "/in"],
            write=[base + "/out"],
            block=[base + "/out/secret", base + "/out/hidden"],
        )
        sandbox, _, found = self.asked(make, daemon, policy)
        own = str(sandbox.directory)
        job = os.path.dirname(found["/fastaudit-rs/job"]["Source"])
        assert os.path.dirname(job) == str(sandbox.directory.parent)
        expected = {
            "/dev/shm": ("tmpfs", None, True),
            "/run": ("tmpfs", None, True),
            "/tmp": ("tmpfs", None, True),
            "/var/tmp": ("tmpfs", None, True),
            base + "/in": ("bind", base + "/in", True),
            base + "/out": ("bind", base + "/out", False),
            base + "/out/hidden": ("bind", job + "/empty-0", True),
            base + "/out/secret": ("bind", job + "/empty-1", True),
            own: ("bind", own, False),
            "/fastaudit-rs/input": ("bind", job + "/input", True),
            "/fastaudit-rs/job": ("bind", job + "/job", True),
            "/fastaudit-rs/report": ("bind", job + "/report", False),
        }
        assert expected == {
            name: (each["Type"], each["Source"], each["ReadOnly"]) for name, each in found.items()
        }
        *places, _, _, _ = found
        assert places == sorted(places)

    def test_the_root_is_that_of_the_image(self, make, daemon):
        sandbox, _, found = self.asked(make, daemon, LOOSE.replace(read=["/"], write=["/"]))
        named = {place for place, each in found.items() if each["Type"] == "bind"}
        job = {f"/fastaudit-rs/{name}" for name in ("input", "job", "report")}
        assert named == {str(sandbox.directory), *job}


class TestHost:
    def test_explain(self, make):
        told = make(LOOSE.replace(network=False)).explain()
        assert told["write"] == told["network"] == "guard and container"
        assert (told["privileges"], told["other_processes"]) == ("container", "guard and container")
        assert (told["memory"], told["disk"], told["imports"]) == ("container", "host", "guard")

    def test_no_image(self, make, daemon):
        sandbox = make()
        daemon.fails = "No such image: python:3.13"
        with pytest.raises(SandboxError, match="it cannot be run: .*No such image: python:3.13"):
            sandbox.run("1")

    @pytest.mark.slow
    def test_a_runtime_that_kills_at_the_second_order(self, make, daemon):
        daemon.deaf = 1
        ran = make(wall_seconds=0.5).run("import time; time.sleep(60)")
        assert (ran.killed_by, ran.returncode) == ("wall_seconds", -9)
        assert ran.duration < 10

    @pytest.mark.slow
    def test_a_runtime_that_does_not_kill(self, make, daemon, monkeypatch):
        import fastaudit_rs.sandbox.host.docker

        monkeypatch.setattr(fastaudit_rs.sandbox.host.docker, "PATIENCE", 1.5)
        daemon.deaf = 1000
        with pytest.raises(SandboxError, match="the runtime does not end the container"):
            make(wall_seconds=0.5).run("import time; time.sleep(60)")

    def test_no_daemon(self, monkeypatch):
        monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
        with pytest.raises(SandboxError, match="the docker backend: no daemon answers"):
            Sandbox(LOOSE, backend="docker", image="python:3.13")

    def test_no_package(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "docker", None)
        with pytest.raises(SandboxError, match="needs docker: pip install"):
            Sandbox(LOOSE, backend="docker", image="python:3.13")

    @pytest.mark.slow
    def test_no_pool(self, make):
        with pytest.raises(ValueError, match="a pool needs backend='process'"):
            make().pool(1)
        with pytest.raises(ValueError, match="a session needs backend='process'"):
            make().session()
