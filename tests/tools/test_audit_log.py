"""The log of decisions: each is there once, as a line of JSON that tells what happened."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading

import programs
import pytest
from waiting import until

from fastaudit_rs import AuditDenied, AuditLog, Policy, mk_audit

ALWAYS = {"version", "time", "pid", "thread", "verdict", "rule", "event", "effect", "args"}
ALWAYS |= {"seq", "prev_hash", "hash"}


def lines_of(path):
    with open(path, "rb") as file:
        text = file.read()
    assert text.endswith(b"\n") or not text
    return [json.loads(line) for line in text.decode().splitlines()]


@pytest.fixture
def path(places):
    return places.cwd + "/audit.jsonl"


@pytest.fixture
def logged(places, path):
    """`logged(function, **fields)`: the lines of what it does under a policy, and its error."""

    def run(function, options=None, **fields):
        fields.setdefault("write", [places.ok])
        before = len(lines_of(path)) if os.path.exists(path) else 0
        guard = Policy(**fields).guard(log=path, monitor_calls=False, **(options or {}))
        error = None
        with guard():
            try:
                function()
            except Exception as raised:
                error = raised
        return lines_of(path)[before:], error

    return run


def write(path):
    with open(path, "w"):
        pass


class TestLines:
    def test_an_allowed_decision(self, logged, places):
        [line], _ = logged(lambda: write(places.ok + "/a"))
        assert set(line) == ALWAYS | {"path"}
        assert line["version"] == 2
        assert abs(line["time"] - os.stat(places.ok + "/a").st_mtime) < 60
        assert (line["pid"], line["thread"]) == (os.getpid(), threading.get_native_id())
        assert (line["verdict"], line["rule"]) == ("allowed", None)
        assert (line["event"], line["effect"]) == ("open", "write")
        assert line["args"][:2] == [places.ok + "/a", "w"]
        assert line["path"] == places.ok + "/a"

    def test_a_denied_one(self, logged, places):
        [line], error = logged(lambda: write(places.out + "/a"))
        assert isinstance(error, AuditDenied)
        assert (line["verdict"], line["rule"]) == ("denied", "write")
        assert line["path"] == places.out + "/a"
        assert line["place"].startswith(__file__ + ":")

    @pytest.mark.parametrize(
        ("act", "fields", "told"),
        [
            ("write('OK/link/a')", {}, {"path": "OK/link/a", "resolved": "OUT/a"}),
            ("write('a')", {"write": ["."]}, {"path": "CWD/a"}),
            ("os.mkdir('new', dir_fd=at)", {}, {"path": "OK/new"}),
            ("os.rename('OK/a', 'OK/b')", {}, {"path": "OK/a", "to": "OK/b"}),
            ("os.putenv('MY_TOKEN', 'hunter2')", {}, {"variable": "MY_TOKEN"}),
            ("write('OUT/a')", {"on_violation": print}, {"verdict": "reported", "rule": "write"}),
        ],
    )
    def test_of_an_act(self, logged, places, act, fields, told):
        def filled(text):
            for name in ("ok", "out", "cwd"):
                text = text.replace(name.upper(), getattr(places, name))
            return text

        os.symlink(places.out, places.ok + "/link")
        write(places.ok + "/a")
        at = os.open(places.ok, os.O_RDONLY)
        try:
            [line], _ = logged(
                lambda: eval(filled(act), {"os": os, "write": write, "at": at}), **fields
            )
        finally:
            os.close(at)
        assert {name: line.get(name) for name in told} == {
            name: filled(value) for name, value in told.items()
        }
        assert "hunter2" not in json.dumps(line)

    @pytest.mark.parametrize("network", [True, False, "rules"])
    def test_a_host(self, logged, network):
        from fastaudit_rs import Network

        def connect():
            with socket.socket() as client:
                client.settimeout(5)
                client.connect(("127.0.0.1", 1))

        allowed = Network(hosts=["127.0.0.1:1"]) if network == "rules" else network
        lines, _ = logged(connect, network=allowed)
        [line] = [line for line in lines if line["event"] == "socket.connect"]
        assert line["verdict"] == ("allowed" if network else "denied")
        assert line["rule"] == (None if network else "network")
        assert (line["host"], line["port"]) == ("127.0.0.1", 1)

    def test_a_command(self, logged):
        words = [sys.executable, "-c", ""]
        env = {**os.environ, "SECRET": "hunter2"}
        lines, error = logged(lambda: subprocess.run(words, env=env), commands=True, write=None)
        assert error is None
        [line] = [line for line in lines if line["event"] == "subprocess.Popen"]
        assert line["command"] == words
        assert "hunter2" not in json.dumps(lines)

    def test_reading_that_no_rule_restricts_is_no_decision(self, logged):
        lines, _ = logged(lambda: os.listdir("/"))
        assert lines == []

    def test_reading_that_a_rule_restricts_is_one(self, logged, places):
        lines, _ = logged(lambda: (os.listdir(places.ok), os.listdir(places.out)), read=[places.ok])
        told = [(line["verdict"], line["rule"], line["path"]) for line in lines]
        assert told == [("allowed", None, places.ok), ("denied", "read", places.out)]

    def test_a_module_that_may_not_be_imported(self, logged, monkeypatch):
        monkeypatch.delitem(sys.modules, "colorsys", raising=False)
        lines, error = logged(lambda: __import__("colorsys"), imports={"block": ["colorsys"]})
        assert isinstance(error, AuditDenied)
        assert [(line["rule"], line["module"]) for line in lines] == [("imports", "colorsys")]

    @pytest.mark.parametrize("answer", [True, False])
    @pytest.mark.parametrize("callback", ["before_deny", "on_ask"])
    def test_a_question_to_the_host(self, logged, places, callback, answer):
        host = (lambda *_: answer) if callback == "on_ask" else before_deny_of(answer)
        [line], error = logged(lambda: write(places.out + "/a"), {callback: host})
        assert (error is None) is answer
        assert line["verdict"] == ("allowed" if answer else "denied")
        assert (line["asked"], line["rule"]) == (callback, "write")

    def test_an_answer_that_was_kept(self, logged, places):
        def twice():
            write(places.out + "/a")
            write(places.out + "/a")

        lines, error = logged(twice, {"on_ask": lambda denied: "guard"})
        assert error is None
        assert [line["asked"] for line in lines] == ["on_ask", "approvals"]
        assert [line["verdict"] for line in lines] == ["allowed"] * 2


def before_deny_of(answer):
    def before_deny(event, args, frame, msg, data):
        return answer

    return before_deny


class TestGuests:
    def test_names_that_are_no_text_and_many_lines(self, logged, places):
        names = [b"bad\xff", b"a\nb", "\u2028\x85".encode(), b'"\\', b"n" * 200]
        lines, _ = logged(lambda: [write(places.ok.encode() + b"/" + name) for name in names])
        found = [line["path"].removeprefix(places.ok + "/") for line in lines]
        assert found == ["bad\ufffd", "a\nb", "\u2028\x85", '"\\', "n" * 200]

    def test_huge_arguments_are_cut(self, logged, path, places):
        def run():
            for args in [("é" * 10_000_000,), tuple("a" * 3000 for _ in range(1000))]:
                with pytest.raises(AuditDenied):
                    sys.audit("subprocess.Popen", "ls", [*args], None, None)
            with pytest.raises(AuditDenied):
                sys.audit("subprocess.Popen", "ls", [[[[[["deep"]]]]]], None, None)

        lines, error = logged(run)
        assert error is None
        assert len(lines) == 3
        assert os.path.getsize(path) < 100_000
        assert "…" in lines[0]["command"][0]
        assert lines[1]["command"][-1] == "…"

    def test_no_code_of_an_argument_runs(self, logged, places):
        class Lying(str):
            def __str__(self):
                raise AssertionError

            __repr__ = __hash__ = __str__

        class Other:
            def __repr__(self):
                raise AssertionError

        def run():
            write(Lying(places.ok + "/a"))
            sys.audit("socket.connect", Other(), (Lying("h"), 1 << 200))

        lines, error = logged(run, network=True)
        assert error is None
        assert lines[0]["path"] == places.ok + "/a"
        assert lines[1]["args"] == ["<Other>", ["h", "<int>"]]

    def test_the_file_cannot_be_changed_by_its_path(self, logged, places, path):
        os.symlink(path, places.cwd + "/link")
        write(places.cwd + "/mine")
        attempts = [
            lambda: write("audit.jsonl"),
            lambda: write("../cwd/audit.jsonl"),
            lambda: os.remove(path),
            lambda: os.truncate(path, 0),
            lambda: os.rename("mine", "audit.jsonl"),
            lambda: os.rename("audit.jsonl", "mine"),
            lambda: os.link("audit.jsonl", "other"),
            lambda: os.symlink("audit.jsonl", "other"),
        ]

        def run():
            for attempt in attempts:
                with pytest.raises(AuditDenied) as denied:
                    attempt()
                assert denied.value.rule == "protect"
            # A file of that name elsewhere is another.
            os.mkdir("other")
            write("other/audit.jsonl")

        lines, error = logged(run, write=[places.cwd])
        assert error is None
        verdicts = [line["verdict"] for line in lines if line["effect"] == "write"]
        assert verdicts == ["denied"] * len(attempts) + ["allowed"] * 2

    def test_it_cannot_be_closed_or_made(self, places, path):
        log = AuditLog(path)
        with Policy(write=[places.ok]).guard(log=log, monitor_calls=False)():
            for call in [log.close, lambda: AuditLog(places.out + "/a")]:
                with pytest.raises(RuntimeError, match="outside of guards alone"):
                    call()
        assert not os.path.exists(places.out + "/a")

    def test_no_guest_takes_the_lines(self, places, path):
        """The thread that takes lines is not logged: no other thread becomes one."""
        given = []
        for log in (AuditLog(path), AuditLog(given.append)):
            with Policy(write=[places.ok]).guard(log=log, monitor_calls=False)():
                with pytest.raises(RuntimeError, match="the log's own thread alone"):
                    log._take(0)
                with pytest.raises(AuditDenied):
                    write(places.out + "/a")
            with pytest.raises(RuntimeError, match="the log's own thread alone"):
                log._take(0)
        assert [line["verdict"] for line in lines_of(path)] == ["denied"]
        assert until(lambda: given)
        assert json.loads(given[0])["verdict"] == "denied"

    def test_programs_do_not_inherit_the_file(self, places, path):
        log = AuditLog(path)
        code = (
            "import os\nfor fd in os.listdir('/proc/self/fd'):\n"
            "    try: print(os.readlink('/proc/self/fd/' + fd))\n"
            "    except OSError: pass"
        )
        found = programs.ran(code, close_fds=False)
        assert log.path not in found.stdout.splitlines()


class TestGuards:
    def test_a_log_of_mk_audit(self, places, path):
        with mk_audit([places.ok], log=path, monitor_calls=False)():
            write(places.ok + "/a")
            with pytest.raises(AuditDenied):
                write(places.out + "/a")
        assert [line["verdict"] for line in lines_of(path)] == ["allowed", "denied"]

    def test_the_rules_of_02_have_none(self, places, path):
        with pytest.raises(ValueError, match=r"log needs rules='0\.1'"):
            mk_audit([places.ok], log=path, rules="0.2")

    def test_names(self, places, path):
        log = AuditLog(path, name="outer")
        policy = Policy(write=[places.ok])
        for own in (log, log.named("inner")):
            with policy.guard(log=own, monitor_calls=False)():
                write(places.ok + "/a")
        assert [line["guard"] for line in lines_of(path)] == ["outer", "inner"]

    def test_nested_guards_log_their_own_decisions(self, places, path):
        log = AuditLog(path)
        inner = Policy(write=[]).guard(log=log.named("inner"), monitor_calls=False)
        outer = Policy(write=[places.ok]).guard(log=log.named("outer"), monitor_calls=False)
        with outer():
            write(places.ok + "/a")
            inner_guard = inner()
        with inner_guard, pytest.raises(AuditDenied):
            write(places.ok + "/a")
        told = [(line["guard"], line["verdict"]) for line in lines_of(path)]
        assert told == [("outer", "allowed"), ("inner", "denied")]

    def test_a_tool_is_named(self, places, path):
        perms = Policy(write=[places.ok]).guard(log=path, monitor_calls=False)

        @perms.tool
        def save():
            write(places.out + "/host")

        with perms():
            save()
            write(places.ok + "/guest")
        [line] = lines_of(path)
        # With the rights of the host nothing is judged.
        assert line["path"] == places.ok + "/guest"

    def test_the_log_is_written_at_the_end_of_the_guard(self, places, path):
        with Policy(write=[places.ok]).guard(log=path, monitor_calls=False)():
            write(places.ok + "/a")
            held_back = len(lines_of(path)) == 0
        assert len(lines_of(path)) == 1
        assert held_back

    def test_a_denial_is_written_at_once(self, places, path):
        with Policy(write=[places.ok]).guard(log=path, monitor_calls=False)():
            write(places.ok + "/a")
            with pytest.raises(AuditDenied):
                write(places.out + "/a")
            assert len(lines_of(path)) == 2

    @pytest.mark.parametrize(
        "log_at", [AuditLog, lambda path: Policy().guard(log=path)], ids=["AuditLog", "guard"]
    )
    def test_a_file_that_cannot_be_made_is_named(self, places, log_at):
        with pytest.raises(FileNotFoundError) as missing:
            log_at(places.out + "/missing/log.jsonl")
        told = f"[Errno 2] No such file or directory: '{places.out}/missing/log.jsonl'"
        assert str(missing.value) == told

    def test_bad_arguments(self, places):
        for log in (1, True, print, [], object()):
            with pytest.raises(TypeError, match="log must be None, an AuditLog or a path, not "):
                Policy().guard(log=log)
        with pytest.raises(TypeError, match="file must be a path, a file descriptor or a func"):
            AuditLog([])
        with pytest.raises(TypeError, match="file must be a path, a file descriptor or a func"):
            AuditLog(True)
        with pytest.raises(TypeError, match="name must be a str, not int"):
            AuditLog("x", name=1)
        with pytest.raises(ValueError, match="file must be a file descriptor from 0, not -1"):
            AuditLog(-1)
        with pytest.raises(OSError, match="Bad file descriptor"):
            AuditLog(987654)
        with pytest.raises(FileNotFoundError):
            AuditLog(places.ok + "/no/such/dir")

    def test_repr(self, path):
        assert repr(AuditLog(path)) == f"<AuditLog {path!r}>"
        assert repr(AuditLog(2, name="a")) == '<AuditLog a descriptor of "a">'


class TestConcurrency:
    def test_threads_and_tasks(self, places, path):
        async def task(number):
            write(f"{places.ok}/task{number}")
            await asyncio.sleep(0)
            write(f"{places.ok}/task{number}")

        async def tasks():
            await asyncio.gather(*map(task, range(50)))

        def thread(number):
            for _ in range(50):
                write(f"{places.ok}/thread{number}")

        policy = Policy(write=[places.ok], threads="inherit")
        with policy.guard(log=path, monitor_calls=False)():
            threads = [threading.Thread(target=thread, args=(number,)) for number in range(8)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            asyncio.run(tasks())
        lines = [line for line in lines_of(path) if line["event"] == "open"]
        names = [os.path.basename(line["path"]) for line in lines]
        assert sorted(names) == sorted(
            [f"task{number}" for number in range(50)] * 2
            + [f"thread{number}" for number in range(8)] * 50
        )
        assert len({line["thread"] for line in lines}) == 9

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork(2)")
    def test_forks_write_to_the_same_file(self, places, path):
        code = """
            import os, sys
            from fastaudit_rs import Policy
            ok, path = sys.argv[1:]
            with Policy(write=[ok]).guard(log=path, monitor_calls=False)():
                sys.audit("os.mkdir", ok + "/parent", 0o777, -1)
                children = []
                for number in range(4):
                    child = os.fork()
                    if child == 0:
                        for _ in range(200):
                            sys.audit("os.mkdir", f"{ok}/{number}", 0o777, -1)
                        os._exit(0)
                    children.append(child)
                for child in children:
                    assert os.waitpid(child, 0)[1] == 0
        """
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), places.ok, path], check=True, timeout=60
        )
        lines = [line for line in lines_of(path) if line["event"] == "os.mkdir"]
        names = [os.path.basename(line["path"]) for line in lines]
        assert sorted(names) == sorted(["parent", *(list("0123") * 200)])
        assert len({line["pid"] for line in lines}) == 5

    @pytest.mark.slow
    def test_a_hundred_thousand_decisions(self, places, path):
        with Policy(write=[places.ok]).guard(log=path, monitor_calls=False)():
            for number in range(100_000):
                sys.audit("os.mkdir", f"{places.ok}/{number}", 0o777, -1)
        with open(path, "rb") as file:
            names = [os.path.basename(json.loads(line)["path"]) for line in file]
        assert names == list(map(str, range(100_000)))

    def test_a_killed_process_loses_the_last_lines_alone(self, places, path):
        code = """
            import os, sys, time
            from fastaudit_rs import Policy
            ok, path = sys.argv[1:]
            with Policy(write=[ok]).guard(log=path, monitor_calls=False)():
                for number in range(1000):
                    sys.audit("os.mkdir", f"{ok}/{number}", 0o777, -1)
                print("ready", flush=True)
                time.sleep(60)
        """
        command = [sys.executable, "-c", textwrap.dedent(code), places.ok, path]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            process.kill()
        numbers = [int(os.path.basename(line["path"])) for line in lines_of(path)]
        assert numbers == list(range(len(numbers)))
        assert 1000 - 64 < len(numbers) <= 1000

    def test_the_end_of_a_process_under_an_installed_policy(self, places, path):
        code = """
            import os, sys
            from fastaudit_rs import Policy
            ok, path = sys.argv[1:]
            Policy(write=[ok]).install(log=path, monitor_calls=False)
            os.mkdir(ok + "/a")
        """
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), places.ok, path], check=True, timeout=60
        )
        assert [line["path"] for line in lines_of(path)] == [places.ok + "/a"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
class TestFailure:
    def test_a_full_disk_stops_nobody_and_is_told_once(self, places, capfd):
        log = AuditLog("/dev/full")
        with Policy(write=[places.ok]).guard(log=log, monitor_calls=False)():
            for _ in range(3):
                write(places.ok + "/a")
                with pytest.raises(AuditDenied):
                    write(places.out + "/a")
        told = capfd.readouterr().err
        assert told.count("the audit log /dev/full cannot be written: No space left") == 1

    def test_a_pipe_that_a_thread_of_this_process_reads(self, tmp_path):
        """Nobody waits for it with the lock that the thread needs; all lines arrive in the end."""
        code = """
            import os, sys, threading
            from fastaudit_rs import AuditLog, Policy
            end, write_end = os.pipe()
            told, begins = [], threading.Event()
            def read():
                begins.wait()
                while piece := os.read(end, 1 << 16):
                    told.append(piece)
            reader = threading.Thread(target=read)
            reader.start()
            log = AuditLog(write_end)
            os.close(write_end)
            with Policy(read=["/"]).guard(log=log, monitor_calls=False)():
                for _ in range(2_000):
                    sys.audit("open", __file__, "r", 0)
                begins.set()
            log.close()
            del log
            # What the pipe held is read once nothing writes to it.
            while reader.is_alive() and len(b"".join(told).splitlines()) < 2_000:
                pass
            print(len(b"".join(told).splitlines()), flush=True)
            os._exit(0)
        """
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(code))
        done = programs.python(program, timeout=30)
        assert (done.stdout, done.stderr) == ("2000\n", "")

    @pytest.mark.slow
    def test_lines_that_waited_are_written_and_lost_ones_counted(self, places, path):
        held, write_end = os.pipe()
        os.set_blocking(write_end, False)
        log = AuditLog(write_end)
        event = ("os.mkdir", places.ok + "/" + "d" * 2000, 0o777, -1)
        with Policy(write=[places.ok]).guard(log=log, monitor_calls=False)():
            for _ in range(10_000):
                sys.audit(*event)
        assert log.lost > 0
        os.close(write_end)
        told = b""
        os.set_blocking(held, False)
        while True:
            log.flush()
            try:
                told += os.read(held, 1 << 20)
            except BlockingIOError:
                break
        os.close(held)
        lines = [json.loads(line) for line in told.splitlines()]
        lost = [line["lost"] for line in lines if line["event"] == "fastaudit.lost"]
        assert sum(lost) == log.lost
        assert len(lines) - len(lost) + log.lost == 10_000
