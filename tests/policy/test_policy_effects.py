"""`network` and `commands` of real servers and programs; `tests/decisions` has the rules."""

import os
import pty
import shutil
import socket
import socketserver
import subprocess
import threading

import pytest


class TestNetwork:
    @pytest.fixture
    def server(self):
        """The address of a server on the loopback interface that says "fine" to who connects."""

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.sendall(b"fine")

        with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            yield server.server_address
            server.shutdown()
            thread.join()

    def test_by_default(self, under, server):
        def connect():
            with socket.create_connection(server) as connection:
                assert connection.recv(9) == b"fine"

        assert under(connect) is None
        assert under(connect, network=False).rule == "network"

    def test_connecting(self, under, server):
        with socket.socket() as connection:
            denied = under(connection.connect, server, network=False)
            assert (denied.rule, denied.effect, denied.host) == ("network", "network", "127.0.0.1")
            # The port is one that the system handed out.
            assert denied.hint == "network = Network(hosts=['127.0.0.1'])"
            assert denied.message == f"Denied: connect to the address 127.0.0.1:{server[1]}"
            assert under(connection.connect_ex, server, network=False).rule == "network"
            with pytest.raises(OSError, match="not connected"):
                connection.getpeername()


def output(*arguments, **options):
    return subprocess.run(*arguments, stdout=subprocess.PIPE, text=True, **options).stdout


class TestCommands:
    def test_none_by_default(self, under):
        denied = under(output, ["echo", "a"])
        assert denied.message == "Denied: start the program echo a"
        assert (denied.rule, denied.effect, denied.hint) == (
            "commands", "process", "commands = ['echo']",
        )  # fmt: skip

    def test_all(self, under):
        assert under(output, ["echo", "a"], commands=True) is None
        assert under(output, "echo a", shell=True, commands=True) is None
        assert under(os.system, "true", commands=True) is None

    @pytest.mark.parametrize("name", ["echo", shutil.which("echo"), "~/bin/echo"])
    def test_those_that_are_named(self, under, places, name, monkeypatch):
        """They really run, with all the events that belong to their start."""
        if name.startswith("~"):
            monkeypatch.setenv("HOME", places.out)
            os.mkdir(places.out + "/bin")
            shutil.copy(shutil.which("echo"), places.out + "/bin")
        command = os.path.expanduser(name)
        lines = []
        assert under(lambda: lines.append(output([command, "a b"])), commands=[name]) is None
        assert under(lambda: lines.append(output([command], cwd="/")), commands=[name]) is None
        assert lines == ["a b\n", "\n"]
        for other in (["ls"], ["/bin/ls"], ["echoes"]):
            assert under(output, other, commands=[name]).rule == "commands"

    def test_by_the_other_ways(self, under):
        echo = shutil.which("echo")
        only = {"commands": ["echo"]}

        def spawn(start, name):
            pid = start(name, [name, "a"], os.environ)
            assert os.waitpid(pid, 0)[1] == 0

        assert under(spawn, os.posix_spawn, echo, **only) is None
        assert under(spawn, os.posix_spawnp, "echo", **only) is None
        assert under(spawn, os.posix_spawnp, "true", **only).rule == "commands"
        assert under(os.execv, "/bin/true", ["true"], **only).rule == "commands"
        assert under(os.system, "echo a", **only).rule == "commands"
        assert under(pty.spawn, ["true"], **only).rule == "commands"

    def test_the_approval_covers_one_start(self, under):
        def twice():
            output(["echo"])
            output(["ls"])

        assert under(twice, commands=["echo"]).event_args[0] == "ls"
