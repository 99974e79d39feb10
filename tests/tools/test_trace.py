"""`fastaudit-rs trace`: a table, and a page with a timeline."""

import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import programs
import pytest

from fastaudit_rs.tools import trace

PROGRAM = """
import os, socket, time
print("its output")
for _ in range(3):
    open("<b>.txt", "w").close()
time.sleep(0.02)
os.environ["MODE"] = "fast"
os.system("true")
try:
    socket.create_connection(("127.0.0.1", 9))
except ConnectionRefusedError:
    pass
try:
    os.listdir("none")
except OSError:
    pass
"""


@pytest.fixture
def run(places):
    """`run(*arguments)`: what the command gave; the current directory is `places.cwd`."""

    def run_command(*arguments, before=""):
        command = f"{before}\nfrom fastaudit_rs.tools.cli import main\nraise SystemExit(main())"
        return programs.ran(command, *arguments)

    return run_command


class Page(HTMLParser):
    """The parts of a page: the rows of its table, the marks of its timeline, what it would load."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.marks, self.loads, self.lanes = [], [], [], []
        self.inside = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.loads += [attrs[name] for name in ("src", "href") if name in attrs]
        self.inside.append((tag, attrs.get("class")))
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")
        elif tag == "rect":
            self.marks.append((attrs["class"], float(attrs["x"]), ""))

    def handle_data(self, data):
        tag, name = self.inside[-1] if self.inside else ("", None)
        if tag == "td":
            self.rows[-1][-1] += data
        elif tag == "title" and self.marks:
            kind, x, _ = self.marks[-1]
            self.marks[-1] = (kind, x, data)
        elif (tag, name) == ("text", "lane"):
            self.lanes.append(data)

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop()[0] != tag:
            pass


def columns(line):
    """A row of the table: when, and the words of the rest."""
    when, rest = re.fullmatch(r" *([\d.]+) ms +(.*)", line).groups()
    return float(when), rest.split()


class TestTable:
    def test_what_matters_comes_first(self, run):
        done = run("trace", "-c", PROGRAM)
        assert (done.returncode, done.stdout) == (0, "its output\n")
        head, *lines = done.stderr.splitlines()
        assert head.split() == ["needs", "effect", "times", "target"]
        assert [line.split() for line in lines[:5]] == [
            ["--write", "write", "3", "<b>.txt"],
            ["--run", "process", "1", "/usr/bin/sh"],
            ["--net", "network", "1", "127.0.0.1:9"],
            ["env", "1", "MODE"],
            ["read", "1", "none"],
        ]
        assert re.fullmatch(r"and \d+ modules imported: --all shows all", lines[5])
        assert lines[6].startswith("fastaudit-rs run --write ")
        assert len(lines) == 7

    @pytest.mark.parametrize("before", ["", "import sys; sys.modules['rich.console'] = None"])
    def test_all_of_it_in_the_order_of_time(self, run, before):
        pytest.importorskip("rich")
        done = run("trace", "--all", "-c", PROGRAM, before=before)
        assert (done.returncode, done.stdout) == (0, "its output\n")
        lines = done.stderr.splitlines()
        assert lines[0].split() == ["at", "needs", "effect", "target", "event", "times"]
        rows = [columns(line) for line in lines[1:] if " ms " in line]
        told = [rest for _, rest in rows]
        expected = [
            ["--write", "write", "<b>.txt", "open", "3"],
            ["env", "MODE", "os.putenv", "1"],
            ["--run", "process", "/usr/bin/sh", "os.system", "1"],
            ["--net", "network", "127.0.0.1:9", "socket.connect", "1"],
            ["read", "none", "os.listdir", "1"],
        ]
        assert [row for row in told if row in expected] == expected
        assert ["import", "socket", "import", "1"] in told
        times = [when for when, _ in rows]
        assert times == sorted(times)
        when = {" ".join(rest): when for when, rest in rows}
        assert when["env MODE os.putenv 1"] - when["--write write <b>.txt open 3"] >= 20

    def test_what_it_says_would_allow_it_does(self, run):
        done = run("trace", "-c", PROGRAM)
        [line] = [line for line in done.stderr.splitlines() if line.endswith("would allow it")]
        options = shlex.split(line.removesuffix(" would allow it"))
        assert options[:2] == ["fastaudit-rs", "run"]
        assert run(*options[1:], "-c", PROGRAM).returncode == 0
        assert run("run", *options[4:], "-c", PROGRAM).returncode == 77

    def test_what_nothing_would_allow(self, run):
        code = "import os; open('a', 'w').close(); os.chroot('/')"
        done = run("trace", "--html", "page.html", "-c", code)
        assert done.stderr.splitlines()[-1] == "Nothing would allow os.chroot"
        assert "Nothing would allow os.chroot" in Path("page.html").read_text()
        assert "fastaudit-rs run" not in done.stderr + Path("page.html").read_text()

    def test_threads_and_servers(self, run):
        program = """
import socket, threading
def work(): pass
threading.Thread(target=work).start()
socket.socket().bind(("127.0.0.1", 0))
"""
        lines = run("trace", "-c", program).stderr.splitlines()
        assert [line.split() for line in lines[1:3]] == [
            ["--listen", "network", "1", "127.0.0.1:0"],
            ["thread", "1", "__main__.work"],
        ]
        assert lines[-1] == "fastaudit-rs run --listen 127.0.0.1:0 would allow it"

    def test_with_options(self, run):
        done = run("trace", "--write", ".", "-c", "open('a', 'w').close()")
        assert "would allow it" not in done.stderr
        assert "--write" not in done.stderr

    def test_it_stops_nothing(self, run, places):
        run("trace", "-c", f"import os; os.mkdir({places.out!r} + '/a')")
        assert Path(places.out, "a").is_dir()

    @pytest.mark.parametrize("number", [2, 15])
    def test_a_program_that_is_ended(self, run, number):
        """As Ctrl-C and a supervisor do."""
        code = f"import os, time; open('a', 'w'); os.kill(os.getpid(), {number}); time.sleep(60)"
        done = run("trace", "--html", "page.html", "-c", code)
        assert done.returncode == 128 + number and "Traceback" not in done.stderr
        assert "--write  write" in done.stderr and Path("page.html").read_text()

    def test_a_page_that_was_there(self, run):
        Path("page.html").write_text("before")
        assert run("trace", "--html", "page.html", "-c", "import os; os._exit(3)").returncode == 3
        assert Path("page.html").read_text() == "before"

    def test_a_directory_that_is_gone(self, run):
        code = "import os; os.mkdir('a'); os.chdir('a'); os.rmdir('../a')"
        done = run("trace", "--all", "--html", "page.html", "-c", code)
        assert done.returncode == 0, done.stderr
        events = [columns(line)[1][-2] for line in done.stderr.splitlines() if " ms " in line]
        assert [event for event in events if event.startswith("os.")] == [
            "os.mkdir",
            "os.chdir",
            "os.rmdir",
        ]
        assert Path("page.html").exists()

    @pytest.mark.parametrize("options", [[], ["--all"]])
    def test_names_act_on_no_terminal(self, run, options):
        told = run("trace", *options, "-c", r"open('a\x1b[2J', 'w').close()").stderr
        assert r"a\x1b[2J" in told and "\x1b" not in told


class TestPage:
    @pytest.fixture
    def page(self, run):
        done = run("trace", "--html", "page.html", "-c", PROGRAM)
        assert done.returncode == 0, done.stderr
        return Page(Path("page.html").read_text())

    def test_it_needs_nothing_else(self, page):
        assert page.loads == []
        text = Path("page.html").read_text()
        assert "http:" not in text and "https:" not in text and "$" not in text

    def test_the_table(self, page):
        rows = {row[2]: row for row in page.rows if row}
        assert rows["<b>.txt"][1:] == ["write", "<b>.txt", "open", "--write", "3"]
        assert rows["127.0.0.1:9"][4] == "--net"
        assert rows["MODE"][4:] == ["", "1"]

    def test_the_timeline(self, page):
        assert page.lanes[:4] == ["write", "process", "network", "env"]
        kind, x, _ = next(mark for mark in page.marks if "<b>.txt" in mark[2])
        later_kind, later, _ = next(mark for mark in page.marks if "MODE" in mark[2])
        assert (kind, later_kind) == ("denied", "allowed")
        assert x < later

    def test_a_file_that_cannot_be_written(self, run, places):
        done = run("trace", "--html", "none/page.html", "-c", f"open({places.out!r} + '/a', 'w')")
        assert done.returncode == 2
        assert done.stderr.startswith("fastaudit-rs: [Errno 2] No such file or directory")
        assert not Path(places.out, "a").exists()

    @pytest.mark.slow
    def test_many_operations_are_few_marks(self, run):
        code = "for i in range(3000): open(f'{i}', 'w').close()"
        assert run("trace", "--html", "page.html", "-c", code).returncode == 0
        page = Page(Path("page.html").read_text())
        assert len([row for row in page.rows if row and row[3] == "open"]) >= 3000
        assert len(page.marks) < 2000


@pytest.mark.parametrize(
    ("seconds", "count", "last"),
    [(0.001, 11, 0.001), (0.167, 9, 0.16), (1.0, 11, 1.0), (7.3, 8, 7.0), (3600.0, 8, 3500.0)],
)
def test_ticks_are_round(seconds, count, last):
    ticks = trace.ticks(seconds)
    assert (ticks[0], len(ticks), pytest.approx(ticks[-1])) == (0, count, last)


def test_durations():
    assert [trace.duration(time) for time in (0.0, 0.02, 1.5)] == ["0 ms", "20 ms", "1.5 s"]
