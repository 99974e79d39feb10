"""Containers of a real runtime, judged from outside of them: `make test-docker` runs this."""

import asyncio
import contextlib
import json
import os
import socket
import textwrap
import threading
import time

import promises
import pytest

from fastaudit_rs import Limits, Sandbox

pytest.importorskip("docker")

import containers
from sandboxes import LOOSE, wait_for
from users import USERS, directory_of, run_as

pytestmark = pytest.mark.skipif(
    containers.IMAGE is None, reason="no runtime of containers: make test-docker"
)

#: The time for a runtime to end a container, in seconds: some look for its end once in a second.
ENDED = 5.0

#: A run that says that it has begun, and goes on for long.
LONG = """
import time
for _ in range(600):
    open("at", "w").close()
    time.sleep(0.05)
"""


@pytest.fixture
def make():
    """`make(policy, limits)`: a sandbox, closed afterwards. No container is left."""
    made = []

    def make_one(policy=LOOSE, **limits):
        limits = Limits(**{"wall_seconds": 30, **limits})
        made.append(Sandbox(policy, limits, backend="docker", image=containers.IMAGE))
        return made[-1]

    yield make_one
    for sandbox in made:
        sandbox.close()
    assert containers.left(made) == []


def raw(code):
    """Code that runs this in an interpreter without a guard; its output is in `out`."""
    return f"""
import subprocess, sys
with open("out", "wb") as out:
    subprocess.run([sys.executable, "-I", "-c", {textwrap.dedent(code)!r}], stdout=out, check=True)
"""


def said(sandbox, code):
    """The output of raw code in a sandbox, from its last line of JSON."""
    ran = sandbox.run(raw(code))
    assert ran.success, ran.stderr
    return json.loads(sandbox.read_file("out"))


class TestPlaces:
    @pytest.mark.holds("container", promises.READ)
    def test_nothing_of_the_host_is_there(self, make, tmp_path):
        (tmp_path / "secret").write_text("x")
        server = socket.create_server(("127.0.0.1", 0))
        server.settimeout(0.1)
        code = f"""
            import json, os, resource, socket
            found = {{"secret": os.path.exists({str(tmp_path / "secret")!r})}}
            status = dict(line.split(":\\t", 1) for line in open("/proc/self/status"))
            for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"):
                found[name] = int(status[name], 16)
            found["NoNewPrivs"] = int(status["NoNewPrivs"])
            found["files"] = resource.getrlimit(resource.RLIMIT_NOFILE)
            found["interfaces"] = [name for _, name in socket.if_nameindex()]
            found["env"] = "API_KEY" in os.environ
            found["host"] = os.path.exists("/proc/{os.getpid()}/status") and {os.getpid()} > 100
            try:
                socket.create_connection({server.getsockname()!r}, 2).send(b"x")
            except OSError:
                pass
            print(json.dumps(found))
        """
        expected = dict.fromkeys(("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"), 0)
        expected |= {"secret": False, "NoNewPrivs": 1, "files": [40, 40], "interfaces": ["lo"]}
        expected |= {"env": False, "host": False}
        assert said(make(LOOSE.replace(network=False), open_files=40), code) == expected
        with server, pytest.raises(TimeoutError):
            server.accept()

    @pytest.mark.holds("container", promises.WRITE)
    def test_places_that_can_be_written(self, make):
        """Elsewhere it is not counted: there are the runtime's own, in memory, of a fixed size."""
        code = """
            import json, os, tempfile
            found = []
            for place, names, _ in os.walk("/"):
                if place in ("/proc", "/sys"):
                    names.clear()
                try:
                    os.unlink(tempfile.mkstemp(dir=place)[1])
                    found.append(place)
                except OSError:
                    pass
            print(json.dumps(found))
        """
        sandbox = make()
        found = set(said(sandbox, code))
        assert str(sandbox.directory) in found
        assert found - {"/dev", "/dev/mqueue"} == {str(sandbox.directory)}

    @pytest.mark.holds("container", promises.BLOCK)
    def test_what_is_blocked_is_hidden(self, make, tmp_path):
        for name in ("in/hidden/deep", "out/hidden", "out/inside"):
            (tmp_path / name).mkdir(parents=True)
        secrets = ["in/hidden/deep/a", "in/hidden/a", "in/file", "out/hidden/a"]
        for name in secrets:
            (tmp_path / name).write_text("TOPSECRET")
        blocked = ["in/hidden", "in/hidden/deep", "in/file", "out/hidden"]
        policy = LOOSE.replace(
            read=[f"{tmp_path}/in"],
            write=[f"{tmp_path}/out", f"{tmp_path}/out/inside"],
            block=[f"{tmp_path}/{name}" for name in blocked],
        )
        code = f"""
            import json, os
            found = []
            for place, _, names in os.walk({str(tmp_path)!r}):
                for name in names:
                    found.append([name, open(os.path.join(place, name)).read()])
            for name in {secrets!r}:
                try:
                    open(os.path.join({str(tmp_path)!r}, name), "w").write("overwritten")
                except OSError:
                    pass
            open({str(tmp_path / "out/inside/made")!r}, "w").close()
            print(json.dumps(found))
        """
        assert said(make(policy), code) == [["file", ""]]
        assert {(tmp_path / name).read_text() for name in secrets} == {"TOPSECRET"}
        assert (tmp_path / "out/inside/made").exists()

    def test_directories_of_its_own_are_blocked(self, make, tmp_path):
        (tmp_path / "inside").mkdir()
        places = [str(tmp_path.parent), str(tmp_path / "inside")]
        policy = LOOSE.replace(read=places, block=[str(tmp_path), "/etc", "/proc"])
        limits = Limits(wall_seconds=30)
        with Sandbox(
            policy, limits, backend="docker", image=containers.IMAGE, parent=tmp_path
        ) as sandbox:
            # Its guard denies even this directory.
            ran = sandbox.run(f"import os; os.listdir({str(tmp_path)!r})")
            assert ran.returncode == 77, ran

    @pytest.mark.holds("container", promises.INSIDE)
    def test_links_lead_nowhere(self, make, tmp_path):
        """A directory that an earlier run has replaced by a link is not mounted where it leads."""
        (tmp_path / "out/of/reach").mkdir(parents=True)
        (tmp_path / "elsewhere").mkdir()
        sandbox = make(LOOSE.replace(write=[f"{tmp_path}/out", f"{tmp_path}/out/of/reach"]))
        code = f"""
            import json, os
            os.chdir({str(tmp_path / "out")!r})
            if os.path.islink("of/reach"):
                try:
                    open("of/reach/pwned", "w").close()
                except OSError:
                    pass
            else:
                os.rename("of", "gone")
                os.mkdir("of")
                os.symlink({str(tmp_path / "elsewhere")!r}, "of/reach")
            print(json.dumps(os.path.islink("of/reach")))
        """
        assert [said(sandbox, code), said(sandbox, code)] == [True, True]
        assert list((tmp_path / "elsewhere").iterdir()) == []


#: Raw code does what it can to its job and its report; then the value and the output are judged.
REPORT = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from fastaudit_rs import Limits, Policy, Sandbox
from sandboxes import LOOSE

CODE = '''
import os
path = "/fastaudit-rs/report"
for act in (
    lambda: (os.unlink(path), os.mkfifo(path)),
    lambda: (os.unlink(path), os.symlink("/etc/shadow", path)),
    lambda: os.rename(path, path + "2"),
    lambda: os.rename("/fastaudit-rs", "/gone"),
    lambda: open("/fastaudit-rs/job", "r+b").write(b"pwned"),
    lambda: open("/fastaudit-rs/input", "w").close(),
    lambda: open("/fastaudit-rs/more", "w").close(),
):
    try:
        act()
        print("done")
    except OSError:
        pass
with open(path, "ab") as file:
    file.write(b"[" * 1000 + b"\\\\n")
    file.truncate(1 << 40)
'''
with Sandbox(LOOSE, Limits(wall_seconds=15, disk=None), backend="docker", image=sys.argv[2]) as one:
    ran = one.run(f"import subprocess, sys; print(subprocess.run([sys.executable, '-I', '-c', "
                  f"{CODE!r}], capture_output=True, text=True))")
    print(json.dumps([ran.stdout, ran.success, ran.violations]))
    print(one.run("import os; os.getuid()", value=True).value)
"""


@pytest.mark.holds("host", promises.UNHURT)
@pytest.mark.parametrize("user", USERS)
def test_the_report_stays_a_file(user):
    """The host, which reads it, is neither held up nor led elsewhere."""
    with reachable() as address:
        support = os.path.dirname(containers.__file__)
        with directory_of(user):
            program = f"import os; os.environ['DOCKER_HOST'] = {address!r}\n{REPORT}"
            lines = run_as(user, program, json.dumps([support]), containers.IMAGE, timeout=60)
    output, success, violations = json.loads(lines.splitlines()[0])
    assert "stdout='', stderr=''" in output and success and violations == []
    assert int(lines.splitlines()[1]) == (0 if user == "root" else 65534)


@contextlib.contextmanager
def reachable():
    """The runtime's socket, where an ordinary user may use it too."""
    address = os.environ["DOCKER_HOST"]
    path = address.removeprefix("unix://")
    if os.geteuid() != 0 or path == address:
        yield address
        return
    above = os.path.dirname(path)
    modes = [(each, os.stat(each).st_mode & 0o7777) for each in (above, path)]
    os.chmod(above, 0o711)
    os.chmod(path, 0o666)
    try:
        yield address
    finally:
        for each, mode in modes:
            os.chmod(each, mode)


class TestLimits:
    @pytest.mark.holds("container", promises.MEMORY)
    @pytest.mark.parametrize(
        "code",
        [
            "numbers = bytearray(10**9)",
            "import os; file = os.memfd_create('a')\nwhile True: os.write(file, bytes(10**6))",
        ],
    )
    def test_memory(self, make, code):
        ran = make(memory="200M").run(code)
        assert (ran.killed_by, ran.returncode) == ("memory", -9)

    @pytest.mark.holds("host", promises.OUTPUT)
    def test_output_without_end(self, make):
        """The limit on time is kept, and nothing is written to the host's disk."""
        sandbox = make(wall_seconds=12, output=None)
        logs = []

        def look():
            wait_for(sandbox.directory / "printed")
            logs.extend(log_of(each["Id"]) for each in containers.left([sandbox]))
            sandbox.write_file("go", "")

        code = """
            import os, time
            for _ in range(500):
                print("x" * 10_000)
            open("printed", "w").close()
            while not os.path.exists("go"):
                time.sleep(0.05)
            while True:
                print("x" * 10_000)
        """
        looking = threading.Thread(target=look)
        looking.start()
        ran = sandbox.run(textwrap.dedent(code))
        looking.join()
        assert ran.killed_by == "wall_seconds" and len(ran.stdout) > 5_000_000
        assert ran.duration < 12 + ENDED
        assert logs == [0]

    @pytest.mark.holds("container", promises.PROCESSES)
    def test_processes(self, make):
        code = """
            import json, os, time
            started = 0
            try:
                for _ in range(100):
                    if os.fork() == 0:
                        time.sleep(2)
                        os._exit(0)
                    started += 1
            except OSError:
                pass
            print(json.dumps(started))
        """
        assert 5 < said(make(processes=20), code) < 20

    @pytest.mark.holds("container", promises.OPEN_FILES)
    def test_open_files(self, make):
        code = """
            import json, resource
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))
            except ValueError:
                pass
            kept = []
            try:
                while len(kept) < 400:
                    kept.append(open("/dev/null"))
            except OSError:
                pass
            for each in kept[:9]:
                each.close()
            print(json.dumps(len(kept)))
        """
        assert 20 < said(make(open_files=40), code) < 40

    @pytest.mark.holds("container", promises.SHARE)
    def test_cpu_percent(self, make):
        """Processes of it use the part of one core together."""
        code = """
            import json, os, time
            children = [os.fork() for _ in range(3)]
            while 0 in children:
                pass
            begun = time.monotonic()
            while time.monotonic() < begun + 2:
                pass
            used = sum(
                int(number)
                for name in os.listdir("/proc")
                if name.isdigit()
                for number in open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[11:13]
            )
            print(json.dumps(used / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begun)))
            for child in children:
                os.kill(child, 9)
        """
        assert said(make(cpu_percent=30), code) < 0.6


def log_of(container):
    """The bytes of a container's log on the host's disk."""
    import docker

    client = docker.from_env()
    try:
        path = client.api.inspect_container(container).get("LogPath")
    finally:
        client.close()
    return os.stat(path).st_size if path and os.path.exists(path) else 0


@pytest.mark.holds("container", promises.ENDING)
class TestEnding:
    def test_closing(self, make):
        sandbox = make()
        errors = []

        def work():
            try:
                sandbox.run(LONG)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        wait_for(sandbox.directory / "at")
        begun = time.monotonic()
        sandbox.close()
        thread.join(ENDED)
        assert not thread.is_alive() and time.monotonic() - begun < ENDED
        assert [(type(error), str(error)) for error in errors] == [
            (RuntimeError, "the sandbox was closed meanwhile")
        ]
        assert containers.left([sandbox]) == []
        assert not sandbox.directory.parent.exists()

    def test_cancelling(self, make):
        sandbox = make()

        async def main():
            task = asyncio.create_task(sandbox.arun(LONG))
            await asyncio.to_thread(wait_for, sandbox.directory / "at")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return time.time()

        cancelled = asyncio.run(main())
        # The loop has waited for the thread of the run.
        assert containers.left([sandbox]) == []
        assert (sandbox.directory / "at").stat().st_mtime < cancelled + ENDED
        assert sandbox.run("1").success
