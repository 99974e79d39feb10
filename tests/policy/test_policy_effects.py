"""`Policy`: what `env`, `network` and `commands` allow and stop, with real servers and programs."""

import asyncio
import os
import pty
import shutil
import signal
import socket
import socketserver
import subprocess
import threading
import types
import urllib.error
import urllib.request

import pytest

from fastaudit_rs import AuditDenied, Policy, mk_audit


class TestEnv:
    @pytest.fixture(autouse=True)
    def restore(self, monkeypatch):
        monkeypatch.setattr(os, "environ", os.environ)
        before = dict(os.environ)
        yield
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)

    def test_none_by_default(self, under):
        denied = under(os.environ.__setitem__, "A_B", "1")
        assert denied.args == ("Audit: os.putenv blocked in sandbox with args: (b'A_B', b'1')",)
        assert (denied.rule, denied.effect, denied.hint) == ("env", "env", "env = ['A_B']")
        assert "A_B" not in os.environ

    def test_what_is_harmless(self, under):
        assert under(os.environ.__setitem__, "A_B", "1", env=True) is None
        assert under(os.unsetenv, "A_B", env=True) is None
        for name in ("PATH", "LD_PRELOAD", "PYTHONPATH", "http_proxy", "HOME", "GIT_SSH"):
            assert under(os.putenv, name, "x", env=True).rule == "env", name
            assert under(os.unsetenv, name).rule == "env", name

    def test_what_is_named(self, under):
        names = {"env": ["MY_*", "PATH"]}
        assert under(os.putenv, "MY_A", "x", **names) is None
        assert under(os.putenv, b"MY_A", b"x", **names) is None
        assert under(os.putenv, "PATH", os.environ["PATH"], **names) is None
        assert under(os.putenv, "MINE", "x", **names).rule == "env"
        assert under(os.putenv, "PATHEXT", "x", env=["PATH*"]).rule == "env"

    def test_the_hint_is_true(self, under):
        hint = under(os.putenv, "LD_PRELOAD", "").hint
        policy = Policy.parse_toml(hint)
        assert policy.explain("os.putenv", b"LD_PRELOAD", b"").allowed

    def test_not_by_mk_audit(self):
        with mk_audit([], monitor_calls=False)(), pytest.raises(AuditDenied) as caught:
            os.putenv("A", "b")
        assert caught.value.hint == 'a before_deny that returns True for "os.putenv"'


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
            assert denied.message.endswith(f", ('127.0.0.1', {server[1]}))")
            assert under(connection.connect_ex, server, network=False).rule == "network"
            with pytest.raises(OSError, match="not connected"):
                connection.getpeername()

    def test_listening_and_sending(self, under, server, tmp_path):
        with (
            socket.socket() as stream,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
            socket.socket(socket.AF_UNIX) as local,
        ):
            for operation in (
                lambda: stream.bind(("127.0.0.1", 0)),
                lambda: datagrams.sendto(b"x", server),
                lambda: datagrams.sendmsg([b"x"], [], 0, server),
                lambda: local.bind(str(tmp_path / "socket")),
                lambda: local.connect(str(tmp_path / "none")),
            ):
                assert under(operation, network=False).rule == "network"
        assert not (tmp_path / "socket").exists()

    def test_looking_up(self, under):
        for operation in (
            lambda: socket.getaddrinfo("localhost", 80),
            lambda: socket.gethostbyname("localhost"),
            lambda: socket.gethostbyname_ex("localhost"),
            lambda: socket.gethostbyaddr("127.0.0.1"),
            lambda: socket.getnameinfo(("127.0.0.1", 80), 0),
        ):
            denied = under(operation, network=False)
            assert denied.rule == "network"
            assert denied.host in ("localhost", "127.0.0.1")

    def test_urllib(self, under, server):
        def get():
            urllib.request.urlopen(f"http://127.0.0.1:{server[1]}", timeout=5)

        with Policy(network=False).guard(monitor_calls=False)() as guard:
            with pytest.raises(urllib.error.URLError, match="blocked in sandbox"):
                get()
        assert [denied.rule for denied in guard.violations] == ["network"]

    def test_what_is_connected_already(self, under):
        first, second = socket.socketpair()
        with first, second:
            assert under(first.sendall, b"x", network=False) is None
            assert under(first.sendmsg, [b"y"], network=False) is None
            assert under(second.recv, 2, network=False) is None

    def test_asyncio_without_it(self, under):
        async def nothing():
            await asyncio.sleep(0)
            return 1

        assert under(lambda: asyncio.run(nothing()), network=False) is None


def output(*arguments, **options):
    return subprocess.run(*arguments, stdout=subprocess.PIPE, text=True, **options).stdout


class TestCommands:
    def test_none_by_default(self, under):
        denied = under(output, ["echo", "a"])
        assert denied.message == (
            "Audit: subprocess.Popen blocked in sandbox with args: "
            "('echo', ['echo', 'a'], None, None)"
        )
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

    def test_a_shell_is_not_its_first_word(self, under):
        denied = under(output, "echo a", shell=True, commands=["echo"])
        assert denied.rule == "commands"
        assert denied.hint == "commands = ['echo', '/bin/sh']"
        assert under(os.system, "echo a", commands=["echo"]).hint == denied.hint
        for name in ("sh", "/bin/sh"):
            assert under(output, "echo a", shell=True, commands=[name]) is None
            assert under(os.system, "true", commands=[name]) is None

    def test_another_of_the_same_name(self, under, places, monkeypatch):
        shutil.copy(shutil.which("ls"), places.ok + "/echo")
        only = {"commands": ["echo"]}
        for arguments, options in [
            ([places.ok + "/echo"], {}),
            (["./echo"], {"cwd": places.ok}),
            (["echo"], {"env": {"PATH": places.ok}}),
            (["echo"], {"env": {b"PATH": os.fsencode(places.ok)}}),
            (["echo"], {"executable": "/bin/ls"}),
            (["echo"], {"env": types.MappingProxyType({"PATH": places.ok})}),
        ]:
            denied = under(lambda a=arguments, o=options: output(a, **o), **only)
            assert denied.rule == "commands", (arguments, options)
        for environment in (dict(os.environ), os.environ, None):
            assert under(lambda e=environment: output(["echo"], env=e), **only) is None
        monkeypatch.setenv("PATH", places.ok)
        assert under(output, ["echo"], commands=[shutil.which("true", path="/bin:/usr/bin")]).rule

    def test_relative_paths(self, under, places):
        shutil.copy(shutil.which("echo"), places.cwd + "/own")
        assert under(output, ["./own"], commands=["./own"]) is None
        assert under(output, [places.cwd + "/own"], commands=["./own"]) is None
        run = lambda: output(["cwd/own"], cwd=os.path.dirname(places.cwd))  # noqa: E731
        assert under(run, commands=["./own"]) is None

    def test_signals_stay_denied(self, under):
        assert under(os.kill, os.getpid(), signal.SIGCONT, commands=True).rule is None

    def test_what_is_not_there(self, under):
        assert under(output, ["echo"], commands=["no-such-program"]).rule == "commands"

    def test_the_approval_covers_one_start(self, under):
        def twice():
            output(["echo"])
            output(["ls"])

        assert under(twice, commands=["echo"]).event_args[0] == "ls"
