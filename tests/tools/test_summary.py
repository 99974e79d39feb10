"""A summary of what was done, made from recordings and traces of programs that do much."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import programs
import pytest

from fastaudit_rs import Policy
from fastaudit_rs.tools.summary import shortened, summary_of, touched_of


def summary(recording):
    entries = json.loads(recording.to_json())["effects"]
    return summary_of(touched_of(entry, entry["call_chain"]) for entry in entries)


def recorded(work, **fields):
    fields.setdefault("write", [])
    with Policy(**fields).observe(monitor_calls=False)() as recording:
        work()
    return summary(recording)


def shown(found):
    return [(row.needs, row.effect, row.shown, row.times) for row in found.rows]


class TestOrder:
    def test_what_matters_comes_first(self, places):
        def work():
            open("/etc/hostname").close()
            os.environ["MODE"] = "x"
            os.remove(places.ok + "/old")
            open(places.ok + "/new", "w").close()
            open(places.out + "/new", "w").close()
            os.remove(places.out + "/new")
            subprocess.run(["true"], check=True)
            with socket.socket() as made:
                made.connect_ex(("127.0.0.1", 9))

        open(places.ok + "/old", "w").close()
        found = recorded(work, write=[places.ok], network=False, env=["MODE"])
        assert [(needs, effect) for needs, effect, *_ in shown(found)] == [
            ("--write", "write"),
            ("--write", "delete"),
            ("--run", "process"),
            ("--net", "network"),
            ("", "write"),
            ("", "delete"),
            ("", "env"),
            ("", "read"),
        ]

    def test_nothing_allows_it(self, places):
        def work():
            os.mkdir(places.out + "/a")
            sys.audit("os.setuid", 1)

        needs = [row.needs for row in recorded(work).rows]
        assert needs == ["denied", "--write"]


class TestAlike:
    def test_reads_of_one_directory(self, places):
        for name in "abc":
            Path(places.ok, name).touch()

        def work():
            for name in "abca":
                open(f"{places.ok}/{name}").close()

        found = recorded(work)
        assert shown(found) == [("", "read", f"{places.ok}/ (3 different)", 4)]

    def test_a_file_that_was_made_and_opened(self, places):
        def work():
            os.mkdir(places.out + "/a")
            os.chmod(places.out + "/a", 0o700)

        assert shown(recorded(work)) == [("--write", "write", places.out + "/a", 1)]

    @pytest.mark.slow
    @pytest.mark.parametrize("count", [30, 3000])
    def test_many_files(self, places, count):
        for name in "pqr":
            os.mkdir(f"{places.out}/{name}")

        def work():
            for number in range(count):
                open(f"{places.out}/{'pqr'[number % 3]}/{number}", "w").close()

        rows = shown(recorded(work))
        assert rows == [
            ("--write", "write", f"{places.out}/{name}/ ({count // 3} different)", count // 3)
            for name in "pqr"
        ]

    def test_files_in_many_directories(self, places):
        def work():
            for number in range(200):
                os.makedirs(f"{places.out}/{number % 50}/{number}")

        found = recorded(work)
        assert len(found.rows) <= 10
        assert sum(row.things for row in found.rows) == 250

    def test_no_more_than_25_lines(self):
        def work():
            for number in range(60):
                sys.audit("socket.getaddrinfo", f"host-{number}.example", 80, 0, 0, 0)

        found = recorded(work, network=False)
        assert len(found.lines()) == 25
        assert found.hidden == 36
        assert found.rest("--all") == "and 36 more different operations: --all shows all"

    def test_nothing(self):
        found = recorded(lambda: None)
        assert found.lines() == ["needs  effect  times  target"]
        assert found.rest("--all") == ""


class TestWidth:
    def test_long_paths_keep_their_ends(self, places):
        deep = "/".join([places.out, "x" * 90, "y" * 90, "last.txt"])

        def work():
            sys.audit("os.mkdir", deep, 0o777, -1)

        [head, line] = recorded(work).lines()
        assert len(line) == 100
        assert line.endswith("yyy/last.txt") and "…" in line
        assert head.split() == ["needs", "effect", "times", "target"]

    def test_names_with_control_characters(self, places):
        def work():
            open(f"{places.out}/a\n\x1b[31mb", "w").close()

        [_, line] = recorded(work).lines()
        assert "\x1b" not in line and line.endswith("b")

    def test_html(self, places):
        def work():
            open(f"{places.out}/<b>", "w").close()

        page = recorded(work).page()
        assert "&lt;b&gt;" in page and "<b>" not in page
        assert page.count("<tr style=color:#d12f2f>") == 1

    @pytest.mark.parametrize("room", range(3, 12))
    def test_shortened(self, room):
        assert len(shortened("0123456789", room)) == min(room, 10)


@pytest.mark.slow
def test_a_plot_in_the_shell(tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    script = tmp_path / "plot.py"
    script.write_text(
        "import pandas as pd, matplotlib\nmatplotlib.use('Agg')\n"
        "import matplotlib.pyplot as plt\n"
        "frame = pd.DataFrame({'a': range(5), 'b': [1, 4, 2, 8, 5]})\n"
        "frame.to_csv('data.csv')\npd.read_csv('data.csv').plot(x='a', y='b')\n"
        "plt.savefig('plot.png')\n"
    )
    done = programs.python("-m", "fastaudit_rs", "trace", "plot.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) <= 25
    table = lines[:-2]
    assert max(map(len, table)) <= 100
    assert "('" not in done.stderr
    natives = [line.split()[2] for line in table if line.split()[0] == "native"]
    assert len(natives) == len(set(natives)) <= 8
    assert {line.split()[-1] for line in table if line.startswith("--write")} >= {
        "data.csv",
        "plot.png",
    }
