"""The chain of a log of decisions, and ``fastaudit-rs log verify``."""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import subprocess
import sys
import textwrap

import pytest
from waiting import until

from fastaudit_rs import AuditDenied, AuditLog, Policy
from fastaudit_rs.tools import log_command


@pytest.fixture
def path(places):
    return places.cwd + "/audit.jsonl"


def decide(log, places, count=1):
    """Have decisions made, the last of which is written at once."""
    with Policy(write=[places.ok]).guard(log=log, monitor_calls=False)():
        for number in range(count):
            sys.audit("os.mkdir", f"{places.ok}/{number}", 0o777, -1)


def lines_of(path):
    with open(path, "rb") as file:
        return file.read().splitlines(keepends=True)


def verified(path, expected=None):
    with open(path, "rb") as file:
        return log_command.verify(log_command._lines_of(file), expected)


def problem_of(lines, expected=None):
    return log_command.verify(lines, expected).problem


class TestLinks:
    def test_each_line_has_the_hash_of_the_one_before(self, places, path):
        decide(AuditLog(path), places, 3)
        before = "0" * 64
        for number, line in enumerate(lines_of(path), 1):
            told = json.loads(line)
            hashed, _, _ = line.rpartition(b',"hash":')
            assert (told["seq"], told["prev_hash"]) == (number, before)
            assert told["hash"] == hashlib.sha256(hashed).hexdigest()
            before = told["hash"]
        found = verified(path)
        assert (found.problem, found.lines, found.own.number) == (None, 3, 3)

    def test_a_log_goes_on_after_a_restart(self, places, path):
        code = """
            import sys
            from fastaudit_rs import Policy
            ok, path = sys.argv[1:]
            with Policy(write=[ok]).guard(log=path, monitor_calls=False)():
                sys.audit("os.mkdir", ok + "/a", 0o777, -1)
        """
        for _ in range(3):
            words = [sys.executable, "-c", textwrap.dedent(code), places.ok, path]
            subprocess.run(words, check=True, timeout=60)
        found = verified(path)
        assert (found.problem, found.own.number, found.others) == (None, 3, {})

    def test_logs_of_one_file_take_turns(self, places, path):
        logs = [AuditLog(path), AuditLog(path)]
        with open(path, "ab") as file:
            logs.append(AuditLog(file.fileno()))
        for log in logs * 3:
            decide(log, places, 2)
        found = verified(path)
        assert (found.problem, found.own.number, found.others) == (None, 18, {})

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork(2)")
    def test_copies_of_the_process_add_to_one_chain(self, places, path):
        code = """
            import os, sys
            from fastaudit_rs import Policy
            ok, path = sys.argv[1:]
            with Policy(write=[ok]).guard(log=path, monitor_calls=False)():
                children = []
                for number in range(4):
                    child = os.fork()
                    for _ in range(50):
                        sys.audit("os.mkdir", f"{ok}/{number}", 0o777, -1)
                    if child == 0:
                        os._exit(0)
                    children.append(child)
                for child in children:
                    assert os.waitpid(child, 0)[1] == 0
        """
        words = [sys.executable, "-c", textwrap.dedent(code), places.ok, path]
        subprocess.run(words, check=True, timeout=60)
        found = verified(path)
        assert (found.problem, found.others) == (None, {})
        assert found.own.number == len(lines_of(path)) >= 400

    def test_who_holds_the_lock_stops_nobody(self, places, path):
        log = AuditLog(path)
        decide(log, places)
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            decide(log, places, 3)
        decide(log, places)
        decide(AuditLog(path), places)
        found = verified(path)
        assert (found.problem, found.lines, found.own.number) == (None, 6, 2)
        [other] = found.others.values()
        assert other.number == 4

    def test_lines_to_a_pipe_and_to_a_function_have_a_chain_of_their_own(self, places):
        reading, writing = os.pipe()
        given = []
        decide(AuditLog(writing), places, 2)
        os.close(writing)
        log = AuditLog(given.append)
        decide(log, places, 2)
        log.flush()
        assert until(lambda: b"".join(given).count(b"\n") == 2)
        with open(reading, "rb") as file:
            lines = os.read(reading, 1 << 16).splitlines(keepends=True)
            del file
        lines += b"".join(given).splitlines(keepends=True)
        found = log_command.verify(lines)
        assert (found.problem, found.own.number) == (None, 0)
        assert [each.number for each in found.others.values()] == [2, 2]

    def test_the_head_is_the_last_line(self, places, path):
        log = AuditLog(path)
        assert log.head is None
        decide(log, places, 2)
        told = json.loads(lines_of(path)[-1])
        assert log.head == (told["seq"], told["hash"]) == (2, told["hash"])

    def test_a_line_that_was_broken_off_is_left_alone(self, places, path):
        decide(AuditLog(path), places)
        with open(path, "ab") as file:
            file.write(b'{"version":2,"ti')
        decide(AuditLog(path), places)
        first, torn, last = lines_of(path)
        assert torn == b'{"version":2,"ti\n'
        assert verified(path).problem == "line 2 was inserted: it has no hash"
        assert problem_of([first, last]) is None

    def test_what_is_cut_off_while_it_goes_on_shows(self, places, path):
        log = AuditLog(path)
        decide(log, places, 3)
        os.truncate(path, len(lines_of(path)[0]))
        decide(log, places)
        assert verified(path).problem == ("line 2 has the number 4: 2 lines are missing before it")

    def test_a_file_that_was_copied_and_emptied(self, places, path):
        log = AuditLog(path)
        decide(log, places, 2)
        old = lines_of(path)
        os.truncate(path, 0)
        decide(log, places, 2)
        assert problem_of(old + lines_of(path)) is None
        assert (
            problem_of(lines_of(path)) == "line 1 has the number 3: 2 lines are missing before it"
        )

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file system that is full")
    def test_a_file_that_is_full_keeps_whole_lines(self, places, path):
        code = """
            import resource, signal, sys
            from fastaudit_rs import AuditLog, Policy
            ok, path = sys.argv[1:]
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            log = AuditLog(path)
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
            with Policy(write=[ok]).guard(log=log, monitor_calls=False)():
                for number in range(20):
                    sys.audit("os.mkdir", f"{ok}/{number}", 0o777, -1)
            with open(path, "rb") as file:
                assert file.read().endswith(b"\\n")
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            log.flush()
        """
        words = [sys.executable, "-c", textwrap.dedent(code), places.ok, path]
        subprocess.run(words, check=True, timeout=60)
        found = verified(path)
        assert (found.problem, found.own.number) == (None, 20)


@pytest.fixture
def lines(places, path):
    decide(AuditLog(path), places, 5)
    return lines_of(path)


def anew(lines):
    """The lines with numbers and hashes as the one who holds the file makes them."""
    made, before = [], b"0" * 64
    for number, line in enumerate(lines, 1):
        start, _, _ = line.rpartition(b',"seq":')
        start += b',"seq":%d,"prev_hash":"%b"' % (number, before)
        before = hashlib.sha256(start).hexdigest().encode()
        made.append(start + b',"hash":"%b"}\n' % before)
    return made


class TestVerify:
    def test_lines_that_were_changed(self, lines):
        changed = lines[1].replace(b"allowed", b"denied ")
        assert problem_of([lines[0], changed, *lines[2:]]) == (
            "line 2 was changed: its hash is that of other bytes"
        )
        cut = lines[1].replace(b'"}\n', b'"]\n')
        assert problem_of([lines[0], cut, *lines[2:]]) == "line 2 was changed: it has no hash"
        [_, forged, *_] = anew([lines[0], changed])
        assert problem_of([lines[0], forged, *lines[2:]]) == (
            "line 3 does not follow number 2: that was changed, with its hash"
        )

    def test_lines_that_are_missing(self, lines):
        assert problem_of([lines[0], *lines[3:]]) == (
            "line 2 has the number 4: 2 lines are missing before it"
        )
        assert problem_of(lines[1:]) == "line 1 has the number 2: 1 line is missing before it"

    def test_lines_that_were_inserted(self, lines):
        assert problem_of([lines[0], b"{}\n", *lines[1:]]) == (
            "line 2 was inserted: it has no hash"
        )
        assert problem_of([*lines[:3], lines[1], *lines[3:]]) == (
            "line 4 was inserted or moved: number 2 is there already"
        )
        forged = anew([lines[0], lines[0]])[1]
        assert problem_of([lines[0], forged, *lines[1:]]) == (
            "line 3 was inserted or moved: number 2 is there already"
        )

    def test_a_line_that_was_cut_off(self, lines):
        for cut in (lines[-1][:-1], lines[-1][:20], b""):
            found = log_command.verify([*lines[:-1], *filter(None, [cut])])
            assert found.problem == ("line 5 is cut off" if cut else None)

    def test_a_line_that_must_be_there(self, lines):
        heads = [json.loads(line)["hash"] for line in lines]
        found = log_command.verify(lines, heads[2].upper())
        assert (found.problem, found.since) == (None, 2)
        for rest in (lines[:2], anew(lines[:1] + lines[2:]), []):
            assert "no line has the expected hash" in problem_of(rest, heads[2])
        # Without it, who holds the file can make it anew.
        assert problem_of(anew(lines[2:])) is None

    @pytest.mark.parametrize(
        "guests",
        [
            b"\x00\xff\n",
            b"\n",
            b"{" * 100_000 + b"\n",
            b"x" * (5 << 20) + b"\n",
            b"x" * (1 << 20) + b"\n",
            b'","seq":1,"prev_hash":"","hash":""}\n',
            b',"seq":9999999999999999999,"prev_hash":"%b","hash":"%b"}\n' % (b"0" * 64, b"0" * 64),
            b',"seq":%b,"prev_hash":"%b","hash":"%b"}\n' % (b"9" * 5000, b"0" * 64, b"0" * 64),
        ],
    )
    def test_lines_that_nobody_expects(self, lines, guests):
        file = io.BytesIO(b"".join([*lines[:2], guests, *lines[2:]]))
        found = log_command.verify(log_command._lines_of(file))
        assert found.problem.startswith("line 3 ")
        assert found.lines == 2

    def test_a_chain_without_end(self):
        """Names of chains are whoever's writes to the file: no more are kept than a log has."""

        def made():
            for number in range(log_command.CHAINS + 1):
                start = b'{"chain":"%016x","seq":1,"prev_hash":"%b"' % (number, b"0" * 64)
                start = b'{"a":1,' + start[1:]
                yield start + b',"hash":"%b"}\n' % hashlib.sha256(start).hexdigest().encode()

        assert problem_of(made()) == "line 10001 is of one more chain than 10,000"


class TestGuests:
    def test_words_of_a_guest_are_no_link(self, places, path):
        zeros, ones = "0" * 64, "1" * 64
        forged = f'","seq":1,"prev_hash":"{zeros}","hash":"{ones}"}}\n'
        log = AuditLog(path)
        with Policy(write=[places.ok]).guard(log=log, monitor_calls=False)():
            for name in (forged, forged * 3):
                with contextlib.suppress(AuditDenied):
                    sys.audit("os.mkdir", f"{places.out}/{name}", 0o777, -1)
        decide(AuditLog(path), places)
        found = verified(path)
        assert (found.problem, found.own.number) == (None, 3)

    def test_lines_of_a_sandbox_are_linked_by_the_host(self, path):
        from fastaudit_rs import Sandbox

        with Sandbox(confine="audit", log=path) as sandbox, sandbox.session() as session:
            session.run("open('a', 'w').close()")
            forge = """
                import os
                for descriptor in map(int, os.listdir("/proc/self/fd")):
                    line = b'{"time":0,"verdict":"allowed","rule":null,"effect":"x"'
                    line += b',"event":"forged"'
                    line += b',"args":[],"seq":7,"prev_hash":"","hash":"' + b"0" * 64 + b'"}\\n'
                    try:
                        if os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:"):
                            os.write(descriptor, line)
                    except OSError:
                        pass
            """
            session.run(textwrap.dedent(forge))
        found = verified(path)
        assert (found.problem, found.others) == (None, {})
        assert found.own.number == len(lines_of(path)) > 0
        assert b'"forged"' not in b"".join(lines_of(path))


class TestCommand:
    def test_a_log_that_holds_and_one_that_does_not(self, command, lines, path):
        last = json.loads(lines[-1])["hash"]
        done = command("log", "verify", path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{path}: holds: 5 lines\nlast: 5 {last}\n"
        done = command("log", "verify", path, "--expect", json.loads(lines[0])["hash"])
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "since the expected line: 4")
        with open(path, "wb") as file:
            file.writelines([*lines[:2], *lines[3:]])
        done = command("log", "verify", path)
        assert done.returncode == 1
        assert done.stdout.startswith(f"{path}: broken: line 3 has the number 4: 1 line is missing")

    def test_what_is_no_log(self, command, places, path):
        open(path, "w").close()
        done = command("log", "verify", path)
        assert (done.returncode, done.stdout) == (0, f"{path}: no lines\n")
        for words, told in [
            (["none"], "No such file"),
            ([places.ok], "Is a directory"),
            ([path, "--expect", "x"], "--expect takes a hash of 64 hexadecimal digits, not 'x'"),
        ]:
            done = command("log", "verify", *words)
            assert done.returncode == 2
            assert told in done.stderr
