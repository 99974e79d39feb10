"""The question before an operation is denied; `fastaudit-rs run --ask` on a terminal."""

import contextlib
import fcntl
import functools
import os
import select
import signal
import subprocess
import sys
import termios
import time

import programs
import pytest
from repository import ROOT

from fastaudit_rs import AuditDenied, Policy
from fastaudit_rs.tools import asking

#: The seconds in which a question comes, on a busy machine.
LONG = 60


class Terminal:
    """A run of the command whose terminal is ours."""

    def __init__(self, arguments, cwd, **streams):
        self.own, terminal = os.openpty()

        def take():
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

        self.seen = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fastaudit_rs", "run", *arguments],
            cwd=cwd,
            stdin=streams.get("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=take,
            pass_fds=[terminal],
        )
        os.close(terminal)

    def until(self, text):
        """Read what is shown until there is this text, and return all since the last call."""
        end = time.monotonic() + LONG
        while text not in self.seen:
            left = end - time.monotonic()
            assert left > 0 and select.select([self.own], [], [], left)[0], self.seen
            try:
                self.seen += os.read(self.own, 4096).decode()
            except OSError as error:
                told = f"it ended: {self.seen}, {self.process.communicate()}"
                raise AssertionError(told) from error
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, keys):
        os.write(self.own, keys.encode())

    def end(self):
        """Wait for the end: exit status, output, errors."""
        out, err = self.process.communicate(timeout=LONG)
        return self.process.returncode, out, err


@pytest.fixture
def terminal(places):
    begun = []

    def begin(*arguments, **streams):
        begun.append(Terminal(arguments, places.cwd, **streams))
        return begun[-1]

    yield begin
    for run in begun:
        run.process.kill()
        run.process.wait()
        os.close(run.own)


def writing(*paths):
    return "\n".join(f"open({path!r}, 'w').close(); print({path[-1]!r})" for path in paths)


PROMPT = "└ Allow it? [y]es once / [a]lways / [n]o / ne[v]er / [?]: "


def test_the_question_is_as_the_page_shows_it(terminal):
    """The block of docs/shell.md."""
    page = (ROOT / "docs" / "shell.md").read_text()
    shown = page.partition("```text\n")[2].partition("\n```")[0]
    with open("report.py", "w") as file:
        file.write("import os\n\nopen('/srv/report.txt', 'w')\n")
    run = terminal("--ask", "report.py")
    asked = run.until(PROMPT)
    assert asked.replace("\r\n", "\n").strip() == shown
    run.type("n\n")
    assert run.end()[0] == 77


class TestQuestion:
    """Of a guard, in the words of each surface."""

    @staticmethod
    def asked(acts, *lines, file=None, **fields):
        """The questions, and the denials; `None` is the end of the input."""
        given, questions = iter(lines), []

        def answered(text):
            questions.append(text)
            return next(given)

        policy = Policy(**{"write": [], **fields})
        on_ask = functools.partial(asking.ask, answered=answered, file=file, place="a.py:1")
        with policy.guard(on_ask=on_ask, monitor_calls=False)() as guard:
            for act in acts:
                with contextlib.suppress(AuditDenied):
                    sys.audit(*act)
        assert list(given) == []
        return questions, guard.violations

    A, B = (("os.mkdir", f"/srv/{name}", 0o777, -1) for name in "ab")

    @pytest.mark.parametrize(
        ("lines", "denied"),
        [
            (["y", "YES\n"], 0),
            (["a"], 0),
            (["always"], 0),
            (["n", "no"], 2),
            (["x", "n", "", "N"], 2),
            ([None, "y"], 1),
            (["v"], 2),
            (["?", "never"], 2),
        ],
    )
    def test_answers(self, lines, denied):
        """Yes and no are for once, the others for the directory."""
        questions, violations = self.asked([self.A, self.B], *lines)
        assert len(violations) == denied
        assert questions[0].startswith("┌ The program asks to write /srv/a\n│ os.mkdir, at ")
        assert all(question.endswith(PROMPT) for question in questions)

    @pytest.mark.parametrize(
        ("file", "until"), [(None, "until this ends"), ("kept.toml", "it is added to kept.toml")]
    )
    def test_what_is_explained(self, file, until):
        [_, told], _ = self.asked([self.A], "?", "n", file=file)
        rows = told.splitlines()[:-1]
        assert [row[:5] for row in rows] == ["│ y: ", "│ a: ", "│ n: ", "│ v: "]
        assert rows[1].startswith('│ a: write = ["/srv"], ') and rows[1].endswith(until)
        assert rows[3].startswith('│ v: denied without a question: write = ["/srv"]')

    def test_a_shell_has_no_always(self):
        shell = ("os.system", b"exit 3")
        questions, violations = self.asked([shell], "a", "v", "y", commands=False)
        assert questions[0].endswith("└ Allow it? [y]es once / [n]o / [?]: ")
        assert "asks to start " in questions[0] and "exit 3" in questions[0]
        assert violations == []

    def test_a_name_does_not_paint_it(self):
        name = "/srv/\x1b[2K\r\n\u202e y"
        [question], _ = self.asked([("os.mkdir", name, 0o777, -1)], "n")
        assert "\x1b" not in question and "\u202e" not in question
        assert r"\x1b[2K\r\n\u202e y" in question


def test_always_is_kept_in_a_file(terminal, places, command):
    arguments = ["--approvals", "kept.toml", "-c", writing(f"{places.out}/a")]
    run = terminal("--ask", *arguments)
    run.until(PROMPT)
    run.type("always\n")
    assert run.end() == (0, "a\n", "")
    assert Policy.from_toml(f"{places.cwd}/kept.toml") == Policy(write=[places.out])
    done = command("run", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\n", "")
    done = command("run", "--approvals", "kept.toml", "-c", writing(f"{places.cwd}/b"))
    assert done.returncode == 77
    assert "Asked for approval: there was no answer" in done.stderr


def test_the_end_of_the_input_is_a_denial(terminal, places):
    run = terminal("--ask", "-c", writing(f"{places.out}/a"))
    run.until(PROMPT)
    run.type("\x04")
    status, out, err = run.end()
    assert (status, out) == (77, "")
    assert "Asked for approval: the answer was no" in err
    assert os.listdir(places.out) == []


def test_an_interrupt_ends_the_program(terminal, places):
    run = terminal("--ask", "-c", writing(f"{places.out}/a"))
    run.until(PROMPT)
    run.type("\x03")
    status, _, err = run.end()
    assert status in (1, 130, -signal.SIGINT)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert os.listdir(places.out) == []


@pytest.mark.slow
def test_keys_that_were_pressed_before_are_no_answer(terminal, places):
    code = f"input('ready'); {writing(places.out + '/a')}"
    reading, giving = os.pipe()
    run = terminal("--ask", "-c", code, stdin=reading)
    os.close(reading)
    run.type("y\ny\na\n")
    os.write(giving, b"\n")
    os.close(giving)
    run.until(PROMPT)
    assert not select.select([run.own], [], [], 1)[0]
    run.type("n\n")
    assert run.end()[0] == 77


def test_the_terminal_is_asked_in_whatever_mode_it_is(terminal, places):
    code = f"""
import os, tty, termios
terminal = os.open("/dev/tty", os.O_RDONLY)
tty.setraw(terminal)
before = termios.tcgetattr(terminal)
{writing(places.out + "/a")}
print(termios.tcgetattr(terminal) == before)
"""
    run = terminal("--ask", "--read", "any", "--write", "/dev/tty", "-c", code)
    run.until(PROMPT)
    run.type("y\n")
    assert run.end() == (0, "a\nTrue\n", "")


def test_without_a_terminal_nobody_is_asked(places):
    command = [sys.executable, "-m", "fastaudit_rs", "run", "--ask", "-c"]
    done = programs.run(
        [*command, writing(f"{places.out}/a")], start_new_session=True, timeout=LONG, input="y\n"
    )
    assert done.returncode == 77
    lines = [line for line in done.stderr.splitlines() if line.startswith("fastaudit-rs:")]
    assert len(lines) == 1
    assert lines[0].startswith("fastaudit-rs: --ask: nobody is asked, there is no terminal")
    assert "Asked for approval" not in done.stderr


def test_a_broken_file_is_told(command, places):
    with open("kept.toml", "w") as file:
        file.write("write = 3\n")
    done = command("run", "--approvals", "kept.toml", "-c", "")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fastaudit-rs: ") and "kept.toml: write must be" in done.stderr


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        (("subprocess.Popen", "ls", ["ls", "-l"], None, None), "start ls -l"),
        (("socket.getaddrinfo", "a.example", 443, 0, 0, 0), "reach a.example"),
        (("os.putenv", b"PATH", b"x"), "set PATH"),
        (("os.mkdir", "/nowhere/a", 0o777, -1), "write /nowhere/a"),
        (("import", "zlib", None, None, None, None), "import zlib"),
        (("os.kill", 1, 9), "os.kill 1"),
    ],
)
def test_operations_are_told_in_words(event, subject):
    policy = Policy(network=False, imports=False)
    denied = policy.explain(*event).denied
    assert isinstance(denied, AuditDenied)
    assert asking.subject(denied) == subject


#: A program that asks with words of its own, by the connection of its process.
FORGED = """
import gc, json, struct, fastaudit_rs
channel = next(found for found in gc.get_objects() if type(found).__name__ == "HostChannel")
try: open({path!r}, "w")
except fastaudit_rs.AuditDenied as error: denied = error.to_dict()
odd = "open\\x1b[2J\\x1b[H\\u202eharmless\\x1b]0;x\\x07\\r\\x1b[8m"
for field in ("event", "rule", "resolved", "path", "command", "place", "effect"):
    told = {{"kind": "ask", "id": 99, "denied": denied | {{field: odd}}}}
    head = json.dumps(told).encode() + b"\\n"
    channel._connection.sendall(struct.pack("!Q", len(head)) + head)
    channel._connection.recv(1 << 16)
print("asked")
"""


class TestSandbox:
    """The question is asked outside of it."""

    @pytest.fixture(autouse=True)
    def sandboxes(self):
        pytest.importorskip("sandlock")

    @pytest.fixture
    def options(self, places):
        with open("approvable.toml", "w") as file:
            file.write(f"write = [{places.out!r}]\nnetwork = false\n")
        return ["--sandbox", "--ask", "--approvable", "approvable.toml"]

    @pytest.mark.slow
    def test_answers_open_what_the_file_names(self, terminal, places, options):
        code = f"{writing(f'{places.out}/a', f'{places.out}/b')}\nprint(input())"
        reading, giving = os.pipe()
        os.write(giving, b"typed\n")
        os.close(giving)
        run = terminal(*options, "-c", code, stdin=reading)
        os.close(reading)
        asked = run.until(PROMPT)
        assert f"┌ The program asks to write {places.out}/a\r\n│ open, at <string>:" in asked
        run.type("?\n")
        assert f'│ a: write = ["{places.out}"], until this ends\r\n' in run.until(PROMPT)
        run.type("a\n")
        assert run.end() == (0, "a\nb\ntyped\n", "")
        assert sorted(os.listdir(places.out)) == ["a", "b"]

    @pytest.mark.slow
    def test_answers_open_no_more(self, terminal, places, options):
        status, _, err = terminal(*options, "-c", writing(f"{places.cwd}/a")).end()
        assert status == 77 and "--approvable names what answers may open" in err
        assert not os.path.exists("a")

    @pytest.mark.slow
    def test_a_forged_question_acts_on_no_terminal(self, terminal, places, options):
        """The guest words it, and may have got around its guard."""
        run = terminal(*options, "-c", FORGED.format(path=f"{places.out}/a"))
        for _ in ("", "event", "rule", "resolved", "path", "command", "place", "effect"):
            asked = run.until(PROMPT)
            assert "┌ The program asks to " in asked
            assert not any(odd in asked for odd in "\x1b\x07\u202e")
            run.type("n\n")
        assert run.end()[:2] == (0, "asked\n")

    @pytest.mark.slow
    def test_no_and_an_interrupt(self, terminal, places, options):
        run = terminal(*options, "-c", writing(f"{places.out}/a"))
        run.until(PROMPT)
        run.type("n\n")
        status, _, err = run.end()
        assert status == 77 and "the answer was no" in err
        assert f"To allow it: --write {places.out}\n" in err
        run = terminal(*options, "-c", writing(f"{places.out}/a"))
        run.until(PROMPT)
        run.type("\x03")
        assert run.end() == (130, "", "fastaudit-rs: interrupted\n")
        assert os.listdir(places.out) == []

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["--sandbox", "--ask"], "--ask --sandbox needs --approvable FILE: the kernel holds"),
            (["--sandbox", "--approvable", "approvable.toml"], "--approvable needs --ask\n"),
            (
                ["--ask", "--approvable", "approvable.toml"],
                "--approvable needs --sandbox: elsewhere",
            ),
            (["--sandbox", "--approvals", "a"], "--approvals does not reach into a sandbox: the"),
            (["--sandbox", "--ask", "--approvable", "none"], "No such file or directory: 'none'"),
        ],
    )
    def test_options_that_do_not_go_together(self, command, options, words, told):
        done = command("run", *words, "-c", "print('ran')")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("fastaudit-rs: ") and told in done.stderr, done.stderr
