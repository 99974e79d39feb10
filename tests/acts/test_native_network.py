"""Native code is judged by the hosts that it reaches and looks up, on each kind of thread."""

import contextlib
import errno
import select
import socket

import pytest

from fastaudit_rs import Network, Policy

REACH = ("connect", "connect and end", "syscall connect", "sendto", "sendmsg", "sendmmsg")
REACH += ("sendmmsg, syscall",)


@contextlib.contextmanager
def listening(function):
    """A socket that hears of what a function sends, at all addresses of this machine."""
    kind = socket.SOCK_DGRAM if function.startswith("send") else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as listener:
        listener.bind(("", 0))
        if kind == socket.SOCK_STREAM:
            listener.listen()
        yield listener, str(listener.getsockname()[1])


def heard(listener):
    """Whether something arrived."""
    return bool(select.select([listener], [], [], 0.05)[0])


def guard(**network):
    network.setdefault("hosts", ["127.0.0.1"])
    return Policy(write=[], native=True, network=Network(**network))


@pytest.mark.parametrize("function", REACH)
def test_reaches(acts, function, thread):
    with listening(function) as (listener, port):
        with guard().guard()() as entered:
            error = acts.act(function, "127.0.0.2", port, thread)
            [denial] = entered.violations
        assert (error, heard(listener)) == (errno.EACCES, False)
        assert denial.event.removeprefix("socket.") in {"connect", "sendto", "sendmsg"}
        assert denial.host == "127.0.0.2"
        assert "native_acts" in denial.library
        allowed = Network(**denial.suggestion["network"])
        with Policy(write=[], native=True, network=allowed).guard()() as entered:
            assert acts.act(function, "127.0.0.2", port, thread) == 0
            assert entered.violations == []
        assert heard(listener)


@pytest.mark.parametrize("function", ["bind", "listen"])
def test_listens(acts, function, thread):
    with guard().guard()() as entered:
        assert acts.act(function, "127.0.0.1", "0", thread) == errno.EACCES
        assert len(entered.violations) == 1
    with guard(listen=True).guard()() as entered:
        assert acts.act(function, "127.0.0.1", "0", thread) == 0
        assert entered.violations == []


@pytest.mark.parametrize("function", ["connect", "bind"])
def test_unix_sockets(acts, tmp_path, monkeypatch, function, thread):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root").mkdir()
    listeners = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for directory, listener in zip(("root", "."), listeners, strict=True):
        if function == "connect":
            listener.bind(f"{directory}/s")
            listener.listen()
    policy = Policy(write=["root"], native=True, network=Network(hosts=[], unix=["root"]))
    with policy.guard()() as entered:
        assert acts.act(function, "root/s", "", thread) == 0
        assert entered.violations == []
        assert acts.act(function, "./s", "", thread) == errno.EACCES
        assert len(entered.violations) == 1
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize("function", ["getaddrinfo", "gethostbyname", "gethostbyname_r"])
def test_looks_up(acts, function, thread):
    with guard().guard()() as entered:
        acts.act(function, "example.invalid", "80", thread)
        [denial] = entered.violations
        assert denial.host == "example.invalid"
    with guard(hosts=["example.invalid"]).guard()() as entered:
        assert acts.act(function, "localhost", "80", thread) == 0
        acts.act(function, "example.invalid", "80", thread)
        assert entered.violations == []


@pytest.mark.parametrize("function", ["getnameinfo", "gethostbyaddr"])
def test_looks_up_the_name_of_an_address(acts, function, thread):
    with guard(lookup=False).guard()() as entered:
        assert acts.act(function, "192.0.2.1", "80", thread) != 0
        [denial] = entered.violations
        assert denial.event == "socket.getnameinfo"


def test_a_name_that_is_allowed_is_reached_where_it_was_looked_up_to(acts, thread):
    name = socket.gethostname()
    try:
        [address, *_] = socket.gethostbyname_ex(name)[2]
    except OSError:
        pytest.skip("this machine has no name")
    with listening("connect") as (_, port):
        with guard(hosts=[name]).guard()() as entered:
            assert acts.act("connect", address, port, thread) == errno.EACCES
            assert len(entered.violations) == 1
            assert acts.act("getaddrinfo", name, port, thread) == 0
            assert acts.act("connect", address, port, thread) == 0
            assert len(entered.violations) == 1


def test_the_number_of_connections(acts, thread):
    with listening("connect") as (_, port):
        with guard(max_connections=1).guard()() as entered:
            with socket.create_connection(("127.0.0.1", port)):
                assert acts.act("connect", "127.0.0.1", port, thread) == errno.EACCES
            assert acts.act("connect", "127.0.0.1", port, thread) == 0
            assert len(entered.violations) == 1


def test_a_closed_network(acts, thread):
    with Policy(write=[], native=True, network=False).guard()() as entered:
        assert acts.act("connect", "127.0.0.1", "9", thread) == errno.EACCES
        assert acts.act("socket", "", "", thread) == errno.EACCES
        assert len(entered.violations) == 2


def test_an_open_network(acts, thread):
    with listening("connect") as (_, port):
        with Policy(write=[], native=True, network=True).guard()() as entered:
            assert acts.act("connect", "127.0.0.1", port, thread) == 0
            assert acts.act("bind", "127.0.0.1", "0", thread) == 0
            assert entered.violations == []


def test_it_is_recorded(acts, thread):
    with listening("connect") as (_, port):
        with Policy(write=[], native=True).observe()() as seen:
            assert acts.act("connect", "127.0.0.2", port, thread) == 0
            [effect] = [effect for effect in seen.effects if effect.event == "socket.connect"]
    assert (effect.host, effect.effect) == ("127.0.0.2", "network")
    assert "socket.connect  127.0.0.2" in seen.summary()
