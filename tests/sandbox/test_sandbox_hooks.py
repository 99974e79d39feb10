"""`fastaudit_rs.sandbox_hooks`: the shape of a process-wide sandbox. Each test has its process."""

import os
import textwrap

import pytest
from programs import ran

from fastaudit_rs import AuditDenied, Policy
from fastaudit_rs.sandbox_hooks import (
    DANGEROUS_MODULES,
    SandboxPolicy,
    SandboxViolation,
    get_policy,
    install_sandbox,
    is_sandbox_installed,
)

HEAD = """
import os, socket, subprocess, sys
from fastaudit_rs.sandbox_hooks import *

def stopped(function, *args):
    try:
        function(*args)
    except SandboxViolation as violation:
        return violation.rule

out = sys.argv[1]
"""


@pytest.fixture
def run(places):
    def run(code):
        result = ran(HEAD + textwrap.dedent(code), places.out, cwd=places.cwd)
        assert result.returncode == 0, result.stderr
        run.stderr = result.stderr
        return result.stdout.split()

    return run


def test_paths(run, places):
    """Paths outside are denied for writing, and a name that only begins alike is outside."""
    os.mkdir(places.cwd + "evil")
    code = """
    install_sandbox(SandboxPolicy(allowed_paths=["."], blocked_paths=["private"]))
    print(stopped(open, "a", "w"), stopped(open, out + "/a", "w"), stopped(open, "private", "w"))
    print(stopped(open, os.getcwd() + "evil/a", "w"), stopped(os.listdir, out))
    print(stopped(os.listdir, "private"))
    """
    assert run(code) == ["None", "write", "block", "write", "None", "block"]


def test_switches(run):
    code = """
    install_sandbox(SandboxPolicy(block_network=True, block_subprocess=True))
    print(stopped(socket.socket().connect, ("127.0.0.1", 9)), stopped(os.system, "true"))
    """
    assert run(code) == ["network", "commands"]
    code = """
    server = socket.create_server(("127.0.0.1", 0))
    install_sandbox(SandboxPolicy(None, (), False, False, False))
    print(stopped(os.system, "true"), stopped(open, out + "/a", "w"), stopped(__import__, "pty"))
    print(stopped(socket.create_connection, server.getsockname()), stopped(open, "/etc/passwd"))
    """
    assert run(code) == ["None"] * 5


def test_by_default(run):
    code = """
    import tempfile
    here = tempfile.mkdtemp(dir="/tmp")
    install_sandbox()
    print(is_sandbox_installed(), get_policy() == SandboxPolicy())
    for path in (here + "/a", "/tmpevil", "/srv/a", "/etc/passwd", "/sys/a", "/proc/self/comm"):
        print(stopped(open, path, "w"))
    print(stopped(open, "/etc/passwd"), stopped(open, sys.executable, "rb"))
    print(stopped(socket.socket().connect, ("127.0.0.1", 9)), stopped(os.system, "true"))
    for name in ("ctypes", "cffi", "pty", "code", "codeop", "json"):
        print(stopped(__import__, name))
    """
    found = run(code)
    assert found[:8] == ["True", "True", "None", *["write"] * 5]
    assert found[8:] == ["block", "None", "network", "commands", *["imports"] * 5, "None"]


def test_a_violation_is_a_runtime_error_too(run):
    code = """
    import pickle
    from fastaudit_rs import AuditDenied, Policy
    install_sandbox(SandboxPolicy(log_violations=False))
    for kind in (SandboxViolation, RuntimeError, PermissionError, OSError, AuditDenied):
        try:
            open("/srv/a", "w")
        except kind as violation:
            print(violation.rule, violation.path, violation.errno)
            again = pickle.loads(pickle.dumps(violation))
            print(type(violation) is type(again) is SandboxViolation, again.path)
            text = str(violation)
    print("open the file '/srv/a' for writing: not in '/tmp'" in text)
    try:
        with Policy().guard(monitor_calls=False)():
            os.mkdir(out + "/a")
    except RuntimeError as violation:
        print(violation.rule)
    try:
        SandboxViolation.errno = 5
    except TypeError:
        print("immutable")
    """
    assert run(code) == ["write", "/srv/a", "1", "True", "/srv/a"] * 5 + [
        "True",
        "write",
        "immutable",
    ]


def test_imports(run):
    code = """
    install_sandbox(SandboxPolicy(blocked_modules=["wave"]))
    print(stopped(__import__, "ctypes"), stopped(__import__, "wave"), stopped(__import__, "json"))
    """
    assert run(code) == ["imports", "imports", "None"]
    assert "ctypes" in DANGEROUS_MODULES


def test_violations_may_proceed_and_be_logged(run):
    for log, logged in ((True, 1), (False, 0)):
        code = f"""
        policy = SandboxPolicy(allowed_paths=[], raise_on_violation=False, log_violations={log})
        install_sandbox(policy)
        print(stopped(os.mkdir, out + "/{log}"), os.path.isdir(out + "/{log}"))
        """
        assert run(code) == ["None", "True"]
        assert run.stderr.count("make the directory") == logged
    code = """
    install_sandbox(SandboxPolicy(allowed_paths=[]))
    print(stopped(os.mkdir, out + "/b"))
    """
    assert run(code) == ["write"]
    assert run.stderr.count("make the directory") == 1


def test_for_good(run):
    code = """
    install_sandbox(SandboxPolicy(allowed_paths=["."], block_network=False))
    install_sandbox(SandboxPolicy(allowed_paths=["."]))
    for policy in (SandboxPolicy(), SandboxPolicy(allowed_paths=["."], block_network=False)):
        try:
            install_sandbox(policy)
        except RuntimeError as error:
            print("refused")
    print(get_policy().block_network, stopped(open, out + "/a", "w"))
    """
    assert run(code) == ["refused", "refused", "True", "write"]


def test_not_installed():
    assert SandboxViolation.__mro__[1] is AuditDenied
    with pytest.raises(AuditDenied) as denied, Policy().guard(monitor_calls=False)():
        open("/srv/a", "w")
    assert not isinstance(denied.value, RuntimeError)
    assert not is_sandbox_installed()
    assert get_policy() is None


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"allowed_paths": "x"}, TypeError, "allowed_paths must be an iterable, not one str"),
        ({"blocked_modules": b"x"}, TypeError, "blocked_modules must be an iterable, not one b"),
        ({"block_network": 1}, TypeError, "block_network must be True or False, not 1"),
        ({"blocked_modules": ["a b"]}, ValueError, r"imports.block\[0\] must be the name of a m"),
        ({"allowed_paths": [1]}, TypeError, r"write\[0\] must be a path, not int"),
        ({"other": 1}, TypeError, "other"),
    ],
)
def test_bad_values(fields, error, message):
    with pytest.raises(error, match=message):
        SandboxPolicy(**fields)


def test_bad_policy():
    with pytest.raises(TypeError, match="policy must be a SandboxPolicy, not dict"):
        install_sandbox({})
    assert not is_sandbox_installed()
