"""The network of its own of a sandbox's process that uses none, judged from outside.

It stands behind the filter of system calls, where the system lets the host's user make one.
"""

import json
import platform

import promises
import pytest
from raw_code import SYSTEM_CALLS, raw
from repository import ROOT
from users import USERS, run_as

from fastaudit_rs import Network

pytest.importorskip("sandlock")

pytestmark = pytest.mark.once

by_each_user = pytest.mark.parametrize("user", USERS)

#: A host: it tells its network, whether it may make another, those of the processes of its
#: sandboxes, and those of its own threads while they are there and after.
HOST = """
import json, os, subprocess, sys
sys.path.insert(0, {support!r})
from fastaudit_rs import Network, Policy, Sandbox
from sandboxes import of, running
from waiting import until
def threads():
    return sorted({{os.readlink(f"/proc/self/task/{{each}}/ns/net")
                    for each in os.listdir("/proc/self/task")}})
def networks(sandbox):
    assert sandbox.run("1").success
    return [os.readlink(f"/proc/{{each}}/ns/net") for each in running(of(sandbox))]
own = os.readlink("/proc/self/ns/net")
may = subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0
found = {{}}
for name, fields in {policies!r}.items():
    policy = Policy.preset("sandbox").replace(**fields)
    with Sandbox(policy) as sandbox, Sandbox(policy) as other:
        found[name] = networks(sandbox) + networks(other)
        there = os.readlink("/proc/self/ns/net")
# A thread that Python has joined is the system's for a moment more.
until(lambda: threads() == [own])
print(json.dumps([own, may, found, there, threads()]))
"""

#: The fields of policies without a network, and of others.
WITHOUT = {
    "in places": {"network": False},
    "anywhere": {"network": False, "write": None},
    "Unix sockets": {"network": Network(hosts=[], unix=["/run"])},
}
WITH = {
    "all": {"network": True},
    "hosts": {"network": Network(hosts=["127.0.0.1"])},
    "names": {"network": Network(hosts=["example.com"], lookup=False)},
    "ports": {"network": Network(hosts=[], listen=["127.0.0.1"])},
}


def networks(user, policies):
    """The tellings of a host of this user."""
    program = HOST.format(support=str(ROOT / "tests/support"), policies=policies)
    return json.loads(run_as(user, program))


@pytest.mark.slow
@pytest.mark.holds("kernel", promises.DATA)
@by_each_user
def test_each_process_is_in_one_of_its_own(user):
    own, may, found, there, after = networks(user, WITHOUT)
    if user == "root" and not may:
        pytest.skip("networks cannot be made here")
    for made in found.values():
        assert len(made) == 2
        if may:
            assert len({own, *made}) == 3, (own, found)
        else:
            assert set(made) == {own}
    assert (there, after) == (own, [own]), "the host stays where it is"


@pytest.mark.slow
@by_each_user
def test_not_with_a_network(user):
    own, _, found, _, _ = networks(user, WITH)
    assert found == {name: [own, own] for name in WITH}


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")
@pytest.mark.holds("kernel", promises.DATA)
@by_each_user
def test_the_filter_holds_as_well(user):
    """No sockets of the internet, no names of the host's, and Unix sockets as before."""
    code = (
        SYSTEM_CALLS
        + """
name = sys.argv[1]
attempt("internet", lambda: socket.socket(socket.AF_INET))
attempt("internet 6", lambda: socket.socket(socket.AF_INET6))
attempt("a name of the host", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + name))
attempt("out of it", lambda: call(272, 0x40000000))
attempt("into that of process 1", lambda: call(308, os.open("/proc/1/ns/net", os.O_RDONLY), 0))
def inside():
    with socket.socket(socket.AF_UNIX) as at, socket.socket(socket.AF_UNIX) as to:
        at.bind("own")
        at.listen()
        to.connect(os.path.abspath("own"))
        to.send(b"x")
        return at.accept()[0].recv(1) == b"x"
attempt("its own", inside)
print(json.dumps(passed))
"""
    )
    before = """
        import socket
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"\\0fastaudit-rs-{os.getpid()}")
        server.listen()
    """
    after = """
    to = socket.socket(socket.AF_UNIX)
    to.connect(f"\\0fastaudit-rs-{os.getpid()}")
    after = "reached by the host"
    """
    ran = raw(user, code, "fastaudit-rs-HOST", before=before, after=after)
    assert (ran["told"], ran["after"]) == (["its own"], "reached by the host"), ran


@pytest.mark.slow
@by_each_user
def test_run_under_a_guard(user):
    """A guard that lets a sandbox be run is asked nothing more for the network."""
    program = """
from fastaudit_rs import Policy, Sandbox
wide = Policy(write=None, native=True, commands=True, network=True, threads="inherit", env=True)
with Sandbox() as sandbox:
    with wide.guard()() as guard:
        assert sandbox.run("1").success
    assert not guard.violations
"""
    run_as(user, program)
