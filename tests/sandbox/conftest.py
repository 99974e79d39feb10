"""Sandboxes that tests share, and the proxy of sandboxes by itself."""

import contextlib
import socket
import threading

import pytest
from egress_servers import resolver
from programs import SLOWER
from raw_code import raw_in
from sandboxes import LOOSE

from fastaudit_rs import Limits, Network, Sandbox

#: The beginnings of the names of files whose tests need no kernel part, or say so themselves.
OTHERS = ("test_egress_", "test_sandbox_confine", "test_sandbox_containers", "test_sandbox_docker")
OTHERS += ("test_sandbox_hooks", "test_sandbox_log", "test_sandbox_network")


@pytest.fixture(autouse=True, scope="module")
def kernel_part(request):
    """Skip the tests of a file that need it, where it is not installed."""
    if not request.path.name.startswith(OTHERS):
        pytest.importorskip("sandlock")


@contextlib.contextmanager
def loose():
    """A sandbox where the kernel alone is to say no."""
    with Sandbox(LOOSE, Limits(wall_seconds=20 * SLOWER)) as made:
        yield made


@pytest.fixture
def sandbox():
    with loose() as made:
        yield made


@pytest.fixture(scope="module")
def shared():
    with loose() as made:
        yield made


@pytest.fixture
def session(shared):
    with shared.session() as made:
        yield made


@pytest.fixture
def raw(make_sandbox):
    """`raw(code, *args, limits, in_session, **fields)`: what came of raw code, loosely held."""

    def run(code, *args, limits=(), in_session=False, **fields):
        policy = LOOSE.replace(**{"network": False, **fields})
        sandbox = make_sandbox(policy, **{"wall_seconds": 30 * SLOWER, **dict(limits)})
        return raw_in(sandbox, code, *args, in_session=in_session)

    return run


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def proxy(monkeypatch):
    pytest.importorskip("h11")
    from fastaudit_rs.sandbox.host.egress.proxy import Proxy

    monkeypatch.setattr(socket, "getaddrinfo", resolver({"good.test": "127.0.0.1"}))
    proxy = Proxy(Network(hosts=["good.test", "*.wild.test"], block=["bad.wild.test"]))
    yield proxy
    proxy.close()


@pytest.fixture
def log():
    from fastaudit_rs.sandbox.host.egress.log import Log

    return Log()


@pytest.fixture
def connected(proxy, log):
    """`connected(port, host, address)`: a connection that the proxy carries to there."""
    from fastaudit_rs.sandbox.host.egress.log import Wanted

    with contextlib.ExitStack() as stack:

        def connect(port, host="good.test", address=None):
            made = stack.enter_context(socket.socket())
            made.settimeout(10)
            made.bind(("127.0.0.1", 0))
            entry = None if port == 53 else log.begin(host, port)
            wanted = Wanted(host, address, port, log, entry)
            assert proxy.waiting.put((socket.AF_INET, made.getsockname()[1]), wanted) == 0
            made.connect(proxy.places[socket.AF_INET])
            return made

        yield connect


@pytest.fixture
def serve():
    """`serve(act)`: the port where a function has each connection."""
    with contextlib.ExitStack() as stack:

        def make(act):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def accept():
                with contextlib.suppress(OSError):
                    while True:
                        with listener.accept()[0] as one:
                            act(one)

            threading.Thread(target=accept, daemon=True).start()
            return listener.getsockname()[1]

        yield make
