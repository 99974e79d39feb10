"""Things of the user and of the machine that no path names, against system calls of native code.

Each is judged by what a host finds, which first shows that the attempts work without a sandbox.
"""

import contextlib
import ctypes
import os

import promises
import pytest
from raw_code import SYSTEM_CALLS, told_outside

names = {}
exec(SYSTEM_CALLS, names)
call = names["call"]

#: Removes the message queue of its argument, and makes and uses another one.
QUEUES = """
name = sys.argv[1].encode()
theirs, own = (ctypes.create_string_buffer(name + end) for end in (b"", b"-own"))
attempt("mq_unlink", lambda: call(241, theirs))
attempt("mq_open", lambda: call(240, own, os.O_CREAT | os.O_RDWR, 0o600, 0))
for number in (242, 243, 244, 245):
    # There is no such descriptor: any other error says that the call was denied.
    attempt(number, lambda: call(number, 999, 0, 0, 0, 0) != -1 or ctypes.get_errno() == 9)
"""


@contextlib.contextmanager
def queue_of_the_host(name):
    """A message queue of the host, and what tells whether there are this one and another."""
    queues = [ctypes.create_string_buffer(each.encode()) for each in (name, name + "-own")]

    def is_there(queue, flags=os.O_RDONLY):
        found = call(240, queue, flags, 0o600, 0)
        if found != -1:
            os.close(found)
        return found != -1

    assert is_there(queues[0], os.O_CREAT | os.O_RDWR)
    yield lambda: list(map(is_there, queues))
    for each in queues:
        call(241, each)


@pytest.mark.holds("kernel", promises.WRITE)
def test_message_queues(raw):
    name = f"fastaudit-{os.getpid()}"
    with queue_of_the_host(name) as found:
        told_outside(QUEUES, name)
        assert found() == [False, True]
    with queue_of_the_host(name) as found:
        assert raw(QUEUES, name).told == []
        assert found() == [True, False]


#: Watches a directory, in each way.
WATCH = """
place = ctypes.create_string_buffer(sys.argv[1].encode())
attempt("inotify_init", lambda: call(253))
attempt("inotify_init1", lambda: call(294, 0))
watches = call(294, 0)
# Without a sandbox the process has it already.
attempt("inotify_add_watch", lambda: call(254, watches if watches > 0 else 0, place, 0xfff) != -1)
FID, NAME, DFID = 0x200, 0x800, 0x400
marks = call(300, FID | NAME | DFID, 0)
attempt("fanotify_init", lambda: marks)
attempt("fanotify_mark", lambda: call(301, marks, 1, 0x40000100, -100, place))
directory = os.open(sys.argv[1], os.O_PATH if len(sys.argv) > 2 else 0)
attempt("F_NOTIFY", lambda: call(72, directory, 1026, 0x80000004))
context = (ctypes.c_ulong * 1)()
attempt("io_setup", lambda: call(206, 1, context))
"""


@pytest.mark.slow
@pytest.mark.holds("kernel", promises.READ)
def test_nothing_is_watched(raw, tmp_path):
    assert raw(WATCH, tmp_path).told == []
    told = told_outside(WATCH, tmp_path)
    assert {"inotify_init", "inotify_add_watch", "F_NOTIFY", "io_setup"} <= {*told}


#: Changes the attributes of a file that it may read alone, and has others wait for it.
ATTRIBUTES = """
file = os.open(sys.argv[1], os.O_RDONLY)
def asked(request, data):
    return call(16, file, request, ctypes.create_string_buffer(data, len(data)))
attempt("SETFLAGS", lambda: asked(0x40086602, struct.pack("=Q", 0x40)))
attempt("SETVERSION", lambda: asked(0x40087602, struct.pack("=Q", 77)))
attempt("FSSETXATTR", lambda: asked(0x401c5820, struct.pack("=5I8x", 0x80, 0, 0, 0, 0)))
attempt("F_SETLEASE", lambda: call(72, file, 1024, 0))
# Requests that no file system knows: any error but EPERM says that they were not denied.
for request in (0x40806685, 0x50009401, 0xc0189436, 0xf502, 0x40047211):
    attempt(hex(request), lambda: asked(request, bytes(128)) != -1 or ctypes.get_errno() != 1)
told = ctypes.create_string_buffer(8)
attempt("GETFLAGS", lambda: call(16, file, 0x80086601, told) == 0 or ctypes.get_errno() != 1)
"""


def seen(path):
    """The flags and the version of a file, as the host sees them."""
    told = [ctypes.create_string_buffer(8) for _ in range(2)]
    with open(path) as file:
        for request, each in zip((0x80086601, 0x80087601), told, strict=True):
            ctypes.CDLL(None).ioctl(file.fileno(), ctypes.c_ulong(request), each)
    return [each.raw[0] for each in told]


@pytest.mark.holds("kernel", promises.WRITE)
def test_attributes_by_a_descriptor(raw, tmp_path):
    path = tmp_path / "theirs"
    path.touch()
    before = seen(path)
    assert raw(ATTRIBUTES, path).told == ["GETFLAGS"]
    assert seen(path) == before
    assert "F_SETLEASE" in told_outside(ATTRIBUTES, path)
