"""The docker backend, against a server that speaks the protocol: no daemon was met.

The isolation of a container is not tested here: the requests for it are.
"""

import os
import sys
import time

import pytest

from fastaudit_rs import Limits, Network, Policy, Sandbox, SandboxError

pytest.importorskip("docker")

from docker_daemon import Daemon
from sandboxes import LOOSE


@pytest.fixture
def daemon(monkeypatch):
    server = Daemon()
    monkeypatch.setenv("DOCKER_HOST", server.address)
    yield server
    assert server.containers == {}
    server.shutdown()
    server.server_close()


@pytest.fixture
def make(daemon):
    """`make(policy, limits)`: a sandbox, closed afterwards."""
    made = []

    def make_one(policy=LOOSE, path=(), **limits):
        limits = Limits(**{"wall_seconds": 20, **limits})
        made.append(Sandbox(policy, limits, backend="docker", image="python:3.13", path=path))
        return made[-1]

    yield make_one
    for sandbox in made:
        sandbox.close()


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
        assert (ran.success, ran.changed) == (True, ["out"]), ran
        assert sandbox.read_file("out") == b"x" * 7

    @pytest.mark.parametrize(
        ("code", "status"),
        [
            ("raise SystemExit(3)", 3),
            ("1 / 0", 1),
            ("import subprocess; subprocess.run(['sh', '-c', 'kill -ABRT $PPID'])", -6),
        ],
    )
    def test_how_it_ends(self, make, code, status):
        ran = make().run(code)
        assert (ran.returncode, ran.killed_by) == (status, None)


class TestLimits:
    def test_wall_seconds(self, make):
        ran = make(wall_seconds=1).run("import time; time.sleep(60)")
        assert (ran.killed_by, ran.returncode, ran.timed_out) == ("wall_seconds", -9, True)
        assert ran.duration < 4

    def test_output(self, make):
        ran = make(output="1M").run("while True: print('x' * 10_000)")
        assert (ran.killed_by, len(ran.stdout)) == ("output", 1 << 20)

    def test_disk(self, make):
        ran = make(disk="20M").run("file = open('a', 'wb')\nwhile True: file.write(bytes(10**6))")
        assert ran.killed_by == "disk"

    def test_cpu_seconds(self, make):
        assert make(cpu_seconds=1).run("while True: pass").killed_by == "cpu_seconds"

    def test_memory(self, make, daemon):
        """As the daemon tells it."""
        daemon.out_of_memory = True
        assert make().run("1").killed_by == "memory"

    def test_an_interrupt(self, make, daemon, monkeypatch):
        """The container goes with what waits for it."""
        import fastaudit_rs.sandbox.host.docker

        def interrupt(self, seconds):
            raise KeyboardInterrupt

        monkeypatch.setattr(fastaudit_rs.sandbox.host.docker._Watch, "_check", interrupt)
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            make().run("import time; time.sleep(60)")
        assert time.monotonic() - begun < 10
        assert daemon.containers == {}


class TestAsked:
    """The requests to the daemon."""

    def asked(self, make, daemon, policy=LOOSE, **limits):
        make(policy, **limits).run("1")
        return daemon.asked[-1], daemon.asked[-1]["HostConfig"]

    def test_little_power(self, make, daemon):
        asked, host = self.asked(make, daemon)
        assert host["ReadonlyRootfs"] is True
        assert host["CapDrop"] == ["ALL"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert not host.get("Privileged") and not host.get("CapAdd")
        assert asked["User"] == f"{os.getuid()}:{os.getgid()}"
        assert asked["Image"] == "python:3.13"

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
        _, host = self.asked(make, daemon, LOOSE.replace(network=network))
        assert host["NetworkMode"] == mode

    def test_limits(self, make, daemon):
        _, host = self.asked(
            make, daemon, memory="300M", cpu_percent=50, processes=20, open_files=40
        )
        assert (host["Memory"], host["MemorySwap"]) == (300 << 20, 300 << 20)
        assert (host["NanoCpus"], host["PidsLimit"]) == (500_000_000, 20)
        assert host["Ulimits"] == [{"Name": "nofile", "Soft": 40, "Hard": 40}]

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
        sandbox = make(policy)
        sandbox.run("1")
        *mounts, job = daemon.asked[-1]["HostConfig"]["Mounts"]
        found = {each["Target"]: (each["Source"], each["ReadOnly"]) for each in mounts}
        own = str(sandbox.directory)
        assert found == {
            base + "/in": (base + "/in", True),
            base + "/out": (base + "/out", False),
            base + "/out/hidden": (None, True),
            base + "/out/secret": (os.devnull, True),
            own: (own, False),
        }
        assert [each["Target"] for each in mounts] == sorted(found)
        assert job["Target"] == "/fastaudit-rs"
        assert job["Source"].startswith(str(sandbox.directory.parent))

    def test_the_environment(self, make, daemon, monkeypatch):
        monkeypatch.setenv("API_KEY", "secret")
        asked, _ = self.asked(make, daemon)
        names = {entry.partition("=")[0] for entry in asked["Env"]}
        assert {"HOME", "TMPDIR"} <= names
        assert not names & {"API_KEY", "PATH"}

    def test_explain(self, make):
        told = make(LOOSE.replace(network=False)).explain()
        assert told["write"] == told["network"] == "guard and container"
        assert (told["memory"], told["disk"], told["imports"]) == ("container", "host", "guard")


class TestErrors:
    def test_no_image(self, make, daemon):
        sandbox = make()
        daemon.fails = "No such image: python:3.13"
        with pytest.raises(SandboxError, match="it cannot be run: .*No such image: python:3.13"):
            sandbox.run("1")

    def test_no_daemon(self, monkeypatch):
        monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
        with pytest.raises(SandboxError, match="the docker backend: no daemon answers"):
            Sandbox(LOOSE, backend="docker", image="python:3.13")

    def test_no_package(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "docker", None)
        with pytest.raises(SandboxError, match="needs docker: pip install"):
            Sandbox(LOOSE, backend="docker", image="python:3.13")

    def test_no_pool(self, make):
        with pytest.raises(ValueError, match="a pool needs backend='process'"):
            make().pool(1)

    @pytest.mark.parametrize(
        ("arguments", "error", "says"),
        [
            ({"backend": "vm"}, ValueError, "backend must be 'process' or 'docker', not 'vm'"),
            ({"backend": "docker"}, TypeError, "image must be a str .* not NoneType"),
            ({"image": "x"}, ValueError, "image is for backend='docker'"),
            (
                {"backend": "docker", "image": "x", "confine": "prefer"},
                ValueError,
                "backend='docker' needs confine='require', not 'prefer'",
            ),
        ],
    )
    def test_bad_arguments(self, arguments, error, says):
        with pytest.raises(error, match=says):
            Sandbox(LOOSE, **arguments)
