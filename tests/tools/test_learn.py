"""`Policy.observe`, `suggest`: what is suggested for a program lets it run again, and no more."""

import json
import os
import signal
import socket
import sys

import programs
import pytest
import toml_tables
from repository import SUPPORT

from fastaudit_rs import AuditDenied, Network, Policy

LEARNT = toml_tables.load(SUPPORT / "learn_programs.toml")
PROGRAMS, NATIVE = LEARNT["programs"], LEARNT["native"]

RUN = """
import sys
from fastaudit_rs import Policy
mode, file, program, watch = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "True"
if mode == "observe":
    with Policy().observe(monitor_calls=watch)() as recording:
        exec(program, {"__name__": "__main__"})
    assert recording.never_allowed == [], recording.never_allowed
    assert recording.dropped == 0
    with open(file, "w") as out:
        out.write(recording.suggest().to_toml())
else:
    with Policy.from_toml(file).guard(monitor_calls=watch)() as guard:
        exec(program, {"__name__": "__main__"})
    assert guard.violations == []
"""


@pytest.fixture
def workplace(tmp_path):
    def make(name):
        place = tmp_path / name
        (place / "notes").mkdir(parents=True)
        (place / "data.csv").write_text("a,b\n1,2\n3,4\n")
        (place / "data.json").write_text("{}")
        (place / "notes/a.txt").write_text("a")
        (place / "notes/b.txt").write_text("bc")
        return place

    return make


def run(mode, file, program, place, watch):
    command = [sys.executable, "-c", RUN, mode, str(file), program, str(watch)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    result = programs.run(command, cwd=place, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def learn(program, workplace, tmp_path, watch=False):
    """Observes a program, and runs it again under what was suggested, in the same place anew."""
    place = workplace("place")
    policy = tmp_path / "policy.toml"
    first = run("observe", policy, program, place, watch)
    os.rename(place, tmp_path / "before")
    assert run("guard", policy, program, workplace("place"), watch) == first
    return Policy.from_toml(policy), str(place)


class TestLearning:
    def test_there_are_many(self):
        assert len(PROGRAMS) + len(NATIVE) >= 30

    @pytest.mark.slow
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_a_program_passes_under_what_it_taught(self, name, workplace, tmp_path):
        learn(PROGRAMS[name], workplace, tmp_path)

    @pytest.mark.parametrize("name", NATIVE)
    def test_programs_with_native_code(self, name, workplace, tmp_path):
        pytest.importorskip(name)
        learn(NATIVE[name], workplace, tmp_path, watch=True)

    def test_packages_whose_imports_need_the_same(self, workplace, tmp_path, monkeypatch):
        site = tmp_path / "lib" / "site-packages"
        site.mkdir(parents=True)
        for name in ("one_package", "other_package"):
            (site / f"{name}.py").write_text("import os\nos.listdir('/srv')")
        monkeypatch.setenv("PYTHONPATH", str(site))
        policy, _ = learn("import one_package, other_package", workplace, tmp_path)
        assert policy.import_allow == ("one_package", "other_package")


class TestLeast:
    """The suggestion opens nothing beside the files that were touched."""

    def test_exact_paths(self, workplace, tmp_path):
        policy, place = learn(
            "open('out', 'w').write(open('/etc/hostname').read()); print(1)", workplace, tmp_path
        )
        assert policy == Policy(write=[place + "/out"], read=["/etc/hostname"], network=False)
        assert not policy.explain("open", "/etc/passwd", "r", 0).allowed
        assert not policy.explain("open", place + "/other", "w", 0).allowed

    def test_what_describes_the_process(self, workplace, tmp_path):
        """The next one has another number."""
        policy, _ = learn("open('/proc/self/limits').read()", workplace, tmp_path)
        assert policy.read == ("/proc/self/limits",)

    def test_the_directory_of_a_name_that_is_not_utf_8(self, places):
        with Policy().observe(monitor_calls=False)() as recording:
            open(os.fsencode(places.out) + b"/\xff", "w").close()
        assert recording.suggest().write == (places.out,)

    def test_nothing_for_nothing(self, workplace, tmp_path):
        policy, _ = learn("print(1)", workplace, tmp_path)
        assert policy == Policy(read=[], network=False)

    def test_a_directory_only_past_the_threshold(self, places):
        with Policy().observe(monitor_calls=False)() as recording:
            for index in range(10):
                open(f"{places.ok}/{index}", "w").close()
        assert recording.suggest().write == (places.ok,)
        assert len(recording.suggest(11).write) == 10
        assert recording.suggest(threshold=1).write == (places.ok,)
        # Nor where not all of it was touched.
        open(places.ok + "/other", "w").close()
        assert len(recording.suggest().write) == 10
        assert places.ok + "/other" not in recording.suggest().write

    def test_hosts_with_their_ports(self):
        policy = Policy(network=Network(hosts=[]))
        with policy.observe(monitor_calls=False)() as recording:
            import socket

            with socket.socket() as made:
                made.connect_ex(("127.0.0.1", 9))
        network = recording.suggest().network
        assert network == Network(hosts=["127.0.0.1:9"], lookup=False)
        assert [effect.host for effect in recording.effects if effect.effect == "network"][-1] == (
            "127.0.0.1"
        )

    def test_a_host_that_is_not_found_has_its_port(self):
        with Policy(network=Network(hosts=[])).observe(monitor_calls=False)() as recording:
            with pytest.raises(OSError):
                socket.create_connection(("nowhere.invalid", 443), timeout=1)
        assert recording.suggest().network.hosts == ("nowhere.invalid:443",)

    def test_hosts_that_a_policy_can_name(self):
        """One is looked up without a port and reached at one; of a URL no policy can tell."""
        with Policy(network=Network(hosts=[])).observe(monitor_calls=False)() as recording:
            for host, port in [("nowhere.invalid", 0), ("other.invalid", 0), ("http://a.test", 80)]:
                with pytest.raises(OSError):
                    socket.getaddrinfo(host, port)
            with pytest.raises(OSError):
                socket.create_connection(("nowhere.invalid", 443), timeout=1)
        hosts = recording.suggest().network.hosts
        assert hosts == ("nowhere.invalid:443", "other.invalid:0")

    def test_what_the_policy_said_stays_said(self, places):
        base = Policy(block=[places.out], imports={"block": ["wave"]}, unknown_events="deny")
        with base.observe(monitor_calls=False)() as recording:
            open(places.ok + "/a", "w").close()
        suggested = recording.suggest()
        assert suggested.block == (places.out,)
        assert suggested.imports == base.imports
        assert suggested.unknown_events == "deny"

    @pytest.mark.parametrize(
        ("threshold", "error", "message"),
        [
            (0, ValueError, "threshold must be a whole number from 1, not 0"),
            ("1", TypeError, "threshold must be a whole number from 1, not str"),
            (True, TypeError, "threshold must be a whole number from 1, not bool"),
        ],
    )
    def test_bad_thresholds(self, threshold, error, message):
        with Policy().observe(monitor_calls=False)() as recording:
            pass
        with pytest.raises(error, match=message):
            recording.suggest(threshold)


class TestRecording:
    def test_each_effect_once_with_its_count(self, places):
        def work():
            for _ in range(3):
                open(places.ok + "/a", "w").close()
            os.listdir(places.ok)

        with Policy(write=[places.ok]).observe(monitor_calls=False)() as recording:
            work()
        first, second = recording.effects
        assert (first.event, first.effect, first.path, first.host, first.verdict, first.count) == (
            "open", "write", places.ok + "/a", None, "allowed", 3,
        )  # fmt: skip
        assert first.event_args[:2] == (places.ok + "/a", "w")
        assert first.call_chain[-1].endswith("work")
        assert (second.event, second.effect, second.count) == ("os.listdir", "read", 1)
        assert repr(second) == f"<Effect: os.listdir ('{places.ok}',) allowed 1 x>"
        assert repr(recording) == "<Recording: {'write': 3, 'read': 1}>"

    def test_what_is_not_allowed_proceeds_and_is_told(self, places):
        with Policy().observe(monitor_calls=False)() as recording:
            os.mkdir(places.out + "/a")
            os.mkdir(places.out + "/b")
            os.kill(os.getppid(), signal.SIGCONT)
        assert sorted(os.listdir(places.out)) == ["a", "b"]
        assert [effect.verdict for effect in recording.effects] == ["write", "write", "denied"]
        assert recording.never_allowed == ["os.kill"]

    def test_or_is_denied(self, places):
        with Policy().observe(enforce=True, monitor_calls=False)() as recording:
            for _ in range(2):
                with pytest.raises(AuditDenied):
                    os.mkdir(places.out + "/a")
        assert os.listdir(places.out) == []
        [effect] = recording.effects
        assert (effect.verdict, effect.count) == ("write", 2)

    def test_the_host_may_allow_some_of_it(self, places):
        told = []
        observe = Policy().observe(
            lambda event, args, frame, message, data: event == data,
            data="os.mkdir",
            monitor_calls=False,
            on_denied=told.append,
            enforce=True,
        )
        with observe() as recording:
            os.mkdir(places.out + "/a")
            with pytest.raises(AuditDenied):
                os.rmdir(places.out + "/a")
        assert [effect.verdict for effect in recording.effects] == ["allowed", "write"]
        assert [denied.event for denied in told] == ["os.rmdir"]

    def test_relative_paths_in_different_directories(self, places):
        with Policy(write=["/"]).observe(monitor_calls=False)() as recording:
            for directory in (places.ok, places.out):
                os.chdir(directory)
                open("a", "w").close()
        written = [effect.path for effect in recording.effects if effect.event == "open"]
        assert written == [places.ok + "/a", places.out + "/a"]

    def test_json(self, places):
        with Policy().observe(monitor_calls=False)() as recording:
            os.listdir(places.ok)
        told = json.loads(recording.to_json())
        assert told == {
            "version": 1,
            "effects": [
                {
                    "event": "os.listdir",
                    "effect": "read",
                    "args": [places.ok],
                    "path": places.ok,
                    "host": None,
                    "verdict": "allowed",
                    "count": 1,
                    "call_chain": list(recording.effects[0].call_chain),
                }
            ],
            "dropped": 0,
        }

    def test_tables(self, places):
        with Policy().observe(monitor_calls=False)() as recording:
            os.listdir(places.ok)
            os.system("true <&1 #<b>")
        lines = recording.summary().splitlines()
        assert lines[0].split() == ["verdict", "effect", "event", "target", "count"]
        assert lines[1].split() == ["allowed", "read", "os.listdir", places.ok, "1"]
        html = recording._repr_html_()
        assert html.startswith("<table>")
        assert f"<td>{places.ok}</td>" in html
        assert "<b>" not in html

    @pytest.mark.slow
    def test_bounded_memory(self, places):
        with Policy(write=["/"]).observe(monitor_calls=False)() as recording:
            for index in range(10_100):
                sys.audit("os.mkdir", f"{places.ok}/{index}", 0o777, -1)
        assert len(recording.effects) == 10_000
        assert recording.dropped == 100

    def test_events_without_arguments(self):
        """Anyone may raise an event with none."""
        events = ("import", "open", "os.mkdir", "socket.connect", "fastaudit.call", "tests.ours")
        with Policy().observe(monitor_calls=False)() as recording:
            for event in events:
                sys.audit(event)
        assert [effect.event for effect in recording.effects] == list(events)

    def test_reading_it_while_it_records(self, places):
        class Odd:
            def __repr__(self):
                os.listdir(places.ok)
                return "odd"

        with Policy().observe(monitor_calls=False)() as recording:
            sys.audit("os.mkdir", Odd(), 0, -1)
            assert len(recording.effects) == 2
            recording.summary()
            recording.to_json()
            recording.suggest()

    def test_each_entry_begins_anew(self, places):
        observe = Policy().observe(monitor_calls=False)
        recording = observe()
        for _ in range(2):
            with recording:
                os.listdir(places.ok)
            assert [effect.count for effect in recording.effects] == [1]

    def test_before_it_is_entered(self):
        recording = Policy().observe(monitor_calls=False)()
        assert recording.effects == []
        assert recording.suggest() == Policy(read=[], network=False)


class TestLog:
    def test_each_decision_is_a_line(self, places):
        log = places.cwd + "/log.jsonl"
        observe = Policy(write=[places.ok]).observe(log=log, monitor_calls=False)
        for _ in range(2):
            with observe():
                os.mkdir(places.out + "/a")
                os.rmdir(places.out + "/a")
                os.listdir(places.ok)
        with open(log) as file:
            lines = [json.loads(line) for line in file]
        assert len(lines) == 6
        assert lines[0].pop("time") > 1e9
        assert lines[0] == {
            "version": 1,
            "event": "os.mkdir",
            "effect": "write",
            "args": [places.out + "/a", 0o777, -1],
            "path": places.out + "/a",
            "host": None,
            "verdict": "write",
        }
        assert [line["verdict"] for line in lines] == ["write", "write", "allowed"] * 2

    def test_bad_logs(self, places):
        with pytest.raises(FileNotFoundError):
            Policy().observe(log=places.ok + "/no/such/dir", monitor_calls=False)
        with pytest.raises(TypeError, match="log must be None, str, bytes or os.PathLike, not int"):
            Policy().observe(log=1, monitor_calls=False)
        with pytest.raises(TypeError, match="enforce must be True or False, not 1"):
            Policy().observe(enforce=1, monitor_calls=False)
