"""`fastaudit-rs learn`, then `run`: what was learned is enough, and grows with each run."""

import os

import programs
import pytest

from fastaudit_rs import Network, Policy
from fastaudit_rs.tools.cli import merged

pytestmark = pytest.mark.slow

PROGRAMS = {
    "tempfile": """
import os, tempfile
with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "a")
    with open(path, "w") as file:
        file.write("x")
    print(open(path).read())
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x")
descriptor, name = tempfile.mkstemp()
os.close(descriptor)
os.remove(name)
""",
    "names of its own below the temporary directory": """
import os, tempfile, uuid
directory = os.path.join(tempfile.gettempdir(), f"mine-{uuid.uuid4()}")
os.mkdir(directory)
with open(directory + "/a", "w") as file:
    file.write("x")
print(os.listdir(directory), open(directory + "/a").read())
os.remove(directory + "/a")
os.rmdir(directory)
open("out.txt", "w").close()
""",
    "modules beside it": "import helper; print(helper.x); open('out.txt', 'w').close()",
    "a pool of processes": """
import math
from concurrent.futures import ProcessPoolExecutor
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(math.sqrt, [1, 4])))
""",
    "pandas": """
import pandas as pd
pd.DataFrame({"a": [1, 2]}).to_csv("data.csv")
print(pd.read_csv("data.csv").a.sum())
""",
    "matplotlib": """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.savefig("plot.png")
print("drawn")
""",
}


@pytest.fixture
def command(tmp_path):
    """`command(*arguments)` in a new directory, with a home of its own and no bytecode yet."""
    names = {"HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "TMPDIR"}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    (tmp_path / "temporary").mkdir()

    def run(place, *arguments):
        home = tmp_path / f"home of {place}"
        home.mkdir(exist_ok=True)
        return programs.python(
            "-m",
            "fastaudit_rs",
            *arguments,
            cwd=tmp_path / "place",
            env={**kept, "HOME": str(home), "TMPDIR": str(tmp_path / "temporary")},
        )

    (tmp_path / "place").mkdir()
    return run


class TestRoundTrips:
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_what_was_learned_is_enough(self, command, tmp_path, name):
        if name in ("pandas", "matplotlib"):
            pytest.importorskip(name)
        place = tmp_path / "place"

        def begin_anew():
            for path in place.iterdir():
                if path.is_dir():
                    for file in path.iterdir():
                        file.unlink()
                    path.rmdir()
                else:
                    path.unlink()
            (place / "script.py").write_text(PROGRAMS[name])
            (place / "helper.py").write_text("x = 1\n")

        begin_anew()
        # Caches are made in the first run, and are there or not in others.
        learned = command("learn", "learn", "-o", "../policy.toml", "script.py")
        assert learned.returncode == 0, learned.stderr
        for home in ("learn", "run"):
            begin_anew()
            done = command(home, "run", "--policy", "../policy.toml", "script.py")
            assert (done.returncode, done.stdout) == (0, learned.stdout), done.stderr
        text = (tmp_path / "policy.toml").read_text()
        assert "/temporary/" not in text and "home of" not in text


class TestSeveralRuns:
    def test_they_add_to_the_file(self, command, tmp_path):
        failing = "open('a', 'w').close(); 1 / 0"
        first = command("learn", "learn", "-o", "policy.toml", "-c", failing)
        assert (first.returncode, first.stdout) == (1, "")
        assert "fastaudit-rs:" not in first.stderr
        code = "import subprocess; open('b', 'w').close(); subprocess.run(['true'])"
        second = command("learn", "learn", "-o", "policy.toml", "-c", code)
        assert second.returncode == 0
        assert second.stderr == "fastaudit-rs: added what this run needs to policy.toml\n"
        for learned in ("open('a', 'w')", code):
            done = command("run", "run", "--policy", "policy.toml", "-c", learned)
            assert done.returncode == 0, done.stderr
        done = command("run", "run", "--policy", "policy.toml", "-c", "open('c', 'w')")
        assert done.returncode == 77
        third = command("learn", "learn", "-o", "policy.toml", "-c", "open('a', 'w').close()")
        assert third.stderr == "fastaudit-rs: added nothing to policy.toml\n"

    def test_a_file_with_something_else_stays(self, command, tmp_path):
        place = tmp_path / "place"
        for name, text in [
            ("pyproject.toml", "[tool.fastaudit]\nwrite = ['a']\n"),
            ("notes.txt", "my notes"),
        ]:
            (place / name).write_text(text)
            done = command("learn", "learn", "-o", name, "-c", "print('ran')")
            assert (done.returncode, done.stdout) == (2, "")
            assert name in done.stderr
            assert (place / name).read_text() == text

    def test_an_empty_file_has_no_policy(self, command, tmp_path):
        (tmp_path / "place" / "policy.toml").touch()
        done = command("learn", "learn", "-o", "policy.toml", "-c", "pass")
        assert (done.returncode, done.stderr) == (0, "")
        assert "network = false" in (tmp_path / "place" / "policy.toml").read_text()


class TestMerged:
    def merge(self, before, work):
        with before.observe(monitor_calls=False)() as recording:
            work()
        return merged(before, recording)

    def test_what_was_allowed_stays(self, places):
        before = Policy(
            write=["/srv/a"],
            read=["/srv"],
            block=["/data"],
            commands=["git"],
            env=["MODE"],
            native=["numpy"],
            import_allow=["pandas"],
            threads="inherit",
            max_bytes="10M",
            on_violation="warn",
            network=Network(hosts=["example.com"], block=["10.0.0.0/8"], ports=[443]),
        )
        assert self.merge(before, lambda: None) == before

    def test_what_was_done_is_added(self, places):
        before = Policy(write=["/srv/a"], read=["/srv"], network=Network(hosts=["example.com:443"]))

        def work():
            import socket

            open(places.out + "/a", "w").close()
            os.listdir(places.ok)
            with socket.socket() as made:
                made.connect_ex(("127.0.0.1", 9))

        found = self.merge(before, work)
        assert found.write == ("/srv/a", places.out + "/a")
        assert found.read == ("/srv", places.ok)
        assert found.network.hosts == ("example.com:443", "127.0.0.1:9")

    def test_what_is_below_another(self, places):
        def work():
            open(places.out + "/a", "w").close()

        assert self.merge(Policy(write=[places.out]), work).write == (places.out,)

    def test_everything_stays_everything(self, places):
        before = Policy(write=None, commands=True, env=True, native=True, network=True)
        found = self.merge(before, lambda: open(places.out + "/a", "w").close())
        assert (found.write, found.read, found.commands) == (None, None, True)
        assert (found.env, found.native, found.network) == (True, True, True)

    def test_limits_that_were_too_narrow(self, places):
        def work():
            with open(places.out + "/a", "w") as file:
                file.write("x" * 100)

        assert self.merge(Policy(write=None, max_bytes=10), work).max_bytes is None
        assert self.merge(Policy(write=None, max_bytes=1000), work).max_bytes == 1000

    def test_of_the_network(self):
        import socket

        def connect():
            with socket.socket() as made:
                made.connect_ex(("127.0.0.1", 9))

        before = Policy(network=Network(hosts=None, block=["127.0.0.1"], ports=[9]))
        found = self.merge(before, connect).network
        assert (found.hosts, found.block, found.ports) == (None, (), (9,))
        before = Policy(network=Network(hosts=["127.0.0.1"], ports=[443]))
        with self.merge(before, connect).guard(monitor_calls=False)():
            connect()
