"""The part of a sandbox's policy that the kernel holds, and the rest where it cannot."""

import sys

import pytest
from sandboxes import LOOSE, gone, of

from fastaudit_rs import Limits, Network, Policy, Sandbox, SandboxError, SandboxManager
from fastaudit_rs.sandbox.host.cgroup import are_there as by_group


def test_it_is_required(monkeypatch):
    monkeypatch.setitem(sys.modules, "sandlock", None)
    with pytest.raises(SandboxError, match="it needs sandlock, .*: pip install"):
        Sandbox(Policy())


def test_a_kernel_without_landlock(monkeypatch):
    pytest.importorskip("sandlock")
    monkeypatch.setattr("fastaudit_rs._landlock.version", lambda: 0)
    with pytest.raises(SandboxError, match="this kernel has no Landlock"):
        Sandbox(Policy())


@pytest.mark.slow
def test_without_it(monkeypatch, tmp_path):
    """The policy and what the host itself watches hold."""
    monkeypatch.setitem(sys.modules, "sandlock", None)  # where it is installed
    limits = Limits(wall_seconds=1, output="1M")
    with Sandbox(LOOSE, limits, confine="prefer") as sandbox:
        ran = sandbox.run("print(input())", stdin="x\n")
        assert (ran.stdout, ran.confined) == ("x\n", False)
        assert sandbox.run(f"open({str(tmp_path / 'a')!r}, 'w')").returncode == 77
        assert sandbox.run("import time; time.sleep(60)").timed_out
        assert sandbox.run("while True: print('x' * 1000)").killed_by == "output"
        told = sandbox.explain()
        assert told["cpu_percent"] == ("kernel" if by_group("cpu") else "nothing")
        assert (told["privileges"], told["other_processes"]) == ("nothing", "guard")
    assert gone(of(sandbox))


@pytest.mark.parametrize("network", [False, Network(), Network(listen=["127.0.0.1:8000-9000"])])
def test_listening_without_an_address_without_it(network):
    """The system would give the socket a port at all addresses."""
    code = """
import _socket, socket
for kind in (socket.socket, _socket.socket):
    try:
        kind(socket.AF_INET, socket.SOCK_STREAM).listen()
    except PermissionError:
        continue
    raise AssertionError
"""
    with Sandbox(LOOSE.replace(network=network), confine="audit") as sandbox:
        ran = sandbox.run(code)
    assert ran.success, ran.stderr
    assert [denied.event for denied in ran.violations] == ["socket.listen"] * 2


@pytest.mark.slow
def test_its_part_of_a_processor_without_it():
    """By a control group, where one can be made."""
    if not by_group("cpu"):
        pytest.skip("this user can make no control groups here")
    code = """
import time
begun, before = time.monotonic(), time.process_time()
while time.monotonic() < begun + 1:
    pass
(time.process_time() - before) / (time.monotonic() - begun)
"""
    with Sandbox(LOOSE, Limits(cpu_percent=20), confine="audit") as sandbox:
        assert sandbox.run(code, value=True).value < 0.35


def test_explain(make_sandbox):
    told = make_sandbox(Policy(network=False)).explain()
    assert told["write"] == told["network"] == "guard and kernel"
    assert told["imports"] == told["block"] == "guard"
    assert (told["privileges"], told["other_processes"]) == ("kernel", "guard and kernel")
    assert told["memory"] in ("kernel", "kernel, each process by itself")
    assert (told["processes"], told["disk"], told["cpu_seconds"]) == ("kernel", "host", "process")
    assert make_sandbox(LOOSE.replace(block=["/etc"])).explain()["block"] == "guard and kernel"


def managed(**arguments):
    with SandboxManager(**arguments) as manager:
        manager.create("one")


@pytest.mark.parametrize("make", [Sandbox, managed])
@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"policy": "policy"}, TypeError, "policy must be a Policy, not str"),
        ({"limits": 3}, TypeError, "limits must be Limits, not int"),
        (
            {"env": "PATH"},
            TypeError,
            r"env must be a mapping or a list of names, not str: write \['PATH'\]",
        ),
        ({"env": {"A=B": "1"}}, ValueError, "env: 'A=B' is no name of a variable"),
        ({"env": {"": "1"}}, ValueError, "env: '' is no name of a variable"),
        ({"env": {"A": 5}}, TypeError, "env must be str, not int"),
        ({"env": {"A": "x\0"}}, ValueError, "env must have no null characters"),
        ({"env": {"A": "\udcff"}}, ValueError, "env must be text of Unicode, not '.udcff'"),
        ({"env": [3]}, TypeError, "env must be str, not int"),
        (
            {"path": "here"},
            TypeError,
            r"path must be a list of directories, not str: write \['here'\]",
        ),
        ({"path": [3]}, TypeError, r"path\[0\] must be a path, not int"),
        ({"policy": "workspace"}, TypeError, "write Policy.preset\\('workspace'\\)"),
        ({"policy": {}}, TypeError, "not dict: write Policy\\(\\*\\*fields\\)"),
        ({"limits": {}}, TypeError, "not dict: write Limits\\(\\*\\*fields\\)"),
        ({"secrets": [3]}, TypeError, r"secrets\[0\] must be a Secret, not int"),
        ({"confine": "maybe"}, ValueError, "confine must be 'require', .* or 'audit', not 'maybe'"),
        ({"backend": "vm"}, ValueError, "backend must be 'process' or 'docker', not 'vm'"),
        ({"backend": "docker"}, TypeError, "image must be a str .* not NoneType"),
        ({"image": "x"}, ValueError, "image is for backend='docker'"),
        (
            {"backend": "docker", "image": "x", "confine": "prefer"},
            ValueError,
            "backend='docker' needs confine='require', not 'prefer'",
        ),
    ],
)
def test_bad_arguments(make, arguments, error, says):
    with pytest.raises(error, match=says):
        make(**arguments)
