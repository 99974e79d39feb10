"""Denials that nobody was shown, each in one line."""

import json
import os
import socket
import subprocess
import tempfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

from fastaudit_rs import AuditDenied, Network, Policy
from fastaudit_rs.tools.denials import denial_in, in_one_line, lines, swallowed

HERE = Path(__file__)


def line_of(text):
    """The line of this file that ends with a comment."""
    rows = HERE.read_text(encoding="utf-8").splitlines()
    [number] = [number for number, row in enumerate(rows, 1) if row.endswith(f"# {text}")]
    return number


def guard(*, words="options", **fields):
    return Policy(**{"write": [], **fields})._told_in(words).guard(monitor_calls=False)()


def place(text):
    return f"{HERE}:{line_of(text)}"


class TestPlace:
    def test_of_a_denial_that_a_library_swallows(self, tmp_path):
        with guard(read=[]) as denying:
            assert not zipfile.is_zipfile(tmp_path / "a")  # goes on
        [denied] = denying.violations
        assert denied.place == place("goes on")
        assert denied.to_dict()["place"] == denied.place
        again = AuditDenied.from_dict(json.loads(json.dumps(denied.to_dict())))
        assert again.place == denied.place

    def test_of_several_lines(self):
        with guard() as denying:
            for name in ("a", "b"):
                with pytest.raises(AuditDenied):
                    os.mkdir(  # it starts here
                        name,
                    )
        assert {denied.place for denied in denying.violations} == {place("it starts here")}

    def test_of_code_that_is_in_no_file(self):
        with guard() as denying, pytest.raises(AuditDenied):
            exec("\n\nopen('a', 'w')")
        assert denying.violations[0].place == "<string>:3"

    def test_of_one_that_no_guard_made(self):
        assert AuditDenied("made by hand").place is None


class TestWhatWasShown:
    def test_the_error_itself(self, tmp_path):
        with guard() as denying, pytest.raises(AuditDenied) as caught:
            open(tmp_path / "a", "w")
        assert swallowed(denying.violations, caught.value) == []
        assert len(swallowed(denying.violations)) == 1

    @pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://localhost:9/"])
    def test_an_error_that_wraps_it(self, url):
        with guard(network=False) as denying, pytest.raises(OSError) as caught:
            urllib.request.urlopen(url, timeout=5)
        assert not isinstance(caught.value, AuditDenied)
        caught.value.__cause__ = caught.value.__context__ = None
        denied = denial_in(caught.value)
        assert denied is not None and denied.event.startswith("socket.")
        assert swallowed(denying.violations, caught.value) == []

    def test_another_error_hides_it(self):
        with guard() as denying, pytest.raises(FileNotFoundError) as caught:
            tempfile._get_default_tempdir()  # tries each directory
        assert len(swallowed(denying.violations, caught.value)) >= 1
        told = lines(denying.violations, caught.value)
        assert all("to allow it: --write" in line for line in told)
        assert any(place("tries each directory").rpartition("/")[2] in line for line in told)

    def test_an_error_without_any(self):
        assert denial_in(None) is denial_in(ValueError("x")) is None
        circle = ValueError("x")
        circle.__cause__ = OSError(circle)
        assert denial_in(circle) is None


class TestLine:
    def test_below_the_current_directory(self, monkeypatch, tmp_path):
        monkeypatch.chdir(HERE.parent)
        with guard() as denying, pytest.raises(AuditDenied):
            open(tmp_path / "a", "w")  # is opened
        assert in_one_line(denying.violations[0]) == (
            f"open {tmp_path}/a, at {HERE.name}:{line_of('is opened')}; "
            f"to allow it: --write {tmp_path}/a"
        )

    @pytest.mark.parametrize(
        ("act", "says"),
        [
            (lambda: os.putenv("PATH", "secret"), "os.putenv PATH, at "),
            (lambda: subprocess.run(["ls", "-l"]), "subprocess.Popen ls -l, at "),
            (
                lambda: socket.create_connection(("127.0.0.1", 9)),
                "socket.connect 127.0.0.1:9, at ",
            ),
            (lambda: os.mkdir("a\nb"), "os.mkdir a b, at "),
            (lambda: os.mkdir("a" * 300), f"os.mkdir {'a' * 90}…, at "),
        ],
    )
    def test_it_names_the_object_alone(self, act, says):
        network = Network(hosts=[], lookup=True)
        with guard(network=network, env=False, commands=False) as denying:
            with pytest.raises(AuditDenied):
                act()
        line = in_one_line(denying.violations[-1])
        assert line.startswith(says)
        assert "\n" not in line and "secret" not in line.partition(", at ")[0]

    def test_nothing_allows_it(self):
        with guard() as denying, pytest.raises(AuditDenied):
            os._exit(3)
        line = in_one_line(denying.violations[0])
        assert line.endswith("; no option allows os._exit")

    def test_the_same_line_again(self, tmp_path):
        with guard() as denying:
            for name in "abc":
                with pytest.raises(AuditDenied):
                    open(tmp_path / name, "w")  # three times
            for number in range(4):
                with pytest.raises(AuditDenied):
                    exec(f"{chr(10) * number}os.mkdir('/srv/x')", {"os": os})
        told = lines(denying.violations)
        assert "/c and 2 others, at " in told[0] and ", 4 times" not in told[0]
        assert all(f"--write {tmp_path}/{name}" in told[0] for name in "abc")
        assert told[3:] == ["and 2 more"]
        assert len(lines(denying.violations, most=10)) == 5
