"""The network of its own of a sandbox's process that uses none, judged from outside.

It stands behind the filter of system calls, where the system lets the host's user make one.
"""

import contextlib
import os
import socket
import subprocess

import promises
import pytest
from sandboxes import LOOSE, of, running
from waiting import until

from fastaudit_rs import Network, Policy, Sandbox

pytestmark = pytest.mark.slow


def network(process="self"):
    return os.readlink(f"/proc/{process}/ns/net")


def each_network(sandbox):
    return {network(process) for process in running(of(sandbox))}


def networks_of_threads():
    found = set()
    for each in os.listdir("/proc/self/task"):
        # One may have ended meanwhile.
        with contextlib.suppress(FileNotFoundError):
            found.add(network(f"self/task/{each}"))
    return found


def networks(fields):
    """The networks of the processes of two sandboxes; the host stays where it is."""
    own, policy = network(), Policy.preset("sandbox").replace(**fields)
    with Sandbox(policy) as one, Sandbox(policy) as other:
        assert one.run("1").success and other.run("1").success
        assert network() == own
        # Each is in one, with the child for its next run.
        found = [*each_network(one), *each_network(other)]
    # A thread that Python has joined is the system's for a moment more.
    assert until(lambda: networks_of_threads() == {own})
    return found


@pytest.mark.holds("kernel", promises.DATA)
@pytest.mark.parametrize(
    "fields",
    [
        {"network": False},
        {"network": False, "write": None},
        {"network": Network(hosts=[], unix=["/run"])},
    ],
    ids=["in places", "anywhere", "Unix sockets"],
)
def test_each_process_is_in_one_of_its_own(fields):
    may = not subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode
    if os.geteuid() == 0 and not may:
        pytest.skip("networks cannot be made here")
    found = networks(fields)
    assert len(found) == 2
    assert len({network(), *found}) == 3 if may else {*found} == {network()}, found


@pytest.mark.parametrize(
    "allowed",
    [
        True,
        Network(hosts=["127.0.0.1"]),
        Network(hosts=["example.com"], lookup=False),
        Network(hosts=[], listen=["127.0.0.1"]),
    ],
)
def test_not_with_a_network(allowed):
    assert networks({"network": allowed}) == [network()] * 2


@pytest.mark.holds("kernel", promises.DATA)
def test_the_filter_holds_as_well(raw):
    """No sockets of the internet, no names of the host's, and Unix sockets as before."""
    code = """
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
"""
    name = f"fastaudit-rs-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as to:
        server.bind(f"\0{name}")
        server.listen()
        assert raw(code, name).told == ["its own"]
        # The host reaches it.
        to.connect(f"\0{name}")


def test_run_under_a_guard():
    """A guard that lets a sandbox be run is asked nothing more for the network."""
    with Sandbox() as sandbox, LOOSE.replace(write=None).guard()() as guard:
        assert sandbox.run("1").success
    assert not guard.violations
