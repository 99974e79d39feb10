"""`fastaudit-rs run` with `--timeout`, `--memory`, `--tmp` and `--listen`."""

import functools
import os
import signal
import subprocess
import sys
import time

import programs
import pytest

COMMAND = [sys.executable, "-m", "fastaudit_rs", "run"]


@pytest.fixture
def command(command):
    return functools.partial(command, "run")


class TestTimeout:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "code",
        [
            "while True: pass",
            "import time; time.sleep(60)",
            # It cannot be interrupted, and holds all other threads.
            "sum(map(len, [()] * 10**8 * 100)) if 0 else 9**(9**9)",
            "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)",
        ],
    )
    def test_it_ends_the_program(self, command, code):
        begun = time.monotonic()
        done = command("--timeout", "1", "-c", f"print('began', flush=True)\n{code}")
        assert time.monotonic() - begun < 20
        assert (done.returncode, done.stdout) == (124, "began\n")
        assert done.stderr == "fastaudit-rs: ended after 1 s (--timeout)\n"

    def test_within_the_time_nothing_is_different(self, command):
        code = "print(input())\nraise SystemExit(3)"
        done = command("--timeout", "30", "-c", code, stdin="typed\n")
        assert (done.returncode, done.stdout, done.stderr) == (3, "typed\n", "")
        assert command("--timeout", "30", "-c", "open('/srv/a', 'w')").returncode == 77

    def test_signals_are_passed_on(self, places):
        code = (
            "import signal, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: exit(7))\n"
            "print('ready', flush=True)\ntime.sleep(60)"
        )
        with subprocess.Popen(
            [*COMMAND, "--timeout", "50", "-c", code], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 7

    def test_what_a_signal_ended(self, command):
        done = command("--timeout", "30", "-c", "raise KeyboardInterrupt")
        assert done.returncode == -signal.SIGINT


class TestMemory:
    @pytest.mark.slow
    def test_more_is_an_error_of_the_program(self, command):
        code = "x = bytearray(400 << 20)"
        done = command("--memory", "300M", "-c", code)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == "MemoryError"
        assert command("--memory", "2G", "-c", code).returncode == 0

    def test_the_program_cannot_lift_it(self, command):
        code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))"
        assert command("--memory", "300M", "-c", code).returncode != 0


class TestTemporaryFiles:
    def test_they_are_made_there(self, command, places):
        code = (
            "import os, tempfile\nname = tempfile.mkstemp()[1]\nprint(name)\n"
            "open(os.path.join(os.environ['TMPDIR'], 'kept'), 'w').close()\n"
            "open('other', 'w')"
        )
        done = command("--tmp", places.out, "-c", code)
        assert done.stdout.startswith(places.out + "/")
        assert done.returncode == 77
        assert "kept" in os.listdir(places.out) and os.listdir() == []

    def test_the_home_directory(self, command, places, monkeypatch):
        monkeypatch.setenv("HOME", places.out)
        done = command("--tmp", "~", "-c", "import tempfile; print(tempfile.mkdtemp())")
        assert done.stdout.startswith(places.out + "/"), done.stderr

    def test_there_is_none(self, command):
        done = command("--tmp", "none", "-c", "print('ran')")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "fastaudit-rs: --tmp: there is no directory none\n"


class TestListen:
    LISTEN = (
        "import socket\ns = socket.socket()\ns.bind(({host!r}, {port}))\ns.listen()\n"
        "print('listens')"
    )

    @pytest.fixture
    def port(self):
        import socket

        with socket.create_server(("127.0.0.1", 0)) as made:
            return made.getsockname()[1]

    @pytest.mark.slow
    def test_the_hint_allows_it(self, command, port):
        code = self.LISTEN.format(host="127.0.0.1", port=port)
        for given in ([], ["--net", "example.com"]):
            done = command(*given, "-c", code)
            assert f"To allow it: --listen 127.0.0.1:{port}\n" in done.stderr
        for address in (str(port), f"127.0.0.1:{port}"):
            assert command("--listen", address, "-c", code).stdout == "listens\n"

    def test_trace_tells_it(self, capfd, port):
        code = self.LISTEN.format(host="127.0.0.1", port=port)
        done = programs.run([*COMMAND[:-1], "trace", "-c", code])
        assert f"fastaudit-rs run --listen 127.0.0.1:{port} would allow it" in done.stderr


@pytest.mark.parametrize("closes", [True, False])
def test_bytes_of_a_file_that_is_written_as_it_is_closed(command, tmp_path, closes):
    """By the program, or by the interpreter at its end, when modules are gone."""
    file = tmp_path / "file"
    code = f"file = open({str(file)!r}, 'w'); file.write('x' * 5000)" + "; file.close()" * closes
    done = command("--write", str(tmp_path), "--set", "max_bytes=1000", "-c", code)
    denied = f"Denied: write 5000 bytes to '{file}': 0 are written already, and max_bytes is 1000"
    assert denied in done.stderr
    assert done.returncode == 77
    assert file.read_text() == ""
