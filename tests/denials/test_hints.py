"""Hints: what they name is the whole field, the least that helps, and true wherever it is read."""

import argparse
import json
import os
import pickle
import re
import shlex
import shutil
import socket
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import programs
import pytest

import fastaudit_rs
from fastaudit_rs import AuditDenied, Network, Policy, mk_audit
from fastaudit_rs.tools import options
from fastaudit_rs.tools.denials import denial_in


@dataclass
class Case:
    """An operation that a policy denies by a field, after one that it allows."""

    #: The fields, each as TOML has it.
    fields: dict[str, str]
    #: The code that passes before, and has to afterwards.
    kept: str
    #: The code that is denied.
    code: str
    #: The field that has to be another one; several for what needs them all.
    rule: str | tuple[str, ...]
    marks: list[pytest.MarkDecorator] = field(default_factory=list)


WRITE = {"write": "['OK']"}
KEPT = "open('OK/kept', 'w').close()"


def writing(code, rule="write"):
    """A case of a policy that lets the first directory be written."""
    return Case(WRITE, KEPT, code, rule)


CASES = {
    "open": writing("open('OUT/a', 'w').close()"),
    "relative": writing("import os; os.chdir('OK'); open('../out/a', 'w')"),
    "open in a descriptor": writing(
        "import os\n"
        "fd = os.open('OUT', os.O_RDONLY)\n"
        "os.close(os.open('b', os.O_CREAT | os.O_WRONLY, dir_fd=fd))"
    ),
    "mkdir": writing("import os; os.makedirs('OUT/x/y/z'); open('OUT/x/f', 'w')"),
    "rename": writing("import os; os.rename('OUT/there', 'OUT2/there')"),
    "remove a link": writing("import os; os.remove('OUT/to_ok')"),
    "rmtree": writing("import shutil; shutil.rmtree('OUT/dir')"),
    "symlink": writing("import os; os.symlink('OUT/there', 'OUT2/link')"),
    "a name that is not UTF-8": writing(r"open(b'OUT/dir/\xff', 'w').close()"),
    "by a link": writing("open('OK/to_out/a', 'w').close()"),
    "mkdtemp": writing("import tempfile; tempfile.mkdtemp(dir='OUT')"),
    "database": writing("import sqlite3; sqlite3.connect('OUT/db').execute('create table a (b)')"),
    "read": Case({"read": "['OK']"}, "open('OK/there')", "open('OUT/there')", "read"),
    "block": Case(
        {"block": "['OUT', 'OUT2/dir']", **WRITE}, KEPT, "open('OUT/there').close()", "block"
    ),
    "block beside write": Case(
        {"block": "['OUT', 'OUT2/dir']", **WRITE},
        KEPT,
        "open('OUT/there', 'a').close()",
        ("write", "block"),
    ),
    "protect": writing("open('OK/.bashrc', 'w').close()", "protect"),
    "max_bytes": Case(
        {"max_bytes": "5", **WRITE},
        "file = open('OK/kept', 'wb', buffering=0); file.write(b'x' * 5)",
        "file.write(b'x' * 100)",
        "max_bytes",
    ),
    "command": Case(
        {"commands": "['true']"},
        "import subprocess; subprocess.run(['true'])",
        "subprocess.run(['ls', '/'], stdout=subprocess.DEVNULL)",
        "commands",
    ),
    "shell": Case({"commands": "['true']"}, "", "import os; os.system('true')", "commands"),
    "variable": Case({}, "import os", "os.environ['HINTED'] = os.urandom(4).hex()", "env"),
    "dangerous variable": Case(
        {"env": "true"},
        "import os; os.environ['KEPT'] = os.urandom(4).hex()",
        "os.environ['PYTHONSTARTUP'] = os.urandom(4).hex()",
        "env",
    ),
    "thread": Case(
        {}, "import threading", "t = threading.Thread(target=int); t.start(); t.join()", "threads"
    ),
    "unknown event": Case(
        {"unknown_events": "'deny'"}, "import sys", "sys.audit('hinted.event')", "unknown_events"
    ),
    "import": Case({"imports": "['colorsys']"}, "import colorsys", "import graphlib", "imports"),
    "blocked import": Case(
        {"imports": "{allow = ['colorsys'], block = ['graphlib', 'netrc']}"},
        "import colorsys",
        "import graphlib",
        "imports",
    ),
    "native": Case({"native": "['yaml']"}, "import orjson", "orjson.dumps(1)", "native"),
    "connect": Case(
        {"network": "false"},
        "import socket",
        "s = socket.socket(); s.connect_ex(('127.0.0.1', 9))",
        "network",
    ),
    "connect to another": Case(
        {"network": "{hosts = ['127.0.0.2']}"},
        "import socket; socket.socket().connect_ex(('127.0.0.2', 9))",
        "socket.socket().connect_ex(('127.0.0.1', PORT))",
        "network",
    ),
    "look up": Case(
        {"network": "false"},
        "import socket",
        "try:\n    socket.create_connection(('localhost', 9))\nexcept ConnectionRefusedError: pass",
        "network",
    ),
    "port": Case(
        {"network": "{ports = [7]}"},
        "import socket; socket.socket().connect_ex(('127.0.0.1', 7))",
        "socket.socket().connect_ex(('127.0.0.1', 9))",
        "network",
    ),
    "blocked host": Case(
        {"network": "{hosts = ['127.0.0.2'], block = ['127.0.0.1', '10.0.0.0/8']}"},
        "import socket; socket.socket().connect_ex(('127.0.0.2', 9))",
        "socket.socket().connect_ex(('127.0.0.1', 9))",
        "network",
    ),
    "listen": Case(
        {"network": "{hosts = ['127.0.0.2']}"},
        "import socket; socket.socket().connect_ex(('127.0.0.2', 9))",
        "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()",
        "network",
    ),
    "connections": Case(
        {"network": "{max_connections = 1}"},
        "import socket; one = socket.create_connection(('127.0.0.1', PORT))",
        "socket.create_connection(('127.0.0.1', PORT))",
        "network",
    ),
    "unix socket": Case(
        {"network": "{hosts = ['127.0.0.2']}", **WRITE},
        "import socket",
        "s = socket.socket(socket.AF_UNIX); s.bind('OUT/s')",
        ("write", "network"),
    ),
    "unix socket, network open": Case(
        WRITE, "import socket", "s = socket.socket(socket.AF_UNIX); s.bind('OUT/s')", "write"
    ),
}


def parameters(names=CASES):
    return [pytest.param(name, marks=CASES[name].marks, id=name) for name in names]


@pytest.fixture(scope="module")
def port():
    """A port of this machine where everybody is let in, and held."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []

        def serve():
            while True:
                try:
                    taken.append(server.accept())
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@pytest.fixture
def case(places, port, request):
    """`case(name)`: the case, its places in place."""

    def make(name):
        case = CASES[name]
        for directory in (places.ok, places.out, places.out + "2"):
            os.makedirs(directory + "/dir", exist_ok=True)
            for file in ("there", "dir/in"):
                with open(f"{directory}/{file}", "w"):
                    pass
        for link, to in ((places.ok + "/to_out", places.out), (places.out + "/to_ok", places.ok)):
            if not os.path.lexists(link):
                os.symlink(to, link)

        def filled(text):
            return (
                text.replace("OUT", places.out).replace("OK", places.ok).replace("PORT", str(port))
            )

        fields = {name: filled(text) for name, text in case.fields.items()}
        return Case(fields, filled(case.kept), filled(case.code), case.rule)

    return make


def toml(fields):
    return "".join(f"{name} = {text}\n" for name, text in fields.items())


def python(text):
    """The fields in TOML as keyword arguments in Python."""
    policy = Policy.parse_toml(text)
    names = [line.partition(" = ")[0] for line in text.splitlines()]
    return {name: getattr(policy, name) for name in names}


def denial(audit_perms, code):
    """The denial of running it, or None."""
    before = os.getcwd()
    environment = dict(os.environ)
    try:
        with audit_perms():
            exec(compile(code, "<case>", "exec"), {"__name__": "guarded"})
    except Exception as error:
        # Libraries make other errors of it.
        denied = denial_in(error)
        if denied is None:
            raise
        return denied
    finally:
        os.chdir(before)
        for name in os.environ.keys() - environment:
            del os.environ[name]
    return None


def forget(*modules):
    for module in modules:
        sys.modules.pop(module, None)


#: The files that the cases and snippets make.
MADE = """
a b c d x l s kept link hard copy new back db all.zip tree log turned turned.1 .bashrc Makefile
""".split()


def case_again(case, places):
    """The code of a case, with what the first time made taken away."""
    for name in MADE:
        for directory in (places.out, places.out + "2", places.ok):
            path = f"{directory}/{name}"
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif os.path.lexists(path):
                os.remove(path)
    return f"{case.kept}\n{case.code}"


@pytest.mark.parametrize("name", parameters())
class TestEachRule:
    def test_of_a_policy(self, case, name, places):
        """The hint is Python, and once it is followed both operations pass."""
        case = case(name)
        policy = Policy().replace(**python(toml(case.fields)))
        forget("graphlib")
        denied = denial(policy.guard(), f"{case.kept}\n{case.code}")
        rules = (case.rule,) if isinstance(case.rule, str) else case.rule
        written = {}
        exec(denied.hint, {"Network": Network}, written)
        assert set(written) == set(rules)
        assert set(denied.suggestion) == set(rules)
        # The suggestion is the same.
        suggestion = dict(denied.suggestion)
        if "network" in suggestion:
            suggestion["network"] = Network(**suggestion["network"])
        wider = policy.replace(**written)
        assert policy.replace(**suggestion) == wider
        assert "0x" not in denied.hint and "<" not in denied.hint
        assert "/" not in denied.suggestion.get("write", [])
        assert "/" not in denied.suggestion.get("read", [])
        again = case_again(case, places)
        forget("graphlib")
        assert denial(wider.guard(), again) is None

    def test_of_toml(self, case, name, places):
        case = case(name)
        forget("graphlib")
        policy = Policy.parse_toml(toml(case.fields))
        denied = denial(policy.guard(), f"{case.kept}\n{case.code}")
        Policy.parse_toml(denied.hint)
        lines = dict(line.split(" = ", 1) for line in denied.hint.splitlines())
        wider = Policy.parse_toml(toml({**case.fields, **lines}))
        forget("graphlib")
        assert denial(wider.guard(), case_again(case, places)) is None

    def test_of_options(self, case, name, places, tmp_path):
        case = case(name)
        file = tmp_path / "policy.toml"
        file.write_text(toml(case.fields))
        parser = argparse.ArgumentParser()
        options.add_options(parser, options.RUN)

        def run(line):
            policy = options.policy_of(parser.parse_args([*shlex.split(line), *given]))
            forget("graphlib")
            return denial(policy.guard(), case_again(case, places))

        given = ["--policy", str(file)]
        assert run(run("").hint) is None


#: The cases that each surface is tried with: places, programs and hosts.
OF_SURFACES = ["rename", "command", "connect to another"]


@pytest.mark.parametrize("name", OF_SURFACES)
def test_of_the_command(case, name, places, tmp_path, command):
    case = case(name)
    file = tmp_path / "policy.toml"
    # The command itself reads no code of the case's directory.
    file.write_text(toml(case.fields))

    def run(*options):
        return command("run", "--policy", str(file), *options, "-c", case_again(case, places))

    done = run()
    assert done.returncode == 77, done.stderr
    [told] = [line for line in done.stderr.splitlines() if line.startswith("To allow it: ")]
    assert "fastaudit-rs: " not in done.stderr
    done = run(*shlex.split(told.removeprefix("To allow it: ")))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    import kernels

    with kernels.started(tmp_path_factory.mktemp("home")) as kernel:
        kernel("%load_ext fastaudit_rs")
        yield kernel


@pytest.mark.parametrize("name", OF_SURFACES)
def test_of_the_magic(kernel, case, name, places, tmp_path):
    case = case(name)
    file = tmp_path / "policy.toml"
    file.write_text(toml(case.fields))
    kernel(f"import os, sys; os.chdir({places.cwd!r}); sys.modules.pop('graphlib', None)")
    line = f"%%audit --policy {file}"
    ran = kernel(f"{line}\n{case_again(case, places)}")
    [hint] = re.findall("^To allow it: (.*)$", ran.error, re.MULTILINE)
    assert hint.startswith("%%audit --")
    assert f"--policy {file}" in hint
    kernel(f"os.chdir({places.cwd!r}); sys.modules.pop('graphlib', None)")
    ran = kernel(f"{hint}\n{case_again(case, places)}")
    assert (ran.status, ran.error) == ("ok", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_SURFACES)
@pytest.mark.parametrize("form", ["@pytest.mark.audit", "audit_perms"])
def test_in_tests(case, places, run, name, form):
    """As the marker of a test, and as the arguments of the fixture."""
    case = case(name)

    def under(said):
        code = f"exec({case_again(case, places)!r}, {{'__name__': 'guarded'}})"
        test = f"{said}\ndef test():\n    {code}"
        if form == "audit_perms":
            test = f"def test(audit_perms):\n    with {said}: {code}"
        return run(f"from fastaudit_rs import Network\n{test}\n")

    given = python(toml(case.fields))
    fields = ", ".join(f"{field}={value!r}" for field, value in given.items())
    denied = under(f"{form}({fields})")
    denied.assert_outcomes(failed=1)
    # pytest writes the message twice where the variable CI is set: its summary is whole there.
    [hint] = set(re.findall(rf"To allow it: ({form}\(.*)", denied.stdout.str()))
    under(hint).assert_outcomes(passed=1)


#: The cases that a guard of `mk_audit` denies too.
OF_ROOTS = [
    name
    for name, case in CASES.items()
    if case.rule in ("write", "commands", "env", "threads", "native")
    # Changes of the network's sockets and of protected names are not its matter.
]


@pytest.mark.parametrize("name", parameters(OF_ROOTS))
def test_of_mk_audit(case, name, places):
    case = case(name)
    if case.rule == "threads" and sys.version_info < (3, 12):
        pytest.skip("no event tells that a thread starts")
    code = case_again(case, places)
    if case.rule != "write":
        code = code.removeprefix(case.kept)
        native = ", orjson" if case.rule == "native" else ""
        code = f"import os, subprocess, threading{native}\n{code}"
    denied = denial(mk_audit([places.ok]), code)
    event = re.fullmatch('a before_deny that returns True for "(.*)"', denied.hint)
    if event is not None:
        assert denied.suggestion is None
        audit_perms = mk_audit([places.ok], lambda name, *_: name == event[1])
    elif case.rule == "native":
        assert denied.hint == f"mk_audit([{places.ok!r}], packages='data')"
        assert denied.suggestion == {"packages": ["data"]}
        audit_perms = eval(denied.hint)
    else:
        assert denied.hint.startswith(f"mk_audit([{places.ok!r}, ")
        audit_perms = eval(denied.hint)
        assert "/" not in denied.suggestion["oks"]
    again = case_again(case, places) if case.rule == "write" else code
    assert denial(audit_perms, again) is None


#: Those in a sandbox, where the kernel holds reading and what is blocked as well.
IN_SANDBOX = [*OF_SURFACES, "read", "block"]


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_SANDBOX)
def test_of_a_sandbox(make_sandbox, case, name, places):
    """Where the kernel has its say as well."""
    case = case(name)
    fields = {"read": ["/"], **python(toml(case.fields))}
    ran = make_sandbox(Policy().replace(**fields)).run(case_again(case, places))
    assert len(ran.violations) == 1, ran.stderr
    hint = ran.violations[0].hint
    written = {}
    exec(hint, {"Network": Network}, written)
    # The sandbox's own directory is not among them.
    assert all(os.path.dirname(places.ok) in path for path in written.get("write", []))
    ran = make_sandbox(Policy().replace(**fields).replace(**written)).run(case_again(case, places))
    assert (ran.stderr, ran.violations, ran.success) == ("", [], True)


#: The operations, and the least that the policy would have to say.
LEAST = [
    # At the top it is the file itself.
    ({"write": ["/data"]}, ("open", "/database", "w", 0), {"write": ["/data", "/database"]}),
    # Names in a directory that all may write to are made up.
    ({"write": ["."]}, ("open", "/tmp/x81f/y", "w", 0), {"write": [".", "/tmp/x81f/y"]}),
    ({"write": ["."]}, ("open", "/tmp/x81f", "w", 0), {"write": [".", "/tmp"]}),
    ({"write": ["."]}, ("tempfile.mkdtemp", "/srv/x81f"), {"write": [".", "/srv"]}),
    ({"write": ["."]}, ("os.rmdir", "/srv", -1), {"write": [".", "/srv"]}),
    ({"write": ["~/x"]}, ("os.chmod", "/", 0o755, -1), {"write": ["~/x", "/"]}),
    ({"read": ["/data"]}, ("os.listdir", "/"), {"read": ["/data", "/"]}),
    # The next process has another number.
    (
        {"read": ["/data"]},
        ("open", "/proc/self/limits", "r", 0),
        {"read": ["/data", "/proc/self/limits"]},
    ),
    ({"read": ["/data"]}, ("os.listdir", "/proc/self"), {"read": ["/data", "/proc/self"]}),
    ({"env": True}, ("os.putenv", b"PYTHONPATH", b""), {"env": ["*", "PYTHONPATH"]}),
    ({"env": ["A"]}, ("os.putenv", b"PATH", b""), {"env": ["A", "PATH"]}),
    ({"env": ["A"]}, ("os.putenv", b"HINT_B", b""), {"env": ["*"]}),
    (
        {"network": False},
        ("socket.getaddrinfo", "example.org", 443, 0, 0, 0),
        {"network": {"hosts": ["example.org:443"]}},
    ),
    (
        {"network": Network(hosts=["a.org"], block=["b.org"])},
        ("socket.getaddrinfo", b"Example.org.", "443", 0, 0, 0),
        {"network": {"hosts": ["a.org", "example.org:443"], "block": ["b.org"]}},
    ),
    # A name without a port is looked up for any.
    (
        {"network": False},
        ("socket.gethostbyname", "example.org"),
        {"network": {"hosts": ["example.org"]}},
    ),
    (
        {"network": Network(hosts=[], lookup=False)},
        ("socket.getnameinfo", ("::1", 1)),
        {"network": {"hosts": []}},
    ),
    ({"imports": False}, ("import", "wave", None, [], [], []), {"imports": ["wave"]}),
    ({}, ("subprocess.Popen", "ls", ["ls"], None, None), {"commands": ["ls"]}),
    ({}, ("subprocess.Popen", "no-such-program", ["x"], "/", None), None),
    # It cannot be told which program that is.
    ({}, ("os.spawn", 0, "x", [], {}), {"commands": True}),
    ({}, ("os._exit", 1), None),
    ({}, ("os.kill", 1, 9), None),
]


@pytest.mark.parametrize(("fields", "event", "suggestion"), LEAST)
def test_the_least(fields, event, suggestion):
    denied = Policy(**fields).explain(*event).denied
    assert denied.suggestion == suggestion
    assert denied.to_dict()["suggestion"] == suggestion
    again = AuditDenied.from_dict(json.loads(json.dumps(denied.to_dict())))
    assert (again.suggestion, again.hint) == (suggestion, denied.hint)


def test_of_mk_audit_at_the_top(places):
    """Its roots hold what they approve, so that the only one would be all there is."""
    denied = denial(mk_audit(["."]), "open('/fastaudit-test', 'w')")
    assert denied.hint == (
        "Policy.preset('fastaudit-0.1').replace(write=['.', '/fastaudit-test']).guard()"
    )
    assert denied.suggestion == {"write": [".", "/fastaudit-test"]}
    eval(denied.hint)
    policy = Policy.preset("fastaudit-0.1").replace(**denied.suggestion)
    assert policy.explain("open", "/fastaudit-test", "w", 0).allowed


def test_what_nothing_allows(command):
    """It is said in words that are true where they are read."""

    def hint(policy):
        return policy.explain("os.kill", 1, 9).denied.hint

    assert hint(Policy()) == 'a before_deny that returns True for "os.kill"'
    assert hint(Policy.preset("workspace")) == hint(Policy())
    toml = "no policy allows os.kill; a before_deny of the host can"
    assert hint(Policy.parse_toml("")) == toml
    assert hint(Policy.parse_toml("").replace(env=True)) == hint(Policy())
    done = command("run", "-c", "import os; os.kill(1, 9)")
    assert "To allow it: no option allows os.kill\n" in done.stderr
    assert "fastaudit-rs: " not in done.stderr


def test_words_are_pickled():
    for policy in (
        Policy(write=["/a"]),
        Policy.parse_toml("write = ['/a']"),
        Policy(write=["/a"])._told_in("options", line="%%audit"),
        Policy(write=["/a", "/own"])._told_in("sandbox", Policy(write=["/a"])),
    ):
        again = pickle.loads(pickle.dumps(policy))
        assert again == policy
        event = ("os.mkdir", "/b", 0o777, -1)
        assert again.explain(*event).denied.hint == policy.explain(*event).denied.hint


def test_what_is_told_of_a_suggestion_is_plain(places):
    denied = denial(Policy().guard(), "open('OUT', 'w')")
    denied.suggestion["write"].append("/")
    assert "/" not in denied.suggestion["write"]
    deep = []
    for _ in range(50):
        deep = [deep]
    with pytest.raises(TypeError, match="suggestion"):
        AuditDenied.from_dict({**denied.to_dict(), "suggestion": {"write": deep}})


def test_a_path_that_tells_another_each_time(places):
    """Its word about itself is no hint."""

    class Odd:
        def __fspath__(self):
            return places.out + "/a"

    with Policy(write=["."]).guard()(), pytest.raises(AuditDenied) as caught:
        open(Odd(), "w")
    assert caught.value.hint is None or "Odd" not in caught.value.hint


class TestBefore:
    """A hint names what was denied now: to copy it opens nothing else."""

    def test_the_same_field(self, places):
        caught = []
        with Policy(write=["."], env=["A"]).guard()() as guard:
            for act in (
                lambda: open("/srv/a", "w"),
                lambda: os.putenv("PATH", "x"),
                lambda: os.mkdir("/opt/b"),
                lambda: os.putenv("HOME", "x"),
            ):
                with pytest.raises(AuditDenied) as denied:
                    act()
                caught.append(denied.value)
        assert [denied.hint for denied in caught] == [
            "write = ['.', '/srv/a']",
            "env = ['A', 'PATH']",
            "write = ['.', '/opt/b']",
            "env = ['A', 'HOME']",
        ]
        assert [denied.hint for denied in guard.violations] == [denied.hint for denied in caught]

    def test_of_mk_audit(self, places):
        with mk_audit(["."])():
            for name in ("/srv/a", "/opt/b"):
                with pytest.raises(AuditDenied) as denied:
                    open(name, "w")
        assert denied.value.hint == "mk_audit(['.', '/opt'])"


def test_an_import(tmp_path):
    """Of what a module does while it is imported, no field speaks but one."""
    guard = "fastaudit_rs.Policy({}).guard(monitor_calls=False)"
    code = f"import fastaudit_rs\nwith {guard}(): import hinted"
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "hinted.py").write_text("import os\nos.nice(1)\n")
    paths = os.pathsep.join([str(site), str(Path(fastaudit_rs.__file__).parent.parent)])

    def run(fields):
        return programs.ran(code.format(fields), env={**os.environ, "PYTHONPATH": paths})

    assert "To allow it: import_allow = ['hinted']\n" in run("").stderr
    done = run("import_allow=['hinted']")
    assert (done.stderr, done.returncode) == ("", 0)


WRAPPED = """
try:
    open("/srv/a", "w")
except OSError as error:
    raise ValueError("no file") from {cause}
"""


@pytest.mark.parametrize("cause", ["error", "None"])
def test_another_error_that_came_of_it(command, cause):
    """The command tells what would allow it all the same."""
    done = command("run", "-c", WRAPPED.format(cause=cause))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("fastaudit-rs: denied: open /srv/a")
    assert last.endswith("; to allow it: --write /srv/a")
    assert done.stderr.count("fastaudit-rs: ") == 1


def test_variables_beside_a_policy(command, tmp_path):
    """`--env` adds to what a policy lets be set without naming it."""
    file = tmp_path / "policy.toml"
    file.write_text("env = true")
    code = "import os; os.environ['A'] = os.environ['PATH'] = 'x'"
    done = command("run", "--policy", str(file), "--env", "PATH", "-c", code)
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize("text", ["writes=[]", "write", "=", "write=1", "network.hosts=3"])
def test_no_field(text, command):
    done = command("run", "--set", text, "-c", "")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert done.stderr.startswith("fastaudit-rs: ")


#: Ordinary code that needs more than one thing.
SNIPPETS = {
    "variables": "import os\nfor name in 'ABCD': os.environ['HINT_' + name] = os.urandom(4).hex()",
    "commands": "import subprocess\n"
    "for name in ('true', 'ls'): subprocess.run([name], stdout=subprocess.DEVNULL)",
    "a shell": "import os, subprocess\n"
    "os.system('true'); subprocess.run('true', shell=True); subprocess.check_output('true')",
    "files of a directory": "for name in 'abcd': open(f'OUT/{name}', 'w').close()",
    "a tree": "import os\nfor name in 'abc':\n"
    "    os.makedirs(f'OUT/tree/{name}')\n    open(f'OUT/tree/{name}/x', 'w').close()",
    "a copy": "import shutil\nshutil.copytree('OUT/dir', 'OUT2/copy'); shutil.rmtree('OUT2/copy')",
    "a file in place of another": "import os\nfor _ in range(2):\n"
    "    open('OUT/new', 'w').close()\n    os.replace('OUT/new', 'OUT/there')",
    "a file and its backup": "import os, shutil\n"
    "shutil.copy2('OUT/there', 'OUT/back'); open('OUT/there', 'w'); os.remove('OUT/back')",
    "a database": "import sqlite3\ndb = sqlite3.connect('OUT/db')\n"
    "db.execute('create table a (b)'); db.commit(); db.close()",
    "an archive": "import shutil\nshutil.make_archive('OUT/all', 'zip', 'OUT2')",
    "a log": "import logging\nlog = logging.getLogger('hinted')\n"
    "log.addHandler(logging.FileHandler('OUT/log')); log.error('x')\n"
    "import logging.handlers\n"
    "handler = logging.handlers.RotatingFileHandler('OUT/turned', maxBytes=1, backupCount=1)\n"
    "handler.emit(logging.makeLogRecord({})); handler.emit(logging.makeLogRecord({}))",
    "a server and its client": "import socket\n"
    "with socket.create_server(('127.0.0.1', 0)) as server:\n"
    "    socket.create_connection(server.getsockname()).close()",
    "a look-up": "import socket\nfor port in (9, 10):\n"
    "    try: socket.create_connection(('localhost', port))\n"
    "    except ConnectionRefusedError: pass",
    "threads": "import concurrent.futures\n"
    "with concurrent.futures.ThreadPoolExecutor(2) as pool: list(pool.map(abs, [1, 2]))",
    "what goes on": "import os\nfor path in ('OUT/a', 'OUT2/b', 'OK/c'):\n"
    "    try: os.mkdir(path)\n    except PermissionError: pass\nos.mkdir('OUT/d')",
    "code": "import orjson, yaml\nyaml.safe_load('a: 1'); orjson.dumps(1)\n"
    "yaml.load('a: 1', getattr(yaml, 'CSafeLoader', yaml.SafeLoader))",
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_two_rounds_at_most(case, name, places):
    """Following the hints leads to a policy that works, and recording leads there at once."""
    filled = SNIPPETS[name].replace("OUT", places.out).replace("OK", places.ok)
    snippet = Case({}, "", filled, "")

    def again():
        case("open")
        return case_again(snippet, places)

    policy, rounds = Policy(network=False), 0
    while denied := denial(policy.guard(), again()):
        rounds += 1
        assert rounds <= 2, denied
        written = {}
        exec(denied.hint, {"Network": Network}, written)
        policy = policy.replace(**written)
    assert rounds > 0
    assert "/" not in policy.write

    code = again()
    recording = Policy(network=False).observe()()
    with recording:
        exec(code, {"__name__": "guarded"})
    assert denial(recording.suggest().guard(), again()) is None
