"""The limits that `docs/limits.md` states, each shown: a row that is no longer true fails."""

import asyncio
import contextvars
import ctypes
import faulthandler
import fcntl
import inspect
import locale
import mmap
import multiprocessing
import os
import platform
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import time
import tty
import uuid
import weakref
from multiprocessing import resource_tracker
from pathlib import Path

import pytest
import test_native_table
import test_native_ways
from repository import ROOT

from fastaudit_rs import AuditDenied, Policy

DOCUMENT = (ROOT / "docs/limits.md").read_text()


def open_descriptor(places):
    descriptor = os.open(places.out + "/file", os.O_CREAT | os.O_RDWR)
    yield
    os.write(descriptor, b"x")
    os.truncate(descriptor, 0)
    yield
    os.close(descriptor)


def hard_link(places):
    Path(places.out, "file").touch()
    os.link(places.out + "/file", places.ok + "/file")
    yield
    Path(places.ok, "file").write_text("changed")
    yield
    assert Path(places.out, "file").read_text() == "changed"


def process_state(places):
    os.umask(os.umask(0o022))
    signal.signal(signal.SIGUSR1, signal.signal(signal.SIGUSR1, signal.SIG_IGN))
    signal.alarm(signal.alarm(0))
    locale.setlocale(locale.LC_COLLATE, locale.setlocale(locale.LC_COLLATE, "C"))
    read, write = os.pipe()
    os.dup2(read, write)
    os.closerange(read, read + 1)
    os.close(write)
    signal.set_wakeup_fd(signal.set_wakeup_fd(-1))
    faulthandler.dump_traceback_later(60)
    faulthandler.cancel_dump_traceback_later()


def terminal(places):
    own, other = pty.openpty()
    yield
    tty.setraw(other)
    fcntl.ioctl(other, termios.TIOCSWINSZ, b"\1\0\1\0\0\0\0\0")
    yield
    assert not termios.tcgetattr(other)[3] & termios.ECHO
    os.close(own)
    os.close(other)


def child_status(places):
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    yield
    assert os.waitpid(child.pid, 0)[1] == 3 << 8
    yield
    assert child.wait() == 0


def native_files(places):
    """By a system call of its own."""
    if platform.machine() != "x86_64":
        pytest.skip("has machine code for x86-64")
    # The number and three arguments are moved to where the kernel takes them.
    code = bytes.fromhex("4889f8 4889f7 4889d6 4889ca 0f05 c3")
    memory = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    signature = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 4)
    function = signature(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    yield
    yield
    policy = Policy.preset("workspace")
    assert policy == policy.replace(native=True)
    path = ctypes.create_string_buffer(os.fsencode(places.out + "/written"))
    address, creat = ctypes.addressof(path), 85
    with policy.guard()():
        try:
            os.close(function(creat, address, 0o600, 0))
        except AuditDenied as denied:  # an event of ctypes, since 3.14
            assert denied.event == "ctypes.call_function"
            return
    assert os.listdir(places.out) == ["written"]


def semaphore(places):
    # Started by the host here: the guard denies starting that program.
    resource_tracker.ensure_running()
    yield
    with multiprocessing.Lock():
        pass
    yield


def network(places):
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


def loop_context(places):
    before = contextvars.Context()
    loop = asyncio.new_event_loop()
    yield
    loop.call_soon(os.mkdir, places.out + "/made", context=before)
    yield
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert os.listdir(places.out) == ["made"]


def system_files(places):
    uuid.uuid1()
    time.tzset()


def module_code(places):
    import importlib.machinery
    import importlib.util

    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    specs = [importlib.util.find_spec(name) for name in ("_bisect", "_csv", "_random")]
    specs = [spec for spec in specs if spec and (spec.origin or "").endswith(suffixes)]
    yield
    for spec in specs:
        importlib.util.module_from_spec(spec)


def later(places):
    class Late:
        pass

    late, last = Late(), []
    yield
    weakref.finalize(late, os.mkdir, places.out + "/late")
    last.append(type("Last", (), {"__del__": lambda own: os.mkdir(places.out + "/last")})())
    yield
    del late
    last.clear()
    assert sorted(os.listdir(places.out)) == ["last", "late"]


def through_c_code(places):
    import orjson

    yield
    assert sorted([2, 1], key=orjson.dumps) == [1, 2]
    assert contextvars.copy_context().run(orjson.dumps, 1) == b"1"


def through_operator(places):
    import numpy as np

    array = np.array([1])
    yield
    assert (array + array)[0] == 2


def socket_options(places):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        group = socket.inet_aton("224.0.0.251") + socket.inet_aton("127.0.0.1")
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        # SIOCGIFFLAGS, fcntl.ioctl(s, SIOC…), of the loopback interface.
        assert fcntl.ioctl(made, 0x8913, b"lo".ljust(40, b"\0"))


LIMITS = {
    "open-descriptor": open_descriptor,
    "hard-link": hard_link,
    "process-state": process_state,
    "terminal": terminal,
    "child-status": child_status,
    "native-files": native_files,
    "semaphore": semaphore,
    "system-files": system_files,
    "network": network,
    "loop-context": loop_context,
    "c-code": through_c_code,
    "module-code": module_code,
    "operator": through_operator,
    "socket-options": socket_options,
    "later": later,
}

OF_EVENTS = {"c-code", "operator"}


@pytest.mark.parametrize("limit", LIMITS)
def test_limit(mk_audit, places, limit):
    """Code before a first `yield` runs unguarded, as does code after a second."""
    if limit in OF_EVENTS and sys.version_info < (3, 12):
        pytest.skip("a limit of events of calls, which came with 3.12")
    audit_perms = mk_audit([places.ok])
    if not inspect.isgeneratorfunction(LIMITS[limit]):
        with audit_perms():
            LIMITS[limit](places)
        return
    steps = LIMITS[limit](places)
    next(steps)
    with audit_perms():
        next(steps, None)
    next(steps, None)


# The items of each row in the tables.
ITEMS = {row: list(ways) for row, ways in test_native_ways.TABLE["limits"].items()}
for says in test_native_table.TABLE.values():
    for name, call in says.get("limits", {}).items():
        ITEMS.setdefault(call[0], []).extend([name, call[1]])


def test_each_limit_is_documented():
    rows = re.findall(r"^\| `([^`]+)` \|", DOCUMENT, re.MULTILINE)
    assert sorted(rows) == sorted({*LIMITS, *ITEMS})


def test_each_item_of_a_row_is_run():
    """By a function here, or from a table."""
    missing = []
    for row, operation in re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", DOCUMENT, re.MULTILINE):
        source = inspect.getsource(LIMITS[row]) if row in LIMITS else ""
        run = "\n".join([source, *ITEMS.get(row, [])])
        for item in re.findall("`([^`]+)`", operation):
            name = item.partition("(")[0].rpartition(".")[2]
            if item not in run and not re.search(rf"\b{re.escape(name)}\b", run):
                missing.append((row, item))
    assert missing == []
