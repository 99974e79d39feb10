"""`Policy`: what each field allows and stops, what a denial says, bad values, TOML."""

import asyncio
import contextvars
import os
import pickle
import pty
import shutil
import socket
import socketserver
import sqlite3
import subprocess
import sys
import textwrap
import threading
import types
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastaudit_rs import AuditDenied, AuditPerms, Policy, mk_audit


@pytest.fixture
def under(places):
    """`under(function, **fields)`: runs the function under a policy; the denial, or `None`."""

    def run(function, *args, shell=None, **fields):
        fields.setdefault("write", [places.ok])
        options = {} if shell is None else {"shell": shell}
        try:
            with Policy(**fields).guard(monitor_calls=False)():
                function(*args, **options)
        except AuditDenied as denied:
            return denied
        return None

    return run


def touch(path):
    open(path, "w").close()


def read(path):
    with open(path) as file:
        return file.read()


def raising(error):
    raise error


class TestWrite:
    def test_below_the_roots_alone(self, under, places):
        assert under(touch, places.ok + "/a") is None
        denied = under(touch, places.out + "/a")
        assert denied.args == (f"open '{places.out}/a' not in ('{places.ok}',)",)
        assert denied.rule == "write"
        assert denied.hint == f"write = ['{places.out}']"

    def test_nowhere_by_default(self, places):
        with Policy().guard(monitor_calls=False)(), pytest.raises(AuditDenied):
            touch(places.ok + "/a")

    def test_anywhere(self, under, places):
        assert under(touch, places.out + "/a", write=None) is None

    def test_home(self, under, places, monkeypatch):
        monkeypatch.setenv("HOME", places.out)
        os.mkdir(places.out + "/sub")
        assert under(touch, places.out + "/sub/a", write=["~/sub"]) is None
        assert under(touch, places.out + "/a", write=["~/sub"]).rule == "write"
        assert Policy(write=["~/sub"]).write == ("~/sub",)

    def test_the_current_directory_is_followed(self, under, places):
        def change():
            touch("a")
            os.chdir(places.ok)
            touch("b")

        assert under(change, write=[".", places.ok]) is None
        assert os.path.exists(places.cwd + "/a")

    def test_is_what_mk_audit_does(self, under, places):
        """Beside names that are protected."""
        for path in (places.ok + "/a", places.out + "/a", places.ok + "ay", "/dev/null"):
            try:
                with mk_audit([places.ok], monitor_calls=False)():
                    touch(path)
                message = None
            except AuditDenied as denied:
                message = denied.message
            denied = under(touch, path, protect=False)
            assert (denied and denied.message) == message


class TestRead:
    def test_anywhere_by_default(self, under, places):
        Path(places.out, "a").touch()
        assert under(read, places.out + "/a") is None

    def test_below_the_roots_alone(self, under, places):
        Path(places.out, "a").touch()
        Path(places.cwd, "a").touch()
        assert under(read, places.cwd + "/a", read=[places.cwd]) is None
        assert under(read, "a", read=["."]) is None
        denied = under(read, places.out + "/a", read=[places.cwd])
        assert denied.args == (f"open '{places.out}/a' not readable: not in ('{places.cwd}',)",)
        assert (denied.rule, denied.effect) == ("read", "read")
        assert denied.hint == f"read = ['{places.out}']"

    @pytest.mark.parametrize(
        "operation",
        [
            os.listdir,
            lambda path: os.close(os.open(path, os.O_RDONLY)),
            lambda path: list(os.scandir(path)),
            lambda path: list(os.walk(path, onerror=raising)),
            lambda path: list(os.fwalk(path, onerror=raising)),
            os.listxattr,
            lambda path: list(Path(path).iterdir()),
            lambda path: shutil.copytree(path, path + "/../ok/copied"),
        ],
    )
    def test_everything_that_reads(self, under, places, operation):
        assert under(operation, places.out, read=[places.cwd, places.ok]).rule == "read"
        assert under(operation, places.out) is None

    def test_attributes(self, under, places):
        denied = under(os.getxattr, places.out, "user.none", read=[places.ok])
        assert (denied.rule, denied.hint) == ("read", f"read = ['{places.out}']")
        with pytest.raises(OSError):
            under(os.getxattr, places.out, "user.none")

    def test_of_the_current_directory_by_no_name(self, under, places):
        assert under(os.listdir, read=[places.ok]).rule == "read"
        assert under(os.listdir, read=["."]) is None

    def test_of_copies(self, under, places):
        Path(places.out, "a").touch()
        for copy in (shutil.copyfile, shutil.copy, shutil.copy2, shutil.move):
            arguments = (places.out + "/a", places.ok + "/a")
            assert under(copy, *arguments, write=None, read=[places.ok]) is not None, copy
        assert os.listdir(places.ok) == []

    def test_of_where_a_link_leads(self, under, places):
        Path(places.out, "a").touch()
        os.symlink(places.out + "/a", places.ok + "/link")
        os.symlink(places.ok, places.out + "/back")
        Path(places.ok, "b").touch()
        assert under(read, places.ok + "/link", read=[places.ok]).rule == "read"
        assert under(read, places.out + "/back/b", read=[places.ok]) is None

    def test_of_an_open_descriptor(self, under, places):
        Path(places.out, "a").write_text("x")
        descriptor = os.open(places.out + "/a", os.O_RDONLY)
        assert under(read, descriptor, read=[places.ok]) is None

    def test_of_databases(self, under, places):
        sqlite3.connect(places.out + "/db").close()

        def connect():
            sqlite3.connect(f"file:{places.out}/db?mode=ro", uri=True).close()

        assert under(connect, read=[places.ok]).rule == "read"
        assert under(connect, read=[places.out]) is None

    def test_imports_still_work(self, places):
        """In a fresh process: nothing is loaded yet."""
        code = f"""
            from fastaudit_rs import Policy
            with Policy(read=[{places.ok!r}]).guard(monitor_calls=False)():
                import csv, json, elftools.elf.elffile, xml.dom.minidom
                try:
                    open("/etc/passwd")
                except PermissionError as denied:
                    print(denied.rule)
        """
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
        )
        assert (run.stdout, run.stderr) == ("read\n", "")


class TestBlock:
    @pytest.fixture
    def secret(self, places):
        path = places.ok + "/secret"
        os.mkdir(path)
        Path(path, "a").touch()
        return path

    def test_beats_every_root(self, under, places, secret):
        for operation in (touch, read, os.remove):
            for fields in ({}, {"write": None}, {"write": [secret], "read": [secret]}):
                denied = under(operation, secret + "/a", block=[secret], **fields)
                assert denied.rule == "block"
                assert denied.args == (f"{denied.event} '{secret}/a' is blocked",)
        assert under(touch, places.ok + "/b", block=[secret]) is None
        assert under(touch, places.ok + "/secretly", block=[secret]) is None
        assert os.listdir(secret) == ["a"]

    def test_by_whatever_name(self, under, places, secret, monkeypatch):
        os.symlink(secret, places.ok + "/link")
        os.symlink(secret + "/a", places.ok + "/file")
        monkeypatch.chdir(secret)
        for path in (
            places.ok + "/link/a",
            places.ok + "/file",
            places.ok + "/x/../secret/a",
            "a",
            os.fsencode(secret) + b"/a",
            Path(secret, "a"),
        ):
            for operation in (touch, read):
                assert under(operation, path, block=[secret]).rule == "block", path

    def test_a_file(self, under, secret):
        assert under(read, secret + "/a", block=[secret + "/a"]).rule == "block"
        assert under(touch, secret + "/b", block=[secret + "/a"]) is None

    def test_what_is_not_there_yet(self, under, places):
        assert under(touch, places.ok + "/new", block=[places.ok + "/new"]).rule == "block"
        assert under(os.mkdir, places.ok + "/new", block=[places.ok + "/new"]).rule == "block"

    def test_moving_what_holds_it(self, under, places, secret):
        for move in (os.rename, os.replace, shutil.move):
            denied = under(move, places.ok, places.ok + "2", write=None, block=[secret])
            assert denied.rule == "block"
        os.mkdir(places.ok + "/other")
        denied = under(os.rename, places.ok + "/other", secret, block=[secret])
        assert denied.rule == "block"

    def test_links_to_it(self, under, places, secret):
        link = places.ok + "/link"
        assert under(os.symlink, secret, link, block=[secret]).rule == "block"
        assert under(os.symlink, "secret/a", link, block=[secret]).rule == "block"
        assert under(os.link, secret + "/a", link, block=[secret]).rule == "block"

    def test_entering_and_listing_it(self, under, secret):
        for operation in (os.listdir, os.chdir, os.scandir):
            assert under(operation, secret, block=[secret]).rule == "block"

    def test_home(self, under, secret, monkeypatch):
        monkeypatch.setenv("HOME", os.path.dirname(secret))
        assert under(read, secret + "/a", block=["~/secret"]).rule == "block"


class TestProtect:
    @pytest.fixture
    def repository(self, places):
        os.makedirs(places.ok + "/a/.git/hooks")
        return places.ok + "/a/.git"

    def test_names_inside_a_root(self, under, repository):
        denied = under(touch, repository + "/hooks/pre-commit")
        assert denied.rule == "protect"
        assert denied.args == (f"open '{repository}/hooks/pre-commit' is protected",)
        assert under(touch, repository + "/config").rule == "protect"
        assert under(touch, repository + "/HEAD") is None
        assert under(touch, repository + "/../hooks") is None

    @pytest.mark.parametrize("name", Policy.PROTECTED)
    def test_the_preset(self, under, places, name):
        os.makedirs(os.path.dirname(f"{places.ok}/{name}"), exist_ok=True)
        for path in (f"{places.ok}/{name}", f"{places.ok}/{name}/a"):
            assert under(os.mkdir, path).rule == "protect"
            assert under(os.mkdir, path, protect=False) is None

    def test_reading_them_passes(self, under, repository):
        Path(repository, "config").touch()
        assert under(read, repository + "/config") is None

    def test_ones_own(self, under, places, repository):
        own = {"protect": ["x/y", "z"]}
        os.mkdir(places.ok + "/x")
        assert under(touch, places.ok + "/x/y", **own).rule == "protect"
        assert under(touch, places.ok + "/z", **own).rule == "protect"
        assert under(touch, places.ok + "/y", **own) is None
        assert under(touch, repository + "/config", **own) is None

    def test_by_way_of_another_name(self, under, places, repository):
        os.symlink(repository, places.ok + "/link")
        os.mkdir(places.ok + "/hooks")
        os.mkdir(places.ok + "/other")
        for operation in (
            lambda: touch(places.ok + "/link/hooks/a"),
            lambda: os.rename(repository, places.ok + "/b"),
            lambda: os.rename(places.ok + "/hooks", repository + "/hooks"),
            lambda: os.rename(places.ok + "/other", places.ok + "/.git"),
            lambda: os.symlink("other", places.ok + "/.git"),
            lambda: os.symlink("a/.git/hooks", places.ok + "/direct"),
            lambda: shutil.rmtree(repository + "/hooks"),
        ):
            assert under(operation).rule == "protect"

    def test_not_by_mk_audit(self, places, repository):
        with mk_audit([places.ok], monitor_calls=False)():
            touch(repository + "/config")


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
            assert under(os.unsetenv, name, env=True).rule == "env", name

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
            assert denied.hint == "network = true"
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
        assert denied.hint == "commands = ['/bin/sh']"
        assert under(os.system, "echo a", commands=["echo"]).hint == "commands = ['/bin/sh']"
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
        assert under(os.kill, os.getpid(), 0, commands=True).rule is None

    def test_what_is_not_there(self, under):
        assert under(output, ["echo"], commands=["no-such-program"]).rule == "commands"

    def test_the_approval_covers_one_start(self, under):
        def twice():
            output(["echo"])
            output(["ls"])

        assert under(twice, commands=["echo"]).event_args[0] == "ls"


class TestObject:
    def test_fields(self):
        policy = Policy(write=[Path("a"), b"b"], read=iter(["."]), block=("/x",), protect=["y"])
        assert policy.write == ("a", "b")
        assert policy.read == (".",)
        assert policy.block == ("/x",)
        assert policy.protect == ("y",)
        assert repr(policy) == (
            "Policy(write=('a', 'b'), read=('.',), block=('/x',), protect=('y',), env=False, "
            "network=True, commands=False)"
        )
        assert eval(repr(policy)) == policy
        assert repr(Policy()) == (
            "Policy(write=(), read=None, block=(), protect=True, env=False, network=True, "
            "commands=False)"
        )
        assert Policy(commands=["ls"]).commands == ("ls",)
        assert Policy(env=["A"]).env == ("A",)
        assert Policy(network=False).network is False

    def test_is_immutable(self):
        policy = Policy()
        with pytest.raises(AttributeError):
            policy.write = ("/",)
        with pytest.raises(AttributeError):
            policy.other = 1

    def test_equality_and_hash(self):
        assert Policy(write=["a"]) == Policy(write=("a",))
        assert hash(Policy(write=["a"])) == hash(Policy(write=("a",)))
        assert Policy(write=["a"]) != Policy(write=["b"])
        assert Policy() != 1
        assert len({Policy(), Policy(), Policy(read=())}) == 2

    def test_replace(self):
        policy = Policy(write=["a"], block=["b"])
        assert policy.replace(write=None) == Policy(write=None, block=["b"])
        assert policy.replace() == policy
        with pytest.raises(TypeError, match='a policy has no field "wirte": the fields are write,'):
            policy.replace(wirte=["a"])
        with pytest.raises(TypeError, match="write must be None or an iterable of paths, not int"):
            policy.replace(write=1)

    @pytest.mark.parametrize(
        ("fields", "error", "message"),
        [
            ({"write": "x"}, TypeError, "write must be None or an iterable of paths, not str"),
            ({"write": Path("x")}, TypeError, "write must be None or an iterable of paths, not P"),
            ({"write": 1}, TypeError, "write must be None or an iterable of paths, not int"),
            ({"read": b"x"}, TypeError, "read must be None or an iterable of paths, not bytes"),
            ({"read": ["a", 1]}, TypeError, r"read\[1\] must be str, bytes or os.PathLike, not i"),
            ({"block": None}, TypeError, "block must be an iterable of paths, not NoneType"),
            ({"protect": "x"}, TypeError, "protect must be True, False or an iterable of names"),
            ({"protect": None}, TypeError, "protect must be True, False or an iterable of names"),
            ({"protect": ["a/../b"]}, ValueError, r"protect\[0\] must be a name, or names below"),
            ({"protect": ["/a"]}, ValueError, r"protect\[0\] must be a name, or names below"),
            ({"protect": [""]}, ValueError, r"protect\[0\] must be a name, or names below"),
            ({"write": [""]}, ValueError, r"write\[0\] must not be empty: \".\" is the current"),
            ({"block": ["a\0"]}, ValueError, r"block\[0\] must not contain a NUL"),
            ({"read": ["\udcff"]}, ValueError, r"read\[0\] must be UTF-8 text, as TOML is"),
            ({"read": [b"\xff"]}, ValueError, r"read\[0\] must be UTF-8 text, as TOML is"),
            ({"env": "A"}, TypeError, "env must be True, False or an iterable of names, not str"),
            ({"env": None}, TypeError, "env must be True, False or an iterable of names, not None"),
            ({"env": [1]}, TypeError, r"env\[0\] must be str, bytes or os.PathLike, not int"),
            ({"env": ["A", ""]}, ValueError, r"env\[1\] must be the name of a variable"),
            ({"env": ["A=B"]}, ValueError, r"env\[0\] must be the name of a variable"),
            ({"commands": "ls"}, TypeError, "commands must be True, False or an iterable of progr"),
            ({"commands": ["ls -l"]}, ValueError, r"commands\[0\] must be the name or the path of"),
            ({"commands": [""]}, ValueError, r"commands\[0\] must be the name or the path of one"),
            ({"network": None}, TypeError, "network must be True or False, not None"),
            ({"network": 1}, TypeError, "network must be True or False, not 1"),
            ({"wirte": []}, TypeError, "wirte"),
        ],
    )
    def test_bad_values(self, fields, error, message):
        with pytest.raises(error, match=message):
            Policy(**fields)


class TestGuard:
    def test_gives_what_mk_audit_gives(self, places):
        asked = []

        def before_deny(event, args, frame, message, data):
            asked.append((event, message, data))
            return event == "os.mkdir"

        perms = Policy(write=[places.ok], block=[places.ok + "/b"]).guard(
            before_deny, data=7, monitor_calls=False
        )
        assert isinstance(perms, AuditPerms)
        with perms() as guard:
            os.mkdir(places.ok + "/b")
            with pytest.raises(AuditDenied):
                os.rmdir(places.ok + "/b")
        assert asked[0] == ("os.mkdir", f"os.mkdir '{places.ok}/b' is blocked", 7)
        assert [denied.rule for denied in guard.violations] == ["block"]

    def test_guards_in_other_contexts_keep_to_their_own(self, places):
        """While a policy restricts reading and the network, `mk_audit` still does not."""
        strict = Policy(read=[], network=False).guard(monitor_calls=False)
        loose = mk_audit([places.ok], monitor_calls=False)
        Path(places.out, "a").touch()

        def look_around():
            with loose():
                read(places.out + "/a")
                os.listdir(places.out)
                socket.getaddrinfo("127.0.0.1", 80)
                with pytest.raises(AuditDenied) as caught:
                    touch(places.out + "/b")
            return caught.value.rule

        context = contextvars.Context()
        with strict():
            assert context.run(look_around) == "write"
            for operation in (read, os.listdir):
                with pytest.raises(AuditDenied) as caught:
                    operation(places.out + "/a")
                assert caught.value.rule == "read"

    def test_checks_its_arguments_as_mk_audit_does(self):
        with pytest.raises(TypeError, match="before_deny must be None or a function"):
            Policy().guard(1, monitor_calls=False)

    def test_cannot_be_made_under_a_guard(self, places):
        policy = Policy(write=None)
        with mk_audit([places.ok], monitor_calls=False)():
            with pytest.raises(AuditDenied, match="audit_perms.set_config"):
                policy.guard(monitor_calls=False)

    def test_roots_are_resolved_when_it_is_made(self, places, monkeypatch):
        policy = Policy(write=["sub/../sub"])
        os.mkdir("sub")
        perms = policy.guard(monitor_calls=False)
        monkeypatch.chdir(places.out)
        with perms():
            touch(places.cwd + "/sub/a")


class TestExplain:
    def test_says_what_would_happen(self, places):
        policy = Policy(write=[places.ok], block=[places.ok + "/b"])
        allowed = policy.explain("open", places.ok + "/a", "w", 0)
        assert (allowed.allowed, allowed.denied, allowed.rule) == (True, None, None)
        assert str(allowed) == "allowed"
        assert policy.explain("open", places.out + "/a", "r", 0).allowed
        assert Policy().explain("open", places.out + "/a", None, os.O_RDONLY).allowed
        explanation = policy.explain("open", places.out + "/a", "w", 0)
        assert not explanation.allowed
        assert explanation.rule == "write"
        assert type(explanation.denied) is AuditDenied
        assert explanation.denied.message == f"open '{places.out}/a' not in ('{places.ok}',)"
        assert str(explanation) == str(explanation.denied)
        assert policy.explain("os.mkdir", places.ok + "/b", 0o777, -1).rule == "block"
        system = policy.explain("os.system", b"ls")
        assert (system.allowed, system.rule, system.denied.event) == (
            False, "commands", "os.system",
        )  # fmt: skip
        assert policy.explain("os.kill", 1, 0).rule is None
        assert policy.explain("no.such.event").allowed
        assert os.listdir(places.ok) == []

    def test_also_under_a_guard(self, places):
        policy = Policy(write=[places.out])
        with mk_audit([places.ok], monitor_calls=False)() as guard:
            assert policy.explain("os.mkdir", places.out + "/a", 0o777, -1).allowed
            assert policy.explain("os.mkdir", places.ok + "/a", 0o777, -1).rule == "write"
        assert guard.violations == []


PATHS = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
)
NAMES = st.lists(
    st.text(st.characters(exclude_characters="\0/.", exclude_categories=["Cs"]), min_size=1)
)


class TestToml:
    @given(
        write=st.none() | PATHS,
        read=st.none() | PATHS,
        block=PATHS,
        protect=st.booleans() | NAMES,
        env=st.booleans() | st.lists(st.from_regex(r"[A-Z_]+\*?", fullmatch=True)),
        network=st.booleans(),
        commands=st.booleans() | st.lists(st.from_regex(r"/?[a-z]+", fullmatch=True)),
    )
    def test_comes_back_from_its_toml_and_from_a_pickle(self, **fields):
        policy = Policy(**fields)
        assert Policy.parse_toml(policy.to_toml()) == policy
        assert pickle.loads(pickle.dumps(policy)) == policy
        assert eval(repr(policy)) == policy

    def test_text(self):
        assert Policy(write=[".", "~/a"]).to_toml() == (
            'write = [".", "~/a"]\nread = "anywhere"\nblock = []\nprotect = true\n'
            "env = false\nnetwork = true\ncommands = false\n"
        )

    def test_of_a_file(self, tmp_path):
        file = tmp_path / "policy.toml"
        file.write_text("write = ['ü']\n", encoding="utf-8")
        for path in (file, str(file), os.fsencode(file)):
            assert Policy.from_toml(path) == Policy(write=["ü"])

    def test_of_a_pyproject(self, tmp_path):
        file = tmp_path / "pyproject.toml"
        file.write_text("[project]\nname = 'x'\n[tool.fastaudit]\nread = []\n")
        assert Policy.from_toml(file) == Policy(read=[])
        file.write_text("[project]\nname = 'x'\n")
        with pytest.raises(ValueError, match=r"pyproject.toml: has no section \[tool.fastaudit\]"):
            Policy.from_toml(file)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("wirte = []", 'has the unknown key "wirte": the keys are write, read, block, protect'),
            ("write = 1", 'write must be "anywhere" or an array of paths, not integer'),
            ("read = 'x'", 'read must be "anywhere" or an array of paths, not "x"'),
            ("block = true", "block must be an array of paths, not boolean"),
            ("block = [1]", r"block\[0\] must be a path, a string, not integer"),
            ("protect = 1", "protect must be true, false or an array of names, not integer"),
            ("env = 1", "env must be true, false or an array of names, not integer"),
            ("env = [true]", r"env\[0\] must be a name, a string, not boolean"),
            ("env = ['']", r"env\[0\] must be the name of a variable"),
            ("commands = 1", "commands must be true, false or an array of programs, not integer"),
            (
                "commands = [1]",
                r"commands\[0\] must be a program's name or path, a string, not int",
            ),
            ("network = 'no'", "network must be true or false, not string"),
            ("write = ['']", r"write\[0\] must not be empty"),
            ("write = [", "is not TOML: TOML parse error at line 1"),
        ],
    )
    def test_errors_name_file_key_and_what_is_accepted(self, tmp_path, text, message):
        file = tmp_path / "policy.toml"
        file.write_text(text)
        with pytest.raises(ValueError, match=f"policy.toml: {message}"):
            Policy.from_toml(file)

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            Policy.from_toml(tmp_path / "none.toml")

    def test_reading_a_file_is_reading(self, under, tmp_path):
        """A guard has its say."""
        file = tmp_path / "policy.toml"
        file.touch()
        assert under(Policy.from_toml, file, block=[tmp_path]).rule == "block"
